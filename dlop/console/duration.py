"""Spans of time as people say them, and as they write them."""

from __future__ import annotations

import re

from dlop.kube.timestamps import parse_time

_UNITS = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))
_PART = re.compile(r"(\d+(?:\.\d+)?)([dhms])")


def short(seconds: float) -> str:
    """As in tables: the two units that matter, `3d4h`, `12m5s`, `0s`."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
    return "".join(parts[:2]) or "0s"


def between(start: str, end: str | None, *, now: float) -> str:
    """How long it was from one moment to another, or is until now; empty without a beginning."""
    began = parse_time(start)
    if began is None:
        return ""
    return short((parse_time(end) or now) - began)


def read_seconds(text: str) -> float:
    """`90`, `90s`, `5m`, `1h30m` in seconds.

    Raises:
        ValueError: it is none of them.
    """
    plain = text.strip().lower()
    try:
        seconds = float(plain)
    except ValueError:
        parts = _PART.findall(plain)
        if not parts or "".join(map("".join, parts)) != plain:
            raise ValueError(f"{text!r} is no length of time; write it as 90s, 5m or 1h30m") from None
        return sum(float(count) * dict(_UNITS)[unit] for count, unit in parts)
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"{text!r} is no length of time; write it as 90s, 5m or 1h30m")
    return seconds
