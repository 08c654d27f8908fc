"""The string formats that a custom resource's schema can ask for, and the patterns of Go in the words of Python.

An unknown format checks nothing, as on the real server.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable, Mapping
from datetime import date
from urllib.parse import urlsplit

_UUID = r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?%s[0-9a-f]{3}-?%s[0-9a-f]{3}-?[0-9a-f]{12}$"
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
# Letters and digits of any script; a name of several labels ends in letters.
_HOST_LETTER = r"[^\W_]"
_HOST_NAME = rf"{_HOST_LETTER}(-?{_HOST_LETTER}{{0,62}})?|({_HOST_LETTER}(({_HOST_LETTER}|-){{0,61}}{_HOST_LETTER})?\.)+[^\W\d_]{{2,63}}"
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
    r"""A pattern of Go's, compiled: `$` is the very end of the text there, `\z` too, and POSIX classes exist.

    Raises:
        re.error: when it is not a regular expression.
    """
    return re.compile(re.sub(r"\\.|\[:\w+:\]|\$(?![^\[]*\])", _in_python, pattern, flags=re.DOTALL), re.ASCII)


def _in_python(found: re.Match[str]) -> str:
    text = found.group()
    if text in ("$", r"\z"):
        return r"\Z"
    if text.startswith("[:"):
        return _POSIX_CLASSES.get(text[2:-2], text)
    return text


def _matches(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern, re.ASCII)
    return lambda text: compiled.fullmatch(text) is not None


def _parses(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            parse(text)
        except (ValueError, binascii.Error):
            return False
        return True

    return check


def _is_uri(text: str) -> bool:
    try:
        return text.startswith("/") or bool(urlsplit(text).scheme)
    except ValueError:
        return False


def _is_cidr(text: str) -> bool:
    return "/" in text and _parses(lambda given: ipaddress.ip_network(given, strict=False))(text)


def _is_base64(text: str) -> bool:
    return text != "" and _parses(lambda given: base64.b64decode(given, validate=True))(text)


def _is_ipv4(text: str) -> bool:
    # Leading zeros, which newer parsers refuse, are still taken here.
    parts = text.split(".")
    return len(parts) == 4 and all(re.fullmatch(r"[0-9]{1,10}", part) and int(part) <= 255 for part in parts)


def _is_hostname(text: str) -> bool:
    return len(text) <= 255 and all(len(part) <= 63 for part in text.split(".")) and re.fullmatch(_HOST_NAME, text) is not None


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


def _is_email(text: str) -> bool:
    named = re.fullmatch(r"[^<>]*<([^<>]+)>", text)
    return re.fullmatch(r"[^@\s<>\"(),:;\[\]\\]+@[^@\s<>\"(),:;\\]+", named[1] if named else text) is not None


def _short_name(text: str) -> bool:
    return len(text) <= 63 and re.fullmatch(_LABEL, text) is not None


def _long_name(text: str) -> bool:
    return len(text) <= 253 and re.fullmatch(rf"{_LABEL}(\.{_LABEL})*", text) is not None


FORMATS: Mapping[str, Callable[[str], bool]] = {
    "bsonobjectid": _matches(r"[0-9a-fA-F]{24}"),
    "byte": _is_base64,
    "cidr": _is_cidr,
    "creditcard": _matches(r"[\d -]{13,25}"),
    "date": _is_date,
    "datetime": _is_time,
    "duration": _is_duration,
    "email": _is_email,
    "hexcolor": _matches(r"#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "hostname": _is_hostname,
    "ipv4": _is_ipv4,
    "ipv6": _parses(ipaddress.IPv6Address),
    "isbn": _matches(r"(97[89][- ]?)?(\d[- ]?){9}[\dX]"),
    "isbn10": _matches(r"(\d[- ]?){9}[\dX]"),
    "isbn13": _matches(r"97[89][- ]?(\d[- ]?){9}\d"),
    "k8slongname": _long_name,
    "k8sshortname": _short_name,
    "mac": _matches(r"([0-9a-fA-F]{2}[:-]){5}([0-9a-fA-F]{2})|([0-9a-fA-F]{4}\.){2}[0-9a-fA-F]{4}"),
    "password": lambda _: True,
    "rgbcolor": _matches(r"rgb\(\s*\d{1,3}\s*,\s*\d{1,3}\s*,\s*\d{1,3}\s*\)"),
    "ssn": _matches(r"\d{3}[- ]?\d{2}[- ]?\d{4}"),
    "uri": _is_uri,
    "uuid": _matches(_UUID % ("[0-9a-f]", "[0-9a-f]")),
    "uuid3": _matches(_UUID % ("3", "[0-9a-f]")),
    "uuid4": _matches(_UUID % ("4", "[89ab]")),
    "uuid5": _matches(_UUID % ("5", "[89ab]")),
}
"""By the name of the format without its dashes."""
