"""Helper processes of benchmarks, and their CPU time and memory."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench_report import MeasureError


def cpu_seconds(pid: int) -> float:
    """The CPU time of a process since its start."""
    # The CPU clock of a process on Linux (see clock_getcpuclockid), which has a higher resolution than /proc.
    return time.clock_gettime(~pid << 3 | 2)


def resident_megabytes(pid: int, *, peak: bool = False) -> float:
    """The resident memory of a process, or its peak."""
    field = "VmHWM:" if peak else "VmRSS:"
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise MeasureError(f"the process {pid} has exited")


@contextlib.contextmanager
def run_server(arguments: Sequence[str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a Python program as a server. Yields the process and the first line that it prints, its address. Kills it at the end."""
    server = subprocess.Popen([sys.executable, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        address = server.stdout.readline().strip()
        if not address:
            raise MeasureError(f"{Path(arguments[0]).name} did not start; see its output above")
        yield server, address
    finally:
        server.kill()
        server.communicate()
