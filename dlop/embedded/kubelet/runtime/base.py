"""What a node asks of whatever runs its processes.

A runtime belongs to one node. It makes a sandbox for each pod, in which all processes of the pod are started: the init
containers, the containers, and the short-lived ones of probes and `exec`. Whatever was started dies with the sandbox, and
every sandbox with the runtime, also when this program is killed.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or folder of the host, under another path in the container.

    A container sees the host's other files too, except those in /tmp, which is the pod's own.
    """

    source: Path
    target: str
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A process to start."""

    argv: tuple[str, ...]
    """The program is looked up on the PATH of `environment`."""
    environment: Mapping[str, str]
    """All of it: nothing is inherited."""
    working_folder: str | None = None
    mounts: tuple[Mount, ...] = ()
    stdin: int | None = None
    """File descriptors; None is /dev/null. The caller closes its own copies."""
    stdout: int | None = None
    stderr: int | None = None
    terminal: bool = False
    """Whether stdin is a terminal that becomes the process's controlling one."""
    memory_limit_bytes: int | None = None
    """As far as the platform can enforce it."""
    inside: Process | None = None
    """A running process of the same sandbox whose files and processes this one shares, as `exec` and probes do.

    It has no mounts of its own then.
    """


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended, as a container runtime tells it."""

    code: int
    """128 + n after signal n."""
    signal: int = 0
    out_of_memory: bool = False


class LaunchError(Exception):
    """A process could not be started: the message says why, in the words of a container runtime where users know them."""

    def __init__(self, message: str, *, exit_code: int = 128) -> None:
        """127: no such program; 126: it cannot be run; 128: anything else."""
        super().__init__(message)
        self.exit_code = exit_code


class Process(Protocol):
    """A process that was started, with all its descendants."""

    @property
    def pid(self) -> int:
        """Its number on the host."""
        ...

    async def wait(self) -> Exit:
        """Wait for its end. May be called any number of times."""
        ...

    def signal(self, number: int) -> None:
        """Send a signal to it, and to its whole group where it is SIGKILL. Harmless after its end."""
        ...


class Sandbox(Protocol):
    """The place where the processes of one pod live."""

    @property
    def address(self) -> str:
        """The pod's IP address."""
        ...

    async def start(self, launch: Launch) -> Process:
        """Start a process.

        Raises:
            LaunchError: it could not be started.
        """
        ...

    def write_hosts(self, text: str) -> None:
        """What names mean in the pod, from now on, for running processes too."""
        ...

    async def connect(self, port: int, *, address: str | None = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to a port of the pod, as if from inside of it.

        Without an address the pod's localhost is tried, then its own address, so that it does not matter which of them the
        program listens on. A probe, which comes from outside, gives the pod's address.

        Raises:
            OSError: nobody listens there.
        """
        ...

    async def close(self) -> None:
        """Kill what is left and give back everything."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxRequest:
    """What is known of a pod before its processes are."""

    uid: str
    hostname: str
    folder: Path
    """The pod's own folder on the host, which exists and is empty."""
    host_network: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    """Where names cannot be resolved: what they stand for in arguments and variables."""


class Runtime(Protocol):
    """Makes sandboxes. An async context manager: leaving it kills everything."""

    @property
    def description(self) -> str:
        """One line for the user: what isolation there is, and what is missing."""
        ...

    @property
    def node_address(self) -> str:
        """The node's own address in the network of the pods. A pod on the host's network has the address 127.0.0.1 there."""
        ...

    @property
    def resolves_names(self) -> bool:
        """Whether `write_hosts` has an effect; else names are put into variables when a process is started."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...

    async def sandbox(self, request: SandboxRequest) -> Sandbox:
        """A place for a pod."""
        ...

    async def listen(self) -> socket.socket | None:
        """A socket at the node's own address on which pods can be waited for; None where they reach this machine's loopback."""
        ...
