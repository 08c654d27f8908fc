"""Events tell a story once, never hold anybody up, and are dropped rather than piled up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

from dlop.controller.event_recorder import EventBudget, EventRecorder
from dlop.controller.kinds import JobKey
from dlop.embedded.apiserver.faults import Match
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
async def recording(cluster: EmbeddedCluster, *, budget: EventBudget = EventBudget()) -> AsyncIterator[EventRecorder]:  # noqa: B008
    loop = asyncio.get_running_loop()
    recorder = EventRecorder(cluster.client(), instance="one", clock=lambda: 1_750_000_000 + loop.time(), rng=Random(1), budget=budget)
    running = asyncio.create_task(recorder.run())
    try:
        yield recorder
    finally:
        running.cancel()
        await asyncio.wait((running,))


async def events(client: Client) -> list[JsonObject]:
    found: list[JsonObject] = (await client.list(EVENTS, namespace="default"))["items"]
    return found


@virtual_time
async def test_an_event_says_what_happened_to_which_job() -> None:
    async with EmbeddedCluster() as cluster, recording(cluster) as recorder:
        recorder.tell(KEY, JOB, CREATED)
        await asyncio.sleep(1)
        (event,) = await events(cluster.client())
    assert (event["reason"], event["note"], event["type"]) == ("CreatedPods", "Created 3 pods.", "Normal")
    assert event["regarding"]["name"] == "ring"
    assert event["regarding"]["uid"] == "1234"
    assert event["reportingController"] == "dlop"


@virtual_time
async def test_the_same_event_again_becomes_a_series() -> None:
    async with EmbeddedCluster() as cluster, recording(cluster) as recorder:
        for _ in range(5):
            recorder.tell(KEY, JOB, CREATED)
            await asyncio.sleep(10)
        (event,) = await events(cluster.client())
    assert event["series"]["count"] == 5


@virtual_time
async def test_after_a_long_silence_the_same_event_is_a_new_one() -> None:
    async with EmbeddedCluster() as cluster, recording(cluster) as recorder:
        recorder.tell(KEY, JOB, CREATED)
        await asyncio.sleep(3600)
        recorder.tell(KEY, JOB, CREATED)
        await asyncio.sleep(1)
        assert len(await events(cluster.client())) == 2


@virtual_time
async def test_events_that_find_the_line_full_are_dropped_and_counted() -> None:
    async with EmbeddedCluster() as cluster, recording(cluster, budget=EventBudget(line_length=10)) as recorder:
        for number in range(50):
            recorder.tell(KEY, JOB, Event(EventType.NORMAL, "Created", f"number {number}"))
        await asyncio.sleep(60)
        assert len(await events(cluster.client())) == 10
        assert recorder.counts.dropped == 40


@virtual_time
async def test_a_storm_of_events_is_sent_no_faster_than_the_budget_allows() -> None:
    async with EmbeddedCluster() as cluster, recording(cluster, budget=EventBudget(per_second=10, burst=5)) as recorder:
        for number in range(100):
            recorder.tell(KEY, JOB, Event(EventType.NORMAL, "Created", f"number {number}"))
        await asyncio.sleep(2)
        assert 20 <= len(await events(cluster.client())) <= 27
        await asyncio.sleep(20)
        assert len(await events(cluster.client())) == 100


@virtual_time
async def test_a_server_that_takes_no_events_ends_nothing() -> None:
    async with EmbeddedCluster() as cluster, recording(cluster) as recorder:
        cluster.faults.fail_before({"kind": "Status", "code": 403, "reason": "Forbidden"}, match=Match(plural="events", verb="create"))
        recorder.tell(KEY, JOB, CREATED)
        await asyncio.sleep(1)
        recorder.tell(KEY, JOB, Event(EventType.WARNING, "Failed", "x" * 5000))
        await asyncio.sleep(1)
        (event,) = await events(cluster.client())
    assert event["reason"] == "Failed"
    assert len(event["note"]) == 1024
    assert recorder.counts.dropped == 1
