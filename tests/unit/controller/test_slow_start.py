"""Slow start: few concurrent calls at first, more after each success, none after a failure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from dlop.controller.slow_start import slow_start_batch
from dlop.testing.virtual_time import virtual_time


async def run_batch(
    items: Sequence[int], call: Callable[[int], Awaitable[bool]], *, initial: int = 8, parallel: int, may_grow: bool = True
) -> bool:
    return await slow_start_batch(items, call, initial=initial, parallel=parallel, may_grow=lambda: may_grow)


class Server:
    """Each call takes a second; some fail."""

    def __init__(self, *, failing: frozenset[int] = frozenset()) -> None:
        self.calls: list[int] = []
        self.concurrent = 0
        self.max_concurrent = 0
        self.started_before_first_failure = 0
        self._failing = failing

    async def call(self, item: int) -> bool:
        self.calls.append(item)
        self.concurrent += 1
        self.max_concurrent = max(self.max_concurrent, self.concurrent)
        await asyncio.sleep(1)
        self.concurrent -= 1
        if item in self._failing:
            self.started_before_first_failure = self.started_before_first_failure or len(self.calls)
            return False
        return True


@virtual_time
async def test_every_item_is_processed_once_and_in_order() -> None:
    server = Server()
    assert await run_batch(range(1000), server.call, parallel=64)
    assert server.calls == list(range(1000))


@virtual_time
async def test_concurrency_is_bounded() -> None:
    server = Server()
    await run_batch(range(500), server.call, parallel=32)
    assert server.max_concurrent == 32


@virtual_time
async def test_if_every_call_fails_only_the_initial_batch_is_sent() -> None:
    server = Server(failing=frozenset(range(1000)))
    assert not await run_batch(range(1000), server.call, initial=8, parallel=64)
    assert len(server.calls) == 8


@virtual_time
async def test_concurrency_doubles_with_each_successful_round() -> None:
    server, started_at = Server(), asyncio.get_running_loop().time()
    assert await run_batch(range(8 + 16 + 32 + 64 + 64), server.call, initial=8, parallel=64)
    assert asyncio.get_running_loop().time() - started_at == 5


@virtual_time
async def test_after_a_failure_running_calls_finish_and_no_new_ones_start() -> None:
    server = Server(failing=frozenset({10}))
    assert not await run_batch(range(1000), server.call, initial=8, parallel=64)
    assert len(server.calls) == server.started_before_first_failure < 8 + 16 + 32
    assert server.concurrent == 0


@virtual_time
async def test_a_slow_call_does_not_delay_others() -> None:
    done: list[int] = []

    async def call(item: int) -> bool:
        await asyncio.sleep(60 if item == 3 else 1)
        done.append(item)
        return True

    assert await run_batch(range(200), call, initial=8, parallel=16)
    assert done[-1] == 3
    assert asyncio.get_running_loop().time() < 61


@virtual_time
async def test_an_empty_batch_succeeds() -> None:
    assert await run_batch([], Server().call, parallel=4)


@virtual_time
async def test_concurrency_stays_at_the_initial_size_while_it_may_not_grow() -> None:
    server = Server()
    assert await run_batch(range(100), server.call, initial=8, parallel=64, may_grow=False)
    assert server.calls == list(range(100))
    assert server.max_concurrent == 8
