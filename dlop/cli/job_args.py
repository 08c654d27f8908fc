"""Shared by the commands for jobs on a cluster."""

from __future__ import annotations

import argparse
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from dlop.cli.common import Parser, load_kinds, run_with_client
from dlop.cli.errors import CommandError, UsageError

if TYPE_CHECKING:
    from dlop.frameworks.registry import Registry
    from dlop.jobs.lookup import JobHandle
    from dlop.kube.client import Client
    from dlop.kube.http.transport import HttpTransport


@dataclass(frozen=True, slots=True)
class JobSession:
    """The client, the selected kinds and the namespace."""

    client: Client
    registry: Registry
    namespace: str

    async def find(self, name: str) -> JobHandle:
        """Find a job by `JOB` or `KIND/JOB`."""
        from dlop.jobs.lookup import find_job, parse_job_reference

        return await find_job(self.client, parse_job_reference(name, self.registry), namespace=self.namespace)


def job_parser(name: str, description: str, *, all_namespaces: bool = False) -> Parser:
    parser = Parser(name, description)
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


def wall_time() -> float:
    """The current time in seconds since the epoch."""
    return time.time()
