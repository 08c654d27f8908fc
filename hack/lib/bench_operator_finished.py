"""The cost of thousands of finished jobs: the start of an operator, and its idle time."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from bench_operator_lifecycle import JobRunner
from bench_operator_load import BenchTarget, for_each
from bench_report import MeasureError, Row, log_progress

_SETTLE_SECONDS = 1.0


async def finished_rows(target: BenchTarget, *, jobs: int, idle_seconds: float, name: str) -> list[Row]:
    """Finished jobs with the status of a real run, and an operator that starts afterwards."""
    log_progress(f"{jobs} finished jobs: creating them")
    namespace = await target.create_namespace(name)
    status = await _finished_status(target, namespace=namespace)
    await _create_finished(target, jobs - 1, status=status, namespace=namespace)
    log_progress(f"{jobs} finished jobs: start of an operator, and {idle_seconds:g} idle seconds")
    async with target.operator(namespace) as operator:
        reconciled_after_seconds = await operator.wait_passes(jobs)
        start_cpu_seconds = operator.cpu_seconds
        await asyncio.sleep(_SETTLE_SECONDS)
        before, cpu_before = await operator.samples(), operator.cpu_seconds
        await asyncio.sleep(idle_seconds)
        cpu_seconds = operator.cpu_seconds - cpu_before
        after = await operator.samples()
        megabytes = operator.resident_megabytes()
    counted = f"{jobs:,} finished jobs"
    return [
        Row(f"{counted}: from the start of the process until synced", operator.ready_after_seconds, "s"),
        Row(f"{counted}: until each was reconciled ({after.passes:,.0f} passes)", reconciled_after_seconds, "s"),
        Row(f"{counted}: CPU until then", start_cpu_seconds, "s of CPU"),
        Row(f"{counted}: writes since the start", after.writes, "writes", at_most=0),
        Row(f"{counted}: passes in {idle_seconds:g} s idle", after.passes - before.passes, "passes", at_most=0),
        Row(f"{counted}: writes in {idle_seconds:g} s idle", after.writes - before.writes, "writes", at_most=0),
        Row(f"{counted}: CPU in {idle_seconds:g} s idle", cpu_seconds / idle_seconds * 100, "% of a core"),
        Row(f"{counted}: memory of the operator", megabytes, "MB resident"),
    ]


async def _finished_status(target: BenchTarget, *, namespace: str) -> dict[str, Any]:
    """The status of a job that an operator has run to completion and cleaned up."""
    runner = JobRunner(target, namespace, cleanPodPolicy="All")
    async with target.operator(namespace) as operator, runner.watcher:
        running = asyncio.create_task(runner.run_pods())
        await runner.run_jobs(["example"])
        await operator.wait_quiet()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    job = await target.client.get(target.kind.resource, "example", namespace=namespace)
    status: dict[str, Any] = job["status"]
    if not status.get("dlop"):
        raise MeasureError(f"the status of a finished job has no record: {status}")
    return status


async def _create_finished(target: BenchTarget, jobs: int, *, status: dict[str, Any], namespace: str) -> None:
    names = [f"finished-{number}" for number in range(jobs)]
    await target.create_jobs([target.kind.body(name, namespace=namespace, pods=3, cleanPodPolicy="All") for name in names])
    patch = msgspec.json.encode({"status": status})

    async def finish(name: str) -> None:
        path = target.kind.resource.path(namespace=namespace, name=name, subresource="status")
        await target.client.call("PATCH", path, body=patch, content_type="application/merge-patch+json")

    await for_each(names, finish)
