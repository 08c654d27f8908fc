"""Who gets a place, and when."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from dlop.kube.in_flight import LONGEST_PATIENCE_SECONDS, InFlightLimiter
from dlop.testing.virtual_time import virtual_time


class Line:
    """People who want places, and who of them has got one."""

    def __init__(self, places: InFlightLimiter) -> None:
        self.seated: list[str] = []
        self._places = places
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def comes(self, name: str, *, can_wait: bool = False) -> None:
        """Somebody asks for a place, and gets one or waits."""
        self._tasks[name] = asyncio.create_task(self._sit(name, can_wait=can_wait))
        await asyncio.sleep(0)

    async def gives_up(self, name: str) -> None:
        """Somebody does not want a place any more."""
        self._tasks[name].cancel()
        await asyncio.wait([self._tasks[name]])

    async def one_leaves(self) -> None:
        """A place comes free."""
        self._places.give_back()
        await asyncio.sleep(0)

    async def _sit(self, name: str, *, can_wait: bool) -> None:
        await self._places.take(can_wait=can_wait)
        self.seated.append(name)


async def _full(count: int = 1) -> tuple[InFlightLimiter, Line]:
    places = InFlightLimiter(count)
    for _ in range(count):
        await places.take()
    return places, Line(places)


async def test_there_are_as_many_places_as_were_asked_for() -> None:
    places = InFlightLimiter(2)
    await places.take()
    are_free = [places.are_free()]
    await places.take()
    are_free.append(places.are_free())
    places.give_back()
    assert [*are_free, places.are_free()] == [True, False, True]


async def test_who_cannot_wait_goes_before_who_can_and_each_line_keeps_its_order() -> None:
    _, line = await _full()
    for name, can_wait in (("status-a", True), ("pod-a", False), ("status-b", True), ("pod-b", False)):
        await line.comes(name, can_wait=can_wait)
    for _ in range(4):
        await line.one_leaves()
    assert line.seated == ["pod-a", "pod-b", "status-a", "status-b"]


async def test_who_can_wait_comes_in_when_only_a_few_others_are_left() -> None:
    _, line = await _full(16)
    await line.comes("status-a", can_wait=True)
    await line.comes("status-b", can_wait=True)
    for _ in range(14):
        await line.one_leaves()
    assert line.seated == []
    await line.one_leaves()
    assert line.seated == ["status-a"]


async def test_those_who_can_wait_leave_most_places_to_others() -> None:
    places = InFlightLimiter(16)
    for _ in range(2):
        await places.take(can_wait=True)
    assert not places.are_free(can_wait=True)
    for _ in range(14):
        assert places.are_free()
        await places.take()
    assert not places.are_free()


@virtual_time
async def test_who_can_wait_waits_only_for_so_long_beside_free_places() -> None:
    _, line = await _full(16)
    await line.comes("status", can_wait=True)
    for _ in range(8):
        await line.one_leaves()
    await asyncio.sleep(LONGEST_PATIENCE_SECONDS * 0.99)
    assert line.seated == []
    await asyncio.sleep(LONGEST_PATIENCE_SECONDS * 0.02)
    assert line.seated == ["status"]


@virtual_time
async def test_who_has_waited_long_enough_goes_first() -> None:
    _, line = await _full()
    await line.comes("status", can_wait=True)
    await line.comes("pod-a")
    await asyncio.sleep(LONGEST_PATIENCE_SECONDS * 0.9)
    await line.comes("pod-b")
    await line.one_leaves()
    await asyncio.sleep(LONGEST_PATIENCE_SECONDS * 0.1)
    await line.one_leaves()
    await line.one_leaves()
    assert line.seated == ["pod-a", "status", "pod-b"]


@virtual_time
async def test_many_who_have_waited_long_enough_keep_nobody_else_waiting() -> None:
    _, line = await _full()
    for number in range(5):
        await line.comes(f"status-{number}", can_wait=True)
    await asyncio.sleep(LONGEST_PATIENCE_SECONDS)
    await line.comes("pod-a")
    await line.comes("pod-b")
    for _ in range(4):
        await line.one_leaves()
    assert line.seated == ["status-0", "pod-a", "status-1", "pod-b"]


async def test_who_gives_up_leaves_the_place_to_the_next() -> None:
    places, line = await _full()
    for name in "abc":
        await line.comes(name)
    await line.gives_up("a")
    await line.one_leaves()
    await line.one_leaves()
    assert line.seated == ["b", "c"]
    await line.one_leaves()
    assert places.are_free()


async def test_a_place_given_to_who_has_just_given_up_is_not_lost() -> None:
    places, line = await _full()
    await line.comes("a")
    await line.comes("b")
    places.give_back()  # to `a`, who has no time any more to learn of it
    await line.gives_up("a")
    await asyncio.sleep(0)
    assert line.seated == ["b"]


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_happens_no_place_is_lost_and_none_is_given_twice(seed: int) -> None:
    dice, count = Random(seed), 3
    places, inside = InFlightLimiter(count), 0

    async def visit() -> None:
        nonlocal inside
        await places.take(can_wait=dice.random() < 0.5)
        inside += 1
        assert inside <= count
        try:
            await asyncio.sleep(0)
        finally:
            inside -= 1
            places.give_back()

    visits = []
    for _ in range(200):
        visits.append(asyncio.create_task(visit()))
        if dice.random() < 0.4:
            dice.choice(visits).cancel()
        if dice.random() < 0.5:
            await asyncio.sleep(0)
    results = await asyncio.gather(*visits, return_exceptions=True)
    assert {type(result) for result in results} <= {type(None), asyncio.CancelledError}
    for _ in range(count):
        assert places.are_free()
        await places.take()
    assert not places.are_free()
