"""String formats of schemas, and conversion of Go regular expressions to Python.

Only the formats that have a CEL type of their own are validated. Other formats are ignored, as kube-apiserver does with
unknown formats.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from datetime import date

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_CLOCK = re.compile(r"(\d\d):(\d\d):(\d\d)(.\d+)?(z|[+-]\d\d:\d\d)")
_GO_DURATION = re.compile(r"[-+]?(0|((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+)")
_LOOSE_DURATION = re.compile(r"\d+\s*([A-Za-zµ]+)")
_UNITS = ("ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk")
_UNIT_STARTS = ("nano", "micro", "milli", "sec", "min", "hour", "day", "week")
_POSIX_CLASSES = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "0-9A-Za-z",
    "upper": "A-Z",
    "lower": "a-z",
    "space": r"\s",
    "word": r"\w",
    "xdigit": "0-9A-Fa-f",
    "punct": r"!-/:-@\[-`{-~",
}


def go_pattern(pattern: str) -> re.Pattern[str]:
    r"""Compile a Go regular expression. In Go, `$` and `\z` match only at the end of the text, and POSIX classes exist.

    Raises:
        re.error: the pattern is invalid.
    """
    return re.compile(re.sub(r"\\.|\[:\w+:\]|\$(?![^\[]*\])", _to_python, pattern, flags=re.DOTALL), re.ASCII)


def _to_python(match: re.Match[str]) -> str:
    text = match.group()
    if text in ("$", r"\z"):
        return r"\Z"
    if text.startswith("[:"):
        return _POSIX_CLASSES.get(text[2:-2], text)
    return text


def _parses(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            parse(text)
        except (ValueError, binascii.Error):
            return False
        return True

    return check


def _is_base64(text: str) -> bool:
    return text != "" and _parses(lambda value: base64.b64decode(value, validate=True))(text)


def _is_date(text: str) -> bool:
    return _DATE.fullmatch(text) is not None and _parses(date.fromisoformat)(text)


def _is_time(text: str) -> bool:
    day, _, rest = text.lower().partition("t")
    clock = _CLOCK.fullmatch(rest.partition("t")[0])
    return _is_date(day) and clock is not None and clock[1] <= "23" and clock[2] <= "59" and clock[3] <= "59"


def _is_duration(text: str) -> bool:
    if _GO_DURATION.fullmatch(text):
        return True
    units = [unit.lower() for unit in _LOOSE_DURATION.findall(text)]
    return any(unit in _UNITS or unit.startswith(_UNIT_STARTS) for unit in units)


FORMATS: Mapping[str, Callable[[str], bool]] = {
    "byte": _is_base64,
    "date": _is_date,
    "datetime": _is_time,
    "duration": _is_duration,
}
"""By format name without dashes."""
