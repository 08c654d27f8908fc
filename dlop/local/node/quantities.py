"""Amounts of resources as pods write them (`500m`, `2Gi`, `1e3`), as numbers.

All numbers are exact. What leaves this module as a whole number is rounded up, as Kubernetes does it.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import lru_cache

_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:[eE]([+-]?\d+)|([KMGTPE]i|[numkMGTPE])?)")
_BINARY = {f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", start=1)}
_DECIMAL = {
    suffix: Fraction(10) ** power
    for suffix, power in {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}.items()
}
_FACTORS = {"": Fraction(1), **_BINARY, **_DECIMAL}


@lru_cache(maxsize=4096)
def amount(quantity: str | float) -> Fraction:
    """The number that a quantity stands for.

    Raises:
        ValueError: it is no quantity.
    """
    match = _QUANTITY.fullmatch(str(quantity).strip())
    if match is None:
        raise ValueError(f"{quantity!r} is no quantity")
    digits, exponent, suffix = match.groups()
    return Fraction(digits) * (Fraction(10) ** int(exponent) if exponent else _FACTORS[suffix or ""])


def in_units(quantity: str, *, divisor: str = "1") -> int:
    """How many whole times the divisor goes into a quantity, rounded up. A divisor of nothing counts as one."""
    return math.ceil(amount(quantity) / (amount(divisor) or 1))


def whole(quantity: str) -> int:
    """The quantity as a whole number."""
    return in_units(quantity)
