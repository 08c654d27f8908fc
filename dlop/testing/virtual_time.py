"""An event loop with virtual time, and a wall clock that follows it.

When all tasks wait, the clock jumps to the next timer. If there is no timer either, `Deadlock` is raised. The loop does not support
sockets. Functions that are to run in another thread run at once instead.

    @virtual_time
    async def test_a_day_passes() -> None:
        await asyncio.sleep(86_400)
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
    """All tasks wait, and there is no timer."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An asyncio event loop with virtual time, starting at zero."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_JumpingSelector(self._jump))
        # The tolerance of asyncio for timers in seconds. It must exceed the rounding error of a clock that shows years.
        self._clock_resolution = 1e-7

    def time(self) -> float:
        return self._now

    def call_at(self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None) -> asyncio.TimerHandle:
        # A timer within the tolerance fires immediately. Advance the clock to it, otherwise the caller would wait again and again.
        if when - self._now < self._clock_resolution:
            self._now = max(self._now, when)
        return super().call_at(when, callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Call the function at once, because the clock must not advance meanwhile."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - raised where the future is awaited
            future.set_exception(error)
        return future

    def advance(self, seconds: float) -> None:
        """Advance the clock without running timers, like a process that was stopped."""
        self._now += seconds

    def _jump(self, seconds: float | None) -> None:
        if seconds is None:
            waiting = ", ".join(sorted(task.get_name() for task in asyncio.all_tasks(self)))
            raise Deadlock(f"nothing is ready and nothing is scheduled at {self._now} s; waiting tasks: {waiting}")
        self._now += seconds


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that passes its timeout to `jump` instead of waiting."""

    def __init__(self, jump: Callable[[float | None], None]) -> None:
        super().__init__()
        self._jump = jump

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if not ready and (timeout is None or timeout > 0):
            self._jump(timeout)
        return ready


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a new event loop with virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)


def virtual_time(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Make a test function of a coroutine function that runs on virtual time. Apply it below `@given`."""

    @functools.wraps(test)
    def run_to_the_end(*args: P.args, **kwargs: P.kwargs) -> T:
        return run(test(*args, **kwargs))

    return run_to_the_end


DEFAULT_START = 1_750_000_000.0
"""The initial time of tests, in seconds since the epoch."""


class LoopClock:
    """Seconds since the epoch, advanced by the running event loop."""

    def __init__(self, *, start: float = DEFAULT_START) -> None:
        """`start` is the initial time."""
        self._offset = start - asyncio.get_running_loop().time()

    def __call__(self) -> float:
        return self._offset + asyncio.get_running_loop().time()
