"""`dlop wait`."""

from __future__ import annotations

from collections.abc import Sequence

from dlop.cli.common import Parser, print_line
from dlop.cli.job_args import JobSession, duration, job_parser, run_with_session, wall_time

_CONDITIONS = ("succeeded", "failed", "finished", "running", "deleted")


def parser() -> Parser:
    parser = job_parser("wait", "Wait for a job. Exit with 1 on a timeout, or when the condition can no longer be met.")
    parser.add_argument("job", metavar="[KIND/]JOB", help="The job.")
    parser.add_argument("--for", dest="condition", choices=_CONDITIONS, default="succeeded", help="The condition. Default: succeeded.")
    parser.add_argument("--timeout", type=duration, metavar="DURATION", help="The maximum time, such as 90s or 1h30m. Default: no limit.")
    parser.add_output()
    return parser


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)

    async def wait(session: JobSession) -> int:
        from dlop.console.output import Output
        from dlop.console.progress import format_result
        from dlop.jobs.view import build_view
        from dlop.jobs.wait import WaitCondition, wait_for_job

        job = await session.find(options.job)
        reached = await wait_for_job(session.client, job, WaitCondition(options.condition), timeout_seconds=options.timeout)
        view = build_view(reached, ())
        if options.output == "json":
            Output().json(view)
        elif options.condition == "deleted":
            print_line(f"{job} deleted")
        else:
            print_line(format_result(view, now=wall_time()) if view.is_finished else f"{job} is {view.phase}")
        return 0

    return run_with_session(options, wait)
