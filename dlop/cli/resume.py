"""`dlop resume`."""

from __future__ import annotations

from collections.abc import Sequence

from dlop.cli.common import Parser, say
from dlop.cli.job_args import Place, jobs_parser, on_jobs


def parser() -> Parser:
    """What the command takes."""
    found = jobs_parser("resume", "Lets suspended jobs go on.")
    found.add_argument("jobs", nargs="+", metavar="[KIND/]JOB", help="the jobs")
    return found


def main(arguments: Sequence[str]) -> int:
    """Resume jobs."""
    options = parser().parse_args(arguments)

    async def resume_all(place: Place) -> int:
        from dlop.jobs.actions import resume

        for job in [await place.find(name) for name in options.jobs]:
            is_news = await resume(place.client, job)
            say(f"{job} {'resumed' if is_news else 'was not suspended'}")
        return 0

    return on_jobs(options, resume_all)
