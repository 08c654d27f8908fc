"""`dlop submit`."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dlop.cli.common import Parser, say
from dlop.cli.errors import UsageError
from dlop.cli.job_args import JobSession, jobs_parser, on_jobs, wall_time

if TYPE_CHECKING:
    from dlop.console.plain_view import JobScreen
    from dlop.jobs.lookup import JobHandle


def parser() -> Parser:
    """What the command takes."""
    found = jobs_parser("submit", "Creates the jobs in these files, and whatever else stands there.")
    found.add_argument("files", nargs="+", metavar="FILE", help="manifests; - is the standard input")
    found.add_argument("--wait", action="store_true", help="stay until the jobs are over; the exit status is their verdict")
    found.add_argument("--logs", action="store_true", help="the same, with what the replicas write")
    found.add_output()
    return found


def main(arguments: Sequence[str]) -> int:
    """Create jobs."""
    options = parser().parse_args(arguments)

    from dlop.jobs.manifest_files import ManifestError, read_file

    try:
        documents = [document for file in options.files for document in read_file(file)]
    except ManifestError as error:
        raise UsageError(str(error)) from error

    async def submit(place: JobSession) -> int:
        from dlop.jobs.submit import submit as create

        made = await create(
            place.client,
            documents,
            place.registry,
            namespace=place.namespace,
            only_namespace=options.namespace,
            tell=lambda each: say(f"{each.title}{f' in {each.namespace}' if each.namespace else ''} created"),
        )
        jobs = [each.job for each in made if each.job is not None]
        if jobs and (options.wait or options.logs):
            return await _stay(place, jobs, options)
        if options.output == "json":
            await _print_json(place, jobs)
        return 0

    return on_jobs(options, submit)


async def _stay(place: JobSession, jobs: list[JobHandle], options: argparse.Namespace) -> int:
    from dlop.console.follow import attend
    from dlop.console.output import Screen
    from dlop.console.progress import verdict

    as_json = options.output == "json"
    try:
        async with _screen(as_json=as_json) as screen:
            views = await attend(place.client, jobs, screen, with_logs=options.logs)
    except asyncio.CancelledError:
        say("what was submitted goes on: `dlop get` shows it, `dlop delete` ends it")
        raise
    if as_json:
        Screen().json(views)
    else:
        for view in views:
            say(verdict(view, now=wall_time()))
    return 0 if all(view.has_succeeded for view in views) else 1


def _screen(*, as_json: bool) -> JobScreen:
    from dlop.console.plain_view import LineScreen, QuietScreen

    clock = asyncio.get_running_loop().time
    if as_json or not sys.stdout.isatty():
        return QuietScreen(sys.stderr) if as_json else LineScreen(sys.stdout)

    from rich.console import Console

    from dlop.console.live_view import LiveScreen

    return LiveScreen(Console(highlight=False), clock=clock)


async def _print_json(place: JobSession, jobs: list[JobHandle]) -> None:
    from dlop.console.output import Screen
    from dlop.jobs.queries import look_at_job

    Screen().json([await look_at_job(place.client, job) for job in jobs])
