"""A watch of many jobs builds only the views of jobs that changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest

from dlop.api.constants import JOB_UID_LABEL
from dlop.jobs.queries import ViewChanges, watch_jobs
from dlop.kube.resources import PODS
from dlop.kube.types import JsonObject
from dlop.testing.virtual_time import virtual_time
from tests.sim.operator_env import NAMESPACE, RING_JOBS, OperatorEnv, operator_env, ring
from tests.sim.ring_job import RingJob


class Watcher:
    """Reads the changes of a watch."""

    def __init__(self, changes: AsyncGenerator[ViewChanges, None]) -> None:
        self._changes = changes

    async def next_changes(self) -> ViewChanges:
        async with asyncio.timeout(120):
            return await anext(self._changes)

    async def next_names(self) -> list[str]:
        """The names of the jobs whose views changed next."""
        return [view.name for view in (await self.next_changes()).changed]


@asynccontextmanager
async def watch_two_jobs() -> AsyncIterator[tuple[OperatorEnv, Watcher]]:
    """The jobs `one` and `two`, without an operator. The watch has delivered both."""
    async with operator_env() as env:
        for name in ("two", "one"):
            await env.submit(ring(name))
        async with watch_jobs(env.client, [RingJob], namespace=NAMESPACE) as changes, aclosing(changes):
            watcher = Watcher(changes)
            assert await watcher.next_names() == ["one", "two"]
            yield env, watcher


async def create_pod(env: OperatorEnv, job: str, name: str) -> None:
    uid = (await env.client.get(RING_JOBS, job, namespace=NAMESPACE))["metadata"]["uid"]
    body: JsonObject = {
        "metadata": {"name": name, "labels": {JOB_UID_LABEL: uid}},
        "spec": {"containers": [{"name": "main", "image": "ring:1"}]},
    }
    await env.client.create(PODS, body, namespace=NAMESPACE)


async def label_pod(env: OperatorEnv, name: str, labels: JsonObject) -> None:
    await env.client.patch(PODS, name, {"metadata": {"labels": labels}}, namespace=NAMESPACE)


@virtual_time
async def test_an_event_of_a_job_or_a_pod_changes_only_the_view_of_that_job() -> None:
    async with watch_two_jobs() as (env, watcher):
        await env.client.patch(RING_JOBS, "two", {"metadata": {"labels": {"team": "a"}}}, namespace=NAMESPACE)
        assert await watcher.next_names() == ["two"]
        await create_pod(env, "one", "one-worker-0")
        assert await watcher.next_names() == ["one"]
        await label_pod(env, "one-worker-0", {"team": "a"})
        assert await watcher.next_names() == ["one"]


@virtual_time
async def test_a_deleted_job_is_reported_with_its_last_view() -> None:
    async with watch_two_jobs() as (env, watcher):
        await env.delete_job("one")
        changes = await watcher.next_changes()
        assert ([view.name for view in changes.deleted], changes.changed) == (["one"], [])


@virtual_time
async def test_a_pod_that_moves_to_another_job_changes_both_views() -> None:
    async with watch_two_jobs() as (env, watcher):
        await create_pod(env, "one", "one-worker-0")
        assert await watcher.next_names() == ["one"]
        uid = (await env.client.get(RING_JOBS, "two", namespace=NAMESPACE))["metadata"]["uid"]
        await label_pod(env, "one-worker-0", {JOB_UID_LABEL: uid})
        assert await watcher.next_names() == ["one", "two"]


@virtual_time
async def test_a_relist_changes_only_the_views_of_jobs_that_changed_meanwhile() -> None:
    async with watch_two_jobs() as (env, watcher):
        await create_pod(env, "one", "one-worker-0")
        await create_pod(env, "two", "two-worker-0")
        assert await watcher.next_names() == ["one"]
        assert await watcher.next_names() == ["two"]
        env.faults.drop_watches()
        await label_pod(env, "two-worker-0", {"team": "a"})
        env.faults.compact()
        assert await watcher.next_names() == ["two"]
        with pytest.raises(TimeoutError):
            await watcher.next_names()
