"""Resource quantities (`500m`, `1Gi`): read them, add them up exactly, and write them as the server does.

The server keeps a quantity in its shortest form of the same family: `1024Mi` comes back as `1Gi`, `1000m` as `1`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import Enum, auto
from fractions import Fraction
from functools import lru_cache

ONE = 10**9
"""How many billionths make one."""

BAD_QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
BAD_SUFFIX = "unable to parse quantity's suffix"
_NUMBER = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)(.*)", re.DOTALL)
# No more digits than any quantity needs: a number with a thousand million zeros would fill the memory.
_EXPONENT = re.compile(r"[eE]([+-]?\d{1,2})")
_BINARY = {suffix: 1024**power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIX = {power: suffix for suffix, power in _DECIMAL.items()}
_SMALLEST = Fraction(1, ONE)


class Family(Enum):
    """How a quantity is written."""

    DECIMAL = auto()
    BINARY = auto()
    EXPONENT = auto()


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number, and how it is written."""

    value: Fraction = Fraction(0)
    family: Family = Family.DECIMAL

    def __add__(self, other: Quantity) -> Quantity:
        """The sum, written as the first that is more than nothing."""
        return Quantity(self.value + other.value, self.family if self.value else other.family)

    def __mul__(self, times: int) -> Quantity:
        """So many of it."""
        return Quantity(self.value * times, self.family)

    def __str__(self) -> str:
        """As the server writes it."""
        if self.family is Family.BINARY and abs(self.value) >= 1024 and self.value.denominator == 1:
            return _binary_text(int(self.value))
        return _decimal_text(self.value, exponent=self.family is Family.EXPONENT)


@lru_cache(maxsize=4096)
def quantity(text: str) -> Quantity:
    """What a text says.

    Raises:
        ValueError: with the server's own sentence.
    """
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueError(BAD_QUANTITY)
    sign, digits, suffix = match.groups()
    factor, family = _factor(suffix)
    value = Fraction(digits) * factor
    # Nothing smaller than a billionth is kept; what is between two is rounded away from zero.
    parts = value / _SMALLEST
    rounded = -(-parts.numerator // parts.denominator) * _SMALLEST
    return Quantity(-rounded if sign == "-" else rounded, family)


def billionths(text: str) -> int:
    """The number that a quantity stands for, counted in the smallest unit that there is.

    Raises:
        ValueError: with the server's own sentence.
    """
    return int(quantity(text).value * ONE)


def canonical_quantity(text: str) -> str:
    """The quantity as the server writes it.

    Raises:
        ValueError: with the server's own sentence.
    """
    return str(quantity(text))


def amount(text: str | float) -> Fraction:
    """The exact value of a quantity.

    Raises:
        ValueError: it is not a quantity.
    """
    try:
        return quantity(str(text).strip()).value
    except ValueError:
        raise ValueError(f"{text!r} is not a quantity") from None


def in_units(text: str, *, divisor: str = "1") -> int:
    """A quantity divided by `divisor`, rounded up. A divisor of 0 counts as 1."""
    return math.ceil(amount(text) / (amount(divisor) or 1))


def rounded_up(text: str) -> int:
    """A quantity as an integer, rounded up."""
    return in_units(text)


def _factor(suffix: str) -> tuple[Fraction, Family]:
    if suffix in _BINARY:
        return Fraction(_BINARY[suffix]), Family.BINARY
    if suffix in _DECIMAL:
        return Fraction(10) ** _DECIMAL[suffix], Family.DECIMAL
    if match := _EXPONENT.fullmatch(suffix):
        return Fraction(10) ** int(match[1]), Family.EXPONENT
    raise ValueError(BAD_SUFFIX if re.fullmatch(r"[eEinumkKMGTP]*[-+]?[0-9]*", suffix) else BAD_QUANTITY)


def _binary_text(value: int) -> str:
    suffix = ""
    for candidate, factor in _BINARY.items():
        if value % factor:
            break
        suffix = candidate
    return f"{value // _BINARY.get(suffix, 1)}{suffix}"


def _decimal_text(value: Fraction, *, exponent: bool) -> str:
    if value == 0:
        return "0"
    power = -9
    mantissa = int(value * ONE)
    while mantissa % 1000 == 0 and (exponent or power < 18):
        mantissa //= 1000
        power += 3
    if exponent:
        return f"{mantissa}e{power}" if power else str(mantissa)
    return f"{mantissa}{_DECIMAL_SUFFIX[power]}"
