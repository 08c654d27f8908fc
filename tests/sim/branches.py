"""Branches of a run on virtual time: the same run up to a moment, and something else from there on.

A branch is a copy of the whole process: cluster, operator and clock are in it as they are, down to what the operator has
in memory. So nothing has to be lived through again up to that moment, and all processors work. Virtual time makes that
possible: a run that stands still while its branches live notices nothing.
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

# A branch takes a twentieth of a second; one that hangs must not outlive the tests.
_LONGEST_SECONDS = 60
_LONGEST_REPORT = 20_000
# So many tell what is wrong; more would only take longer.
_ENOUGH_PROBLEMS = 3


@dataclass(frozen=True, slots=True)
class _Copy:
    story: str
    process: int
    report: int
    """Where to read what it has found."""


class Branches:
    """The branches of one run. `story` is what makes this one different; the trunk has none."""

    def __init__(self) -> None:
        self.story = ""
        self.count = 0
        self.problems: list[str] = []
        self._report = -1
        self._alive: deque[_Copy] = deque()
        self._limit = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1

    def branch(self, story: str) -> bool:
        """Go on twice: True in the branch, False in the trunk. A branch has no branches, nor has a trunk with problems."""
        if self.story or len(self.problems) >= _ENOUGH_PROBLEMS:
            return False
        while len(self._alive) >= self._limit:
            self._await_first()
        loop = asyncio.get_running_loop()
        reading, writing = os.pipe()
        process = _fork()
        if process == 0:
            self._become(story, loop, report=writing)
            return True
        os.close(writing)
        self.count += 1
        self._alive.append(_Copy(story, process, reading))
        return False

    def explore(self, live: Callable[[], list[str]]) -> None:
        """Live through the trunk and all branches. What each of them gives back is in `problems`, with its story."""
        with _nothing_to_collect():
            try:
                found = live()
            except BaseException:
                if not self.story:
                    raise
                found = [traceback.format_exc()]
            if self.story:
                self._end(found)
        self.problems += found
        while self._alive:
            self._await_first()

    # --- in a branch -------------------------------------------------------------------------------------------------

    def _become(self, story: str, loop: asyncio.AbstractEventLoop, *, report: int) -> None:
        self.story = story
        self._report = report
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_LONGEST_SECONDS)
        # asyncio forgets the running loop in a copy of a process, for most loops could not go on there. This one can.
        asyncio._set_running_loop(loop)

    def _end(self, found: list[str]) -> NoReturn:
        """Nothing of what the trunk would do on its way out may be done twice."""
        try:
            os.write(self._report, "\n".join(found).encode()[:_LONGEST_REPORT])
        finally:
            os._exit(0)

    # --- in the trunk ------------------------------------------------------------------------------------------------

    def _await_first(self) -> None:
        copy = self._alive.popleft()
        with os.fdopen(copy.report, "rb") as report:
            found = report.read().decode(errors="replace")
        _, status = os.waitpid(copy.process, 0)
        if status:
            found += f"ended with {os.waitstatus_to_exitcode(status)}"
        if found:
            self.problems.append(f"{copy.story}: {found}")


def _fork() -> int:
    with warnings.catch_warnings():
        # Later Pythons warn where there are threads, as a runner of tests may have them. No branch needs those.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


@contextmanager
def _nothing_to_collect() -> Iterator[None]:
    """Garbage collection would touch, and so copy, every page of memory in every branch."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
