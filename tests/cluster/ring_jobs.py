"""What the tests share that end an operator in the middle of its work: two hundred jobs, the processes, and who saw what."""

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

from dlop.api.crd import definitions
from dlop.deploy.apply import apply
from dlop.kube.cache import CacheChange, version_number
from dlop.kube.client import Client
from dlop.kube.http.transport import connect
from dlop.kube.informer import Informer
from dlop.kube.objects import CustomObject, Pod, Service, T
from dlop.kube.resources import NAMESPACES, PODS, SERVICES, Resource
from dlop.testing.kubelet import Kubelet
from dlop.testing.script import Script
from tests.sim.ring import RingJob, ring

JOBS = 200
RINGS = RingJob.job_type.resource
ROOT = Path(__file__).parents[2]


class Arrival(NamedTuple):
    """When an object was first seen: on the server's own count, and in seconds of the event loop."""

    version: int
    at_seconds: float


class Watched:
    """Every object of a namespace that there ever was, by resource, name and uid."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.uids: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        self.children: list[Arrival] = []
        self.changed = asyncio.Event()
        self.jobs = self._informer(client, RINGS, CustomObject, namespace)
        self.pods = self._informer(client, PODS, Pod, namespace)
        self.services = self._informer(client, SERVICES, Service, namespace)

    def _informer(self, client: Client, resource: Resource, kind: type[T], namespace: str) -> Informer[T]:
        def told(change: CacheChange[T]) -> None:
            metadata = change.object.metadata
            seen = self.uids[resource.plural][metadata.name]
            if resource != RINGS and metadata.uid not in seen:
                self.children.append(Arrival(version_number(metadata.resource_version), asyncio.get_running_loop().time()))
            seen.add(metadata.uid)
            self.changed.set()

        return Informer(client, resource, kind, rng=random.Random(0), namespace=namespace, handlers=[told])

    def succeeded(self) -> int:
        """How many jobs say that they have succeeded."""
        return sum(b'"phase":"Succeeded"' in bytes(job.status) for job in self.jobs.cache)

    async def until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            self.changed.clear()
            await self.changed.wait()


@asynccontextmanager
async def watching(client: Client, namespace: str) -> AsyncIterator[Watched]:
    watched = Watched(client, namespace)
    async with running(watched.jobs, watched.pods, watched.services):
        yield watched


@asynccontextmanager
async def running(*informers: Informer[Any]) -> AsyncIterator[None]:
    """Informers at work for as long as the block lasts."""
    tasks = [asyncio.create_task(informer.run()) for informer in informers]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def operator_process(cluster: RealCluster, log: Path, *flags: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """`python -m dlop run`, which is killed with -9 at the end of the block if it still runs."""
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


async def until_in_step(log: Path) -> None:
    """Wait until an operator says that it knows all there is; a standby tells nobody but its log."""
    while True:
        if "caches are in step with the server" in await asyncio.to_thread(log.read_text):
            return
        await asyncio.sleep(0.05)


def ring_flags(namespace: str, *more: str) -> tuple[str, ...]:
    """For an operator of rings in one namespace, by default without a lease."""
    kinds = ("--framework", "tests.sim.ring:RingJob", "--kinds", "RingJob")
    return (*kinds, "--namespaces", namespace, "--bind-address", "off", *(more or ("--leader-election=false",)))


def tail(log: Path) -> str:
    return log.read_text()[-3000:]


@asynccontextmanager
async def place_for_jobs(cluster: RealCluster) -> AsyncIterator[tuple[Client, str, Watched]]:
    """A namespace with a kubelet that lets a quarter of the jobs restart once and all of them succeed."""
    client = Client(await connect(cluster.kubeconfig_path))
    namespace = f"rings-{uuid.uuid4().hex[:8]}"
    await apply(client, definitions([RingJob]), say=lambda _: None)
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    script = Script()
    script.when("again-*-worker-0", times=1).run().fail(137)
    script.when("*").run().after(20).succeed()
    try:
        async with watching(client, namespace) as watched, Kubelet(client, script, namespace=namespace, time_scale=0.1):
            yield client, namespace, watched
    finally:
        await client.delete(NAMESPACES, namespace)
        await client.close()


async def submit(client: Client, names: Iterable[str], namespace: str) -> None:
    """Create these jobs, all at once."""
    await asyncio.gather(*(_submit(client, name, namespace) for name in names))


async def _submit(client: Client, name: str, namespace: str) -> None:
    body = ring(name, backoffLimit=3)
    body["metadata"]["namespace"] = namespace
    await client.create(RINGS, body, namespace=namespace)


def demand_nothing_lost_or_doubled(watched: Watched) -> None:
    """Each replica has had one pod, and those whose first pod was made to fail two; each service there was once."""
    names = [f"{name}-worker-{index}" for name in job_names() for index in range(2)]
    assert {name: len(uids) for name, uids in watched.uids["pods"].items()} == {name: _pods_of(name) for name in names}
    assert {name: len(uids) for name, uids in watched.uids["services"].items()} == dict.fromkeys(names, 1)
    restarts = {job.metadata.name: b'"restarts":{"Worker":1}' in bytes(job.status) for job in watched.jobs.cache}
    assert restarts == {name: name.startswith("again-") for name in job_names()}
    assert not any(b'"disruptions"' in bytes(job.status) for job in watched.jobs.cache)


def job_names() -> list[str]:
    return [f"{'again' if number % 4 == 0 else 'plain'}-{number}" for number in range(JOBS)]


def _pods_of(name: str) -> int:
    return 2 if name.startswith("again-") and name.endswith("-worker-0") else 1
