"""The query of a request for logs, in the words of the log files."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from dlop.embedded.kubelet.logs import LogQuery

_SECOND = 1_000_000_000


def log_query(query: Mapping[str, str], *, now_seconds: float) -> LogQuery:
    """What of a log a query asks for.

    Raises:
        ValueError: a value makes no sense.
    """
    try:
        return LogQuery(
            follow=query.get("follow") == "true",
            timestamps=query.get("timestamps") == "true",
            tail_lines=_number(query, "tailLines"),
            limit_bytes=_number(query, "limitBytes"),
            since_nanoseconds=_since(query, now_seconds),
        )
    except ValueError as error:
        raise ValueError('{"message": "Unable to decode query."}') from error


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if int(text) < 0:
        raise ValueError(text)
    return int(text)


def _since(query: Mapping[str, str], now_seconds: float) -> int | None:
    seconds = _number(query, "sinceSeconds")
    if seconds is not None:
        return max(0, int((now_seconds - seconds) * _SECOND))
    if "sinceTime" in query:
        return max(0, int(datetime.fromisoformat(query["sinceTime"]).timestamp() * _SECOND))
    return None
