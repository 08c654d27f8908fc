"""Creates go out slowly at first, in bounded parallel, and stop at the first refusal."""

from __future__ import annotations

import asyncio

from dlop.control.batches import in_growing_batches
from tests.virtual_time import virtual_time


class Server:
    """Takes a second for each call, and refuses some."""

    def __init__(self, *, refuses: frozenset[int] = frozenset()) -> None:
        self.calls: list[int] = []
        self.at_once = 0
        self.most_at_once = 0
        self._refuses = refuses

    async def call(self, item: int) -> bool:
        self.calls.append(item)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(1)
        self.at_once -= 1
        return item not in self._refuses


@virtual_time
async def test_every_item_is_called_for_once_and_in_order() -> None:
    server = Server()
    assert await in_growing_batches(range(1000), server.call, parallel=64)
    assert server.calls == list(range(1000))


@virtual_time
async def test_no_more_calls_are_under_way_than_allowed() -> None:
    server = Server()
    await in_growing_batches(range(500), server.call, parallel=32)
    assert server.most_at_once == 32


@virtual_time
async def test_a_server_that_refuses_everything_gets_only_the_first_batch() -> None:
    server = Server(refuses=frozenset(range(1000)))
    assert not await in_growing_batches(range(1000), server.call, first=8, parallel=64)
    assert len(server.calls) == 8


@virtual_time
async def test_after_a_refusal_no_further_batch_begins() -> None:
    server = Server(refuses=frozenset({10}))
    assert not await in_growing_batches(range(1000), server.call, first=8, parallel=64)
    assert len(server.calls) == 8 + 16


@virtual_time
async def test_nothing_to_do_is_done_well() -> None:
    assert await in_growing_batches([], Server().call, parallel=4)
