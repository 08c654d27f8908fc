"""Shared by the commands for jobs on a cluster."""

from __future__ import annotations

import argparse
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from dlop.cli.common import Parser, load_kinds, run_with_client
from dlop.cli.errors import CommandError, UsageError

if TYPE_CHECKING:
    from dlop.frameworks.registry import Registry
    from dlop.jobs.crons import CronHandle
    from dlop.jobs.lookup import JobHandle
    from dlop.kube.client import Client
    from dlop.kube.http.transport import HttpTransport


CRON_PREFIX = "cron/"
"""Completed by commands that take `cron/NAME`."""


@dataclass(frozen=True, slots=True)
class JobSession:
    """The client, the selected kinds and the namespace."""

    client: Client
    registry: Registry
    namespace: str

    async def find(self, name: str) -> JobHandle:
        """Find a job by `JOB` or `KIND/JOB`."""
        from dlop.jobs.crons import CronHandle

        job = await self.find_job_or_cron(name)
        if isinstance(job, CronHandle):
            raise CommandError(f"{name} is a Cron and not a job; `dlop describe {CRON_PREFIX}{job.name}` lists its jobs.")
        return job

    async def find_job_or_cron(self, name: str) -> JobHandle | CronHandle:
        """Find a job by `JOB` or `KIND/JOB`, or a Cron by `cron/NAME`. A Cron is also found by its name if no job has this name."""
        from dlop.jobs.crons import find_visible_cron, get_cron, parse_cron_reference
        from dlop.jobs.errors import JobNotFoundError
        from dlop.jobs.lookup import find_job, parse_job_reference

        cron_name = parse_cron_reference(name) if "/" in name else None
        if cron_name is not None:
            return await get_cron(self.client, cron_name, namespace=self.namespace)
        try:
            return await find_job(self.client, parse_job_reference(name, self.registry), namespace=self.namespace)
        except JobNotFoundError:
            if "/" in name:
                raise
            cron = await find_visible_cron(self.client, name, namespace=self.namespace)
            if cron is not None:
                return cron
            parse_cron_reference(f"{name}/")  # raises an error about `crons` without a name
            raise


def job_parser(name: str, description: str, *, all_namespaces: bool = False, words: Sequence[str] = ()) -> Parser:
    """`words` are those of `Parser`."""
    parser = Parser(name, description, words=words)
    parser.add_frameworks()
    parser.add_cluster()
    parser.add_namespace(all_namespaces=all_namespaces)
    return parser


def run_with_session(options: argparse.Namespace, action: Callable[[JobSession], Awaitable[int]]) -> int:
    """Run an action on the selected cluster and return the exit code.

    Raises:
        CommandError: the action failed.
    """
    registry = load_kinds(options)

    from dlop.jobs.errors import InvalidManifestError, JobsError

    async def run(client: Client) -> int:
        namespace = options.namespace or cast("HttpTransport", client.transport).config.namespace
        return await action(JobSession(client, registry, namespace))

    try:
        return run_with_client(options, run)
    except InvalidManifestError as error:
        raise UsageError(str(error)) from error
    except JobsError as error:
        raise CommandError(str(error)) from error


def duration(text: str) -> float:
    """A duration in seconds, for argparse."""
    from dlop.console.duration import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def line_count(text: str) -> int:
    """A number of lines, for argparse."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of lines")
    return int(text)


def wall_time() -> float:
    """The current time in seconds since the epoch."""
    return time.time()
