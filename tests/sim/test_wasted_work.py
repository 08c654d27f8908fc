"""Names and preconditions keep the world right whatever an operator believes. That it does nothing twice is told here."""

from __future__ import annotations

import pytest

from dlop.testing.virtual_time import virtual_time
from tests.sim.wasting import creates_while_blind, wasted


# Shorter and longer than the patience after which a cache that lags is read anew.
@pytest.mark.parametrize("seconds", [5, 30])
@pytest.mark.parametrize("plural", ["pods", "services", None], ids=["pods", "services", "everything"])
def test_nothing_is_asked_for_twice_while_watch_events_are_withheld(plural: str | None, seconds: float) -> None:
    @virtual_time
    async def run() -> None:
        creates = await creates_while_blind(plural=plural, seconds=seconds)
        assert wasted(creates) == []
        assert len(creates) == 8

    run()
