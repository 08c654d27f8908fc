"""A list and watch recovers from network and server faults, and raises errors that a retry cannot fix."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlop.jobs.list_watch import ChangeSet, WatchScope, list_and_watch, merge
from dlop.kube.client import Client
from dlop.kube.errors import ForbiddenError, TransportError
from dlop.kube.objects import Pod
from dlop.kube.resources import PODS
from dlop.testing.virtual_time import virtual_time
from tests.fake_api_server import Cut, FakeApiServer, Fault
from tests.thorough import examples

NAMES = [f"pod-{number}" for number in range(5)]
STEPS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(NAMES)),
    st.tuples(st.just("delete"), st.sampled_from(NAMES)),
    st.tuples(st.just("compact")),
    st.tuples(st.just("cut"), st.sampled_from(Cut)),
    st.tuples(st.just("fault"), st.sampled_from([fault for fault in Fault if fault is not Fault.FORBIDDEN])),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.1, 2.0, 70.0, 400.0])),
)


def watch_fake_pods(server: FakeApiServer) -> AsyncGenerator[ChangeSet[Pod], None]:
    return list_and_watch(Client(server), WatchScope(resource=PODS), Pod, rng=Random(0))


class Mirror:
    """The state that a consumer has built from the changes."""

    def __init__(self) -> None:
        self.versions: dict[str, str] = {}
        self.unexpected_deletions: list[str] = []

    async def consume(self, changes: AsyncGenerator[ChangeSet[Pod], None]) -> None:
        async with aclosing(changes):
            async for change_set in changes:
                for pod in change_set.deleted:
                    if self.versions.pop(pod.metadata.name, None) is None:
                        self.unexpected_deletions.append(pod.metadata.name)
                self.versions |= {pod.metadata.name: pod.metadata.resource_version for pod in change_set.upserted}


async def play(server: FakeApiServer, step: tuple[Any, ...]) -> None:
    match step:
        case ("put", name):
            server.put(name)
        case ("delete", name):
            server.delete(name)
        case ("cut", how):
            server.cut(how)
        case ("fault", fault):
            server.faults.append(fault)
        case ("wait", seconds):
            await asyncio.sleep(seconds)
        case (action,):
            getattr(server, action)()


@settings(max_examples=examples(60))
@given(steps=st.lists(STEPS, max_size=25))
def test_the_consumer_converges_to_the_state_of_the_server(steps: list[tuple[Any, ...]]) -> None:
    @virtual_time
    async def scenario() -> None:
        server, mirror = FakeApiServer(), Mirror()
        server.put("first")
        consumer = asyncio.create_task(mirror.consume(watch_fake_pods(server)))
        await asyncio.sleep(1)
        for step in steps:
            await play(server, step)
        server.recover()
        await asyncio.sleep(600)
        consumer.cancel()
        await asyncio.gather(consumer, return_exceptions=True)
        assert mirror.versions == {name: body["metadata"]["resourceVersion"] for name, body in server.objects.items()}
        assert mirror.unexpected_deletions == []

    scenario()


@virtual_time
async def test_watches_that_are_closed_immediately_are_reopened_with_backoff() -> None:
    server = FakeApiServer()
    consumer = asyncio.create_task(Mirror().consume(watch_fake_pods(server)))
    server.faults.extend([Fault.NONE, *([Fault.ENDED, Fault.NONE] * 200)])
    await asyncio.sleep(60)
    consumer.cancel()
    await asyncio.gather(consumer, return_exceptions=True)
    assert len(server.requests) < 30


@virtual_time
async def test_forbidden_and_an_unreachable_server_at_the_start_are_raised() -> None:
    for fault, kind in ((Fault.FORBIDDEN, ForbiddenError), (Fault.REFUSED, TransportError)):
        server = FakeApiServer()
        server.faults.append(fault)
        async with aclosing(watch_fake_pods(server)) as changes:
            with pytest.raises(kind):
                await anext(changes)


@virtual_time
async def test_the_first_change_set_is_the_list_even_if_it_is_empty() -> None:
    async with aclosing(watch_fake_pods(FakeApiServer())) as changes:
        assert await anext(changes) == ChangeSet()


@virtual_time
async def test_an_object_that_is_replaced_while_the_connection_is_lost_is_reported_as_deleted() -> None:
    server = FakeApiServer()
    server.put("pod-0")
    async with aclosing(watch_fake_pods(server)) as changes:
        (first,) = (await anext(changes)).upserted
        server.delete("pod-0")
        server.put("pod-0")
        server.compact()
        change_set = await anext(changes)
        assert [pod.metadata.uid for pod in change_set.deleted] == [first.metadata.uid]
        assert [pod.metadata.name for pod in change_set.upserted] == ["pod-0"]


# --- merged sources ------------------------------------------------------------------------------------------------------


async def counting(*numbers: int, fails: bool = False) -> AsyncGenerator[int, None]:
    for number in numbers:
        yield number
    if fails:
        raise TransportError("it broke")


async def test_merged_sources_are_read_until_all_have_ended() -> None:
    async with merge(counting(1, 2), counting(3)) as items:
        assert sorted([item async for item in items]) == [(0, 1), (0, 2), (1, 3)]


async def test_the_error_of_a_source_is_raised_to_the_reader() -> None:
    async with merge(counting(1), counting(fails=True)) as items:
        with pytest.raises(TransportError, match="it broke"):
            async for _ in items:
                pass


async def test_sources_are_closed_when_the_reader_stops() -> None:
    closed = asyncio.Event()

    async def endless() -> AsyncGenerator[int, None]:
        try:
            while True:
                yield 0
                await asyncio.sleep(0)
        finally:
            closed.set()

    async with merge(endless()) as items:
        await anext(items)
    assert closed.is_set()
