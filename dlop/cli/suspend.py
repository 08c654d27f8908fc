"""`dlop suspend` and `dlop resume`."""

from __future__ import annotations

from collections.abc import Sequence

from dlop.cli.common import Parser, say
from dlop.cli.job_args import JobSession, jobs_parser, on_jobs


def parser() -> Parser:
    """The arguments of `dlop suspend`."""
    return _parser("suspend", "Deletes the pods of jobs and keeps the jobs; `dlop resume` starts them again.")


def main(arguments: Sequence[str]) -> int:
    """Suspend jobs."""
    options = parser().parse_args(arguments)

    async def suspend_all(place: JobSession) -> int:
        from dlop.jobs.actions import suspend

        for job in [await place.find(name) for name in options.jobs]:
            has_changed = await suspend(place.client, job)
            say(f"{job} {'suspended' if has_changed else 'is suspended already'}")
        return 0

    return on_jobs(options, suspend_all)


def resume_parser() -> Parser:
    """The arguments of `dlop resume`."""
    return _parser("resume", "Resumes suspended jobs.")


def resume(arguments: Sequence[str]) -> int:
    """Resume jobs."""
    options = resume_parser().parse_args(arguments)

    async def resume_all(place: JobSession) -> int:
        from dlop.jobs.actions import resume

        for job in [await place.find(name) for name in options.jobs]:
            has_changed = await resume(place.client, job)
            say(f"{job} {'resumed' if has_changed else 'was not suspended'}")
        return 0

    return on_jobs(options, resume_all)


def _parser(command: str, description: str) -> Parser:
    parser = jobs_parser(command, description)
    parser.add_argument("jobs", nargs="+", metavar="[KIND/]JOB", help="the jobs")
    return parser
