"""What the commands share that are about jobs on a cluster."""

from __future__ import annotations

import argparse
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from dlop.cli.common import Parser, load_kinds, on_cluster
from dlop.cli.errors import CommandError, UsageError

if TYPE_CHECKING:
    from dlop.frameworks.registry import Registry
    from dlop.jobs.lookup import JobHandle
    from dlop.kube.client import Client
    from dlop.kube.http.transport import HttpTransport


@dataclass(frozen=True, slots=True)
class JobSession:
    """A cluster, the kinds that are meant, and the namespace."""

    client: Client
    registry: Registry
    namespace: str

    async def find(self, name: str) -> JobHandle:
        """The job that a user names."""
        from dlop.jobs.lookup import find_job, read_job_reference

        return await find_job(self.client, read_job_reference(name, self.registry), namespace=self.namespace)


def jobs_parser(name: str, description: str, *, everywhere: bool = False) -> Parser:
    """The options that all of these commands have."""
    found = Parser(name, description)
    found.add_frameworks()
    found.add_cluster()
    found.add_namespace(everywhere=everywhere)
    return found


def on_jobs(options: argparse.Namespace, deed: Callable[[JobSession], Awaitable[int]]) -> int:
    """Do something with jobs of the cluster that the options name; returns the exit code.

    Raises:
        CommandError: it did not work.
    """
    registry = load_kinds(options)

    from dlop.jobs.errors import JobsError, SubmitError

    async def do(client: Client) -> int:
        namespace = options.namespace or cast("HttpTransport", client.transport).connection.namespace
        return await deed(JobSession(client, registry, namespace))

    try:
        return on_cluster(options, do)
    except SubmitError as error:
        raise UsageError(str(error)) from error
    except JobsError as error:
        raise CommandError(str(error)) from error


def seconds(text: str) -> float:
    """A length of time, for argparse."""
    from dlop.console.duration import read_seconds

    try:
        return read_seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def wall_time() -> float:
    """Now, in seconds since the epoch."""
    return time.time()
