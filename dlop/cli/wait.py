"""`dlop wait`."""

from __future__ import annotations

from collections.abc import Sequence

from dlop.cli.common import Parser, say
from dlop.cli.job_args import JobSession, jobs_parser, on_jobs, seconds, wall_time

_GOALS = ("succeeded", "failed", "finished", "running", "deleted")


def parser() -> Parser:
    """What the command takes."""
    found = jobs_parser("wait", "Waits for a job. It ends with 1 as soon as that cannot happen any more, or when the time is up.")
    found.add_argument("job", metavar="[KIND/]JOB", help="the job")
    found.add_argument("--for", dest="goal", choices=_GOALS, default="succeeded", help="what to wait for; default: succeeded")
    found.add_argument("--timeout", type=seconds, metavar="TIME", help="how long: 90s, 5m, 1h30m; default: for ever")
    found.add_output()
    return found


def main(arguments: Sequence[str]) -> int:
    """Wait for a job."""
    options = parser().parse_args(arguments)

    async def wait(place: JobSession) -> int:
        from dlop.console.output import Screen
        from dlop.console.progress import verdict
        from dlop.jobs.view import view_of
        from dlop.jobs.wait import Goal, wait_for

        found = await place.find(options.job)
        reached = await wait_for(place.client, found, Goal(options.goal), timeout_seconds=options.timeout)
        view = view_of(reached, ())
        if options.output == "json":
            Screen().json(view)
        elif options.goal == "deleted":
            say(f"{found} is gone")
        else:
            say(verdict(view, now=wall_time()) if view.is_over else f"{found} is {view.phase}")
        return 0

    return on_jobs(options, wait)
