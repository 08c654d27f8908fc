"""Format and parse durations."""

from __future__ import annotations

import re

from dlop.kube.timestamps import parse_time

_UNITS = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))
_PART = re.compile(r"(\d+(?:\.\d+)?)([dhms])")


def format_duration(seconds: float) -> str:
    """The two largest units: `3d4h`, `12m5s`, `0s`."""
    remaining = max(0, int(seconds))
    parts: list[str] = []
    for unit, size in _UNITS:
        count, remaining = divmod(remaining, size)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
    return "".join(parts[:2]) or "0s"


def format_elapsed(start: str, end: str | None, *, now: float) -> str:
    """The duration from `start` to `end`, or to `now` without an end. Empty without a start."""
    started = parse_time(start)
    if started is None:
        return ""
    return format_duration((parse_time(end) or now) - started)


def format_until(time: str, *, now: float) -> str:
    """`in 3h`, or `3h ago`. Empty without a time."""
    parsed = parse_time(time)
    if parsed is None:
        return ""
    return f"in {format_duration(parsed - now)}" if parsed >= now else f"{format_duration(now - parsed)} ago"


def parse_duration(text: str) -> float:
    """Seconds of `90`, `90s`, `5m` or `1h30m`.

    Raises:
        ValueError: the text is not a duration.
    """
    normalized = text.strip().lower()
    try:
        seconds = float(normalized)
    except ValueError:
        parts = _PART.findall(normalized)
        if not parts or "".join(map("".join, parts)) != normalized:
            raise ValueError(f"{text!r} is not a duration; use 90s, 5m or 1h30m") from None
        return sum(float(count) * dict(_UNITS)[unit] for count, unit in parts)
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"{text!r} is not a duration; use 90s, 5m or 1h30m")
    return seconds
