"""The confidence interval of `hack/bench operator --kind`."""

from __future__ import annotations

from random import Random

import pytest
from bench_operator_compare import median_bounds

pytestmark = pytest.mark.selftest


def test_too_few_pairs_have_no_bounds() -> None:
    assert median_bounds([1.0, 1.1, 0.9, 1.0, 1.2]) is None


@pytest.mark.parametrize(("count", "outside"), [(6, 0), (9, 1), (20, 5), (40, 13)])
def test_the_bounds_are_those_of_the_sign_test(count: int, outside: int) -> None:
    ratios = [1 + number / 100 for number in range(count)]
    Random(0).shuffle(ratios)
    assert median_bounds(ratios) == (1 + outside / 100, 1 + (count - 1 - outside) / 100)


def test_the_true_median_is_outside_the_bounds_in_at_most_5_percent_of_runs() -> None:
    rng, runs = Random(0), 8_000
    misses = 0
    for _ in range(runs):
        interval = median_bounds([rng.lognormvariate(0, 0.3) for _ in range(40)])
        assert interval is not None
        misses += not interval[0] <= 1 <= interval[1]
    assert misses <= runs * 0.05
