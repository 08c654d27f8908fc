"""Exponential back-off with jitter."""

from __future__ import annotations

from random import Random

# A longer Retry-After is a mistake of the server or of a proxy.
MAX_RETRY_AFTER_SECONDS = 300.0


class ExponentialBackoff:
    """Delays that double up to a cap, each multiplied by a random factor between 1 and 2, as in client-go.

    The jitter keeps a fleet of clients from retrying at the same time.
    """

    def __init__(self, *, rng: Random, first_seconds: float, cap_seconds: float, reset_after_seconds: float) -> None:
        self._rng = rng
        self._first_seconds = first_seconds
        self._cap_seconds = cap_seconds
        self._reset_after_seconds = reset_after_seconds
        self._next_seconds = first_seconds
        self._last_failure: float | None = None

    def reset(self) -> None:
        """Start the next failure with the first delay again."""
        self._next_seconds = self._first_seconds

    def delay_seconds(self, *, now: float, retry_after_seconds: float | None = None) -> float:
        """The delay after a failure at `now`. Resets first if the last failure is more than `reset_after_seconds` ago.

        The delay is at least `retry_after_seconds`, which is capped at MAX_RETRY_AFTER_SECONDS.
        """
        if self._last_failure is not None and now - self._last_failure > self._reset_after_seconds:
            self.reset()
        delay = self._next_seconds * (1.0 + self._rng.random())
        self._next_seconds = min(self._cap_seconds, self._next_seconds * 2)
        self._last_failure = now
        return max(delay, min(retry_after_seconds or 0.0, MAX_RETRY_AFTER_SECONDS))
