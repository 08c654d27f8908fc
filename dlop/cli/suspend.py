"""`dlop suspend` and `dlop resume`."""

from __future__ import annotations

from collections.abc import Sequence

from dlop.cli.common import Parser, print_line
from dlop.cli.job_args import JobSession, job_parser, run_with_session


def parser() -> Parser:
    return _parser("suspend", "Suspend jobs. Their pods are deleted, and the jobs are kept. `dlop resume` starts them again.")


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)

    async def suspend_all(session: JobSession) -> int:
        from dlop.jobs.actions import suspend

        for job in [await session.find(name) for name in options.jobs]:
            has_changed = await suspend(session.client, job)
            print_line(f"{job} {'suspended' if has_changed else 'is already suspended'}")
        return 0

    return run_with_session(options, suspend_all)


def resume_parser() -> Parser:
    return _parser("resume", "Resume suspended jobs.")


def resume_main(arguments: Sequence[str]) -> int:
    options = resume_parser().parse_args(arguments)

    async def resume_all(session: JobSession) -> int:
        from dlop.jobs.actions import resume

        for job in [await session.find(name) for name in options.jobs]:
            has_changed = await resume(session.client, job)
            print_line(f"{job} {'resumed' if has_changed else 'is not suspended'}")
        return 0

    return run_with_session(options, resume_all)


def _parser(command: str, description: str) -> Parser:
    parser = job_parser(command, description)
    parser.add_argument("jobs", nargs="+", metavar="[KIND/]JOB", help="The jobs.")
    return parser
