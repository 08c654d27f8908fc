"""Times in the formats of the Kubernetes API. In Python, a time is a float: seconds since the epoch."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache


def format_time(seconds: float) -> str:
    """RFC 3339 with a precision of one second, as in creationTimestamp."""
    return _format_seconds(int(seconds))


@lru_cache(maxsize=64)
def _format_seconds(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(seconds: float) -> str:
    """RFC 3339 with microseconds (MicroTime), as in the renewTime of a lease and the eventTime of an event."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: object) -> float | None:
    """Seconds since the epoch; None if `text` is not a string with a date, a time and a time zone."""
    if not isinstance(text, str):
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time.timestamp() if time.tzinfo is not None else None


def earliest(*times: float | None) -> float | None:
    """The smallest of the times that are not None; None if there is none."""
    return min((time for time in times if time is not None), default=None)
