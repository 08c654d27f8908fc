"""Names of pods and services: the same for the same job every time, and never longer than the API takes.

A name that fits is used as it is. One that does not is cut, and gets a few characters of a hash of the whole, so that two
long names with the same beginning stay two names.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Mapping

LONGEST = 63
"""What a DNS label, and so the name of a service and the value of a label, may have."""
LONGEST_OF_OBJECT = 253
"""What the name of a pod, and of most other objects, may have."""
_HASH_LENGTH = 8
_UNFIT_FOR_DNS = re.compile(r"[^-a-z0-9]")
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"


def dns_label(base: str, suffix: str) -> str:
    """`base + suffix` as the name of a service: lower-case letters, digits and dashes, a letter first, 63 at most.

    The suffix (role and index) must be fit for that already, and is kept whole; what has to give is the base.
    """
    plain = _plain(base)
    if plain == base and len(plain) + len(suffix) <= LONGEST:
        return plain + suffix
    room = LONGEST - len(suffix) - _HASH_LENGTH - 1
    return f"{plain[:room].rstrip('-')}-{fingerprint(base, length=_HASH_LENGTH)}{suffix}"


def object_name(base: str, suffix: str) -> str:
    """`base + suffix` as the name of an object without a service: the name of any job will do for it, unless it is too long."""
    return base + suffix if len(base) + len(suffix) <= LONGEST_OF_OBJECT else dns_label(base, suffix)


# A job is asked for the names of all its replicas in every pass, and they all begin alike.
@functools.lru_cache(maxsize=4096)
def _plain(base: str) -> str:
    plain = _UNFIT_FOR_DNS.sub("-", base.lower()).lstrip("-")
    return plain if plain[:1].isalpha() else f"j-{plain}"


def label_value(text: str) -> str:
    """A text as the value of a label. The name of any object is fit for one, unless it is too long."""
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST - _HASH_LENGTH - 1].rstrip('-._')}-{fingerprint(text, length=_HASH_LENGTH)}"


def selector(labels: Mapping[str, str]) -> str:
    """Labels as a text by which objects are selected."""
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))


@functools.lru_cache(maxsize=4096)
def fingerprint(text: str, *, length: int) -> str:
    """A few digits and lower-case letters that stand for a text."""
    number = int.from_bytes(hashlib.sha256(text.encode()).digest())
    digits = []
    for _ in range(length):
        number, digit = divmod(number, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return "".join(digits)
