"""Moments, in seconds since the epoch, as the API writes them.

Moments as Kubernetes writes them, and as the engine reckons with them: seconds since the epoch.
"""

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


def format_time(moment: float) -> str:
    """A moment as text, to the second, which is as fine as Kubernetes writes it."""
    return to_the_second(moment)


def parse_time(text: object) -> float | None:
    """The moment that a text tells; None when it tells none."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.timestamp() if moment.tzinfo is not None else None


def earliest(*moments: float | None) -> float | None:
    """The first of these moments, leaving out those that never come."""
    return min((moment for moment in moments if moment is not None), default=None)
