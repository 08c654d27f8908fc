"""The virtual-time event loop: time jumps to the next timer, order is kept, and a deadlock is an error."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlop.testing.virtual_time import Deadlock, VirtualTimeLoop, run, virtual_time


def test_a_year_passes_in_no_time() -> None:
    async def sleep_for_a_year() -> float:
        await asyncio.sleep(365 * 86_400)
        return asyncio.get_running_loop().time()

    started_at = time.monotonic()
    assert run(sleep_for_a_year()) == 365 * 86_400
    assert time.monotonic() - started_at < 5


@virtual_time
async def test_sleepers_wake_in_the_order_of_their_times() -> None:
    woken: list[float] = []

    async def sleep_for(seconds: float) -> None:
        await asyncio.sleep(seconds)
        woken.append(seconds)

    async with asyncio.TaskGroup() as group:
        for seconds in (3.0, 1.0, 2.0, 0.5):
            group.create_task(sleep_for(seconds))
    assert woken == [0.5, 1.0, 2.0, 3.0]


@given(seconds=st.lists(st.floats(0, 1e6), max_size=20))
@virtual_time
async def test_the_clock_advances_by_the_time_slept(seconds: list[float]) -> None:
    loop = asyncio.get_running_loop()
    for duration in seconds:
        started_at = loop.time()
        await asyncio.sleep(duration)
        assert loop.time() - started_at == pytest.approx(duration, abs=1e-6)


def test_a_deadlock_is_an_error_that_names_the_waiting_tasks() -> None:
    async def wait_indefinitely() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.set_name("stuck task")
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="stuck task"):
        run(wait_indefinitely())


@virtual_time
async def test_a_timeout_ends_an_indefinite_wait() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(10):
            await asyncio.Event().wait()
    assert asyncio.get_running_loop().time() == 10


@virtual_time
async def test_advance_moves_the_clock_before_any_task_runs() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    late = loop.create_task(asyncio.sleep(1, loop.time))
    await asyncio.sleep(0)
    loop.advance(60)
    assert (await late)() == 60


@given(start=st.floats(0, 1e8), step=st.floats(1e-12, 10))
@virtual_time
async def test_sleeping_for_the_remaining_time_reaches_the_deadline(start: float, step: float) -> None:
    loop = asyncio.get_running_loop()
    await asyncio.sleep(start)
    deadline = loop.time() + step
    for _ in range(10):
        if loop.time() >= deadline:
            return
        await asyncio.sleep(deadline - loop.time())
    raise AssertionError
