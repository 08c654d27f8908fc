"""Times as the API writes them, and the ages that `kubectl get` shows."""

from __future__ import annotations

import re
from datetime import datetime

from dlop.embedded.apiserver.resource_type import Moment
from dlop.kube.timestamps import to_the_second

_RFC_3339 = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(\.\d+)?([Zz]|[+-]\d\d:\d\d)")

_MINUTE = 60
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
_YEAR = 365 * _DAY


def parse_time(text: str) -> float:
    """Seconds since the epoch.

    Raises:
        ValueError: when the text is not a time of RFC 3339.
    """
    found = _RFC_3339.fullmatch(text)
    if found is None:
        raise ValueError(f"not a time: {text!r}")
    day, clock, fraction, zone = found.groups()
    whole = datetime.fromisoformat(f"{day}T{clock}{'+00:00' if zone in 'Zz' else zone}")
    return whole.timestamp() + float(fraction or 0)


def format_time(moment: Moment) -> str:
    """A moment to the second, as in creationTimestamp."""
    return to_the_second(moment.seconds)


def age(timestamp: str | None, moment: Moment) -> str:
    """How long ago, in the few characters of a table cell; `<unknown>` without a time."""
    if not timestamp:
        return "<unknown>"
    try:
        return human_duration(moment.seconds - parse_time(timestamp))
    except ValueError:
        return "<invalid>"


def human_duration(seconds: float) -> str:
    """A duration with about two significant parts, more precise the shorter it is."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    if whole < 10 * _MINUTE:
        return _two(whole, _MINUTE, "m", 1, "s")
    if whole < 3 * _HOUR:
        return f"{whole // _MINUTE}m"
    return _long(whole)


def _long(whole: int) -> str:
    if whole < 8 * _HOUR:
        return _two(whole, _HOUR, "h", _MINUTE, "m")
    if whole < 2 * _DAY:
        return f"{whole // _HOUR}h"
    if whole < 8 * _DAY:
        return _two(whole, _DAY, "d", _HOUR, "h")
    if whole < 2 * _YEAR:
        return f"{whole // _DAY}d"
    if whole < 8 * _YEAR:
        return _two(whole, _YEAR, "y", _DAY, "d")
    return f"{whole // _YEAR}y"


def _two(whole: int, large: int, large_unit: str, small: int, small_unit: str) -> str:
    rest = whole % large // small
    return f"{whole // large}{large_unit}{rest}{small_unit}" if rest else f"{whole // large}{large_unit}"
