"""RFC 3339 times and the ages in the output of `kubectl get`."""

from __future__ import annotations

import re
from datetime import datetime

from dlop.embedded.apiserver.resource_type import Timestamp
from dlop.kube import timestamps

_RFC_3339 = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(\.\d+)?([Zz]|[+-]\d\d:\d\d)")

_MINUTE = 60
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
_YEAR = 365 * _DAY


def parse_time(text: str) -> float:
    """Seconds since the epoch.

    Raises:
        ValueError: the text is not an RFC 3339 time.
    """
    match = _RFC_3339.fullmatch(text)
    if match is None:
        raise ValueError(f"not a time: {text!r}")
    day, clock, fraction, zone = match.groups()
    time = datetime.fromisoformat(f"{day}T{clock}{'+00:00' if zone in 'Zz' else zone}")
    return time.timestamp() + float(fraction or 0)


def format_time(time: Timestamp) -> str:
    """A time with a resolution of one second, as in creationTimestamp."""
    return timestamps.format_time(time.seconds)


def age(timestamp: str | None, now: Timestamp) -> str:
    """The age of a timestamp for a table cell; `<unknown>` without a timestamp."""
    if not timestamp:
        return "<unknown>"
    try:
        return human_duration(now.seconds - parse_time(timestamp))
    except ValueError:
        return "<invalid>"


def human_duration(seconds: float) -> str:
    """A duration with at most two units, like `duration.HumanDuration` of apimachinery."""
    total = int(seconds)
    if total < -1:
        return "<invalid>"
    if total < 0:
        return "0s"
    if total < 2 * _MINUTE:
        return f"{total}s"
    if total < 10 * _MINUTE:
        return _two_units(total, _MINUTE, "m", 1, "s")
    if total < 3 * _HOUR:
        return f"{total // _MINUTE}m"
    return _long_duration(total)


def _long_duration(total: int) -> str:
    if total < 8 * _HOUR:
        return _two_units(total, _HOUR, "h", _MINUTE, "m")
    if total < 2 * _DAY:
        return f"{total // _HOUR}h"
    if total < 8 * _DAY:
        return _two_units(total, _DAY, "d", _HOUR, "h")
    if total < 2 * _YEAR:
        return f"{total // _DAY}d"
    if total < 8 * _YEAR:
        return _two_units(total, _YEAR, "y", _DAY, "d")
    return f"{total // _YEAR}y"


def _two_units(total: int, large: int, large_unit: str, small: int, small_unit: str) -> str:
    rest = total % large // small
    return f"{total // large}{large_unit}{rest}{small_unit}" if rest else f"{total // large}{large_unit}"
