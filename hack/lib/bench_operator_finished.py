"""Finished jobs at rest: an operator that starts among thousands of them, and then has nothing to do."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from bench_operator_life import Lives
from bench_operator_load import Place, many
from bench_rows import MeasureError, Row, say

_SETTLE_SECONDS = 1.0


async def finished_rows(place: Place, *, jobs: int, rest_seconds: float, name: str) -> list[Row]:
    """Jobs that an earlier operator has brought to their end, and an operator that is started then."""
    say(f"{jobs} finished jobs: making them")
    namespace = await place.make_namespace(name)
    status = await _real_end(place, namespace=namespace)
    await _make_finished(place, jobs - 1, status=status, namespace=namespace)
    say(f"{jobs} finished jobs: an operator that starts, and {rest_seconds:g} seconds of rest")
    async with place.operator(namespace) as operator:
        seen_after_seconds = await operator.wait_passes(jobs)
        starting_cpu_seconds = operator.cpu_seconds
        await asyncio.sleep(_SETTLE_SECONDS)
        before, cpu_before = await operator.samples(), operator.cpu_seconds
        await asyncio.sleep(rest_seconds)
        cpu_seconds = operator.cpu_seconds - cpu_before
        after = await operator.samples()
        megabytes = operator.resident_megabytes()
    counted = f"{jobs:,} finished jobs"
    return [
        Row(f"{counted}: from the start of the process until synced", operator.ready_after_seconds, "s"),
        Row(f"{counted}: until each was looked at ({after.passes:,.0f} passes)", seen_after_seconds, "s"),
        Row(f"{counted}: CPU for that", starting_cpu_seconds, "s of CPU"),
        Row(f"{counted}: writes since the start", after.writes, "writes", at_most=0),
        Row(f"{counted}: passes in {rest_seconds:g} s of rest", after.passes - before.passes, "passes", at_most=0),
        Row(f"{counted}: writes in {rest_seconds:g} s of rest", after.writes - before.writes, "writes", at_most=0),
        Row(f"{counted}: CPU in {rest_seconds:g} s of rest", cpu_seconds / rest_seconds * 100, "% of a core"),
        Row(f"{counted}: memory of the operator", megabytes, "MB resident"),
    ]


async def _real_end(place: Place, *, namespace: str) -> dict[str, Any]:
    """The status of a job that an operator has seen through, its pods cleared away."""
    lives = Lives(place, namespace, cleanPodPolicy="All")
    async with place.operator(namespace) as operator, lives.follower:
        running = asyncio.create_task(lives.run_pods())
        await lives.live(["example"])
        await operator.wait_quiet()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    job = await place.client.get(place.kind.resource, "example", namespace=namespace)
    status: dict[str, Any] = job["status"]
    if not status.get("dlop"):
        raise MeasureError(f"the status of a finished job has no record: {status}")
    return status


async def _make_finished(place: Place, jobs: int, *, status: dict[str, Any], namespace: str) -> None:
    names = [f"finished-{number}" for number in range(jobs)]
    await place.create_jobs([place.kind.body(name, namespace=namespace, pods=3, cleanPodPolicy="All") for name in names])
    patch = msgspec.json.encode({"status": status})

    async def finish(name: str) -> None:
        path = place.kind.resource.path(namespace=namespace, name=name, subresource="status")
        await place.client.call("PATCH", path, body=patch, content_type="application/merge-patch+json")

    await many(names, finish)
