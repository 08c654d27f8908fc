"""An operator whose watch events are delayed does not repeat its creates."""

from __future__ import annotations

import pytest

from dlop.testing.virtual_time import virtual_time
from tests.sim.duplicate_creates import creates_with_delayed_watches, rejected_creates


# Shorter and longer than the time after which a stale cache is refreshed.
@pytest.mark.parametrize("seconds", [5, 30])
@pytest.mark.parametrize("plural", ["pods", "services", None], ids=["pods", "services", "everything"])
def test_no_create_is_repeated_while_watch_events_are_delayed(plural: str | None, seconds: float) -> None:
    @virtual_time
    async def run() -> None:
        creates = await creates_with_delayed_watches(plural=plural, seconds=seconds)
        assert rejected_creates(creates) == []
        assert len(creates) == 8

    run()
