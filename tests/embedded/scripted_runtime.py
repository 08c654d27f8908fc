"""A runtime whose processes only wait: for tests in virtual time, where an hour costs nothing.

`["for", "90", "exit", "3"]` runs for 90 seconds and exits with 3. SIGTERM ends it at once with 143, unless its first word is
`deaf`: `["deaf", "for", "90", "exit", "3"]`. SIGKILL always does.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

from dlop.embedded.kubelet.runtime.base import Exit, Launch, SandboxRequest


class ScriptedProcess:
    """A process that waits."""

    def __init__(self, argv: tuple[str, ...], pid: int) -> None:
        self.pid = pid
        self.started_at = asyncio.get_running_loop().time()
        self.ended_at: float | None = None
        self._is_deaf = argv[0] == "deaf"
        seconds, _, code = argv[-3:]
        self._ending: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self._timer = asyncio.get_running_loop().call_later(float(seconds), self._end, Exit(int(code)))

    async def wait(self) -> Exit:
        return await asyncio.shield(self._ending)

    def signal(self, number: int) -> None:
        if number == 9 or not self._is_deaf:
            self._end(Exit(128 + number, signal=number))

    def _end(self, ending: Exit) -> None:
        if not self._ending.done():
            self._timer.cancel()
            self.ended_at = asyncio.get_running_loop().time()
            self._ending.set_result(ending)


@dataclass
class ScriptedSandbox:
    """Where such processes are started."""

    runtime: ScriptedRuntime
    address: str

    async def start(self, launch: Launch) -> ScriptedProcess:
        process = ScriptedProcess(launch.argv, next(self.runtime.pids))
        (self.runtime.probes if launch.inside else self.runtime.processes).append(process)
        return process

    def write_hosts(self, text: str) -> None:
        """Nobody reads it."""

    async def connect(self, port: int, *, address: str | None = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        raise ConnectionRefusedError

    async def close(self) -> None:
        """Nothing is left."""


@dataclass
class ScriptedRuntime:
    """Makes such sandboxes, and remembers what was started in them."""

    processes: list[ScriptedProcess] = field(default_factory=list)
    probes: list[ScriptedProcess] = field(default_factory=list)
    description: str = "nothing really runs"
    node_address: str = "10.0.0.1"
    resolves_names: bool = True
    pids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self.processes:
            process.signal(9)

    async def sandbox(self, request: SandboxRequest) -> ScriptedSandbox:
        return ScriptedSandbox(self, f"10.0.1.{next(self.pids)}")

    async def listen(self) -> None:
        return None

    def pauses(self) -> list[float]:
        """How long it was from the end of each process to the start of the next."""
        pairs = itertools.pairwise(self.processes)
        return [round(later.started_at - (earlier.ended_at or 0.0), 1) for earlier, later in pairs]
