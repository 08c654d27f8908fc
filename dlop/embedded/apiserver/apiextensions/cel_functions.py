"""CEL functions that the CEL library does not have.

Only the functions that the CRDs of dlop and of the conformance suite use are implemented. A CRD that uses another function
of the Kubernetes CEL libraries is rejected with "undeclared reference". `x.f(a)` and `f(x, a)` call the same function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import cel


def _lower_ascii(text: str) -> str:
    return "".join(letter.lower() if letter.isascii() else letter for letter in text)


def _is_url(text: str) -> bool:
    try:
        return text.startswith("/") or bool(urlsplit(text).scheme)
    except ValueError:
        return False


def optional_field(value: Any, key: Any) -> Any:
    """Implements `.?key` and `[?key]`: the optional field of a value or optional value."""
    if isinstance(value, cel.OptionalValue):
        if not value.has_value():
            return value
        value = value.value()
    exists = 0 <= key < len(value) if isinstance(value, list) else key in value
    return cel.OptionalValue.of(value[key]) if exists else cel.OptionalValue.none()


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "lowerAscii": _lower_ascii,
    "isURL": _is_url,
    "characters": len,
    "optionalField": optional_field,
}
"""By name. `characters` and `optionalField` implement language features that the library lacks; see `cel_parser.rewrite`."""
