"""The work queue: what it promises, one claim at a time. The model test is in test_workqueue_model.py."""

from __future__ import annotations

import asyncio
import random
from typing import NamedTuple

import pytest

from dlop.kube.workqueue import QueueShutDownError, RetryDelays, WorkQueue
from dlop.testing.virtual_time import virtual_time


class Key(NamedTuple):
    namespace: str
    name: str


A, B, C = Key("one", "a"), Key("one", "b"), Key("one", "c")


def new_queue(*, seed: int = 0, retry_delays: RetryDelays = RetryDelays()) -> WorkQueue[Key]:  # noqa: B008
    return WorkQueue(rng=random.Random(seed), retry_delays=retry_delays)


async def work_off(queue: WorkQueue[Key]) -> list[Key]:
    """Hand out and finish everything that is ready."""
    keys = []
    while len(queue):
        key = await queue.get()
        queue.done(key)
        keys.append(key)
    return keys


async def is_waiting(task: asyncio.Task[Key]) -> bool:
    for _ in range(5):
        await asyncio.sleep(0)
    return not task.done()


@virtual_time
async def test_keys_of_one_namespace_come_in_the_order_they_were_added() -> None:
    queue = new_queue()
    for key in (B, A, C):
        queue.add(key)
    assert await work_off(queue) == [B, A, C]


@virtual_time
async def test_a_key_added_many_times_comes_once() -> None:
    queue = new_queue()
    for _ in range(100):
        queue.add(A)
    assert await work_off(queue) == [A]


@virtual_time
async def test_a_key_in_work_is_not_handed_out_again_before_it_is_done() -> None:
    queue = new_queue()
    queue.add(A)
    assert await queue.get() == A
    queue.add(A)
    second = asyncio.create_task(queue.get())
    assert await is_waiting(second)
    queue.done(A)
    assert await second == A


@virtual_time
async def test_a_key_added_three_times_while_in_work_comes_once_more() -> None:
    queue = new_queue()
    queue.add(A)
    await queue.get()
    for _ in range(3):
        queue.add(A)
    queue.done(A)
    assert await work_off(queue) == [A]


@virtual_time
async def test_a_waiting_worker_gets_the_key_as_soon_as_it_is_added() -> None:
    queue = new_queue()
    worker = asyncio.create_task(queue.get())
    assert await is_waiting(worker)
    queue.add(A)
    assert await worker == A
    assert asyncio.get_running_loop().time() == 0


@virtual_time
async def test_a_wake_up_that_reaches_a_cancelled_worker_is_passed_on() -> None:
    queue = new_queue()
    first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    assert await is_waiting(first)
    queue.add(A)
    first.cancel()
    assert await second == A
    assert first.cancelled() or first.cancelling()


@virtual_time
async def test_a_worker_cancelled_at_the_moment_of_an_add_costs_no_key() -> None:
    queue = new_queue()
    worker = asyncio.create_task(queue.get())
    assert await is_waiting(worker)
    worker.cancel()
    queue.add(A)
    await asyncio.gather(worker, return_exceptions=True)
    assert await queue.get() == A


@virtual_time
async def test_a_delayed_key_comes_when_its_time_has_come() -> None:
    queue = new_queue()
    queue.add_after(A, 3600)
    assert await queue.get() == A
    assert asyncio.get_running_loop().time() == 3600


@pytest.mark.parametrize("delays", [(5, 60), (60, 5), (60, 5, 30)])
def test_of_several_delays_the_earliest_wins_and_the_key_comes_once(delays: tuple[int, ...]) -> None:
    @virtual_time
    async def check() -> None:
        queue = new_queue()
        for delay in delays:
            queue.add_after(A, delay)
        assert await queue.get() == A
        assert asyncio.get_running_loop().time() == 5
        queue.done(A)
        await asyncio.sleep(1000)
        assert len(queue) == 0

    check()


@virtual_time
async def test_an_immediate_add_takes_the_place_of_a_delayed_one() -> None:
    queue = new_queue()
    queue.add_after(A, 60)
    queue.add(A)
    assert await work_off(queue) == [A]
    await asyncio.sleep(1000)
    assert len(queue) == 0


