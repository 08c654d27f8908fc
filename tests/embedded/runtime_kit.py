"""For the tests of runtimes: pods in one line, and what their processes wrote.

What a process wrote is read up to the end of the file, which comes when the last process that holds it has ended. So reading is also
how a test knows that nothing of a pod is left.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from dlop.embedded.kubelet.runtime.base import Exit, Launch, Process, Runtime, Sandbox, SandboxRequest
from dlop.embedded.kubelet.runtime.namespaces import NamespacesRuntime
from dlop.embedded.kubelet.runtime.plain import PlainRuntime

MODES = {"namespaces": NamespacesRuntime, "plain": PlainRuntime}
PATH = os.environ["PATH"]
PATIENCE_SECONDS = 20


@dataclass
class Output:
    """What comes out of a pipe."""

    reader: asyncio.StreamReader
    transport: asyncio.ReadTransport

    async def line(self) -> str:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return (await self.reader.readline()).decode().strip()

    async def rest(self) -> str:
        """Everything up to the end of the last process that could write."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            text = (await self.reader.read()).decode().strip()
        self.transport.close()
        return text


async def open_pipe() -> tuple[Output, BinaryIO]:
    """A pipe: what comes out of it, and the end to write to."""
    read, write = os.pipe()
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read, "rb", buffering=0))
    return Output(reader, transport), os.fdopen(write, "wb", buffering=0)


@asynccontextmanager
async def pipe() -> AsyncIterator[tuple[Output, BinaryIO]]:
    output, end = await open_pipe()
    with end:
        yield output, end
    output.transport.close()


@dataclass
class Pod:
    """A sandbox, and short ways to use it."""

    sandbox: Sandbox
    folder: Path
    _outputs: list[Output] = field(default_factory=list)

    async def start(self, *argv: str, environment: Mapping[str, str] | None = None, **rest: Any) -> Process:
        return await self.sandbox.start(Launch(argv=argv, environment={"PATH": PATH, **(environment or {})}, **rest))

    async def start_with_output(self, *argv: str, **rest: Any) -> tuple[Process, Output]:
        """Start a process whose stdout and stderr are read together."""
        output, end = await open_pipe()
        self._outputs.append(output)
        with end:
            process = await self.start(*argv, stdout=end.fileno(), stderr=end.fileno(), **rest)
        return process, output

    async def run(self, *argv: str, **rest: Any) -> tuple[Exit, str]:
        """Run a process to its end."""
        process, output = await self.start_with_output(*argv, **rest)
        text = await output.rest()
        return await process.wait(), text

    async def shell(self, script: str, **rest: Any) -> tuple[Exit, str]:
        return await self.run("sh", "-c", script, **rest)

    async def close(self) -> None:
        await self.sandbox.close()
        for output in self._outputs:
            output.transport.close()


@dataclass
class Pods:
    """A runtime, and the pods that a test makes in it."""

    runtime: Runtime
    folder: Path
    _made: list[Pod] = field(default_factory=list)

    async def pod(self, hostname: str = "pod", **request: Any) -> Pod:
        folder = self.folder / f"{hostname}-{len(self._made)}"
        folder.mkdir()
        made = Pod(await self.runtime.sandbox(SandboxRequest(uid=hostname, hostname=hostname, folder=folder, **request)), folder)
        self._made.append(made)
        return made

    async def close(self) -> None:
        for made in self._made:
            await made.close()


@asynccontextmanager
async def pods_in(runtime: Runtime, folder: Path) -> AsyncIterator[Pods]:
    """Pods in a runtime that runs already. They are gone in the end."""
    pods = Pods(runtime, folder)
    try:
        yield pods
    finally:
        await pods.close()


@asynccontextmanager
async def pods_of(runtime: Runtime, folder: Path) -> AsyncIterator[Pods]:
    """Pods in a runtime that is started for them."""
    async with runtime, pods_in(runtime, folder) as pods:
        yield pods


def launcher_of_this_process() -> int:
    """The launcher that this process has started. Other tests may have left it other children, such as a control plane."""
    (launcher,) = (pid for pid in children(os.getpid()) if b"launcher" in Path(f"/proc/{pid}/cmdline").read_bytes())
    return launcher


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
