"""Whatever happens in whatever order, the informer's cache ends up equal to the server's truth, and so does the view of its handlers."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dlop.kube.cache import CacheChange, Key, key_of
from dlop.kube.client import Client, Limits
from dlop.kube.informer import Informer
from dlop.kube.objects import Pod
from dlop.kube.resources import PODS
from dlop.testing.virtual_time import virtual_time
from tests.toy_server import LABEL, Cut, Fault, ToyServer

NAMES = [f"pod-{number}" for number in range(8)]
JOBS = ["a", "b"]

steps = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(NAMES), st.sampled_from(JOBS)),
    st.tuples(st.just("delete"), st.sampled_from(NAMES)),
    st.tuples(st.just("recreate"), st.sampled_from(NAMES)),
    st.tuples(st.just("compact")),
    st.tuples(st.just("cut"), st.sampled_from(Cut)),
    st.tuples(st.just("silence")),
    st.tuples(st.just("lag_behind")),
    st.tuples(st.just("catch_up")),
    st.tuples(st.just("refresh")),
    st.tuples(st.just("fault"), st.sampled_from(Fault)),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.1, 2.0, 70.0, 400.0])),
)


class Mirror:
    """What a handler knows: it rebuilds the cache from the changes alone and notes where they do not fit together."""

    def __init__(self) -> None:
        self.objects: dict[Key, Pod] = {}
        self.misfits: list[CacheChange[Pod]] = []

    def __call__(self, change: CacheChange[Pod]) -> None:
        key = key_of(change.object)
        known = self.objects.pop(key, None)
        if change.new is not None:
            self.objects[key] = change.new
            fits = change.old is known
        else:
            fits = known is not None and known.metadata.uid == change.object.metadata.uid
        if not fits:
            self.misfits.append(change)


async def play(server: ToyServer, informer: Informer[Pod], step: tuple[Any, ...]) -> None:
    match step:
        case ("refresh",):
            await asyncio.wait([asyncio.create_task(informer.refresh())], timeout=5.0)
            await asyncio.sleep(1)
        case ("put", name, job):
            server.put(name, job=job)
        case ("delete", name):
            server.delete(name)
        case ("recreate", name):
            server.delete(name)
            server.put(name)
        case ("cut", how):
            server.cut(how)
        case ("fault", fault):
            server.faults.append(fault)
        case ("wait", seconds):
            await asyncio.sleep(seconds)
        case (deed,):
            getattr(server, deed)()


def states(objects: Any) -> dict[str, tuple[str, str]]:
    """Name to uid and version."""
    return {found.metadata.name: (found.metadata.uid, found.metadata.resource_version) for found in objects}


def truth(server: ToyServer) -> dict[str, tuple[str, str]]:
    return {name: (body["metadata"]["uid"], body["metadata"]["resourceVersion"]) for name, body in server.objects.items()}


def check_indexes(informer: Informer[Pod]) -> None:
    """Every index says what a scan of the cache says, and nothing else."""
    owners = Counter(found.metadata.controller.uid for found in informer.cache if found.metadata.controller)
    jobs = Counter(found.metadata.labels[LABEL] for found in informer.cache)
    assert {uid: len(informer.cache.owned_by(uid)) for uid in owners} == owners
    assert {job: len(informer.cache.labelled(LABEL, job, namespace="ns")) for job in jobs} == jobs
    assert informer.cache.index_sizes() == {"": len(owners), LABEL: len(jobs)}


@given(script=st.lists(steps, max_size=40), streams_lists=st.booleans(), seed=st.integers(0, 1000))
@settings(deadline=None)
@virtual_time
async def test_the_cache_and_its_handlers_end_up_with_the_truth(script: list[tuple[Any, ...]], streams_lists: bool, seed: int) -> None:
    server = ToyServer(streams_lists=streams_lists)
    mirror = Mirror()
    client = Client(server, limits=Limits(page_size=3))
    informer = Informer(client, PODS, Pod, rng=Random(seed), labels=[LABEL], handlers=[mirror])
    following = asyncio.create_task(informer.run())
    seen = 0
    for step in script:
        await play(server, informer, step)
        await asyncio.sleep(0)
        assert informer.cache.resource_version >= seen, "the cache went back in time"
        seen = informer.cache.resource_version
        assert mirror.objects == {key_of(found): found for found in informer.cache} or not informer.synced

    server.recover()
    await asyncio.wait_for(informer.wait_synced(), 1000)
    await asyncio.wait_for(informer.cache.reached(server.version), 1000)
    assert states(informer.cache) == truth(server) == states(mirror.objects.values())
    assert mirror.misfits == []
    check_indexes(informer)
    check_request_rate(server)
    await asyncio.sleep(200)
    assert informer.last_error == ""
    following.cancel()
    await asyncio.wait([following])


def check_request_rate(server: ToyServer) -> None:
    """Never more requests in any second than a handful: one failing way, another one, the pages of a list."""
    times = [at for at, _ in server.requests]
    busiest = max(sum(at <= other < at + 1.0 for other in times) for at in times)
    assert busiest <= 12, server.requests
