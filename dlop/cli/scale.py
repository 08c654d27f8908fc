"""`dlop scale`."""

from __future__ import annotations

from collections.abc import Sequence

from dlop.cli.common import Parser, print_line
from dlop.cli.errors import UsageError
from dlop.cli.job_args import JobSession, job_parser, run_with_session


def parser() -> Parser:
    parser = job_parser(
        "scale",
        "Set the number of replicas of a job's roles. The job restarts if its environment has the world size.",
    )
    parser.add_argument("job", metavar="[KIND/]JOB", help="The job.")
    parser.add_argument("roles", nargs="+", metavar="ROLE=N", help="The number of replicas of a role.")
    return parser


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    replicas = _parse_replicas(options.roles)

    async def scale_job(session: JobSession) -> int:
        from dlop.jobs.actions import scale

        job = await session.find(options.job)
        has_changed = await scale(session.client, job, replicas)
        counts = ", ".join(f"{role} {count}" for role, count in replicas.items())
        print_line(f"{job} {'scaled to' if has_changed else 'already has'} {counts}")
        return 0

    return run_with_session(options, scale_job)


def _parse_replicas(words: Sequence[str]) -> dict[str, int]:
    replicas: dict[str, int] = {}
    for word in words:
        role, sign, count = word.partition("=")
        if not role or not sign or not count.isdecimal() or len(count) > 9:
            raise UsageError(f"{word!r} is not of the form ROLE=N, for example worker=3.")
        if role.lower() in (name.lower() for name in replicas):
            raise UsageError(f"the role {role} is specified twice.")
        replicas[role] = int(count)
    return replicas
