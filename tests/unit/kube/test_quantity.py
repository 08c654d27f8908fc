"""Resource quantities: parsing, values and units."""

from __future__ import annotations

from fractions import Fraction

import pytest

from dlop.kube.quantity import integer_value, quantity_value, value_in_units


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", Fraction(1)),
        ("500m", Fraction(1, 2)),
        ("2Gi", Fraction(2 * 1024**3)),
        ("1.5", Fraction(3, 2)),
        (".5Ki", Fraction(512)),
        ("1e3", Fraction(1000)),
        ("1E", Fraction(10**18)),
        ("100M", Fraction(10**8)),
        ("1n", Fraction(1, 10**9)),
        ("-1k", Fraction(-1000)),
    ],
)
def test_a_quantity_has_an_exact_value(text: str, value: Fraction) -> None:
    assert quantity_value(text) == value


@pytest.mark.parametrize("text", ["", "x", "1 Gi", "1gi", "--1", "1.2.3", "1Ki5"])
def test_an_invalid_quantity_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        quantity_value(text)


def test_values_in_units_are_rounded_up() -> None:
    assert value_in_units("1500m") == 2
    assert value_in_units("1500m", divisor="1m") == 1500
    assert value_in_units("1Gi", divisor="1Mi") == 1024
    assert value_in_units("1025", divisor="1Ki") == 2
    assert integer_value("100m") == 1


def test_a_divisor_of_zero_counts_as_one() -> None:
    assert value_in_units("2", divisor="0") == 2
