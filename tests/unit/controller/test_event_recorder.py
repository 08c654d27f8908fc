"""Events are grouped into series, rate-limited, and dropped when the queue is full."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

from dlop.controller.event_recorder import EventLimits, EventRecorder
from dlop.controller.kinds import JobKey
from dlop.embedded.apiserver.faults import RequestMatch
from dlop.embedded.cluster import EmbeddedCluster
from dlop.kube.client import Client
from dlop.kube.objects import ObjectMeta
from dlop.kube.resources import EVENTS, Resource
from dlop.kube.types import JsonObject
from dlop.reconcile.plan import Event, EventType
from dlop.testing.virtual_time import virtual_time

JOBS = Resource("example.org", "v1", "ringjobs", "RingJob")
KEY = JobKey(JOBS, "default", "ring")
JOB = ObjectMeta(name="ring", namespace="default", uid="1234")
CREATED = Event(EventType.NORMAL, "CreatedPods", "Created 3 pods.")


@asynccontextmanager
async def recording(cluster: EmbeddedCluster, *, limits: EventLimits = EventLimits()) -> AsyncIterator[EventRecorder]:  # noqa: B008
    loop = asyncio.get_running_loop()
    recorder = EventRecorder(cluster.client(), instance="one", clock=lambda: 1_750_000_000 + loop.time(), rng=Random(1), limits=limits)
    running = asyncio.create_task(recorder.run())
    try:
        yield recorder
    finally:
        running.cancel()
        await asyncio.wait((running,))


async def list_events(client: Client) -> list[JsonObject]:
    items: list[JsonObject] = (await client.list(EVENTS, namespace="default"))["items"]
    return items


@virtual_time
async def test_an_event_names_the_job_and_the_reason() -> None:
    async with EmbeddedCluster() as cluster, recording(cluster) as recorder:
        recorder.record(KEY, JOB, CREATED)
        await asyncio.sleep(1)
        (event,) = await list_events(cluster.client())
    assert (event["reason"], event["note"], event["type"]) == ("CreatedPods", "Created 3 pods.", "Normal")
    assert event["regarding"]["name"] == "ring"
    assert event["regarding"]["uid"] == "1234"
    assert event["reportingController"] == "dlop"


@virtual_time
async def test_a_repeated_event_becomes_a_series() -> None:
    async with EmbeddedCluster() as cluster, recording(cluster) as recorder:
        for _ in range(5):
            recorder.record(KEY, JOB, CREATED)
            await asyncio.sleep(10)
        (event,) = await list_events(cluster.client())
    assert event["series"]["count"] == 5


@virtual_time
async def test_an_event_repeated_after_a_long_time_is_a_new_event() -> None:
    async with EmbeddedCluster() as cluster, recording(cluster) as recorder:
        recorder.record(KEY, JOB, CREATED)
        await asyncio.sleep(3600)
        recorder.record(KEY, JOB, CREATED)
        await asyncio.sleep(1)
        assert len(await list_events(cluster.client())) == 2


@virtual_time
async def test_events_are_dropped_and_counted_when_the_queue_is_full() -> None:
    async with EmbeddedCluster() as cluster, recording(cluster, limits=EventLimits(queue_length=10)) as recorder:
        for number in range(50):
            recorder.record(KEY, JOB, Event(EventType.NORMAL, "Created", f"number {number}"))
        await asyncio.sleep(60)
        assert len(await list_events(cluster.client())) == 10
        assert recorder.counts.dropped == 40


@virtual_time
async def test_many_events_are_sent_at_the_rate_limit() -> None:
    async with EmbeddedCluster() as cluster, recording(cluster, limits=EventLimits(per_second=10, burst=5)) as recorder:
        for number in range(100):
            recorder.record(KEY, JOB, Event(EventType.NORMAL, "Created", f"number {number}"))
        await asyncio.sleep(2)
        assert 20 <= len(await list_events(cluster.client())) <= 27
        await asyncio.sleep(20)
        assert len(await list_events(cluster.client())) == 100


@virtual_time
async def test_a_rejected_event_does_not_stop_the_recorder() -> None:
    async with EmbeddedCluster() as cluster, recording(cluster) as recorder:
        cluster.faults.fail_before(
            {"kind": "Status", "code": 403, "reason": "Forbidden"}, match=RequestMatch(plural="events", verb="create")
        )
        recorder.record(KEY, JOB, CREATED)
        await asyncio.sleep(1)
        recorder.record(KEY, JOB, Event(EventType.WARNING, "Failed", "x" * 5000))
        await asyncio.sleep(1)
        (event,) = await list_events(cluster.client())
    assert event["reason"] == "Failed"
    assert len(event["note"]) == 1024
    assert recorder.counts.dropped == 1
