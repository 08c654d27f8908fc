"""The interface between the kubelet's server and the pods of the node."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dlop.embedded.kubelet.logs import ContainerLog
from dlop.embedded.kubelet.runtime.base import Process


@dataclass(frozen=True, slots=True)
class ContainerRef:
    namespace: str
    pod: str
    container: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecCommand:
    """A program to run in a running container."""

    argv: Sequence[str]
    stdin: int | None = None
    """File descriptors; None is /dev/null. The caller closes them when the process has started."""
    stdout: int | None = None
    stderr: int | None = None
    terminal: bool = False
    """Whether stdin is a terminal that becomes the controlling terminal of the process."""


class PodNotFoundError(LookupError):
    pass


class ContainerNotFoundError(LookupError):
    pass


class ContainerUnavailableError(Exception):
    """The container exists, but does not run or has no such log. The message is for the user (see `log_source`)."""


class PodBackend(Protocol):
    """The pods of a node. All methods raise PodNotFoundError and ContainerNotFoundError."""

    def log(self, container: ContainerRef, *, previous: bool) -> ContainerLog:
        """The log of the current or the previous run of a container.

        Raises:
            ContainerUnavailableError: there was no such run.
        """
        ...

    async def execute(self, container: ContainerRef, command: ExecCommand) -> Process:
        """Run a program in a container, with its environment, mounts and working directory.

        Raises:
            ContainerUnavailableError: the container does not run.
            LaunchError: the program could not be started.
        """
        ...

    async def connect(self, namespace: str, pod: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a port of a pod from inside its network.

        Raises:
            OSError: the connection failed.
        """
        ...

    def check_running(self, namespace: str, pod: str, container: str | None) -> None:
        """Check that a pod and, unless None, its container run.

        Raises:
            ContainerUnavailableError: one of them does not run.
        """
        ...
