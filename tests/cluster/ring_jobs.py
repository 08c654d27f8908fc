"""Helpers for tests that kill an operator during its work: 200 jobs, operator processes, and a history of all objects."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from real_cluster import RealCluster

from dlop.api.crd import build_crds
from dlop.deploy.apply import apply
from dlop.kube.cache import CacheChange, parse_resource_version
from dlop.kube.client import Client
from dlop.kube.http.transport import connect
from dlop.kube.informer import Informer
from dlop.kube.objects import CustomObject, Pod, Service, T
from dlop.kube.resources import NAMESPACES, PODS, SERVICES, Resource
from dlop.testing.kubelet import ScriptedKubelet
from dlop.testing.script import Script
from tests.sim.ring_job import RingJob, ring

JOBS = 200
RINGS = RingJob.job_type.resource
ROOT = Path(__file__).parents[2]


class Arrival(NamedTuple):
    """When an object was first observed: its resource version, and the time of the event loop."""

    resource_version: int
    at_seconds: float


class ObservedObjects:
    """The uids of all objects that ever existed in a namespace, by resource and name."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.uids: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        self.children: list[Arrival] = []
        self.changed = asyncio.Event()
        self.jobs = self._informer(client, RINGS, CustomObject, namespace)
        self.pods = self._informer(client, PODS, Pod, namespace)
        self.services = self._informer(client, SERVICES, Service, namespace)

    def _informer(self, client: Client, resource: Resource, kind: type[T], namespace: str) -> Informer[T]:
        def on_change(change: CacheChange[T]) -> None:
            metadata = change.object.metadata
            uids = self.uids[resource.plural][metadata.name]
            if resource != RINGS and metadata.uid not in uids:
                self.children.append(Arrival(parse_resource_version(metadata.resource_version), asyncio.get_running_loop().time()))
            uids.add(metadata.uid)
            self.changed.set()

        return Informer(client, resource, kind, rng=random.Random(0), namespace=namespace, handlers=[on_change])

    def succeeded(self) -> int:
        """The number of succeeded jobs."""
        return sum(b'"phase":"Succeeded"' in bytes(job.status) for job in self.jobs.cache)

    async def until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            self.changed.clear()
            await self.changed.wait()


@asynccontextmanager
async def observe(client: Client, namespace: str) -> AsyncIterator[ObservedObjects]:
    observed = ObservedObjects(client, namespace)
    async with run_informers(observed.jobs, observed.pods, observed.services):
        yield observed


@asynccontextmanager
async def run_informers(*informers: Informer[Any]) -> AsyncIterator[None]:
    """Run informers for the duration of the block."""
    tasks = [asyncio.create_task(informer.run()) for informer in informers]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def operator_process(cluster: RealCluster, log: Path, *flags: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run `python -m dlop run`. It is killed with SIGKILL at the end of the block if it is still running."""
    command = ["run", "--kubeconfig", str(cluster.kubeconfig_path), *flags]
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", "dlop", *command, cwd=ROOT, stdout=output, stderr=output)
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
    assert process.returncode in (0, -signal.SIGKILL), tail(log)


async def wait_until_synced(log: Path) -> None:
    """Wait until the operator logs that its caches are synced. A standby reports it only in the log."""
    while True:
        if "caches synced" in await asyncio.to_thread(log.read_text):
            return
        await asyncio.sleep(0.05)


def ring_flags(namespace: str, *more: str) -> tuple[str, ...]:
    """Flags of an operator for RingJobs in one namespace, by default without leader election."""
    kinds = ("--framework", "tests.sim.ring_job:RingJob", "--kinds", "RingJob")
    return (*kinds, "--namespaces", namespace, "--bind-address", "off", *(more or ("--leader-election=false",)))


def tail(log: Path) -> str:
    return log.read_text()[-3000:]


@asynccontextmanager
async def ring_namespace(cluster: RealCluster) -> AsyncIterator[tuple[Client, str, ObservedObjects]]:
    """A new namespace with a kubelet. A quarter of the jobs restart once, and all jobs succeed."""
    client = Client(await connect(cluster.kubeconfig_path))
    namespace = f"rings-{uuid.uuid4().hex[:8]}"
    await apply(client, build_crds([RingJob]), report=lambda _: None)
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    script = Script()
    script.when("restarts-*-worker-0", times=1).run().fail(137)
    script.when("*").run().after(20).succeed()
    try:
        async with observe(client, namespace) as observed, ScriptedKubelet(client, script, namespace=namespace, time_scale=0.1):
            yield client, namespace, observed
    finally:
        await client.delete(NAMESPACES, namespace)
        await client.close()


async def submit(client: Client, names: Iterable[str], namespace: str) -> None:
    """Create the jobs concurrently."""
    await asyncio.gather(*(_submit(client, name, namespace) for name in names))


async def _submit(client: Client, name: str, namespace: str) -> None:
    body = ring(name, backoffLimit=3)
    body["metadata"]["namespace"] = namespace
    await client.create(RINGS, body, namespace=namespace)


def assert_nothing_lost_or_duplicated(observed: ObservedObjects) -> None:
    """Each replica had one pod, or two if its first pod failed, and one service."""
    names = [f"{name}-worker-{index}" for name in job_names() for index in range(2)]
    assert {name: len(uids) for name, uids in observed.uids["pods"].items()} == {name: _expected_pods(name) for name in names}
    assert {name: len(uids) for name, uids in observed.uids["services"].items()} == dict.fromkeys(names, 1)
    restarts = {job.metadata.name: b'"restarts":{"Worker":1}' in bytes(job.status) for job in observed.jobs.cache}
    assert restarts == {name: name.startswith("restarts-") for name in job_names()}
    assert not any(b'"disruptions"' in bytes(job.status) for job in observed.jobs.cache)


def job_names() -> list[str]:
    return [f"{'restarts' if number % 4 == 0 else 'plain'}-{number}" for number in range(JOBS)]


def _expected_pods(name: str) -> int:
    return 2 if name.startswith("restarts-") and name.endswith("-worker-0") else 1
