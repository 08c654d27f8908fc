"""Many calls at once, slowly at first: if the server refuses, it has refused a few and not a thousand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")

FIRST_BATCH = 8


async def in_growing_batches(
    items: Sequence[Item], call: Callable[[Item], Awaitable[bool]], *, first: int = FIRST_BATCH, parallel: int
) -> bool:
    """Call for every item: a few first, then twice as many each time, `parallel` at once at most.

    A call says whether to go on. After one that says no, those under way are awaited and no more are begun. Returns
    whether all went well. What a call raises ends everything.
    """
    begin, size = 0, first
    while begin < len(items):
        batch = items[begin : begin + size]
        if not await _at_once(batch, call, parallel=parallel):
            return False
        begin += len(batch)
        size *= 2
    return True


async def _at_once(items: Sequence[Item], call: Callable[[Item], Awaitable[bool]], *, parallel: int) -> bool:
    if len(items) == 1:
        return await call(items[0])
    waiting = iter(items)
    async with asyncio.TaskGroup() as group:
        hands = [group.create_task(_one_after_another(waiting, call)) for _ in range(min(parallel, len(items)))]
    return all(hand.result() for hand in hands)


async def _one_after_another(waiting: Iterator[Item], call: Callable[[Item], Awaitable[bool]]) -> bool:
    for item in waiting:
        if not await call(item):
            for _ in waiting:
                pass  # nobody begins another one
            return False
    return True
