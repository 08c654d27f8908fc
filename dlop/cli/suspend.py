"""`dlop suspend` and `dlop resume`."""

from __future__ import annotations

from collections.abc import Sequence

from dlop.cli.common import Parser, print_line
from dlop.cli.job_args import CRON_PREFIX, JobSession, job_parser, run_with_session


def parser() -> Parser:
    return _parser("suspend", "Suspend jobs. Their pods are deleted, and the jobs are kept. `dlop resume` starts them again.")


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    return run_with_session(options, lambda session: _set_suspended(session, options.jobs, suspend=True))


def resume_parser() -> Parser:
    return _parser("resume", "Resume suspended jobs.")


def resume_main(arguments: Sequence[str]) -> int:
    options = resume_parser().parse_args(arguments)
    return run_with_session(options, lambda session: _set_suspended(session, options.jobs, suspend=False))


async def _set_suspended(session: JobSession, names: Sequence[str], *, suspend: bool) -> int:
    from dlop.jobs import actions
    from dlop.jobs.crons import CronHandle, set_cron_suspended

    done, not_needed = ("suspended", "is already suspended") if suspend else ("resumed", "is not suspended")
    for job in [await session.find_job_or_cron(name) for name in names]:
        if isinstance(job, CronHandle):
            has_changed = await set_cron_suspended(session.client, job, suspend=suspend)
        else:
            has_changed = await (actions.suspend if suspend else actions.resume)(session.client, job)
        print_line(f"{job} {done if has_changed else not_needed}")
    return 0


def _parser(command: str, description: str) -> Parser:
    parser = job_parser(command, description, words=(CRON_PREFIX,))
    parser.add_argument("jobs", nargs="+", metavar="[KIND/]JOB", help="The jobs, or cron/NAME for a Cron.")
    return parser
