"""Show the progress of jobs until they have finished."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from dlop.console.plain_view import ProgressView
from dlop.console.progress import job_labels
from dlop.jobs.errors import WaitFailedError
from dlop.jobs.log_stream import follow_logs
from dlop.jobs.logs import LogSelector
from dlop.jobs.lookup import JobHandle
from dlop.jobs.queries import watch_job
from dlop.jobs.view import JobView
from dlop.kube.client import Client


async def follow_jobs(client: Client, jobs: Sequence[JobHandle], progress: ProgressView, *, with_logs: bool) -> list[JobView]:
    """Show the progress of jobs until all of them have finished, and return their final views.

    Raises:
        WaitFailedError: a job was deleted.
        KubeError: the jobs cannot be watched.
    """
    labels = job_labels(jobs)
    tasks = [asyncio.create_task(_follow_job(client, job, progress, label=labels[job.uid], with_logs=with_logs)) for job in jobs]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _follow_job(client: Client, job: JobHandle, progress: ProgressView, *, label: str, with_logs: bool) -> JobView:
    log_task = asyncio.create_task(_show_logs(client, job, progress, label=label)) if with_logs else None
    try:
        view = await _show_progress(client, job, progress, label=label)
        if log_task is not None:
            await log_task
        return view
    finally:
        if log_task is not None:
            log_task.cancel()
            await asyncio.gather(log_task, return_exceptions=True)


async def _show_progress(client: Client, job: JobHandle, progress: ProgressView, *, label: str) -> JobView:
    clock = asyncio.get_running_loop().time
    started_at = clock()
    async with watch_job(client, job) as views, aclosing(views):
        async for view in views:
            progress.show_job(view, elapsed_seconds=clock() - started_at, label=label)
            if view.is_finished:
                return view
    raise WaitFailedError(f"{job} can no longer be watched.")


async def _show_logs(client: Client, job: JobHandle, progress: ProgressView, *, label: str) -> None:
    async with follow_logs(client, job, LogSelector()) as lines, aclosing(lines):
        async for line in lines:
            progress.show_log_line(line, job_label=label)
