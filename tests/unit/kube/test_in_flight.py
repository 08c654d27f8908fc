"""In-flight limiter: order of waiters, low priority, and no lost slots."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from dlop.kube.request_pipeline import MAX_LOW_PRIORITY_WAIT_SECONDS, InFlightLimiter
from dlop.testing.virtual_time import virtual_time


class Requests:
    """Named requests that wait for slots."""

    def __init__(self, limiter: InFlightLimiter) -> None:
        self.granted: list[str] = []
        self._limiter = limiter
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def start(self, name: str, *, low_priority: bool = False) -> None:
        self._tasks[name] = asyncio.create_task(self._acquire(name, low_priority=low_priority))
        await asyncio.sleep(0)

    async def cancel(self, name: str) -> None:
        self._tasks[name].cancel()
        await asyncio.wait([self._tasks[name]])

    async def release_one(self) -> None:
        self._limiter.release()
        await asyncio.sleep(0)

    async def _acquire(self, name: str, *, low_priority: bool) -> None:
        await self._limiter.acquire(low_priority=low_priority)
        self.granted.append(name)


async def _full(slots: int = 1) -> tuple[InFlightLimiter, Requests]:
    """A limiter without a free slot."""
    limiter = InFlightLimiter(slots)
    for _ in range(slots):
        await limiter.acquire()
    return limiter, Requests(limiter)


async def test_the_limiter_has_the_given_number_of_slots() -> None:
    limiter = InFlightLimiter(2)
    await limiter.acquire()
    free = [limiter.has_free_slot()]
    await limiter.acquire()
    free.append(limiter.has_free_slot())
    limiter.release()
    assert [*free, limiter.has_free_slot()] == [True, False, True]


async def test_normal_requests_go_before_low_priority_ones_and_each_queue_is_fifo() -> None:
    _, requests = await _full()
    for name, low_priority in (("status-a", True), ("pod-a", False), ("status-b", True), ("pod-b", False)):
        await requests.start(name, low_priority=low_priority)
    for _ in range(4):
        await requests.release_one()
    assert requests.granted == ["pod-a", "pod-b", "status-a", "status-b"]


async def test_a_low_priority_request_gets_a_slot_when_few_others_are_in_flight() -> None:
    _, requests = await _full(16)
    await requests.start("status-a", low_priority=True)
    await requests.start("status-b", low_priority=True)
    for _ in range(14):
        await requests.release_one()
    assert requests.granted == []
    await requests.release_one()
    assert requests.granted == ["status-a"]


async def test_low_priority_requests_leave_most_slots_to_others() -> None:
    limiter = InFlightLimiter(16)
    for _ in range(2):
        await limiter.acquire(low_priority=True)
    assert not limiter.has_free_slot(low_priority=True)
    for _ in range(14):
        assert limiter.has_free_slot()
        await limiter.acquire()
    assert not limiter.has_free_slot()


@virtual_time
async def test_a_low_priority_request_gets_a_reserved_slot_after_the_maximum_wait() -> None:
    _, requests = await _full(16)
    await requests.start("status", low_priority=True)
    for _ in range(8):
        await requests.release_one()
    await asyncio.sleep(MAX_LOW_PRIORITY_WAIT_SECONDS * 0.99)
    assert requests.granted == []
    await asyncio.sleep(MAX_LOW_PRIORITY_WAIT_SECONDS * 0.02)
    assert requests.granted == ["status"]


@virtual_time
async def test_an_overdue_low_priority_request_goes_first() -> None:
    _, requests = await _full()
    await requests.start("status", low_priority=True)
    await requests.start("pod-a")
    await asyncio.sleep(MAX_LOW_PRIORITY_WAIT_SECONDS * 0.9)
    await requests.start("pod-b")
    await requests.release_one()
    await asyncio.sleep(MAX_LOW_PRIORITY_WAIT_SECONDS * 0.1)
    await requests.release_one()
    await requests.release_one()
    assert requests.granted == ["pod-a", "status", "pod-b"]


@virtual_time
async def test_overdue_and_normal_requests_take_turns() -> None:
    _, requests = await _full()
    for number in range(5):
        await requests.start(f"status-{number}", low_priority=True)
    await asyncio.sleep(MAX_LOW_PRIORITY_WAIT_SECONDS)
    await requests.start("pod-a")
    await requests.start("pod-b")
    for _ in range(4):
        await requests.release_one()
    assert requests.granted == ["status-0", "pod-a", "status-1", "pod-b"]


async def test_the_slot_of_a_cancelled_waiter_goes_to_the_next_one() -> None:
    limiter, requests = await _full()
    for name in "abc":
        await requests.start(name)
    await requests.cancel("a")
    await requests.release_one()
    await requests.release_one()
    assert requests.granted == ["b", "c"]
    await requests.release_one()
    assert limiter.has_free_slot()


async def test_a_slot_granted_to_a_waiter_that_is_cancelled_at_once_is_not_lost() -> None:
    limiter, requests = await _full()
    await requests.start("a")
    await requests.start("b")
    limiter.release()  # granted to `a`, which is cancelled before it runs
    await requests.cancel("a")
    await asyncio.sleep(0)
    assert requests.granted == ["b"]


@pytest.mark.parametrize("seed", range(20))
async def test_no_slot_is_lost_or_granted_twice_under_random_cancellation(seed: int) -> None:
    rng, slots = Random(seed), 3
    limiter, in_flight = InFlightLimiter(slots), 0

    async def request() -> None:
        nonlocal in_flight
        await limiter.acquire(low_priority=rng.random() < 0.5)
        in_flight += 1
        assert in_flight <= slots
        try:
            await asyncio.sleep(0)
        finally:
            in_flight -= 1
            limiter.release()

    tasks = []
    for _ in range(200):
        tasks.append(asyncio.create_task(request()))
        if rng.random() < 0.4:
            rng.choice(tasks).cancel()
        if rng.random() < 0.5:
            await asyncio.sleep(0)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(result) for result in results} <= {type(None), asyncio.CancelledError}
    for _ in range(slots):
        assert limiter.has_free_slot()
        await limiter.acquire()
    assert not limiter.has_free_slot()
