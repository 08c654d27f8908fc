"""Full collections do not take longer and longer as the number of jobs grows."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator

import pytest

from dlop.operator.gc import FullCollectionLimit


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """A limit that is active. Yields the clock of its measurements, which a test can change."""
    clock = [0.0]
    monkeypatch.setattr(time, "thread_time", lambda: clock.pop(0) if len(clock) > 1 else clock[0])
    limit = FullCollectionLimit()
    gc.collect()
    gc.callbacks.append(limit)
    try:
        yield clock
    finally:
        gc.callbacks.remove(limit)
        gc.unfreeze()


def test_a_long_full_collection_excludes_its_objects_from_later_ones(collector: list[float]) -> None:
    before = gc.get_freeze_count()
    collector[:] = [0.0, 0.03]
    gc.collect()
    assert gc.get_freeze_count() > before


@pytest.mark.parametrize(("generation", "seconds"), [(2, 0.01), (1, 0.03)], ids=["short", "not full"])
def test_other_collections_exclude_nothing(collector: list[float], generation: int, seconds: float) -> None:
    before = gc.get_freeze_count()
    collector[:] = [0.0, seconds]
    gc.collect(generation)
    assert gc.get_freeze_count() == before
