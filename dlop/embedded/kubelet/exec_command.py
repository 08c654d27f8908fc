"""Short-lived commands in a container: what probes and hooks run, and what they say."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass, replace

from dlop.embedded.kubelet.restart_backoff import duration_text
from dlop.embedded.kubelet.runtime.base import Launch, LaunchError, Process, Sandbox

_MOST_BYTES = 10 * 1024


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What became of a command."""

    exit_code: int
    output: str
    has_timed_out: bool = False


async def run_command(sandbox: Sandbox, like: Launch, argv: tuple[str, ...], *, timeout_seconds: float | None = None) -> CommandResult:
    """Run a command with the variables, folders and mounts of a container, and keep the beginning of what it says."""
    reading, writing = os.pipe()
    launch = replace(like, argv=argv, stdin=None, stdout=writing, stderr=writing, terminal=False, memory_limit_bytes=None)
    try:
        process = await sandbox.start(launch)
    except LaunchError as error:
        os.close(reading)
        return CommandResult(error.exit_code, str(error))
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    return await _watched(process, reading, argv, timeout_seconds)


async def _watched(process: Process, reading: int, argv: tuple[str, ...], timeout_seconds: float | None) -> CommandResult:
    output = bytearray()
    os.set_blocking(reading, False)
    loop = asyncio.get_running_loop()
    loop.add_reader(reading, _read_some, loop, reading, output)
    try:
        async with asyncio.timeout(timeout_seconds):
            code = (await process.wait()).code
    except TimeoutError:
        text = f'command timed out: "{" ".join(argv)}" timed out after {duration_text(timeout_seconds or 0)}'
        return CommandResult(-1, text, has_timed_out=True)
    finally:
        process.signal(signal.SIGKILL)
        _read_some(loop, reading, output)
        loop.remove_reader(reading)
        os.close(reading)
    return CommandResult(code, bytes(output[:_MOST_BYTES]).decode(errors="replace"))


def _read_some(loop: asyncio.AbstractEventLoop, descriptor: int, output: bytearray) -> None:
    """Take what is there. Of a flood the beginning is kept, and the rest is read away so that the command can go on."""
    try:
        while data := os.read(descriptor, _MOST_BYTES):
            output += data[: max(0, _MOST_BYTES - len(output))]
    except BlockingIOError:
        return
    loop.remove_reader(descriptor)
