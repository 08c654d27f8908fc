"""Forks a simulation on virtual time: the same run up to a point, and a fault from there on.

A fork is a copy of the whole process, with the cluster, the operator, its in-process state and the clock. So the common
part runs only once, and forks run in parallel. On virtual time, a run does not notice that it waits for its forks.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

# A fork takes about 50 ms. One that hangs must not outlive the tests.
_TIMEOUT_SECONDS = 60
_MAX_REPORT_BYTES = 20_000
# Stop forking after this many failed forks.
_MAX_FAILURES = 3


@dataclass(frozen=True, slots=True)
class _Fork:
    fault: str
    process: int
    report: int
    """File descriptor to read the failures from."""


class ForkedRuns:
    """The forks of one run. `fault` describes the fault of this process; it is empty in the parent."""

    def __init__(self) -> None:
        self.fault = ""
        self.count = 0
        self.failures: list[str] = []
        self._report = -1
        self._running: deque[_Fork] = deque()
        self._limit = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1

    def fork(self, fault: str) -> bool:
        """Fork the process. Returns True in the child and False in the parent. A child does not fork again."""
        if self.fault or len(self.failures) >= _MAX_FAILURES:
            return False
        while len(self._running) >= self._limit:
            self._wait_for_first()
        loop = asyncio.get_running_loop()
        read_end, write_end = os.pipe()
        process = _fork_process()
        if process == 0:
            self._become_child(fault, loop, report=write_end)
            return True
        os.close(write_end)
        self.count += 1
        self._running.append(_Fork(fault, process, read_end))
        return False

    def run_all(self, run: Callable[[], list[str]]) -> None:
        """Run the parent and all forks. `run` returns failures; those of a fork are added with its fault."""
        with _without_garbage_collection():
            try:
                failures = run()
            except BaseException:
                if not self.fault:
                    raise
                failures = [traceback.format_exc()]
            if self.fault:
                self._exit_child(failures)
        self.failures += failures
        while self._running:
            self._wait_for_first()

    # --- child -------------------------------------------------------------------------------------------------------

    def _become_child(self, fault: str, loop: asyncio.AbstractEventLoop, *, report: int) -> None:
        self.fault = fault
        self._report = report
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_TIMEOUT_SECONDS)
        # asyncio clears the running loop in a forked process, because most loops cannot continue there. This one can.
        asyncio._set_running_loop(loop)

    def _exit_child(self, failures: list[str]) -> NoReturn:
        """Exit without the cleanup that the parent does as well."""
        try:
            os.write(self._report, "\n".join(failures).encode()[:_MAX_REPORT_BYTES])
        finally:
            os._exit(0)

    # --- parent ------------------------------------------------------------------------------------------------------

    def _wait_for_first(self) -> None:
        fork = self._running.popleft()
        with os.fdopen(fork.report, "rb") as report:
            failures = report.read().decode(errors="replace")
        _, status = os.waitpid(fork.process, 0)
        if status:
            failures += f"exited with {os.waitstatus_to_exitcode(status)}"
        if failures:
            self.failures.append(f"{fork.fault}: {failures}")


def _fork_process() -> int:
    with warnings.catch_warnings():
        # Python 3.12 and later warn if the process has threads, as a test runner may. No fork needs them.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Garbage collection would write to, and so copy, every memory page in every fork."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
