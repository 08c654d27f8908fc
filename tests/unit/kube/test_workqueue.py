"""Work queue: its guarantees, one by one. test_workqueue_model.py compares it with a model."""

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


async def process_all(queue: WorkQueue[Key]) -> list[Key]:
    """Get and finish all ready keys."""
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
async def test_keys_of_one_namespace_are_handed_out_in_fifo_order() -> None:
    queue = new_queue()
    for key in (B, A, C):
        queue.add(key)
    assert await process_all(queue) == [B, A, C]


@virtual_time
async def test_a_key_added_many_times_is_handed_out_once() -> None:
    queue = new_queue()
    for _ in range(100):
        queue.add(A)
    assert await process_all(queue) == [A]


@virtual_time
async def test_a_key_in_processing_is_not_handed_out_again_before_it_is_done() -> None:
    queue = new_queue()
    queue.add(A)
    assert await queue.get() == A
    queue.add(A)
    second = asyncio.create_task(queue.get())
    assert await is_waiting(second)
    queue.done(A)
    assert await second == A


@virtual_time
async def test_a_key_added_three_times_during_processing_is_handed_out_once_more() -> None:
    queue = new_queue()
    queue.add(A)
    await queue.get()
    for _ in range(3):
        queue.add(A)
    queue.done(A)
    assert await process_all(queue) == [A]


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
async def test_a_worker_cancelled_during_an_add_does_not_lose_the_key() -> None:
    queue = new_queue()
    worker = asyncio.create_task(queue.get())
    assert await is_waiting(worker)
    worker.cancel()
    queue.add(A)
    await asyncio.gather(worker, return_exceptions=True)
    assert await queue.get() == A


@virtual_time
async def test_a_delayed_key_is_handed_out_after_its_delay() -> None:
    queue = new_queue()
    queue.add_after(A, 3600)
    assert await queue.get() == A
    assert asyncio.get_running_loop().time() == 3600


@pytest.mark.parametrize("delays", [(5, 60), (60, 5), (60, 5, 30)])
def test_the_earliest_of_several_delays_applies_once(delays: tuple[int, ...]) -> None:
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
async def test_an_immediate_add_replaces_a_delayed_one() -> None:
    queue = new_queue()
    queue.add_after(A, 60)
    queue.add(A)
    assert await process_all(queue) == [A]
    await asyncio.sleep(1000)
    assert len(queue) == 0


@virtual_time
async def test_a_delay_of_zero_is_an_immediate_add() -> None:
    queue = new_queue()
    queue.add_after(A, 0)
    assert await process_all(queue) == [A]


@virtual_time
async def test_a_delay_set_during_processing_starts_when_it_is_set() -> None:
    queue = new_queue()
    queue.add(A)
    await queue.get()
    queue.add_after(A, 10)
    await asyncio.sleep(4)
    queue.done(A)
    assert await queue.get() == A
    assert asyncio.get_running_loop().time() == 10


@virtual_time
async def test_a_delay_that_ends_during_processing_makes_the_key_ready_afterwards() -> None:
    queue = new_queue()
    queue.add(A)
    await queue.get()
    queue.add_after(A, 10)
    await asyncio.sleep(20)
    assert len(queue) == 0
    queue.done(A)
    assert await process_all(queue) == [A]


@virtual_time
async def test_replaced_delays_do_not_leak_memory() -> None:
    queue = new_queue()
    for _ in range(10_000):
        queue.add_after(A, 86_400)
        queue.add(A)
        await process_all(queue)
    assert len(queue._heap) < 200


@virtual_time
async def test_no_state_is_kept_for_a_finished_key() -> None:
    queue = new_queue()
    for number in range(100):
        key = Key(f"namespace-{number}", "a")
        queue.add_rate_limited(key)
        queue.done(await queue.get())
        queue.forget(key)
    assert (queue._items, queue._processing, queue._failures) == ({}, {}, {})


@virtual_time
async def test_back_off_doubles_from_five_milliseconds_to_the_cap_and_is_jittered() -> None:
    queue = new_queue(seed=7)
    loop = asyncio.get_running_loop()
    waits = []
    for _ in range(30):
        started_at = loop.time()
        queue.add_rate_limited(A)
        await queue.get()
        waits.append(loop.time() - started_at)
        queue.done(A)
    for failures, wait in enumerate(waits):
        longest = min(120.0, 0.005 * 2**failures)
        assert longest / 2 - 1e-6 <= wait <= longest + 1e-6
    assert len({round(wait, 6) for wait in waits[-10:]}) == 10


def test_the_delay_after_a_million_failures_is_at_most_the_cap() -> None:
    assert 60 <= RetryDelays().delay_seconds(1_000_000, rng=random.Random(1)) <= 120


@virtual_time
async def test_forget_resets_the_back_off_of_a_key() -> None:
    queue = new_queue()
    for _ in range(10):
        queue.add_rate_limited(A)
        queue.done(await queue.get())
    assert queue.failures(A) == 10
    queue.forget(A)
    assert queue.failures(A) == 0
    started_at = asyncio.get_running_loop().time()
    queue.add_rate_limited(A)
    await queue.get()
    assert asyncio.get_running_loop().time() - started_at <= 0.005 + 1e-6