@virtual_time
async def test_a_delay_of_nothing_is_an_add() -> None:
    queue = new_queue()
    queue.add_after(A, 0)
    assert await work_off(queue) == [A]


@virtual_time
async def test_a_delay_set_during_the_work_counts_from_when_it_was_set() -> None:
    queue = new_queue()
    queue.add(A)
    await queue.get()
    queue.add_after(A, 10)
    await asyncio.sleep(4)
    queue.done(A)
    assert await queue.get() == A
    assert asyncio.get_running_loop().time() == 10


@virtual_time
async def test_a_delay_that_ends_during_the_work_brings_the_key_back_after_it() -> None:
    queue = new_queue()
    queue.add(A)
    await queue.get()
    queue.add_after(A, 10)
    await asyncio.sleep(20)
    assert len(queue) == 0
    queue.done(A)
    assert await work_off(queue) == [A]


@virtual_time
async def test_delays_that_are_replaced_all_the_time_leave_no_memory_behind() -> None:
    queue = new_queue()
    for _ in range(10_000):
        queue.add_after(A, 86_400)
        queue.add(A)
        await work_off(queue)
    assert len(queue._heap) < 200


@virtual_time
async def test_nothing_is_kept_of_a_key_that_is_done() -> None:
    queue = new_queue()
    for number in range(100):
        key = Key(f"namespace-{number}", "a")
        queue.add_rate_limited(key)
        queue.done(await queue.get())
        queue.forget(key)
    assert (queue._items, queue._working, queue._failures) == ({}, {}, {})


@virtual_time
async def test_back_off_doubles_from_five_milliseconds_to_the_cap_and_is_jittered() -> None:
    queue = new_queue(seed=7)
    loop = asyncio.get_running_loop()
    waits = []
    for _ in range(30):
        began = loop.time()
        queue.add_rate_limited(A)
        await queue.get()
        waits.append(loop.time() - began)
        queue.done(A)
    for failures, wait in enumerate(waits):
        whole = min(120.0, 0.005 * 2**failures)
        assert whole / 2 - 1e-6 <= wait <= whole + 1e-6
    assert len({round(wait, 6) for wait in waits[-10:]}) == 10


def test_a_key_that_has_failed_a_million_times_waits_for_the_cap_and_no_longer() -> None:
    assert 60 <= RetryDelays().delay_seconds(1_000_000, rng=random.Random(1)) <= 120


@virtual_time
async def test_a_forgotten_key_starts_its_back_off_anew() -> None:
    queue = new_queue()
    for _ in range(10):
        queue.add_rate_limited(A)
        queue.done(await queue.get())
    assert queue.failures(A) == 10
    queue.forget(A)
    assert queue.failures(A) == 0
    began = asyncio.get_running_loop().time()
    queue.add_rate_limited(A)
    await queue.get()
    assert asyncio.get_running_loop().time() - began <= 0.005 + 1e-6


@virtual_time
async def test_one_failing_key_does_not_slow_down_another() -> None:
    queue = new_queue()
    for _ in range(10):
        queue.add_rate_limited(A)
        queue.done(await queue.get())
    began = asyncio.get_running_loop().time()
    queue.add_rate_limited(B)
    assert await queue.get() == B
    assert asyncio.get_running_loop().time() - began <= 0.005 + 1e-6


@virtual_time
async def test_live_changes_go_before_the_initial_list() -> None:
    queue = new_queue()
    initial = [Key("one", f"old-{number}") for number in range(5)]
    for key in initial:
        queue.add(key, initial=True)
    queue.add(A)
    assert await work_off(queue) == [A, *initial]


@virtual_time
async def test_a_live_change_lifts_a_key_of_the_initial_list() -> None:
    queue = new_queue()
    for key in (A, B, C):
        queue.add(key, initial=True)
    queue.add(C)
    assert await work_off(queue) == [C, A, B]


