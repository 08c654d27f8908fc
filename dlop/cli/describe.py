"""`dlop describe`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from dlop.cli.common import Parser
from dlop.cli.job_args import CRON_PREFIX, JobSession, job_parser, line_count, run_with_session, wall_time

if TYPE_CHECKING:
    from dlop.jobs.crons import CronHandle
    from dlop.jobs.log_lines import LogLine
    from dlop.jobs.lookup import JobHandle
    from dlop.jobs.view import JobView


def parser() -> Parser:
    parser = job_parser(
        "describe", "Show details of a job or a Cron: status, pending reasons, last failure, replicas and history.", words=(CRON_PREFIX,)
    )
    parser.add_argument("job", metavar="[KIND/]JOB", help="The job, or cron/NAME.")
    parser.add_argument("--tail", type=line_count, default=10, metavar="N", help="Lines of the failed replica's log to show. Default: 10.")
    parser.add_output()
    return parser


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)

    async def describe(session: JobSession) -> int:
        from dlop.console.describe_page import render_page
        from dlop.console.output import Output
        from dlop.jobs.crons import CronHandle, get_job_cron_view
        from dlop.jobs.queries import get_job_view
        from dlop.jobs.tensorboard import get_tensorboard_view

        job = await session.find_job_or_cron(options.job)
        if isinstance(job, CronHandle):
            _show_cron(job, as_json=options.output == "json")
            return 0
        now = wall_time()
        view, cron, tensorboard = await asyncio.gather(
            get_job_view(session.client, job),
            get_job_cron_view(session.client, job, now=now),
            get_tensorboard_view(session.client, job, now=now),
        )
        tail = await _log_tail(session, job, view, lines=options.tail)
        if options.output == "json":
            Output().json({"job": view, "cron": cron, "tensorBoard": tensorboard, "logTail": tail})
        else:
            Output().lines(render_page(view, cron=cron, tensorboard=tensorboard, log_tail=tail, now=wall_time()))
        return 0

    return run_with_session(options, describe)


def _show_cron(cron: CronHandle, *, as_json: bool) -> None:
    from dlop.console.crons import render_cron_page
    from dlop.console.output import Output
    from dlop.jobs.crons import build_cron_view

    view = build_cron_view(cron, now=wall_time())
    if as_json:
        Output().json({"cron": view})
    else:
        Output().lines(render_cron_page(view, now=wall_time()))


async def _log_tail(session: JobSession, job: JobHandle, view: JobView, *, lines: int) -> list[LogLine]:
    """The end of the failed replica's log, if the cluster still has it."""
    from dlop.jobs.logs import LogSelector, make_note, read_run
    from dlop.kube.errors import ForbiddenError

    replica, failure = view.failed_replica, view.last_failure
    if replica is None or failure is None or not replica.pod_uid or replica.exit_code is None or lines <= 0:
        return []
    # If the container runs again or has succeeded since, the failure was in the previous run.
    runs_again = replica.state == "Running" and not replica.reason.endswith("BackOff")
    has_succeeded = replica.exit_code == 0 and failure.exit_code != 0
    selector = LogSelector(tail_lines=lines)
    reading = read_run(session.client, job, replica, replica.container, run=0, selector=selector, previous=runs_again or has_succeeded)
    try:
        async with aclosing(reading):
            return [line async for line in reading]
    except ForbiddenError as error:
        return [make_note(replica, f"you are not allowed to read the log: {error}")]