@virtual_time
async def test_keys_that_failed_are_retried_within_a_given_time_and_other_delays_stay() -> None:
    queue, loop = new_queue(), asyncio.get_running_loop()
    for _ in range(10):
        queue.add_rate_limited(A)
        queue.done(await queue.get())
    queue.add_rate_limited(A)
    queue.add_after(B, 60)
    started_at = loop.time()
    queue.end_backoff(within_seconds=0.5)
    assert await queue.get() == A
    assert 0 < loop.time() - started_at < 0.5
    assert await queue.get() == B
    assert loop.time() - started_at == pytest.approx(60)
    assert queue.failures(A) == 0


@virtual_time
async def test_one_failing_key_does_not_slow_down_another() -> None:
    queue = new_queue()
    for _ in range(10):
        queue.add_rate_limited(A)
        queue.done(await queue.get())
    started_at = asyncio.get_running_loop().time()
    queue.add_rate_limited(B)
    assert await queue.get() == B
    assert asyncio.get_running_loop().time() - started_at <= 0.005 + 1e-6


@virtual_time
async def test_live_changes_go_before_the_initial_list() -> None:
    queue = new_queue()
    initial = [Key("one", f"old-{number}") for number in range(5)]
    for key in initial:
        queue.add(key, initial=True)
    queue.add(A)
    assert await process_all(queue) == [A, *initial]


@virtual_time
async def test_a_live_change_raises_the_priority_of_an_initial_key() -> None:
    queue = new_queue()
    for key in (A, B, C):
        queue.add(key, initial=True)
    queue.add(C)
    assert await process_all(queue) == [C, A, B]


@virtual_time
async def test_an_initial_add_does_not_lower_the_priority_of_a_live_key() -> None:
    queue = new_queue()
    queue.add(A, initial=True)
    queue.add(B)
    queue.add(B, initial=True)
    assert await process_all(queue) == [B, A]


@virtual_time
async def test_a_retry_keeps_the_priority_of_the_failed_pass() -> None:
    queue = new_queue()
    queue.add(A, initial=True)
    await queue.get()
    queue.add_rate_limited(A)
    queue.done(A)
    await asyncio.sleep(1)
    queue.add(B)
    assert await process_all(queue) == [B, A]


@virtual_time
async def test_a_namespace_with_thousands_of_keys_does_not_delay_others() -> None:
    queue = new_queue()
    for number in range(5000):
        queue.add(Key("crowded", str(number)))
    queue.add(Key("quiet", "a"))
    queue.add(Key("calm", "b"))
    order = await process_all(queue)
    assert order.index(Key("quiet", "a")) == 1
    assert order.index(Key("calm", "b")) == 2
    assert [key for key in order if key.namespace == "crowded"] == [Key("crowded", str(number)) for number in range(5000)]


@virtual_time
async def test_the_namespace_of_a_key_can_be_customized() -> None:
    queue: WorkQueue[str] = WorkQueue(rng=random.Random(0), namespace_of=lambda key: key.split("/")[0])
    for key in ("x/1", "x/2", "y/1"):
        queue.add(key)
    assert [await queue.get() for _ in range(3)] == ["x/1", "y/1", "x/2"]


@virtual_time
async def test_after_shutdown_workers_process_ready_keys_and_exit() -> None:
    queue = new_queue()
    queue.add(A)
    queue.add_after(B, 1)
    queue.shutdown()
    queue.add(C)
    assert await process_all(queue) == [A]
    with pytest.raises(QueueShutDownError):
        await queue.get()


@virtual_time
async def test_shutdown_wakes_waiting_workers() -> None:
    queue = new_queue()
    workers = [asyncio.create_task(queue.get()) for _ in range(3)]
    assert await is_waiting(workers[0])
    queue.shutdown()
    assert [type(error) for error in await asyncio.gather(*workers, return_exceptions=True)] == [QueueShutDownError] * 3


@virtual_time
async def test_drain_waits_for_keys_in_processing_and_requeued_keys() -> None:
    queue = new_queue()
    processed = []

    async def worker() -> None:
        while True:
            try:
                key = await queue.get()
            except QueueShutDownError:
                return
            await asyncio.sleep(10)
            processed.append(key)
            queue.done(key)

    queue.add(A)
    async with asyncio.TaskGroup() as group:
        group.create_task(worker())
        await asyncio.sleep(1)
        queue.add(A)  # during processing
        await queue.drain()
        assert processed == [A, A]
        assert asyncio.get_running_loop().time() == 20


@virtual_time
async def test_draining_an_idle_queue_takes_no_time() -> None:
    queue = new_queue()
    queue.add_after(A, 3600)
    await queue.drain()
    assert asyncio.get_running_loop().time() == 0


@virtual_time
async def test_thousands_of_keys_processed_without_awaiting_let_other_tasks_run() -> None:
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
        await process_all(queue)
    assert turns >= 5


def test_very_short_delays_work_on_uvloop() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def get_all() -> list[str]:
        queue: WorkQueue[str] = WorkQueue(rng=random.Random(1))
        queue.add_after("soon", 1e-9)
        queue.add_after("sooner", 1e-10)
        queue.add_after("later", 0.01)
        keys = []
        for _ in range(3):
            key = await queue.get()
            queue.done(key)
            keys.append(key)
        return keys

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        keys = runner.run(get_all())
    assert set(keys) == {"sooner", "soon", "later"}
    assert keys[-1] == "later"
