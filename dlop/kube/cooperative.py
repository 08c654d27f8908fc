"""Long work in slices: other tasks get their turn at least every few milliseconds."""

from __future__ import annotations

import asyncio

_SLICE_SECONDS = 0.01
# On a loop with virtual time the clock stands still during work; a slice then ends by this count alone.
_SLICE_STEPS = 500


class Slices:
    """Paces one piece of work. Call `breathe` after each small step of it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ends = self._loop.time() + _SLICE_SECONDS
        self._steps = 0

    async def breathe(self) -> None:
        """Give way to other tasks if this slice has lasted long enough."""
        self._steps += 1
        if self._steps >= _SLICE_STEPS or self._loop.time() >= self._ends:
            await asyncio.sleep(0)
            self._steps = 0
            self._ends = self._loop.time() + _SLICE_SECONDS
