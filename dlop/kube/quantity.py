"""Resource quantities (`500m`, `1Gi`): exact parsing, arithmetic and canonical form.

The API server stores a quantity in the shortest notation of the same format: `1024Mi` becomes `1Gi`, `1000m` becomes `1`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import Enum, auto
from fractions import Fraction
from functools import lru_cache

NANOS_PER_UNIT = 10**9

BAD_QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
BAD_SUFFIX = "unable to parse quantity's suffix"
_NUMBER = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)(.*)", re.DOTALL)
# Two digits are enough for any quantity. A huge exponent would use up all memory.
_EXPONENT = re.compile(r"[eE]([+-]?\d{1,2})")
_BINARY = {suffix: 1024**power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIX = {power: suffix for suffix, power in _DECIMAL.items()}
_SMALLEST = Fraction(1, NANOS_PER_UNIT)


class QuantityFormat(Enum):
    """Notation of a quantity, as in the Go package `resource`."""

    DECIMAL_SI = auto()
    BINARY_SI = auto()
    DECIMAL_EXPONENT = auto()


@dataclass(frozen=True, slots=True)
class Quantity:
    """An exact value and its notation. `str()` gives the canonical form of the API server."""

    value: Fraction = Fraction(0)
    format: QuantityFormat = QuantityFormat.DECIMAL_SI

    def __add__(self, other: Quantity) -> Quantity:
        """The sum, in the format of the first operand that is not zero."""
        return Quantity(self.value + other.value, self.format if self.value else other.format)

    def __mul__(self, factor: int) -> Quantity:
        return Quantity(self.value * factor, self.format)

    def __str__(self) -> str:
        if self.format is QuantityFormat.BINARY_SI and abs(self.value) >= 1024 and self.value.denominator == 1:
            return _format_binary(int(self.value))
        return _format_decimal(self.value, exponent=self.format is QuantityFormat.DECIMAL_EXPONENT)


@lru_cache(maxsize=4096)
def parse_quantity(text: str) -> Quantity:
    """Parse a quantity.

    Raises:
        ValueError: not a quantity, with the message of the API server.
    """
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueError(BAD_QUANTITY)
    sign, digits, suffix = match.groups()
    factor, quantity_format = _factor(suffix)
    value = Fraction(digits) * factor
    # The precision is one billionth, rounded away from zero.
    nanos = value / _SMALLEST
    rounded = -(-nanos.numerator // nanos.denominator) * _SMALLEST
    return Quantity(-rounded if sign == "-" else rounded, quantity_format)


def nano_value(text: str) -> int:
    """The value of a quantity in billionths, its smallest unit.

    Raises:
        ValueError: not a quantity, with the message of the API server.
    """
    return int(parse_quantity(text).value * NANOS_PER_UNIT)


def canonical_quantity(text: str) -> str:
    """The quantity in the form in which the API server stores it.

    Raises:
        ValueError: not a quantity, with the message of the API server.
    """
    return str(parse_quantity(text))


def quantity_value(text: str | float) -> Fraction:
    """The exact value of a quantity. Surrounding white space is ignored.

    Raises:
        ValueError: not a quantity, with a message that names the text.
    """
    try:
        return parse_quantity(str(text).strip()).value
    except ValueError:
        raise ValueError(f"{text!r} is not a quantity") from None


def value_in_units(text: str, *, divisor: str = "1") -> int:
    """A quantity divided by `divisor`, rounded up, as in the downward API. A divisor of 0 counts as 1."""
    return math.ceil(quantity_value(text) / (quantity_value(divisor) or 1))


def integer_value(text: str) -> int:
    """The value of a quantity as an integer, rounded up."""
    return value_in_units(text)


def _factor(suffix: str) -> tuple[Fraction, QuantityFormat]:
    if suffix in _BINARY:
        return Fraction(_BINARY[suffix]), QuantityFormat.BINARY_SI
    if suffix in _DECIMAL:
        return Fraction(10) ** _DECIMAL[suffix], QuantityFormat.DECIMAL_SI
    if match := _EXPONENT.fullmatch(suffix):
        return Fraction(10) ** int(match[1]), QuantityFormat.DECIMAL_EXPONENT
    raise ValueError(BAD_SUFFIX if re.fullmatch(r"[eEinumkKMGTP]*[-+]?[0-9]*", suffix) else BAD_QUANTITY)


def _format_binary(value: int) -> str:
    suffix = ""
    for candidate, factor in _BINARY.items():
        if value % factor:
            break
        suffix = candidate
    return f"{value // _BINARY.get(suffix, 1)}{suffix}"


def _format_decimal(value: Fraction, *, exponent: bool) -> str:
    if value == 0:
        return "0"
    power = -9
    mantissa = int(value * NANOS_PER_UNIT)
    while mantissa % 1000 == 0 and (exponent or power < 18):
        mantissa //= 1000
        power += 3
    if exponent:
        return f"{mantissa}e{power}" if power else str(mantissa)
    return f"{mantissa}{_DECIMAL_SUFFIX[power]}"
