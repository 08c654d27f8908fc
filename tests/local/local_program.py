"""`dlop local` as a user runs it: a process of its own, on small jobs."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import signal
import struct
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

PATIENCE_SECONDS = 60.0
_PIPE = asyncio.subprocess.PIPE


@dataclass(frozen=True)
class Ended:
    """How it ended, and what it said."""

    code: int
    out: str
    err: str


@dataclass
class Running:
    """A `dlop local` that goes on."""

    process: asyncio.subprocess.Process
    folder: Path
    said: str = ""

    async def hears(self, pattern: str) -> re.Match[str]:
        """Wait until it has said something."""
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (found := re.search(pattern, self.said, re.MULTILINE)):
                piece = await self.process.stdout.readline()
                assert piece, f"it has ended and never said {pattern}: {self.said}"
                self.said += piece.decode()
        return found

    async def kubeconfig(self) -> Path:
        """The one that it prints."""
        return Path((await self.hears(r"export KUBECONFIG=(\S+)$"))[1])

    async def ends(self, number: int | None = None) -> Ended:
        """Send it a signal, if one is given, and wait for its end."""
        if number is not None:
            self.process.send_signal(number)
        async with asyncio.timeout(PATIENCE_SECONDS):
            out, err = await self.process.communicate()
            return Ended(await self.process.wait(), self.said + out.decode(), err.decode())


@asynccontextmanager
async def running(*words: str, folder: Path, **environment: str) -> AsyncIterator[Running]:
    """`dlop local` with these words. Its temporary files go into a folder of ours, so that nothing left there stays unseen."""
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    variables = {**os.environ, "TMPDIR": str(temporary), "PYTHONWARNINGS": "error", **environment}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dlop", "local", *words), stdin=asyncio.subprocess.DEVNULL, stdout=_PIPE, stderr=_PIPE, env=variables
    )
    try:
        yield Running(process, temporary)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def run(*words: str, folder: Path) -> Ended:
    """Run it to its end."""
    async with running(*words, folder=folder) as program:
        return await program.ends()


def left_behind(folder: Path) -> list[str]:
    """What is in the temporary folder of programs that were run with this one."""
    return sorted(path.name for path in (folder / "tmp").iterdir())


def processes_with(mark: str) -> list[int]:
    """The processes on this machine that bear a variable or an argument with this mark."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdecimal() and int(place.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark.encode() in (place / "cmdline").read_bytes() + (place / "environ").read_bytes():
                    found.append(int(place.name))
    return found


async def until_gone(mark: str) -> None:
    """Wait until no process bears the mark any more: the kernel ends them, and tells nobody but their parents."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        for number in processes_with(mark):
            with contextlib.suppress(ProcessLookupError):
                await _end_of(number)
    assert processes_with(mark) == []


async def _end_of(number: int) -> None:
    handle = os.pidfd_open(number)
    try:
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(handle, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(handle)
    finally:
        os.close(handle)


SIGINT, SIGKILL, SIGTERM = signal.SIGINT, signal.SIGKILL, signal.SIGTERM


class Terminal:
    """A `dlop local` that has a terminal, and what that shows."""

    def __init__(self, process: asyncio.subprocess.Process, near: int) -> None:
        self.process = process
        self.said = ""
        self._near = near
        self._changed = asyncio.Event()
        asyncio.get_running_loop().add_reader(near, self._read)

    def _read(self) -> None:
        try:
            self.said += os.read(self._near, 65536).decode(errors="replace")
        except OSError:
            # Nobody has the far end open any more.
            asyncio.get_running_loop().remove_reader(self._near)
        self._changed.set()

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._near, keys)

    async def hears(self, words: str) -> None:
        """Wait until it has shown something."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while words not in self.said:
                self._changed.clear()
                await self._changed.wait()

    async def ends(self) -> int:
        """Wait for its end."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.process.wait()


@asynccontextmanager
async def terminal(*words: str, folder: Path) -> AsyncIterator[Terminal]:
    """`dlop local` at a terminal of 100 by 30."""
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    near, far = os.openpty()
    fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _AT_TERMINAL, "local", *words),
            stdin=far,
            stdout=far,
            stderr=far,
            start_new_session=True,
            env={**os.environ, "TMPDIR": str(temporary), "TERM": "xterm-256color"},
        )
    finally:
        os.close(far)
    shown = Terminal(process, near)
    try:
        yield shown
    finally:
        asyncio.get_running_loop().remove_reader(near)
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(near)


_AT_TERMINAL = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from dlop.cli import exit_with_code
exit_with_code()
"""
