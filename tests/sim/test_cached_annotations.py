"""The caches of the operator keep only the annotations that it reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from dlop.api.constants import GROUP_ANNOTATION, LAST_APPLIED_ANNOTATION, SIZE_ANNOTATION, TEMPLATE_HASH_ANNOTATION
from dlop.controller.crd_watch import CrdWatcher
from dlop.controller.informer_set import InformerSet
from dlop.controller.kinds import ManagedKind
from dlop.kube.informer import Informer, InformerTimings
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, PODS, SERVICES
from dlop.kube.types import JsonObject
from dlop.testing.virtual_time import virtual_time
from tests.sim.operator_env import NAMESPACE, RING_CRD, RING_JOBS, OperatorEnv, operator_env, ring
from tests.sim.ring_job import RingJob

RING = ManagedKind(resource=RING_JOBS, make_job=RingJob)
READ = {TEMPLATE_HASH_ANNOTATION: "1:abc", SIZE_ANNOTATION: "Worker=3", GROUP_ANNOTATION: "ring"}
FOREIGN = {"k8s.v1.cni.cncf.io/network-status": "[" + "{}," * 100 + "{}]", LAST_APPLIED_ANNOTATION: "{}"}


def with_annotations(body: JsonObject, annotations: JsonObject) -> JsonObject:
    return {**body, "metadata": {**body["metadata"], "annotations": annotations}}


def ignore(_: object) -> None:
    pass


def make_informer_set(env: OperatorEnv) -> InformerSet:
    return InformerSet(
        env.client,
        namespace=NAMESPACE,
        rng=Random(0),
        timings=InformerTimings(),
        child_handler=lambda _: ignore,
        job_handlers=lambda _: (ignore,),
        on_relist=ignore,
        plan_changed=lambda _kind, _owner: None,
    )


@asynccontextmanager
async def synced(informers: Iterable[Informer[Any]]) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(informer.run()) for informer in informers]
        await asyncio.gather(*(informer.wait_synced() for informer in informers))
        yield
        for task in tasks:
            task.cancel()


@virtual_time
async def test_children_are_cached_with_the_annotations_that_are_read() -> None:
    async with operator_env() as env:
        pod = {"metadata": {"name": "ring-worker-0"}, "spec": {"containers": [{"name": "main", "image": "ring:1"}]}}
        service = {"metadata": {"name": "ring-worker-0"}, "spec": {"clusterIP": "None", "ports": [{"port": 7000}]}}
        await env.client.create(PODS, with_annotations(pod, READ | FOREIGN), namespace=NAMESPACE)
        await env.client.create(SERVICES, with_annotations(service, READ | FOREIGN), namespace=NAMESPACE)
        informers = make_informer_set(env)
        async with synced([*informers]):
            for cache in (informers.pods, informers.services):
                assert [cached.metadata.annotations for cached in cache] == [READ]


@virtual_time
async def test_jobs_are_cached_with_all_annotations_except_the_last_applied_manifest() -> None:
    async with operator_env() as env:
        await env.submit(with_annotations(ring(), {"topology": "rack"} | FOREIGN))
        informers = make_informer_set(env)
        informers.add_job_informer(RING)
        async with synced([*informers]):
            job = informers.job(RING_JOBS, namespace=NAMESPACE, name="ring")
            assert job is not None
            assert job.metadata.annotations.keys() == {"topology", "k8s.v1.cni.cncf.io/network-status"}


@virtual_time
async def test_crds_are_cached_without_annotations() -> None:
    async with operator_env(installed=False) as env:
        await env.client.create(CUSTOM_RESOURCE_DEFINITIONS, with_annotations(RING_CRD, FOREIGN))
        crds = CrdWatcher(env.client, [RING], rng=Random(0), timings=InformerTimings(), on_served=ignore, on_removed=ignore)
        async with synced([crds.informer]):
            assert [crd.metadata.annotations for crd in crds.informer.cache] == [{}]
