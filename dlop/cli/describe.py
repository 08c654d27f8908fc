"""`dlop describe`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from dlop.cli.common import Parser
from dlop.cli.job_args import JobSession, jobs_parser, on_jobs, wall_time

if TYPE_CHECKING:
    from dlop.jobs.log_lines import LogLine
    from dlop.jobs.lookup import JobHandle
    from dlop.jobs.view import JobView


def parser() -> Parser:
    """What the command takes."""
    found = jobs_parser("describe", "Tells what a job is, what happened in order, what it waits for and why, and how it failed last.")
    found.add_argument("job", metavar="[KIND/]JOB", help="the job")
    found.add_argument("--tail", type=int, default=10, metavar="N", help="how many lines of the failed replica's log; default: 10")
    found.add_output()
    return found


def main(arguments: Sequence[str]) -> int:
    """Tell all about a job."""
    options = parser().parse_args(arguments)

    async def describe(place: JobSession) -> int:
        from dlop.console.describe_page import page
        from dlop.console.output import Screen
        from dlop.jobs.queries import look_at_job

        found = await place.find(options.job)
        view = await look_at_job(place.client, found)
        tail = await _log_tail(place, found, view, lines=options.tail)
        if options.output == "json":
            Screen().json({"job": view, "logTail": tail})
        else:
            Screen().lines(page(view, log_tail=tail, now=wall_time()))
        return 0

    return on_jobs(options, describe)


async def _log_tail(place: JobSession, found: JobHandle, view: JobView, *, lines: int) -> list[LogLine]:
    """The end of what the failed replica has written, as far as the cluster still has it."""
    from dlop.jobs.logs import LogChoice, note, of_run
    from dlop.kube.errors import ForbiddenError

    replica, failure = view.failed_replica, view.last_failure
    if replica is None or failure is None or not replica.pod_uid or replica.exit_code is None or lines <= 0:
        return []
    # A container that runs again, or has done well since, failed in the run before.
    runs_again = replica.state == "Running" and not replica.reason.endswith("BackOff")
    did_well = replica.exit_code == 0 and failure.exit_code != 0
    choice = LogChoice(tail_lines=lines)
    reading = of_run(place.client, found, replica, replica.container, run=0, choice=choice, previous=runs_again or did_well)
    try:
        async with aclosing(reading):
            return [line async for line in reading]
    except ForbiddenError as error:
        return [note(replica, f"you may not read its log: {error}")]
