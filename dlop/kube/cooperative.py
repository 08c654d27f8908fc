"""Cooperative yielding: long work on the event loop lets other tasks run every few milliseconds."""

from __future__ import annotations

import asyncio

_BUDGET_SECONDS = 0.01
# With virtual time the clock does not advance during work, so the number of steps is limited as well.
_BUDGET_STEPS = 500


class YieldBudget:
    """The time one task may run before it yields. Call `maybe_yield` after each small step."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ends = self._loop.time() + _BUDGET_SECONDS
        self._steps = 0

    async def maybe_yield(self) -> None:
        """Yield to the event loop if the budget is used up, and start a new one."""
        self._steps += 1
        if self._steps >= _BUDGET_STEPS or self._loop.time() >= self._ends:
            await asyncio.sleep(0)
            self._steps = 0
            self._ends = self._loop.time() + _BUDGET_SECONDS
