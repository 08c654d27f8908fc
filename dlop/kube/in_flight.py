"""Places for what may be under way at once. Whoever comes when all are taken waits, and who can wait lets others go first."""

from __future__ import annotations

import asyncio
from collections import deque

# So long others go first. After that, who can wait has waited enough: nobody waits for ever.
LONGEST_PATIENCE_SECONDS = 5.0
# The part of all places that those who can wait make do with. A server that is busy with many of them at once is late with what
# others wait for: with their answers, and with telling everybody of what they have written.
_SHARE_OF_THE_PATIENT = 1 / 8
# Timers of some loops are early by less than this.
_A_MOMENT = 0.01

_Line = deque[tuple[float, asyncio.Future[None]]]
"""Since when each one waits, and what for."""


class InFlightLimiter:
    """A bounded number of places, and two lines in front of them, each in its order."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._left_to_others = count - max(1, int(count * _SHARE_OF_THE_PATIENT))
        """How many places stay free when the last one of those who can wait comes in."""
        self._first_line: _Line = deque()
        self._second_line: _Line = deque()
        self._was_overdue = False
        """Whether the last place went to one who had waited long enough."""

    def are_free(self, *, can_wait: bool = False) -> bool:
        """Whether whoever comes now gets a place at once."""
        return self._free > (self._left_to_others if can_wait else 0)

    async def take(self, *, can_wait: bool = False) -> None:
        """Take a place, as soon as there is one."""
        if self.are_free(can_wait=can_wait):
            self._free -= 1
            return
        loop = asyncio.get_running_loop()
        place = loop.create_future()
        (self._second_line if can_wait else self._first_line).append((loop.time(), place))
        # Others may stay for long, with free places beside them.
        patience = loop.call_later(LONGEST_PATIENCE_SECONDS + _A_MOMENT, self._let_in) if can_wait else None
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():
                self.give_back()  # it was given one, and is not there any more to use it
            raise
        finally:
            if patience is not None:
                patience.cancel()

    def give_back(self) -> None:
        """Leave a place to who is next."""
        self._free += 1
        self._let_in()

    def _let_in(self) -> None:
        while self._free and (line := self._next_line()):
            _, place = line.popleft()
            if not place.cancelled():
                self._free -= 1
                place.set_result(None)

    def _next_line(self) -> _Line | None:
        patient = self._second_line
        is_overdue = bool(patient) and patient[0][0] + LONGEST_PATIENCE_SECONDS <= asyncio.get_running_loop().time()
        # In turns: many who have waited long enough keep nobody else waiting.
        self._was_overdue = is_overdue and not self._was_overdue
        if self._first_line and not self._was_overdue:
            return self._first_line
        return patient if is_overdue or self.are_free(can_wait=True) else None
