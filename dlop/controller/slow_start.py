"""Slow-start batching: if the server rejects requests, only a few are sent instead of thousands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")

INITIAL_BATCH_SIZE = 8


async def slow_start_batch(
    items: Sequence[Item],
    call: Callable[[Item], Awaitable[bool]],
    *,
    initial: int = INITIAL_BATCH_SIZE,
    parallel: int,
    may_grow: Callable[[], bool],
) -> bool:
    """Call `call` for every item, with `initial` workers at first, one more after each success, and at most `parallel`.

    Workers are added only while `may_grow()` is true. Requests that queue for an in-flight slot would block other jobs.
    `call` returns whether to continue. After it returned False, running calls finish and no new ones start.

    Returns whether all calls returned True. An exception cancels the remaining calls and is raised.
    """
    if len(items) == 1:
        return await call(items[0])
    remaining, succeeded = iter(items), True
    workers, max_workers = 0, min(parallel, len(items))

    def start_worker() -> None:
        nonlocal workers
        workers += 1
        group.create_task(work())

    async def work() -> None:
        nonlocal succeeded
        for item in remaining:
            succeeded = await call(item) and succeeded
            if not succeeded:
                for _ in remaining:
                    pass  # exhaust the shared iterator so that no worker starts another call
            elif workers < max_workers and may_grow():
                start_worker()

    async with asyncio.TaskGroup() as group:
        for _ in range(min(initial, max_workers)):
            start_worker()
    return succeeded
