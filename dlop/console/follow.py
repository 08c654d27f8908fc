"""Stays with jobs until they are over, and shows how they go."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from dlop.console.plain_view import JobScreen
from dlop.jobs.errors import OutOfReachError
from dlop.jobs.log_stream import follow_logs
from dlop.jobs.logs import LogChoice
from dlop.jobs.lookup import JobHandle
from dlop.jobs.queries import watch_job
from dlop.jobs.view import JobView
from dlop.kube.client import Client


async def attend(client: Client, jobs: Sequence[JobHandle], screen: JobScreen, *, with_logs: bool) -> list[JobView]:
    """Show jobs on a screen until all of them are over, and return how they ended.

    Raises:
        OutOfReachError: one was deleted meanwhile.
        KubeError: they cannot be watched.
    """
    tasks = [asyncio.create_task(_attend_one(client, job, screen, with_logs=with_logs)) for job in jobs]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _attend_one(client: Client, found: JobHandle, screen: JobScreen, *, with_logs: bool) -> JobView:
    listening = asyncio.create_task(_listen(client, found, screen)) if with_logs else None
    try:
        view = await _show(client, found, screen)
        if listening is not None:
            await listening
        return view
    finally:
        if listening is not None:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)


async def _show(client: Client, found: JobHandle, screen: JobScreen) -> JobView:
    clock = asyncio.get_running_loop().time
    began = clock()
    async with watch_job(client, found) as views, aclosing(views):
        async for view in views:
            screen.show(view, elapsed_seconds=clock() - began)
            if view.is_over:
                return view
    raise OutOfReachError(f"{found} cannot be watched any more.")


async def _listen(client: Client, found: JobHandle, screen: JobScreen) -> None:
    async with follow_logs(client, found, LogChoice()) as lines, aclosing(lines):
        async for line in lines:
            screen.hear(line)
