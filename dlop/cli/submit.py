"""`dlop submit`."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dlop.cli.common import Parser, print_line
from dlop.cli.errors import UsageError
from dlop.cli.job_args import JobSession, job_parser, run_with_session, wall_time

if TYPE_CHECKING:
    from dlop.console.plain_view import ProgressView
    from dlop.jobs.lookup import JobHandle


def parser() -> Parser:
    parser = job_parser("submit", "Create the jobs and other objects of these files.")
    parser.add_argument("files", nargs="+", metavar="FILE", help="Manifests; - is standard input.")
    parser.add_argument("--wait", action="store_true", help="Wait until the jobs have finished. Exit with 1 if a job failed.")
    parser.add_argument("--logs", action="store_true", help="Print the logs of the replicas. Implies --wait.")
    parser.add_output()
    return parser


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)

    from dlop.jobs.manifest_files import ManifestError, read_documents

    try:
        documents = [document for file in options.files for document in read_documents(file)]
    except ManifestError as error:
        raise UsageError(str(error)) from error

    async def submit(session: JobSession) -> int:
        from dlop.jobs.submit import submit as create

        created = await create(
            session.client,
            documents,
            session.registry,
            namespace=session.namespace,
            only_namespace=options.namespace,
            on_created=lambda item: print_line(f"{item.title}{f' in {item.namespace}' if item.namespace else ''} created"),
        )
        jobs = [item.job for item in created if item.job is not None]
        if jobs and (options.wait or options.logs):
            return await _follow(session, jobs, options)
        if options.output == "json":
            await _print_json(session, jobs)
        return 0

    return run_with_session(options, submit)


async def _follow(session: JobSession, jobs: list[JobHandle], options: argparse.Namespace) -> int:
    from dlop.console.follow import follow_jobs
    from dlop.console.output import Output
    from dlop.console.progress import format_result

    as_json = options.output == "json"
    try:
        async with _progress_view(as_json=as_json) as progress:
            views = await follow_jobs(session.client, jobs, progress, with_logs=options.logs)
    except asyncio.CancelledError:
        print_line("the submitted jobs keep running: `dlop get` shows them, `dlop delete` deletes them")
        raise
    if as_json:
        Output().json(views)
    else:
        for view in views:
            print_line(format_result(view, now=wall_time()))
    return 0 if all(view.has_succeeded for view in views) else 1


def _progress_view(*, as_json: bool) -> ProgressView:
    from dlop.console.plain_view import PlainView, QuietView

    clock = asyncio.get_running_loop().time
    if as_json or not sys.stdout.isatty():
        return QuietView(sys.stderr) if as_json else PlainView(sys.stdout)

    from rich.console import Console

    from dlop.console.live_view import LiveView

    return LiveView(Console(highlight=False), clock=clock)


async def _print_json(session: JobSession, jobs: list[JobHandle]) -> None:
    from dlop.console.output import Output
    from dlop.jobs.queries import get_job_view

    Output().json([await get_job_view(session.client, job) for job in jobs])
