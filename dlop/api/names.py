"""Deterministic names of pods and services that never exceed the limits of the API.

A name that is too long is truncated and gets a hash of the full name, so that two long names with a common prefix differ.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Mapping

MAX_LABEL_LENGTH = 63
"""Of a DNS label, and therefore of service names and label values."""
MAX_NAME_LENGTH = 253
"""Of the names of pods and most other objects."""
_HASH_LENGTH = 8
_INVALID_IN_DNS = re.compile(r"[^-a-z0-9]")
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"


def dns_label(base: str, suffix: str) -> str:
    """`base + suffix` as a DNS label that starts with a letter, for names of services.

    The suffix (role and index) must be valid already and is kept. Only the base is normalized and truncated.
    """
    normalized = _normalize(base)
    if normalized == base and len(normalized) + len(suffix) <= MAX_LABEL_LENGTH:
        return normalized + suffix
    room = MAX_LABEL_LENGTH - len(suffix) - _HASH_LENGTH - 1
    return f"{normalized[:room].rstrip('-')}-{short_hash(base, length=_HASH_LENGTH)}{suffix}"


def object_name(base: str, suffix: str) -> str:
    """`base + suffix` as the name of an object that is not a service. `base` is a valid object name."""
    return base + suffix if len(base) + len(suffix) <= MAX_NAME_LENGTH else dns_label(base, suffix)


# Every pass computes the names of all replicas of a job, and they all have the same base.
@functools.lru_cache(maxsize=4096)
def _normalize(base: str) -> str:
    normalized = _INVALID_IN_DNS.sub("-", base.lower()).lstrip("-")
    return normalized if normalized[:1].isalpha() else f"j-{normalized}"


def label_value(text: str) -> str:
    """An object name as a label value. It is valid unless it is too long."""
    if len(text) <= MAX_LABEL_LENGTH:
        return text
    return f"{text[: MAX_LABEL_LENGTH - _HASH_LENGTH - 1].rstrip('-._')}-{short_hash(text, length=_HASH_LENGTH)}"


def format_selector(labels: Mapping[str, str]) -> str:
    """Labels as an equality-based label selector."""
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))


@functools.lru_cache(maxsize=4096)
def short_hash(text: str, *, length: int) -> str:
    """A hash of digits and lower-case letters."""
    number = int.from_bytes(hashlib.sha256(text.encode()).digest())
    digits = []
    for _ in range(length):
        number, digit = divmod(number, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return "".join(digits)
