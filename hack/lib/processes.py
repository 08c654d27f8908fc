"""Starts and kills the programs of a cluster.

Programs of a test share a process group with a watchdog, which kills all of them when the test process exits or is killed.
Programs of `hack/cluster up` are detached and identified by pid and command line. This module uses only the standard library.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

_POLL_INTERVAL_SECONDS = 0.02


class Watchdog:
    """A process group that is killed when this process exits. Its leader waits for the end of a pipe that this process holds open."""

    def __init__(self) -> None:
        self._leader = subprocess.Popen(["/bin/sh", "-c", "read line; kill -9 0"], stdin=subprocess.PIPE, process_group=0)

    @property
    def group(self) -> int:
        return self._leader.pid

    def close(self) -> None:
        """Kill all processes of the group."""
        self._leader.communicate()


def start(command: Sequence[str], *, log_path: Path, group: int | None) -> subprocess.Popen[bytes]:
    """Start a program in a process group, or detached if `group` is None. Its output is appended to the log."""
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
    """Whether the process is alive and its command line contains the marker, because a pid can be reused.

    Not for children of this process: a process has no command line for a moment after its start.
    """
    return marker in _command_line(pid)


def kill(pid: int, *, marker: str) -> None:
    """Send SIGKILL to a process that is not a child of this process, and wait until it has exited."""
    while is_running(pid, marker=marker):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_INTERVAL_SECONDS)


def _command_line(pid: int) -> str:
    """Empty if the process does not exist or is a zombie."""
    if Path("/proc/self/cmdline").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            return ""
    process = subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return process.stdout
