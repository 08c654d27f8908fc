"""Many calls at once, slowly at first: if the server refuses, it has refused a few and not a thousand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")

AT_FIRST = 8


async def slowly_at_first(
    items: Sequence[Item], call: Callable[[Item], Awaitable[bool]], *, first: int = AT_FIRST, parallel: int, may_grow: Callable[[], bool]
) -> bool:
    """Call for every item: a few at once first, and one more with each call that went well, `parallel` at once at most.

    More at once are begun only while `may_grow`: where all have to wait, those who wait keep others from getting a place.
    A call says whether to go on. After one that says no, those under way are awaited and no more are begun. Returns
    whether all went well. What a call raises ends everything.
    """
    if len(items) == 1:
        return await call(items[0])
    waiting, is_well = iter(items), True
    hands, most = 0, min(parallel, len(items))

    def begin() -> None:
        nonlocal hands
        hands += 1
        group.create_task(lend_a_hand())

    async def lend_a_hand() -> None:
        nonlocal is_well
        for item in waiting:
            is_well = await call(item) and is_well
            if not is_well:
                for _ in waiting:
                    pass  # nobody begins another one
            elif hands < most and may_grow():
                begin()

    async with asyncio.TaskGroup() as group:
        for _ in range(min(first, most)):
            begin()
    return is_well
