"""Parses the query parameters of a request for logs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from dlop.embedded.kubelet.logs import LogQuery

_NANOSECONDS_PER_SECOND = 1_000_000_000


def log_query(query: Mapping[str, str], *, now_seconds: float) -> LogQuery:
    """Parse a query.

    Raises:
        ValueError: a value is invalid.
    """
    try:
        return LogQuery(
            follow=query.get("follow") == "true",
            timestamps=query.get("timestamps") == "true",
            tail_lines=_non_negative_integer(query, "tailLines"),
            limit_bytes=_non_negative_integer(query, "limitBytes"),
            since_nanoseconds=_since(query, now_seconds),
        )
    except ValueError as error:
        raise ValueError('{"message": "Unable to decode query."}') from error


def _non_negative_integer(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if int(text) < 0:
        raise ValueError(text)
    return int(text)


def _since(query: Mapping[str, str], now_seconds: float) -> int | None:
    seconds = _non_negative_integer(query, "sinceSeconds")
    if seconds is not None:
        return max(0, int((now_seconds - seconds) * _NANOSECONDS_PER_SECOND))
    if "sinceTime" in query:
        return max(0, int(datetime.fromisoformat(query["sinceTime"]).timestamp() * _NANOSECONDS_PER_SECOND))
    return None
