"""Other processes, as benchmarks see them: servers to start, CPU time and memory to read."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench_rows import MeasureError


def cpu_seconds(pid: int) -> float:
    """The CPU time that a process has used so far."""
    # Linux has a clock for each process, by its number: finer than the hundredths of a second in /proc.
    return time.clock_gettime(~pid << 3 | 2)


def resident_megabytes(pid: int, *, peak: bool = False) -> float:
    """The memory that a process has in use, or the most that it has ever had."""
    wanted = "VmHWM:" if peak else "VmRSS:"
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(wanted):
            return int(line.split()[1]) / 1024
    raise MeasureError(f"the process {pid} has ended: it has no memory any more")


@contextlib.contextmanager
def serving(arguments: Sequence[str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A Python program in a process of its own, and the first line it prints: where it is. It ends with its standard input."""
    server = subprocess.Popen([sys.executable, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        place = server.stdout.readline().strip()
        if not place:
            raise MeasureError(f"{Path(arguments[0]).name} did not start; it says why above")
        yield server, place
    finally:
        server.kill()
        server.communicate()
