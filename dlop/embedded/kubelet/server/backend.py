"""What the kubelet's API asks of the node behind it: find a container, run something in it, reach a port of a pod."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dlop.embedded.kubelet.logs import ContainerLog
from dlop.embedded.kubelet.runtime.base import Process


@dataclass(frozen=True, slots=True)
class ContainerName:
    """Which container is meant."""

    namespace: str
    pod: str
    container: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program to run in a container that is there already."""

    argv: Sequence[str]
    stdin: int | None = None
    """File descriptors; None is /dev/null. They stay the caller's, who closes them when the process has started."""
    stdout: int | None = None
    stderr: int | None = None
    terminal: bool = False
    """Whether stdin is a terminal that becomes the process's controlling one."""


class NoSuchPodError(LookupError):
    """The node has no such pod."""


class NoSuchContainerError(LookupError):
    """The pod has no such container."""


class NotAvailableError(Exception):
    """It is there, but cannot give now what is asked; the message is for the user (see `log_source`)."""


class PodsOfNode(Protocol):
    """The pods that run on a node."""

    def log(self, name: ContainerName, *, previous: bool) -> ContainerLog:
        """The log of a container's present run, or of the run before.

        Raises:
            NoSuchPodError, NoSuchContainerError: there is none.
            NotAvailableError: it has not started yet, or not twice.
        """
        ...

    async def execute(self, name: ContainerName, command: Command) -> Process:
        """Run a program next to a container's own, with its environment, mounts and working folder.

        Raises:
            NoSuchPodError, NoSuchContainerError: there is none.
            NotAvailableError: it does not run.
            LaunchError: the program could not be started.
        """
        ...

    async def connect(self, namespace: str, pod: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to a port of a pod, as if from inside of it.

        Raises:
            NoSuchPodError: there is none.
            OSError: nobody listens there.
        """
        ...

    def check(self, namespace: str, pod: str, container: str | None) -> None:
        """Whether a pod and, unless None, its container run here now.

        Raises:
            NoSuchPodError, NoSuchContainerError, NotAvailableError: as above.
        """
        ...
