"""Creates go out slowly at first, in bounded parallel, and stop at the first refusal."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from dlop.controller.slow_start import slowly_at_first as slowly_while_there_is_room
from dlop.testing.virtual_time import virtual_time


async def slowly_at_first(
    items: Sequence[int], call: Callable[[int], Awaitable[bool]], *, first: int = 8, parallel: int, has_room: bool = True
) -> bool:
    return await slowly_while_there_is_room(items, call, first=first, parallel=parallel, may_grow=lambda: has_room)


class Server:
    """Takes a second for each call, and refuses some."""

    def __init__(self, *, refuses: frozenset[int] = frozenset()) -> None:
        self.calls: list[int] = []
        self.at_once = 0
        self.most_at_once = 0
        self.begun_before_a_refusal = 0
        self._refuses = refuses

    async def call(self, item: int) -> bool:
        self.calls.append(item)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(1)
        self.at_once -= 1
        if item in self._refuses:
            self.begun_before_a_refusal = self.begun_before_a_refusal or len(self.calls)
            return False
        return True


@virtual_time
async def test_every_item_is_called_for_once_and_in_order() -> None:
    server = Server()
    assert await slowly_at_first(range(1000), server.call, parallel=64)
    assert server.calls == list(range(1000))


@virtual_time
async def test_no_more_calls_are_under_way_than_allowed() -> None:
    server = Server()
    await slowly_at_first(range(500), server.call, parallel=32)
    assert server.most_at_once == 32


@virtual_time
async def test_a_server_that_refuses_everything_gets_only_the_first_few() -> None:
    server = Server(refuses=frozenset(range(1000)))
    assert not await slowly_at_first(range(1000), server.call, first=8, parallel=64)
    assert len(server.calls) == 8


@virtual_time
async def test_each_round_of_calls_that_go_well_makes_twice_as_many() -> None:
    server, began = Server(), asyncio.get_running_loop().time()
    assert await slowly_at_first(range(8 + 16 + 32 + 64 + 64), server.call, first=8, parallel=64)
    assert asyncio.get_running_loop().time() - began == 5


@virtual_time
async def test_after_a_refusal_only_what_is_under_way_is_seen_through() -> None:
    server = Server(refuses=frozenset({10}))
    assert not await slowly_at_first(range(1000), server.call, first=8, parallel=64)
    assert len(server.calls) == server.begun_before_a_refusal < 8 + 16 + 32
    assert server.at_once == 0


@virtual_time
async def test_a_slow_call_keeps_no_other_waiting() -> None:
    done: list[int] = []

    async def call(item: int) -> bool:
        await asyncio.sleep(60 if item == 3 else 1)
        done.append(item)
        return True

    assert await slowly_at_first(range(200), call, first=8, parallel=16)
    assert done[-1] == 3
    assert asyncio.get_running_loop().time() < 61


@virtual_time
async def test_nothing_to_do_is_done_well() -> None:
    assert await slowly_at_first([], Server().call, parallel=4)


@virtual_time
async def test_where_there_is_no_room_for_more_the_first_few_go_on_alone() -> None:
    server = Server()
    assert await slowly_at_first(range(100), server.call, first=8, parallel=64, has_room=False)
    assert server.calls == list(range(100))
    assert server.most_at_once == 8
