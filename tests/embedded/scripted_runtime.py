"""A runtime whose processes only wait, for tests in virtual time.

`["for", "90", "exit", "3"]` runs for 90 seconds and exits with 3. SIGTERM terminates it immediately with 143, unless its first word is
`ignore-term`: `["ignore-term", "for", "90", "exit", "3"]`. SIGKILL always terminates it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from dlop.embedded.kubelet.runtime.base import ExitStatus, LaunchRequest, SandboxRequest


class ScriptedProcess:
    def __init__(self, argv: tuple[str, ...], pid: int) -> None:
        self.pid = pid
        self.started_at = asyncio.get_running_loop().time()
        self.ended_at: float | None = None
        self._ignores_sigterm = argv[0] == "ignore-term"
        seconds, _, code = argv[-3:]
        self._exit: asyncio.Future[ExitStatus] = asyncio.get_running_loop().create_future()
        self._timer = asyncio.get_running_loop().call_later(float(seconds), self._terminate, ExitStatus(int(code)))

    async def wait(self) -> ExitStatus:
        return await asyncio.shield(self._exit)

    def signal(self, number: int) -> None:
        if number == 9 or not self._ignores_sigterm:
            self._terminate(ExitStatus(128 + number, signal=number))

    def _terminate(self, status: ExitStatus) -> None:
        if not self._exit.done():
            self._timer.cancel()
            self.ended_at = asyncio.get_running_loop().time()
            self._exit.set_result(status)


@dataclass
class ScriptedSandbox:
    runtime: ScriptedRuntime
    address: str

    async def start(self, launch: LaunchRequest) -> ScriptedProcess:
        process = ScriptedProcess(launch.argv, next(self.runtime.pids))
        (self.runtime.probes if launch.join else self.runtime.processes).append(process)
        return process

    def write_hosts(self, text: str) -> None:
        """No effect."""

    async def connect(self, port: int, *, address: str | None = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        raise ConnectionRefusedError

    async def close(self) -> None:
        """No effect."""


@dataclass
class ScriptedRuntime:
    """Records the processes that were started."""

    processes: list[ScriptedProcess] = field(default_factory=list)
    probes: list[ScriptedProcess] = field(default_factory=list)
    description: str = "processes are simulated"
    node_address: str = "10.0.0.1"
    has_hosts_file: bool = True
    pids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def protect(self, node_dir: Path, *, secret_dirs: Sequence[Path]) -> None:
        """No pod can read files."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self.processes:
            process.signal(9)

    async def create_sandbox(self, request: SandboxRequest) -> ScriptedSandbox:
        return ScriptedSandbox(self, f"10.0.1.{next(self.pids)}")

    async def listen(self) -> None:
        return None

    def pauses(self) -> list[float]:
        """The time from the exit of each process to the start of the next."""
        pairs = itertools.pairwise(self.processes)
        return [round(later.started_at - (earlier.ended_at or 0.0), 1) for earlier, later in pairs]