@virtual_time
async def test_the_initial_list_does_not_push_a_live_change_down() -> None:
    queue = new_queue()
    queue.add(A, initial=True)
    queue.add(B)
    queue.add(B, initial=True)
    assert await work_off(queue) == [B, A]


@virtual_time
async def test_a_retry_keeps_the_priority_of_the_pass_that_failed() -> None:
    queue = new_queue()
    queue.add(A, initial=True)
    await queue.get()
    queue.add_rate_limited(A)
    queue.done(A)
    await asyncio.sleep(1)
    queue.add(B)
    assert await work_off(queue) == [B, A]


@virtual_time
async def test_a_namespace_with_thousands_of_keys_does_not_make_the_others_wait() -> None:
    queue = new_queue()
    for number in range(5000):
        queue.add(Key("crowded", str(number)))
    queue.add(Key("quiet", "a"))
    queue.add(Key("calm", "b"))
    order = await work_off(queue)
    assert order.index(Key("quiet", "a")) == 1
    assert order.index(Key("calm", "b")) == 2
    assert [key for key in order if key.namespace == "crowded"] == [Key("crowded", str(number)) for number in range(5000)]


@virtual_time
async def test_a_key_of_any_type_can_say_where_it_belongs() -> None:
    queue: WorkQueue[str] = WorkQueue(rng=random.Random(0), namespace_of=lambda key: key.split("/")[0])
    for key in ("x/1", "x/2", "y/1"):
        queue.add(key)
    assert [await queue.get() for _ in range(3)] == ["x/1", "y/1", "x/2"]


@virtual_time
async def test_after_shutdown_workers_finish_what_is_ready_and_go_home() -> None:
    queue = new_queue()
    queue.add(A)
    queue.add_after(B, 1)
    queue.shutdown()
    queue.add(C)
    assert await work_off(queue) == [A]
    with pytest.raises(QueueShutDownError):
        await queue.get()


@virtual_time
async def test_shutdown_sends_waiting_workers_home() -> None:
    queue = new_queue()
    workers = [asyncio.create_task(queue.get()) for _ in range(3)]
    assert await is_waiting(workers[0])
    queue.shutdown()
    assert [type(error) for error in await asyncio.gather(*workers, return_exceptions=True)] == [QueueShutDownError] * 3


@virtual_time
async def test_drain_waits_for_the_work_in_progress_and_for_what_it_left_to_do() -> None:
    queue = new_queue()
    seen = []

    async def worker() -> None:
        while True:
            try:
                key = await queue.get()
            except QueueShutDownError:
                return
            await asyncio.sleep(10)
            seen.append(key)
            queue.done(key)

    queue.add(A)
    async with asyncio.TaskGroup() as group:
        group.create_task(worker())
        await asyncio.sleep(1)
        queue.add(A)  # while it is in work
        await queue.drain()
        assert seen == [A, A]
        assert asyncio.get_running_loop().time() == 20


@virtual_time
async def test_draining_an_idle_queue_takes_no_time() -> None:
    queue = new_queue()
    queue.add_after(A, 3600)
    await queue.drain()
    assert asyncio.get_running_loop().time() == 0


@virtual_time
async def test_thousands_of_passes_that_await_nothing_let_other_tasks_run() -> None:
    queue = new_queue()
    for number in range(5000):
        queue.add(Key("one", str(number)))
    turns = 0

    async def other() -> None:
        nonlocal turns
        while len(queue):
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        group.create_task(other())
        await work_off(queue)
    assert turns >= 5


def test_delays_work_on_uvloop_too_however_short() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def in_a_row() -> list[str]:
        queue: WorkQueue[str] = WorkQueue(rng=random.Random(1))
        queue.add_after("soon", 1e-9)
        queue.add_after("sooner", 1e-10)
        queue.add_after("later", 0.01)
        found = []
        for _ in range(3):
            key = await queue.get()
            queue.done(key)
            found.append(key)
        return found

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(in_a_row())
    assert set(found) == {"sooner", "soon", "later"}
    assert found[-1] == "later"
