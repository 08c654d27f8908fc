"""Moments, in seconds since the epoch, as the API writes them."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache


def to_the_second(seconds: float) -> str:
    """As in creationTimestamp."""
    return _to_the_second(int(seconds))


def to_the_microsecond(seconds: float) -> str:
    """As in the renewTime of a lease or the eventTime of an event."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@lru_cache(maxsize=64)
def _to_the_second(seconds: int) -> str:
    # Kept, because all that happens within a second has the same text.
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
