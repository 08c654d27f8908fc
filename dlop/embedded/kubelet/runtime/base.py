"""The interface between the kubelet and a runtime, which runs the processes of pods.

A runtime belongs to one node. It creates a sandbox for each pod, in which all processes of the pod are started: init containers,
containers, and the short-lived processes of probes and `exec`. Processes are killed with their sandbox, and sandboxes with the
runtime, also when this program is killed.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or directory of the host, mounted at a path in the container."""

    source: Path
    target: str
    read_only: bool = False

    @classmethod
    def at_same_path(cls, path: Path, *, read_only: bool = False) -> Self:
        return cls(path, str(path), read_only=read_only)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """A process to start."""

    argv: tuple[str, ...]
    """The program is looked up on the PATH of `environment`."""
    environment: Mapping[str, str]
    """The complete environment; nothing is inherited."""
    working_dir: str | None = None
    mounts: tuple[Mount, ...] = ()
    stdin: int | None = None
    """File descriptors; None is /dev/null. The caller closes its own copies."""
    stdout: int | None = None
    stderr: int | None = None
    terminal: bool = False
    """Whether stdin is a terminal that becomes the controlling terminal of the process."""
    memory_limit_bytes: int | None = None
    """Enforced if the platform allows it."""
    join: Process | None = None
    """A running process of the same sandbox whose mount and PID namespaces this one joins, as `exec` and probes do.

    `mounts` is ignored then.
    """


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """The exit of a process, as container runtimes report it."""

    code: int
    """128 + n after signal n."""
    signal: int = 0
    out_of_memory: bool = False


class LaunchError(Exception):
    """A process could not be started. The message matches that of a container runtime where users know it."""

    def __init__(self, message: str, *, exit_code: int = 128) -> None:
        """`exit_code` is 127 if the program does not exist, 126 if it is not executable, and 128 for other errors."""
        super().__init__(message)
        self.exit_code = exit_code


class Process(Protocol):
    """A started process with all its descendants."""

    @property
    def pid(self) -> int:
        """The PID on the host."""
        ...

    async def wait(self) -> ExitStatus:
        """Wait for the exit. May be called any number of times."""
        ...

    def signal(self, number: int) -> None:
        """Send a signal to the process. SIGKILL goes to its whole process group. No effect after the exit."""
        ...


class Sandbox(Protocol):
    """The environment in which the processes of one pod run."""

    @property
    def address(self) -> str:
        """The pod's IP address."""
        ...

    async def start(self, launch: LaunchRequest) -> Process:
        """Start a process.

        Raises:
            LaunchError: it could not be started.
        """
        ...

    def write_hosts(self, text: str) -> None:
        """Replace the content of the pod's /etc/hosts. Running processes see the change."""
        ...

    async def connect(self, port: int, *, address: str | None = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a port of the pod from inside its network.

        Without an address, the pod's localhost is tried first and then its own address. Probes pass the pod's address, because
        they must reach what is reachable from outside.

        Raises:
            OSError: the connection failed.
        """
        ...

    async def close(self) -> None:
        """Kill the remaining processes and release all resources."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxRequest:
    """The properties of a pod that its sandbox needs."""

    uid: str
    hostname: str
    directory: Path
    """The pod's own directory on the host, which exists and is empty."""
    host_network: bool = False
    host_addresses: Mapping[str, str] = field(default_factory=dict)
    """Addresses by host name, for runtimes without a hosts file. They replace the names in arguments and variables."""


class Runtime(Protocol):
    """Creates sandboxes. An async context manager; leaving it kills everything."""

    @property
    def description(self) -> str:
        """One line for the user about the isolation of pods."""
        ...

    @property
    def node_address(self) -> str:
        """The address at which pods reach the node. A pod on the host's network has the address 127.0.0.1."""
        ...

    @property
    def has_hosts_file(self) -> bool:
        """Whether `write_hosts` has an effect. Otherwise names are replaced by addresses when a process starts."""
        ...

    def protect(self, node_dir: Path, *, secret_dirs: Sequence[Path]) -> None:
        """Hide the files of the node and secret directories from pods, whatever they mount, if the runtime can. Call before entering.

        The kubelet may still mount files of `node_dir`.
        """
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...

    async def create_sandbox(self, request: SandboxRequest) -> Sandbox:
        """Create the sandbox of a pod.

        Raises:
            LaunchError, OSError: it could not be created.
        """
        ...

    async def listen(self) -> socket.socket | None:
        """A listening socket at the node's address, for connections from pods. None if pods reach the host's loopback."""
        ...
