"""Places for what may be under way at once. Whoever comes when all are taken waits, and who can wait lets others go first."""

from __future__ import annotations

import asyncio
from collections import deque

# So long others go first. After that, who can wait has waited enough: nobody waits for ever.
LONGEST_PATIENCE_SECONDS = 5.0

_Line = deque[tuple[float, asyncio.Future[None]]]
"""Since when each one waits, and what for."""


class Places:
    """A bounded number of places, and two lines in front of them, each in its order."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._first_line: _Line = deque()
        self._second_line: _Line = deque()
        self._was_overdue = False
        """Whether the last place went to one who had waited long enough."""

    @property
    def are_taken(self) -> bool:
        """Whether whoever comes now has to wait."""
        return self._free == 0

    async def take(self, *, can_wait: bool = False) -> None:
        """Take a place, as soon as there is one."""
        if self._free:
            self._free -= 1
            return
        loop = asyncio.get_running_loop()
        place = loop.create_future()
        (self._second_line if can_wait else self._first_line).append((loop.time(), place))
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():
                self.give_back()  # it was given one, and is not there any more to use it
            raise

    def give_back(self) -> None:
        """Leave a place to who is next."""
        while line := self._next_line():
            _, place = line.popleft()
            if not place.cancelled():
                place.set_result(None)
                return
        self._free += 1

    def _next_line(self) -> _Line:
        patient = self._second_line
        is_overdue = bool(patient) and patient[0][0] + LONGEST_PATIENCE_SECONDS <= asyncio.get_running_loop().time()
        # In turns: many who have waited long enough keep nobody else waiting.
        self._was_overdue = is_overdue and not self._was_overdue
        return patient if self._was_overdue else self._first_line or patient
