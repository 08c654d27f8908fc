"""The functions that Kubernetes adds to CEL and the CEL library lacks: strings, lists, regular expressions, URLs, quantities, sets.

CEL calls `x.f(a)` and `f(x, a)` alike. A value of a type that CEL does not know (a URL, a quantity) is a map with one
marked key, which no expression can reach by accident.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qs, urlsplit

import cel

from dlop.embedded.apiserver.apiextensions.schema_formats import go_pattern

_QUANTITY = re.compile(r"([+-]?[0-9.]+)(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?[0-9]+)?")
_SUFFIXES = {
    "": Decimal(1),
    **{suffix: Decimal(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), -3)},
}
_AMOUNT = "quantity value"
_URL = "url value"


def _ascii(change: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: "".join(change(letter) if letter.isascii() else letter for letter in text)


def _index_of(found_in: Any, wanted: Any, start: int = 0) -> int:
    if isinstance(found_in, str):
        return found_in.find(wanted, start)
    return found_in.index(wanted) if wanted in found_in else -1


def _last_index_of(found_in: Any, wanted: Any, start: int | None = None) -> int:
    if isinstance(found_in, str):
        return found_in.rfind(wanted, 0, None if start is None else start + len(wanted))
    return len(found_in) - 1 - found_in[::-1].index(wanted) if wanted in found_in else -1


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise ValueError(f"index out of range: {index}")
    return text[index : index + 1]


def _substring(text: str, start: int, end: int | None = None) -> str:
    stop = len(text) if end is None else end
    if not 0 <= start <= stop <= len(text):
        raise ValueError(f"index out of range: {start}")
    return text[start:stop]


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    return text.replace(old, new, count)


def _split(text: str, separator: str, count: int = -1) -> list[str]:
    if count == 0:
        return []
    if not separator:
        return list(text)
    return text.split(separator, count - 1 if count > 0 else -1)


def _format(pattern: str, arguments: list[Any]) -> str:
    rest = iter(arguments)
    return re.sub(r"%(\.\d+)?([sdfeboxX%])", lambda found: "%" if found[2] == "%" else _one(found, next(rest)), pattern)


def _one(found: re.Match[str], value: Any) -> str:
    if found[2] == "s":
        return str(value).lower() if isinstance(value, bool) else str(value)
    return format(value, f"{found[1] or ''}{found[2]}")


def _is_sorted(items: list[Any]) -> bool:
    return all(left <= right for left, right in pairwise(items))


def _find(text: str, pattern: str) -> str:
    found = go_pattern(pattern).search(text)
    return found.group() if found else ""


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    found = [one.group() for one in go_pattern(pattern).finditer(text)]
    return found if limit < 0 else found[:limit]


def _url(text: str) -> dict[str, str]:
    if not _is_url(text):
        raise ValueError(f'URL parse error during conversion from string: parse "{text}": invalid URI for request')
    return {_URL: text}


def _is_url(text: str) -> bool:
    try:
        return text.startswith("/") or bool(urlsplit(text).scheme)
    except ValueError:
        return False


def _url_part(part: Callable[[Any], Any]) -> Callable[[dict[str, str]], Any]:
    return lambda url: part(urlsplit(url[_URL]))


def parse_quantity(text: str) -> Decimal:
    """The number that a resource quantity stands for.

    Raises:
        ValueError: when it is not a quantity.
    """
    found = _QUANTITY.fullmatch(text)
    if found is None:
        raise ValueError("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
    number, suffix = found[1], found[2] or ""
    try:
        return Decimal(number) * _SUFFIXES[suffix] if suffix in _SUFFIXES else Decimal(number + suffix)
    except InvalidOperation as problem:
        raise ValueError(f"unable to parse quantity {text!r}") from problem


def _quantity(text: str) -> dict[str, str]:
    return {_AMOUNT: str(parse_quantity(text))}


def _is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except ValueError:
        return False
    return True


def _amount(value: Any) -> Decimal:
    return Decimal(value[_AMOUNT] if isinstance(value, dict) else value)


def _compared(left: Any, right: Any) -> int:
    difference = _amount(left) - _amount(right)
    return (difference > 0) - (difference < 0)


def _set_contains(whole: list[Any], part: list[Any]) -> bool:
    return all(item in whole for item in part)


def optional_field(value: Any, key: Any) -> Any:
    """What `.?key` and `[?key]` stand for: the field, if the value and the field are there."""
    if isinstance(value, cel.OptionalValue):
        if not value.has_value():
            return value
        value = value.value()
    there = 0 <= key < len(value) if isinstance(value, list) else key in value
    return cel.OptionalValue.of(value[key]) if there else cel.OptionalValue.none()


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "charAt": _char_at,
    "indexOf": _index_of,
    "lastIndexOf": _last_index_of,
    "lowerAscii": _ascii(str.lower),
    "upperAscii": _ascii(str.upper),
    "replace": _replace,
    "split": _split,
    "join": lambda items, separator="": separator.join(items),
    "substring": _substring,
    "trim": str.strip,
    "reverse": lambda value: value[::-1],
    "format": _format,
    "isSorted": _is_sorted,
    "sum": lambda items: sum(items[1:], items[0]) if items else 0,
    "min": lambda *items: min(items[0] if len(items) == 1 else items),
    "max": lambda *items: max(items[0] if len(items) == 1 else items),
    "find": _find,
    "findAll": _find_all,
    "url": _url,
    "isURL": _is_url,
    "getScheme": _url_part(lambda parts: parts.scheme),
    "getHost": _url_part(lambda parts: parts.netloc.rpartition("@")[2]),
    "getHostname": _url_part(lambda parts: parts.hostname or ""),
    "getPort": _url_part(lambda parts: str(parts.port or "")),
    "getEscapedPath": _url_part(lambda parts: parts.path),
    "getQuery": _url_part(lambda parts: parse_qs(parts.query, keep_blank_values=True)),
    "quantity": _quantity,
    "isQuantity": _is_quantity,
    "isInteger": lambda value: _amount(value) == _amount(value).to_integral_value(),
    "asInteger": lambda value: int(_amount(value)),
    "asApproximateFloat": lambda value: float(_amount(value)),
    "sign": lambda value: (_amount(value) > 0) - (_amount(value) < 0),
    "isGreaterThan": lambda left, right: _compared(left, right) > 0,
    "isLessThan": lambda left, right: _compared(left, right) < 0,
    "compareTo": _compared,
    "add": lambda left, right: {_AMOUNT: str(_amount(left) + _amount(right))},
    "sub": lambda left, right: {_AMOUNT: str(_amount(left) - _amount(right))},
    "sets.contains": _set_contains,
    "sets.equivalent": lambda left, right: _set_contains(left, right) and _set_contains(right, left),
    "sets.intersects": lambda left, right: any(item in left for item in right),
    "math.greatest": lambda *items: max(items[0] if isinstance(items[0], list) else items),
    "math.least": lambda *items: min(items[0] if isinstance(items[0], list) else items),
    "math.abs": abs,
    "math.ceil": lambda value: float(math.ceil(value)),
    "math.floor": lambda value: float(math.floor(value)),
    "characters": len,
    "optionalField": optional_field,
}
"""By name. `characters` and `optionalField` stand for parts of the language that the library lacks; see cel_source."""
