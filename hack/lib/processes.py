"""Starts programs that may outlive a function but never what they were started for, and ends them for good.

Two lives are possible. Programs of a test share one process group with a watchdog, which ends them all as soon as the
test process is gone, however it went. Programs of `hack/cluster up` are detached, and found again by their pid.
Only the standard library is used.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

_LOOK_EVERY_SECONDS = 0.02


class Watchdog:
    """A process group that dies with this process: its leader waits for the end of a pipe that only we hold open."""

    def __init__(self) -> None:
        self._leader = subprocess.Popen(["/bin/sh", "-c", "read line; kill -9 0"], stdin=subprocess.PIPE, process_group=0)

    @property
    def group(self) -> int:
        """The process group to start programs in."""
        return self._leader.pid

    def close(self) -> None:
        """End everything that is left in the group."""
        self._leader.communicate()


def start(command: Sequence[str], *, log_path: Path, group: int | None) -> subprocess.Popen[bytes]:
    """Start a program whose output goes to a log: in a process group, or detached when there is none."""
    with log_path.open("ab") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            process_group=group,
            start_new_session=group is None,
        )


def is_running(pid: int, *, marker: str) -> bool:
    """Whether a process that another process started is alive and still the same: a pid is used again, a command line is not.

    Not for our own children: a program that has only just been started has no command line for a moment.
    """
    return marker in _command_line(pid)


def kill(pid: int, *, marker: str) -> None:
    """End a process that another process started, without letting it say goodbye (kill -9). Returns when it is gone."""
    while is_running(pid, marker=marker):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_EVERY_SECONDS)


def _command_line(pid: int) -> str:
    """The command line of a living process; a zombie has none."""
    if Path("/proc/self/cmdline").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            return ""
    answer = subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return answer.stdout
