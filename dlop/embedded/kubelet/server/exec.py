"""Exec and attach: a command in a container, or the container itself, at the other end of a WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import msgspec

from dlop.embedded.kubelet.logs import STDERR, STDOUT, ContainerLog, LogQuery
from dlop.embedded.kubelet.runtime.base import LaunchError, Process
from dlop.embedded.kubelet.server.async_pipe import Pipe
from dlop.embedded.kubelet.server.backend import Command, ContainerName, NotAvailableError, PodsOfNode
from dlop.embedded.kubelet.server.websocket_channels import SUCCESS, Channel, Channels, exit_status, failure

_END_OF_INPUT = b"\x04"  # what a user types in a terminal: control-D


@dataclass(frozen=True, slots=True)
class Streams:
    """Which streams are wanted. A terminal has no stderr of its own."""

    stdin: bool
    stdout: bool
    stderr: bool
    terminal: bool

    @classmethod
    def asked_for(cls, query: Mapping[str, str]) -> Streams:
        """The streams that a query names.

        Raises:
            ValueError: it names none.
        """
        stdin, stdout, stderr, terminal = (query.get(name) == "1" for name in ("input", "output", "error", "tty"))
        if not (stdin or stdout or stderr):
            raise ValueError("you must specify at least 1 of stdin, stdout, stderr")
        return cls(stdin, stdout, stderr and not terminal, terminal)


class _Size(msgspec.Struct, rename="pascal"):
    width: int
    height: int


_sizes = msgspec.json.Decoder(_Size)


@dataclass(slots=True)
class _Ends:
    """The near ends of a command's streams."""

    stdin: Pipe | None = None
    stdout: Pipe | None = None
    stderr: Pipe | None = None
    terminal: Pipe | None = None

    def outputs(self) -> Iterator[tuple[Channel, Pipe]]:
        for channel, pipe in ((Channel.STDOUT, self.stdout), (Channel.STDERR, self.stderr)):
            if pipe is not None:
                yield channel, pipe


async def run_command(channels: Channels, pods: PodsOfNode, name: ContainerName, argv: Sequence[str], streams: Streams) -> None:
    """Run a command for whoever is at the other end, and tell them how it ended. It dies when they go."""
    with ExitStack() as stack:
        try:
            process, ends = await _start(stack, pods, name, argv, streams)
        except (LaunchError, NotAvailableError, LookupError) as error:
            message = f"Internal error occurred: error executing command in container: {error}"
            await channels.finish(failure(message))
            return
        try:
            await _converse(channels, process, ends)
        except BaseException:
            process.signal(signal.SIGKILL)
            raise
        # What it has left behind lives on, as in a real container.
        await channels.finish(exit_status((await process.wait()).code))


async def _start(stack: ExitStack, pods: PodsOfNode, name: ContainerName, argv: Sequence[str], streams: Streams) -> tuple[Process, _Ends]:
    with ExitStack() as theirs:
        ends, command = _terminal(stack, theirs, argv) if streams.terminal else _pipes(stack, theirs, argv, streams)
        return await pods.execute(name, command), ends


def _pipes(ours: ExitStack, theirs: ExitStack, argv: Sequence[str], streams: Streams) -> tuple[_Ends, Command]:
    ends = _Ends()
    stdin = stdout = stderr = None
    if streams.stdin:
        stdin, near = os.pipe()
        ends.stdin = _kept(ours, near)
        theirs.callback(os.close, stdin)
    if streams.stdout:
        near, stdout = os.pipe()
        ends.stdout = _kept(ours, near)
        theirs.callback(os.close, stdout)
    if streams.stderr:
        near, stderr = os.pipe()
        ends.stderr = _kept(ours, near)
        theirs.callback(os.close, stderr)
    return ends, Command(argv=argv, stdin=stdin, stdout=stdout, stderr=stderr)


def _terminal(ours: ExitStack, theirs: ExitStack, argv: Sequence[str]) -> tuple[_Ends, Command]:
    near, far = os.openpty()
    theirs.callback(os.close, far)
    terminal = _kept(ours, near)
    return _Ends(terminal, terminal, None, terminal), Command(argv=argv, stdin=far, stdout=far, stderr=far, terminal=True)


def _kept(stack: ExitStack, descriptor: int) -> Pipe:
    pipe = Pipe(descriptor)
    stack.callback(pipe.close)
    return pipe


async def _converse(channels: Channels, process: Process, ends: _Ends) -> None:
    """Carry everything to and fro until the process has ended and all that it wrote is sent."""
    async with asyncio.TaskGroup() as group:
        listening = group.create_task(_listen(channels, process, ends))
        telling = [group.create_task(_tell(channels, channel, pipe)) for channel, pipe in ends.outputs()]
        await process.wait()
        for _, pipe in ends.outputs():
            # A child that it left behind may hold the pipe for ever.
            pipe.expect_no_more()
        for task in telling:
            await task
        listening.cancel()


async def _tell(channels: Channels, channel: Channel, pipe: Pipe) -> None:
    while data := await pipe.read():
        await channels.send(channel, data)


async def _listen(channels: Channels, process: Process, ends: _Ends) -> None:
    async for channel, data in channels.received():
        if channel == Channel.STDIN:
            await _write(ends, data)
        elif channel == Channel.RESIZE:
            _resize(ends, data)
        elif channel == Channel.CLOSE and data[:1] == bytes((Channel.STDIN,)):
            await _end_input(ends)
    # The other side has gone.
    process.signal(signal.SIGKILL)


async def _write(ends: _Ends, data: bytes) -> None:
    if ends.stdin is None:
        return
    try:
        await ends.stdin.write(data)
    except OSError:
        # Nobody reads it: the command has closed its input, or ended.
        if ends.terminal is None:
            ends.stdin.close()
            ends.stdin = None


async def _end_input(ends: _Ends) -> None:
    if ends.terminal is not None:
        await _write(ends, _END_OF_INPUT)
    elif ends.stdin is not None:
        ends.stdin.close()
        ends.stdin = None


def _resize(ends: _Ends, data: bytes) -> None:
    if ends.terminal is None:
        return
    with contextlib.suppress(msgspec.DecodeError, OSError):
        size = _sizes.decode(data)
        ends.terminal.resize(columns=size.width, rows=size.height)


async def attach(channels: Channels, log: ContainerLog, streams: Streams) -> None:
    """Show what a container writes from now on, line by line, until it ends. It is given no input."""
    async with asyncio.TaskGroup() as group:
        telling = []
        if streams.stdout:
            telling.append(group.create_task(_show(channels, Channel.STDOUT, log, None if streams.terminal else STDOUT)))
        if streams.stderr:
            telling.append(group.create_task(_show(channels, Channel.STDERR, log, STDERR)))
        listening = group.create_task(_cancel_when_closed(channels, telling))
        if telling:
            await asyncio.wait(telling)
        listening.cancel()
    await channels.finish(SUCCESS)


async def _show(channels: Channels, channel: Channel, log: ContainerLog, stream: str | None) -> None:
    async with contextlib.aclosing(log.read(LogQuery(follow=True, tail_lines=0, stream=stream))) as pieces:
        async for piece in pieces:
            await channels.send(channel, piece)


async def _cancel_when_closed(channels: Channels, tasks: Sequence[asyncio.Task[None]]) -> None:
    async for _ in channels.received():
        pass
    for task in tasks:
        task.cancel()
