"""An event loop whose clock jumps: a day of waiting costs no time at all.

When every task waits, the clock moves at once to the next timer. When every task waits and there is no timer, nothing
can ever happen again: that is a `Deadlock`, raised at once. Sockets and threads have no place on this loop.

    @virtual_time
    async def test_a_day_passes() -> None:
        await asyncio.sleep(86_400)

The wall clock of a test: it goes with the event loop, so that virtual time moves it too.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, ParamSpec, TypeVar, TypeVarTuple

T = TypeVar("T")
P = ParamSpec("P")
Ts = TypeVarTuple("Ts")


class Deadlock(RuntimeError):  # noqa: N818
    """Every task waits for something that can never happen."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An asyncio loop on virtual time, which begins at zero."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_JumpingSelector(self._jump))
        # asyncio's own slack for timers, in seconds: it has to exceed the rounding of a clock that shows years.
        self._clock_resolution = 1e-7

    def time(self) -> float:
        """The virtual moment, in seconds."""
        return self._now

    def call_at(self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None) -> asyncio.TimerHandle:
        """Schedule a call. A wait within the slack is over at once, so the clock has to show its end: else nobody gets on."""
        if when - self._now < self._clock_resolution:
            self._now = max(self._now, when)
        return super().call_at(when, callback, *args, context=context)

    def advance(self, seconds: float) -> None:
        """Let time pass while nothing runs, as for a process that was paused."""
        self._now += seconds

    def _jump(self, seconds: float | None) -> None:
        if seconds is None:
            waiting = ", ".join(sorted(task.get_name() for task in asyncio.all_tasks(self)))
            raise Deadlock(f"nothing is ready and nothing is scheduled at {self._now} s; waiting for ever: {waiting}")
        self._now += seconds


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that never waits: the time it was asked to wait is handed to `jump`."""

    def __init__(self, jump: Callable[[float | None], None]) -> None:
        super().__init__()
        self._jump = jump

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if not ready and (timeout is None or timeout > 0):
            self._jump(timeout)
        return ready


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a fresh loop with virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)


def virtual_time(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Make a plain function of a coroutine function: it runs on virtual time. Goes below `@given`."""

    @functools.wraps(test)
    def run_to_the_end(*args: P.args, **kwargs: P.kwargs) -> T:
        return run(test(*args, **kwargs))

    return run_to_the_end


DEFAULT_START = 1_750_000_000.0
"""When tests begin, in seconds since the epoch."""


class LoopClock:
    """Seconds since the epoch, counted by the running event loop."""

    def __init__(self, *, start: float = DEFAULT_START) -> None:
        """`start` is the moment that the clock shows first."""
        self._offset = start - asyncio.get_running_loop().time()

    def __call__(self) -> float:
        """The moment now."""
        return self._offset + asyncio.get_running_loop().time()
