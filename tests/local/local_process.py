"""Run `dlop local` as a process."""

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
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_SECONDS = 60.0
_PIPE = asyncio.subprocess.PIPE


@dataclass(frozen=True)
class ProcessResult:
    code: int
    out: str
    err: str


@dataclass
class LocalProcess:
    """A running `dlop local`."""

    process: asyncio.subprocess.Process
    folder: Path
    output: str = ""

    async def wait_for_output(self, pattern: str) -> re.Match[str]:
        """Wait until the output matches a pattern."""
        assert self.process.stdout is not None
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not (match := re.search(pattern, self.output, re.MULTILINE)):
                line = await self.process.stdout.readline()
                assert line, f"exited without the output {pattern}: {self.output}"
                self.output += line.decode()
        return match

    async def kubeconfig(self) -> Path:
        """Wait for the kubeconfig in the output."""
        return Path((await self.wait_for_output(r"export KUBECONFIG=(\S+)$"))[1])

    async def wait_for_exit(self, number: int | None = None, *, timeout_seconds: float = TIMEOUT_SECONDS) -> ProcessResult:
        """Send a signal, if given, and wait for the exit."""
        if number is not None:
            self.process.send_signal(number)
        async with asyncio.timeout(timeout_seconds):
            out, err = await self.process.communicate()
            return ProcessResult(await self.process.wait(), self.output + out.decode(), err.decode())


@asynccontextmanager
async def start_local(*words: str, folder: Path, wrapper: Sequence[str] = (), **environment: str) -> AsyncIterator[LocalProcess]:
    """Start `dlop local`. Its TMPDIR is below `folder`, so that leftover files can be detected. `wrapper` is a command that starts it."""
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    variables = {**os.environ, "TMPDIR": str(temporary), "PYTHONWARNINGS": "error", **environment}
    process = await asyncio.create_subprocess_exec(
        *(*wrapper, sys.executable, "-m", "dlop", "local", *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=_PIPE,
        stderr=_PIPE,
        env=variables,
    )
    try:
        yield LocalProcess(process, temporary)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def run_local(*words: str, folder: Path, timeout_seconds: float = TIMEOUT_SECONDS, **environment: str) -> ProcessResult:
    """Run `dlop local` until it exits."""
    async with start_local(*words, folder=folder, **environment) as program:
        return await program.wait_for_exit(timeout_seconds=timeout_seconds)


def leftover_files(folder: Path) -> list[str]:
    """Files in the TMPDIR of processes that were started with this folder."""
    return sorted(path.name for path in (folder / "tmp").iterdir())


def find_processes(mark: str) -> list[int]:
    """The processes of this machine with the mark in their arguments or environment."""
    pids = []
    for path in Path("/proc").iterdir():
        if path.name.isdecimal() and int(path.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark.encode() in (path / "cmdline").read_bytes() + (path / "environ").read_bytes():
                    pids.append(int(path.name))
    return pids


async def wait_until_exited(mark: str) -> None:
    """Wait until all processes with the mark have exited."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        for pid in find_processes(mark):
            with contextlib.suppress(ProcessLookupError):
                await _wait_for_pid(pid)
    assert find_processes(mark) == []


async def _wait_for_pid(pid: int) -> None:
    pidfd = os.pidfd_open(pid)
    try:
        exited = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(pidfd, exited.set)
        try:
            await exited.wait()
        finally:
            loop.remove_reader(pidfd)
    finally:
        os.close(pidfd)


SIGINT, SIGKILL, SIGTERM = signal.SIGINT, signal.SIGKILL, signal.SIGTERM


class TerminalProcess:
    """A running `dlop local` on a pseudo-terminal."""

    def __init__(self, process: asyncio.subprocess.Process, master_fd: int) -> None:
        self.process = process
        self.output = ""
        self._master_fd = master_fd
        self._changed = asyncio.Event()
        asyncio.get_running_loop().add_reader(master_fd, self._read)

    def _read(self) -> None:
        try:
            self.output += os.read(self._master_fd, 65536).decode(errors="replace")
        except OSError:
            # The process has closed the terminal.
            asyncio.get_running_loop().remove_reader(self._master_fd)
        self._changed.set()

    def type(self, keys: bytes) -> None:
        os.write(self._master_fd, keys)

    async def wait_for_output(self, text: str) -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while text not in self.output:
                self._changed.clear()
                await self._changed.wait()

    async def wait_for_exit(self) -> int:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await self.process.wait()


@asynccontextmanager
async def start_on_terminal(*words: str, folder: Path) -> AsyncIterator[TerminalProcess]:
    """Start `dlop local` on a terminal with 100 columns and 30 lines."""
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    master_fd, slave_fd = os.openpty()
    fcntl.ioctl(slave_fd, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _TERMINAL_PROGRAM, "local", *words),
            stdin=slave_fd,
            stdout=slave_fd,
            stderr=slave_fd,
            start_new_session=True,
            env={**os.environ, "TMPDIR": str(temporary), "TERM": "xterm-256color"},
        )
    finally:
        os.close(slave_fd)
    terminal = TerminalProcess(process, master_fd)
    try:
        yield terminal
    finally:
        asyncio.get_running_loop().remove_reader(master_fd)
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(master_fd)


_TERMINAL_PROGRAM = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from dlop.cli.main import exit_with_code
exit_with_code()
"""
