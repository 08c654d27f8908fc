"""`dlop delete`."""

from __future__ import annotations

from collections.abc import Sequence

from dlop.cli.common import Parser, say
from dlop.cli.job_args import JobSession, jobs_parser, on_jobs, seconds


def parser() -> Parser:
    """What the command takes."""
    found = jobs_parser("delete", "Deletes jobs, with their pods and services.")
    found.add_argument("jobs", nargs="+", metavar="[KIND/]JOB", help="the jobs")
    found.add_argument("--wait", action="store_true", help="stay until they are gone")
    found.add_argument("--timeout", type=seconds, metavar="TIME", help="how long to stay: 90s, 5m; default: for ever")
    return found


def main(arguments: Sequence[str]) -> int:
    """Delete jobs."""
    options = parser().parse_args(arguments)

    async def delete_all(place: JobSession) -> int:
        from dlop.jobs.actions import delete
        from dlop.jobs.wait import Goal, wait_for

        # All names are looked up first: a slip in the second must not be found when the first is gone.
        found = [await place.find(name) for name in options.jobs]
        for job in found:
            await delete(place.client, job)
            if options.wait:
                await wait_for(place.client, job, Goal.DELETED, timeout_seconds=options.timeout)
            say(f"{job} deleted")
        return 0

    return on_jobs(options, delete_all)
