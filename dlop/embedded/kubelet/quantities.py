"""Amounts of resources as pods write them (`500m`, `2Gi`, `1e3`), as numbers.

All numbers are exact. What leaves this module as a whole number is rounded up, as Kubernetes does it.
"""

from __future__ import annotations

import math
from fractions import Fraction


def amount(quantity: str | float) -> Fraction:
    """The number that a quantity stands for.

    Raises:
        ValueError: it is no quantity.
    """
    try:
        return quantity.quantity(str(quantity).strip()).value
    except ValueError:
        raise ValueError(f"{quantity!r} is no quantity") from None


def in_units(quantity: str, *, divisor: str = "1") -> int:
    """How many whole times the divisor goes into a quantity, rounded up. A divisor of nothing counts as one."""
    return math.ceil(amount(quantity) / (amount(divisor) or 1))


def whole(quantity: str) -> int:
    """The quantity as a whole number."""
    return in_units(quantity)
