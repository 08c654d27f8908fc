"""Helpers for the tests of runtimes: pods in one line, and the output of their processes.

Output is read up to the end of the file, which is reached when the last process that holds it has exited. This is also how a test
checks that no process of a pod is left.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from dlop.embedded.kubelet.runtime.base import ExitStatus, LaunchRequest, Process, Runtime, Sandbox, SandboxRequest
from dlop.embedded.kubelet.runtime.namespaces import NamespacesRuntime
from dlop.embedded.kubelet.runtime.plain import PlainRuntime

RUNTIMES = {"namespaces": NamespacesRuntime, "plain": PlainRuntime}
PATH = os.environ["PATH"]
TIMEOUT_SECONDS = 20


@dataclass
class Output:
    """The read end of a pipe."""

    reader: asyncio.StreamReader
    transport: asyncio.ReadTransport

    async def line(self) -> str:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return (await self.reader.readline()).decode().strip()

    async def rest(self) -> str:
        """Everything until the last process that could write has exited."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            text = (await self.reader.read()).decode().strip()
        self.transport.close()
        return text


async def open_pipe() -> tuple[Output, BinaryIO]:
    """A pipe: its output, and the end to write to."""
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
    """A sandbox with shortcuts."""

    sandbox: Sandbox
    directory: Path
    _outputs: list[Output] = field(default_factory=list)

    async def start(self, *argv: str, environment: Mapping[str, str] | None = None, **rest: Any) -> Process:
        return await self.sandbox.start(LaunchRequest(argv=argv, environment={"PATH": PATH, **(environment or {})}, **rest))

    async def start_with_output(self, *argv: str, **rest: Any) -> tuple[Process, Output]:
        """Start a process whose stdout and stderr go to one pipe."""
        output, end = await open_pipe()
        self._outputs.append(output)
        with end:
            process = await self.start(*argv, stdout=end.fileno(), stderr=end.fileno(), **rest)
        return process, output

    async def run(self, *argv: str, **rest: Any) -> tuple[ExitStatus, str]:
        """Run a process and wait for its exit. Returns the exit status and the output."""
        process, output = await self.start_with_output(*argv, **rest)
        text = await output.rest()
        return await process.wait(), text

    async def shell(self, script: str, **rest: Any) -> tuple[ExitStatus, str]:
        return await self.run("sh", "-c", script, **rest)

    async def close(self) -> None:
        await self.sandbox.close()
        for output in self._outputs:
            output.transport.close()


@dataclass
class Pods:
    """A runtime, and the pods that a test creates in it."""

    runtime: Runtime
    directory: Path
    _created: list[Pod] = field(default_factory=list)

    async def pod(self, hostname: str = "pod", **request: Any) -> Pod:
        directory = self.directory / f"{hostname}-{len(self._created)}"
        directory.mkdir()
        pod = Pod(
            await self.runtime.create_sandbox(SandboxRequest(uid=hostname, hostname=hostname, directory=directory, **request)), directory
        )
        self._created.append(pod)
        return pod

    async def close(self) -> None:
        for pod in self._created:
            await pod.close()


@asynccontextmanager
async def pods_in(runtime: Runtime, directory: Path) -> AsyncIterator[Pods]:
    """Create pods in a running runtime. They are closed at the end."""
    pods = Pods(runtime, directory)
    try:
        yield pods
    finally:
        await pods.close()


@asynccontextmanager
async def start_pods(runtime: Runtime, directory: Path) -> AsyncIterator[Pods]:
    """Start a runtime and create pods in it."""
    async with runtime, pods_in(runtime, directory) as pods:
        yield pods


def launcher_of_this_process() -> int:
    """The PID of the launcher that this process has started. Other tests may have left other children, such as a control plane."""
    (launcher,) = (pid for pid in children(os.getpid()) if b"launcher" in Path(f"/proc/{pid}/cmdline").read_bytes())
    return launcher


def children(pid: int) -> list[int]:
    """The PIDs of the children of a process."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
