"""Exec and attach over a WebSocket."""

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
from dlop.embedded.kubelet.server.async_pipe import AsyncPipe
from dlop.embedded.kubelet.server.backend import ContainerRef, ContainerUnavailableError, ExecCommand, PodBackend
from dlop.embedded.kubelet.server.websocket_channels import SUCCESS, ChannelSocket, StreamChannel, exit_status, failure_status

_CONTROL_D = b"\x04"  # end of input on a terminal


@dataclass(frozen=True, slots=True)
class RequestedStreams:
    """A terminal has no separate stderr."""

    stdin: bool
    stdout: bool
    stderr: bool
    terminal: bool

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> RequestedStreams:
        """Parse a query.

        Raises:
            ValueError: no stream is requested.
        """
        stdin, stdout, stderr, terminal = (query.get(name) == "1" for name in ("input", "output", "error", "tty"))
        if not (stdin or stdout or stderr):
            raise ValueError("you must specify at least 1 of stdin, stdout, stderr")
        return cls(stdin, stdout, stderr and not terminal, terminal)


class _Size(msgspec.Struct, rename="pascal"):
    width: int
    height: int


_size_decoder = msgspec.json.Decoder(_Size)


@dataclass(slots=True)
class _LocalStreams:
    """The server's ends of a command's streams."""

    stdin: AsyncPipe | None = None
    stdout: AsyncPipe | None = None
    stderr: AsyncPipe | None = None
    terminal: AsyncPipe | None = None

    def outputs(self) -> Iterator[tuple[StreamChannel, AsyncPipe]]:
        for channel, pipe in ((StreamChannel.STDOUT, self.stdout), (StreamChannel.STDERR, self.stderr)):
            if pipe is not None:
                yield channel, pipe


async def serve_exec(
    channels: ChannelSocket, backend: PodBackend, container: ContainerRef, argv: Sequence[str], streams: RequestedStreams
) -> None:
    """Run a command and send its output and exit status. It is killed when the client disconnects."""
    with ExitStack() as stack:
        try:
            process, local = await _start_process(stack, backend, container, argv, streams)
        except (LaunchError, ContainerUnavailableError, LookupError) as error:
            message = f"Internal error occurred: error executing command in container: {error}"
            await channels.finish(failure_status(message))
            return
        try:
            await _stream(channels, process, local)
        except BaseException:
            process.signal(signal.SIGKILL)
            raise
        # Background processes of the command continue, as in a real container.
        await channels.finish(exit_status((await process.wait()).code))


async def _start_process(
    stack: ExitStack, backend: PodBackend, container: ContainerRef, argv: Sequence[str], streams: RequestedStreams
) -> tuple[Process, _LocalStreams]:
    with ExitStack() as theirs:
        local, command = _open_terminal(stack, theirs, argv) if streams.terminal else _open_pipes(stack, theirs, argv, streams)
        return await backend.execute(container, command), local


def _open_pipes(ours: ExitStack, theirs: ExitStack, argv: Sequence[str], streams: RequestedStreams) -> tuple[_LocalStreams, ExecCommand]:
    local = _LocalStreams()
    stdin = stdout = stderr = None
    if streams.stdin:
        stdin, ours_fd = os.pipe()
        local.stdin = _own_pipe(ours, ours_fd)
        theirs.callback(os.close, stdin)
    if streams.stdout:
        ours_fd, stdout = os.pipe()
        local.stdout = _own_pipe(ours, ours_fd)
        theirs.callback(os.close, stdout)
    if streams.stderr:
        ours_fd, stderr = os.pipe()
        local.stderr = _own_pipe(ours, ours_fd)
        theirs.callback(os.close, stderr)
    return local, ExecCommand(argv=argv, stdin=stdin, stdout=stdout, stderr=stderr)


def _open_terminal(ours: ExitStack, theirs: ExitStack, argv: Sequence[str]) -> tuple[_LocalStreams, ExecCommand]:
    ours_fd, theirs_fd = os.openpty()
    theirs.callback(os.close, theirs_fd)
    terminal = _own_pipe(ours, ours_fd)
    return _LocalStreams(terminal, terminal, None, terminal), ExecCommand(
        argv=argv, stdin=theirs_fd, stdout=theirs_fd, stderr=theirs_fd, terminal=True
    )


def _own_pipe(stack: ExitStack, fd: int) -> AsyncPipe:
    pipe = AsyncPipe(fd)
    stack.callback(pipe.close)
    return pipe


async def _stream(channels: ChannelSocket, process: Process, local: _LocalStreams) -> None:
    """Copy data in both directions until the process has exited and all of its output is sent."""
    async with asyncio.TaskGroup() as group:
        receiving = group.create_task(_receive(channels, process, local))
        sending = [group.create_task(_send(channels, channel, pipe)) for channel, pipe in local.outputs()]
        await process.wait()
        for _, pipe in local.outputs():
            # A background process may keep the pipe open.
            pipe.drain()
        for task in sending:
            await task
        receiving.cancel()


async def _send(channels: ChannelSocket, channel: StreamChannel, pipe: AsyncPipe) -> None:
    while data := await pipe.read():
        await channels.send(channel, data)


async def _receive(channels: ChannelSocket, process: Process, local: _LocalStreams) -> None:
    async for channel, data in channels.messages():
        if channel == StreamChannel.STDIN:
            await _write(local, data)
        elif channel == StreamChannel.RESIZE:
            _resize(local, data)
        elif channel == StreamChannel.CLOSE and data[:1] == bytes((StreamChannel.STDIN,)):
            await _close_stdin(local)
    # The client has disconnected.
    process.signal(signal.SIGKILL)


async def _write(local: _LocalStreams, data: bytes) -> None:
    if local.stdin is None:
        return
    try:
        await local.stdin.write(data)
    except OSError:
        # The command has closed its stdin or exited.
        if local.terminal is None:
            local.stdin.close()
            local.stdin = None


async def _close_stdin(local: _LocalStreams) -> None:
    if local.terminal is not None:
        await _write(local, _CONTROL_D)
    elif local.stdin is not None:
        local.stdin.close()
        local.stdin = None


def _resize(local: _LocalStreams, data: bytes) -> None:
    if local.terminal is None:
        return
    with contextlib.suppress(msgspec.DecodeError, OSError):
        size = _size_decoder.decode(data)
        local.terminal.resize(columns=size.width, rows=size.height)


async def serve_attach(channels: ChannelSocket, log: ContainerLog, streams: RequestedStreams) -> None:
    """Send the output of a container from now on, line by line, until it exits. There is no input."""
    async with asyncio.TaskGroup() as group:
        sending = []
        if streams.stdout:
            sending.append(group.create_task(_send_log(channels, StreamChannel.STDOUT, log, None if streams.terminal else STDOUT)))
        if streams.stderr:
            sending.append(group.create_task(_send_log(channels, StreamChannel.STDERR, log, STDERR)))
        receiving = group.create_task(_cancel_when_closed(channels, sending))
        if sending:
            await asyncio.wait(sending)
        receiving.cancel()
    await channels.finish(SUCCESS)


async def _send_log(channels: ChannelSocket, channel: StreamChannel, log: ContainerLog, stream: str | None) -> None:
    async with contextlib.aclosing(log.read(LogQuery(follow=True, tail_lines=0, stream=stream))) as chunks:
        async for chunk in chunks:
            await channels.send(channel, chunk)


async def _cancel_when_closed(channels: ChannelSocket, tasks: Sequence[asyncio.Task[None]]) -> None:
    async for _ in channels.messages():
        pass
    for task in tasks:
        task.cancel()
