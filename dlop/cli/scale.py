"""`dlop scale`."""

from __future__ import annotations

from collections.abc import Sequence

from dlop.cli.common import Parser, say
from dlop.cli.errors import UsageError
from dlop.cli.job_args import JobSession, jobs_parser, on_jobs


def parser() -> Parser:
    """What the command takes."""
    found = jobs_parser(
        "scale", "Gives roles of a job other numbers of replicas. Where each replica is told how many there are, all of them start again."
    )
    found.add_argument("job", metavar="[KIND/]JOB", help="the job")
    found.add_argument("roles", nargs="+", metavar="ROLE=N", help="how many replicas a role is to have")
    return found


def main(arguments: Sequence[str]) -> int:
    """Scale a job."""
    options = parser().parse_args(arguments)
    wanted = _wanted(options.roles)

    async def scale_it(place: JobSession) -> int:
        from dlop.jobs.actions import scale

        job = await place.find(options.job)
        is_news = await scale(place.client, job, wanted)
        said = ", ".join(f"{role} {count}" for role, count in wanted.items())
        say(f"{job} {'scaled to' if is_news else 'has'} {said}{'' if is_news else ' already'}")
        return 0

    return on_jobs(options, scale_it)


def _wanted(words: Sequence[str]) -> dict[str, int]:
    wanted: dict[str, int] = {}
    for word in words:
        role, sign, count = word.partition("=")
        if not role or not sign or not count.isdecimal() or len(count) > 9:
            raise UsageError(f"{word!r} does not say how many replicas a role is to have. Write it as ROLE=N, for example worker=3.")
        if role.lower() in (each.lower() for each in wanted):
            raise UsageError(f"{role} is named twice; keep one of the two.")
        wanted[role] = int(count)
    return wanted
