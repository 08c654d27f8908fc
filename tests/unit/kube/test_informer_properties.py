"""Property tests: under any sequence of faults, the cache and its handlers converge to the server's state."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dlop.kube.cache import CacheChange, Key, object_key
from dlop.kube.client import Client, ClientLimits
from dlop.kube.informer import Informer
from dlop.kube.objects import Pod
from dlop.kube.resources import PODS
from dlop.testing.virtual_time import virtual_time
from tests.fake_api_server import LABEL, Cut, FakeApiServer, Fault
from tests.unit.kube.cache_indexes import index_sizes

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
    """A handler that rebuilds the cache from the changes and records inconsistent ones."""

    def __init__(self) -> None:
        self.objects: dict[Key, Pod] = {}
        self.inconsistent: list[CacheChange[Pod]] = []

    def __call__(self, change: CacheChange[Pod]) -> None:
        key = object_key(change.object)
        known = self.objects.pop(key, None)
        if change.new is not None:
            self.objects[key] = change.new
            is_consistent = change.old is known
        else:
            is_consistent = known is not None and known.metadata.uid == change.object.metadata.uid
        if not is_consistent:
            self.inconsistent.append(change)


async def execute(server: FakeApiServer, informer: Informer[Pod], step: tuple[Any, ...]) -> None:
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
        case (action,):
            getattr(server, action)()


def states(objects: Any) -> dict[str, tuple[str, str]]:
    """Uid and resource version by name."""
    return {obj.metadata.name: (obj.metadata.uid, obj.metadata.resource_version) for obj in objects}


def server_states(server: FakeApiServer) -> dict[str, tuple[str, str]]:
    return {name: (body["metadata"]["uid"], body["metadata"]["resourceVersion"]) for name, body in server.objects.items()}


def check_indexes(informer: Informer[Pod]) -> None:
    """Each index agrees with a scan of the cache."""
    owners = Counter(pod.metadata.controller.uid for pod in informer.cache if pod.metadata.controller)
    jobs = Counter(pod.metadata.labels[LABEL] for pod in informer.cache if not pod.metadata.controller)
    assert {uid: len(informer.cache.owned_by(uid)) for uid in owners} == owners
    assert {job: len(informer.cache.orphans(LABEL, job, namespace="ns")) for job in jobs} == jobs
    assert index_sizes(informer.cache) == {"": len(owners), LABEL: len(jobs)}


@given(script=st.lists(steps, max_size=40), streams_lists=st.booleans(), seed=st.integers(0, 1000))
@settings(deadline=None)
@virtual_time
async def test_the_cache_and_its_handlers_converge_to_the_state_of_the_server(
    script: list[tuple[Any, ...]], streams_lists: bool, seed: int
) -> None:
    server = FakeApiServer(streams_lists=streams_lists)
    mirror = Mirror()
    client = Client(server, limits=ClientLimits(page_size=3))
    informer = Informer(client, PODS, Pod, rng=Random(seed), labels=[LABEL], handlers=[mirror])
    running = asyncio.create_task(informer.run())
    last_version = 0
    for step in script:
        await execute(server, informer, step)
        await asyncio.sleep(0)
        assert informer.cache.resource_version >= last_version, "the resource version fell"
        last_version = informer.cache.resource_version
        assert mirror.objects == {object_key(pod): pod for pod in informer.cache} or not informer.synced

    server.recover()
    await asyncio.wait_for(informer.wait_synced(), 1000)
    await asyncio.wait_for(informer.cache.wait_for_version(server.version), 1000)
    assert states(informer.cache) == server_states(server) == states(mirror.objects.values())
    assert mirror.inconsistent == []
    check_indexes(informer)
    check_request_rate(server)
    await asyncio.sleep(200)
    assert informer.last_error == ""
    running.cancel()
    await asyncio.wait([running])


def check_request_rate(server: FakeApiServer) -> None:
    """A bounded number of requests per second: a failed list, its fallback, and the pages of that."""
    times = [at for at, _ in server.requests]
    busiest = max(sum(at <= other < at + 1.0 for other in times) for at in times)
    assert busiest <= 12, server.requests
