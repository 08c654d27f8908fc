"""How long to wait after a failure: longer each time, never the same for everyone, and short again once things go well."""

from __future__ import annotations

from random import Random

# A server that asks for more patience than this has lost its mind, or a proxy has.
MAX_RETRY_AFTER_SECONDS = 300.0


class Backoff:
    """Delays that double up to a cap, each stretched by up to as much again, at random, as client-go's are.

    The stretching keeps a fleet of clients from coming back at the same moment.
    """

    def __init__(self, *, rng: Random, first_seconds: float, cap_seconds: float, reset_after_seconds: float) -> None:
        self._rng = rng
        self._first_seconds = first_seconds
        self._cap_seconds = cap_seconds
        self._reset_after_seconds = reset_after_seconds
        self._next_seconds = first_seconds
        self._last_failure: float | None = None

    def reset(self) -> None:
        """Begin anew: the next failure has nothing to do with the last one."""
        self._next_seconds = self._first_seconds

    def delay_seconds(self, *, now: float, retry_after_seconds: float | None = None) -> float:
        """How long to wait after a failure at the moment `now`; a long time without one makes it a first one."""
        if self._last_failure is not None and now - self._last_failure > self._reset_after_seconds:
            self.reset()
        delay = self._next_seconds * (1.0 + self._rng.random())
        self._next_seconds = min(self._cap_seconds, self._next_seconds * 2)
        self._last_failure = now
        return max(delay, min(retry_after_seconds or 0.0, MAX_RETRY_AFTER_SECONDS))
