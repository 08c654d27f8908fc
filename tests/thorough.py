"""The switch between default and thorough test runs. `hack/test --thorough` sets it, and only this module reads it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

VARIABLE = "DLOP_TEST_THOROUGH"
THOROUGH = os.environ.get(VARIABLE) == "1"

_FEWEST_EXAMPLES = 10
_EXAMPLES_SHARE = 4

T = TypeVar("T")


def examples(number: int) -> int:
    """The number of Hypothesis examples of this run, for a test with `number` examples in a thorough run."""
    return number if THOROUGH else max(_FEWEST_EXAMPLES, number // _EXAMPLES_SHARE)


def select(everything: Sequence[T], default: Sequence[T]) -> Sequence[T]:
    """All values in a thorough run, otherwise `default`, which must be a subset."""
    unknown = [value for value in default if value not in everything]
    if unknown:
        raise ValueError(f"not in the list of all values: {unknown}")
    return everything if THOROUGH else default
