"""Resource quantities (`500m`, `1Gi`): read them, compare them, and write them as the real server does.

The server keeps a quantity in its shortest form of the same family: `1024Mi` comes back as `1Gi`, `1000m` as `1`.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

ONE = 10**9
"""How many billionths make one."""

BAD_QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
BAD_SUFFIX = "unable to parse quantity's suffix"
_NUMBER = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)(.*)", re.DOTALL)
_EXPONENT = re.compile(r"[eE]([+-]?\d+)")
_BINARY = {suffix: 1024**power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIX = {power: suffix for suffix, power in _DECIMAL.items()}
_SMALLEST = Fraction(1, ONE)


@lru_cache(maxsize=4096)
def billionths(text: str) -> int:
    """The number that a quantity stands for, counted in the smallest unit that there is.

    Raises:
        ValueError: with the server's own sentence.
    """
    return int(_parsed(text)[0] * ONE)


@lru_cache(maxsize=4096)
def canonical_quantity(text: str) -> str:
    """The quantity as the server writes it.

    Raises:
        ValueError: with the server's own sentence.
    """
    value, family = _parsed(text)
    if family == "binary" and abs(value) >= 1024 and value.denominator == 1:
        return _binary_text(int(value))
    return _decimal_text(value, exponent=family == "exponent")


def _parsed(text: str) -> tuple[Fraction, str]:
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueError(BAD_QUANTITY)
    sign, digits, suffix = match.groups()
    factor, family = _factor(suffix)
    value = Fraction(digits) * factor * (-1 if sign == "-" else 1)
    # Nothing smaller than a billionth is kept; what is between two is rounded away from zero.
    parts = abs(value) / _SMALLEST
    rounded = -(-parts.numerator // parts.denominator) * _SMALLEST
    return (-rounded if value < 0 else rounded), family


def _factor(suffix: str) -> tuple[Fraction, str]:
    if suffix in _BINARY:
        return Fraction(_BINARY[suffix]), "binary"
    if suffix in _DECIMAL:
        return Fraction(10) ** _DECIMAL[suffix], "decimal"
    if match := _EXPONENT.fullmatch(suffix):
        return Fraction(10) ** int(match[1]), "exponent"
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
