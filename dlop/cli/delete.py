"""`dlop delete`."""

from __future__ import annotations

from collections.abc import Sequence

from dlop.cli.common import Parser, print_line
from dlop.cli.job_args import CRON_PREFIX, JobSession, duration, job_parser, run_with_session


def parser() -> Parser:
    parser = job_parser("delete", "Delete jobs with their pods and services, and Crons with their jobs.", words=(CRON_PREFIX,))
    parser.add_argument("jobs", nargs="+", metavar="[KIND/]JOB", help="The jobs to delete, or cron/NAME for a Cron.")
    parser.add_argument("--wait", action="store_true", help="Wait until the jobs are deleted. Crons are not waited for.")
    parser.add_argument(
        "--timeout", type=duration, metavar="DURATION", help="The maximum time to wait, such as 90s or 5m. Default: no limit."
    )
    return parser


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)

    async def delete_all(session: JobSession) -> int:
        from dlop.jobs.actions import delete
        from dlop.jobs.crons import CronHandle, delete_cron
        from dlop.jobs.wait import WaitCondition, wait_for_job

        # Look up all names first, so that a typo is found before the first job is deleted.
        jobs = [await session.find_job_or_cron(name) for name in options.jobs]
        for job in jobs:
            if isinstance(job, CronHandle):
                await delete_cron(session.client, job)
                print_line(f"{job} deleted")
                continue
            await delete(session.client, job)
            if options.wait:
                await wait_for_job(session.client, job, WaitCondition.DELETED, timeout_seconds=options.timeout)
            print_line(f"{job} deleted")
        return 0

    return run_with_session(options, delete_all)
