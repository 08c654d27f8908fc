"""The clock of the tests themselves: time jumps, order holds, a deadlock is an error and not a hang."""

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

    began = time.monotonic()
    assert run(sleep_for_a_year()) == 365 * 86_400
    assert time.monotonic() - began < 5


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
async def test_the_clock_shows_the_time_slept_and_never_less(seconds: list[float]) -> None:
    loop = asyncio.get_running_loop()
    for duration in seconds:
        began = loop.time()
        await asyncio.sleep(duration)
        assert loop.time() - began == pytest.approx(duration, abs=1e-6)


def test_waiting_for_what_can_never_happen_is_an_error_that_names_the_waiters() -> None:
    async def wait_for_ever() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.set_name("the stuck one")
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="the stuck one"):
        run(wait_for_ever())


@virtual_time
async def test_a_timeout_ends_what_would_wait_for_ever() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(10):
            await asyncio.Event().wait()
    assert asyncio.get_running_loop().time() == 10


@virtual_time
async def test_a_pause_lets_time_pass_before_anything_else_runs() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    late = loop.create_task(asyncio.sleep(1, loop.time))
    await asyncio.sleep(0)
    loop.advance(60)
    assert (await late)() == 60


@given(start=st.floats(0, 1e8), step=st.floats(1e-12, 10))
@virtual_time
async def test_whoever_waits_for_the_rest_of_the_time_gets_there(start: float, step: float) -> None:
    loop = asyncio.get_running_loop()
    await asyncio.sleep(start)
    deadline = loop.time() + step
    for _ in range(10):
        if loop.time() >= deadline:
            return
        await asyncio.sleep(deadline - loop.time())
    raise AssertionError
