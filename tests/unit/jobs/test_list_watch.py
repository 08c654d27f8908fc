"""Whatever the network and the server do, who follows objects ends up with what there is; only what waiting cannot mend is raised."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlop.jobs.list_watch import News, WatchScope, follow, merged
from dlop.kube.client import Client
from dlop.kube.errors import ForbiddenError, TransportError
from dlop.kube.objects import Pod
from dlop.kube.resources import PODS
from dlop.testing.virtual_time import virtual_time
from tests.toy_server import Cut, Fault, ToyServer

NAMES = [f"pod-{number}" for number in range(5)]
STEPS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(NAMES)),
    st.tuples(st.just("delete"), st.sampled_from(NAMES)),
    st.tuples(st.just("compact")),
    st.tuples(st.just("cut"), st.sampled_from(Cut)),
    st.tuples(st.just("fault"), st.sampled_from([fault for fault in Fault if fault is not Fault.FORBIDDEN])),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.1, 2.0, 70.0, 400.0])),
)


def followed(server: ToyServer) -> AsyncGenerator[News[Pod], None]:
    return follow(Client(server), WatchScope(resource=PODS), Pod, rng=Random(0))


class Mirror:
    """What a listener knows."""

    def __init__(self) -> None:
        self.versions: dict[str, str] = {}
        self.strange: list[str] = []

    async def listen(self, news: AsyncGenerator[News[Pod], None]) -> None:
        async with aclosing(news):
            async for each in news:
                for pod in each.gone:
                    if self.versions.pop(pod.metadata.name, None) is None:
                        self.strange.append(pod.metadata.name)
                self.versions |= {pod.metadata.name: pod.metadata.resource_version for pod in each.there}


async def play(server: ToyServer, step: tuple[Any, ...]) -> None:
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
        case (deed,):
            getattr(server, deed)()


@settings(max_examples=60)
@given(steps=st.lists(STEPS, max_size=25))
def test_a_listener_ends_up_with_what_there_is(steps: list[tuple[Any, ...]]) -> None:
    @virtual_time
    async def story() -> None:
        server, mirror = ToyServer(), Mirror()
        server.put("first")
        listening = asyncio.create_task(mirror.listen(followed(server)))
        await asyncio.sleep(1)
        for step in steps:
            await play(server, step)
        server.recover()
        await asyncio.sleep(600)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        assert mirror.versions == {name: body["metadata"]["resourceVersion"] for name, body in server.objects.items()}
        assert mirror.strange == []

    story()


@virtual_time
async def test_a_server_that_ends_every_watch_at_once_is_not_asked_in_a_hot_loop() -> None:
    server = ToyServer()
    listening = asyncio.create_task(Mirror().listen(followed(server)))
    server.faults.extend([Fault.NONE, *([Fault.ENDED, Fault.NONE] * 200)])
    await asyncio.sleep(60)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    assert len(server.requests) < 30


@virtual_time
async def test_what_may_not_be_read_is_raised_and_so_is_a_server_that_was_never_there() -> None:
    for fault, kind in ((Fault.FORBIDDEN, ForbiddenError), (Fault.REFUSED, TransportError)):
        server = ToyServer()
        server.faults.append(fault)
        async with aclosing(followed(server)) as news:
            with pytest.raises(kind):
                await anext(news)


@virtual_time
async def test_the_first_news_are_all_that_there_is_be_it_nothing() -> None:
    async with aclosing(followed(ToyServer())) as news:
        assert await anext(news) == News()


# --- several sources -----------------------------------------------------------------------------------------------------


async def counting(*numbers: int, fails: bool = False) -> AsyncGenerator[int, None]:
    for number in numbers:
        yield number
    if fails:
        raise TransportError("it broke")


async def test_several_sources_are_heard_until_all_have_ended() -> None:
    async with merged(counting(1, 2), counting(3)) as items:
        assert sorted([item async for item in items]) == [(0, 1), (0, 2), (1, 3)]


async def test_the_failure_of_a_source_reaches_the_listener() -> None:
    async with merged(counting(1), counting(fails=True)) as items:
        with pytest.raises(TransportError, match="it broke"):
            async for _ in items:
                pass


async def test_sources_are_closed_when_nobody_listens_any_more() -> None:
    closed = asyncio.Event()

    async def endless() -> AsyncGenerator[int, None]:
        try:
            while True:
                yield 0
                await asyncio.sleep(0)
        finally:
            closed.set()

    async with merged(endless()) as items:
        await anext(items)
    assert closed.is_set()
