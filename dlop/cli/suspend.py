"""`dlop suspend`."""

from __future__ import annotations

from collections.abc import Sequence

from dlop.cli.common import Parser, say
from dlop.cli.job_args import Place, jobs_parser, on_jobs


def parser() -> Parser:
    """What the command takes."""
    found = jobs_parser("suspend", "Ends the pods of jobs and keeps the jobs; `dlop resume` starts them again.")
    found.add_argument("jobs", nargs="+", metavar="[KIND/]JOB", help="the jobs")
    return found


def main(arguments: Sequence[str]) -> int:
    """Suspend jobs."""
    options = parser().parse_args(arguments)

    async def suspend_all(place: Place) -> int:
        from dlop.jobs.actions import suspend

        for job in [await place.find(name) for name in options.jobs]:
            is_news = await suspend(place.client, job)
            say(f"{job} {'suspended' if is_news else 'is suspended already'}")
        return 0

    return on_jobs(options, suspend_all)
