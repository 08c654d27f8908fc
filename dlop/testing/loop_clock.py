"""The wall clock of a test: it goes with the event loop, so that virtual time moves it too."""

from __future__ import annotations

import asyncio

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
