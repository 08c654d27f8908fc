"""Runs short-lived commands in a container, for probes and hooks."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass, replace

from dlop.embedded.kubelet.crash_loop_backoff import format_go_duration
from dlop.embedded.kubelet.runtime.base import LaunchError, LaunchRequest, Process, Sandbox

_MAX_OUTPUT_BYTES = 10 * 1024


@dataclass(frozen=True, slots=True)
class CommandResult:
    exit_code: int
    output: str


async def run_command(
    sandbox: Sandbox, container_launch: LaunchRequest, argv: tuple[str, ...], *, timeout_seconds: float | None = None
) -> CommandResult:
    """Run a command in a running container, with its environment and working directory. The output is truncated."""
    read_fd, write_fd = os.pipe()
    launch = replace(container_launch, argv=argv, stdin=None, stdout=write_fd, stderr=write_fd, terminal=False, memory_limit_bytes=None)
    try:
        process = await sandbox.start(launch)
    except LaunchError as error:
        os.close(read_fd)
        return CommandResult(error.exit_code, str(error))
    except BaseException:
        os.close(read_fd)
        raise
    finally:
        os.close(write_fd)
    return await _wait(process, read_fd, argv, timeout_seconds)


async def _wait(process: Process, read_fd: int, argv: tuple[str, ...], timeout_seconds: float | None) -> CommandResult:
    output = bytearray()
    os.set_blocking(read_fd, False)
    loop = asyncio.get_running_loop()
    loop.add_reader(read_fd, _read_available, loop, read_fd, output)
    try:
        async with asyncio.timeout(timeout_seconds):
            code = (await process.wait()).code
    except TimeoutError:
        text = f'command timed out: "{" ".join(argv)}" timed out after {format_go_duration(timeout_seconds or 0)}'
        return CommandResult(-1, text)
    finally:
        process.signal(signal.SIGKILL)
        _read_available(loop, read_fd, output)
        loop.remove_reader(read_fd)
        os.close(read_fd)
    return CommandResult(code, bytes(output[:_MAX_OUTPUT_BYTES]).decode(errors="replace"))


def _read_available(loop: asyncio.AbstractEventLoop, fd: int, output: bytearray) -> None:
    """Read everything that is available. Output beyond the limit is discarded, so that the command does not block."""
    try:
        while data := os.read(fd, _MAX_OUTPUT_BYTES):
            output += data[: max(0, _MAX_OUTPUT_BYTES - len(output))]
    except BlockingIOError:
        return
    loop.remove_reader(fd)
