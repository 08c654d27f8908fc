"""The operator as a process on the real API server, killed without warning in the middle of its work: nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import random
import sys
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from real_cluster import RealCluster

from dlop.api.crd import definitions
from dlop.kube.cache import Change
from dlop.kube.client import Client
from dlop.kube.http import connect
from dlop.kube.informer import Informer
from dlop.kube.objects import CustomObject, Pod, Service, T
from dlop.kube.resources import LEASES, NAMESPACES, PODS, SERVICES, Resource
from dlop.manifests.applying import apply
from dlop.testing.kubelet import Kubelet
from dlop.testing.script import Script
from tests.sim.ring import RingJob, ring

JOBS = 200
RINGS = RingJob.job_type.resource
WITHIN_SECONDS = 100
_ELECTED = (
    "--leader-election=true",
    *("--lease-duration-seconds", "6"),
    *("--renew-deadline-seconds", "4"),
    *("--retry-period-seconds", "1"),
)


class Watched:
    """Every object of a namespace that there ever was, by resource, name and uid."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.uids: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        self.changed = asyncio.Event()
        self.jobs = self._informer(client, RINGS, CustomObject, namespace)
        self.pods = self._informer(client, PODS, Pod, namespace)
        self.services = self._informer(client, SERVICES, Service, namespace)

    def _informer(self, client: Client, resource: Resource, kind: type[T], namespace: str) -> Informer[T]:
        def told(change: Change[T]) -> None:
            metadata = change.object.metadata
            self.uids[resource.plural][metadata.name].add(metadata.uid)
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
    tasks = [asyncio.create_task(informer.run()) for informer in (watched.jobs, watched.pods, watched.services)]
    try:
        yield watched
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def operator_process(cluster: RealCluster, namespace: str, log: Path, *more: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """`python -m dlop run`, which is killed with -9 at the end of the block."""
    command = ["run", "--kubeconfig", str(cluster.kubeconfig_path), "--framework", "tests.sim.ring:RingJob"]
    flags = ["--namespaces", namespace, "--kinds", "RingJob", "--bind-address", "off", *(more or ("--leader-election=false",))]
    root = Path(__file__).parents[2]
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "dlop", *command, *flags, cwd=root, stdout=output, stderr=output
        )
        try:
            yield process
        finally:
            died_before = process.returncode is not None
            if not died_before:
                process.kill()
            await process.wait()
    assert not died_before, _tail(log)


def _tail(log: Path) -> str:
    return log.read_text()[-3000:]


@asynccontextmanager
async def place_for_jobs(cluster: RealCluster) -> AsyncIterator[tuple[Client, str, Watched]]:
    """A namespace with a kubelet that lets a quarter of the jobs restart once and all of them succeed."""
    client = Client(await connect(cluster.kubeconfig_path))
    namespace = f"killed-{uuid.uuid4().hex[:8]}"
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


async def test_nothing_is_lost_or_doubled_when_the_operator_is_killed_again_and_again(real_cluster: RealCluster, tmp_path: Path) -> None:
    async with place_for_jobs(real_cluster) as (client, namespace, watched):
        async with asyncio.timeout(WITHIN_SECONDS):
            await _live_through_two_kills(client, real_cluster, namespace, watched, tmp_path / "operator.log")
        _demand_nothing_lost_or_doubled(watched)


async def test_nothing_is_lost_or_doubled_when_the_leader_is_killed_and_the_standby_takes_over(
    real_cluster: RealCluster, tmp_path: Path
) -> None:
    async with place_for_jobs(real_cluster) as (client, namespace, watched):
        elected = (*_ELECTED, "--lease-namespace", namespace)
        async with asyncio.timeout(WITHIN_SECONDS), AsyncExitStack() as standby:
            async with operator_process(real_cluster, namespace, tmp_path / "leader.log", *elected):
                submitted = asyncio.gather(*(_submit(client, name, namespace) for name in _names()))
                await watched.until(lambda: bool(watched.uids["pods"]))
                first = await _holder(client, namespace)
                await standby.enter_async_context(operator_process(real_cluster, namespace, tmp_path / "standby.log", *elected))
                await watched.until(lambda: watched.succeeded() >= JOBS // 4)
            assert watched.succeeded() < JOBS, "the kill came too late to be in the middle"
            await submitted
            await watched.until(lambda: watched.succeeded() == JOBS)
            assert await _holder(client, namespace) not in ("", first)
        _demand_nothing_lost_or_doubled(watched)


async def _holder(client: Client, namespace: str) -> str:
    lease = await client.get(LEASES, "dlop", namespace=namespace)
    return str(lease["spec"]["holderIdentity"])


async def _live_through_two_kills(client: Client, cluster: RealCluster, namespace: str, watched: Watched, log: Path) -> None:
    async with operator_process(cluster, namespace, log):
        submitted = asyncio.gather(*(_submit(client, name, namespace) for name in _names()))
        await watched.until(lambda: len(watched.uids["pods"]) >= JOBS // 2)
    assert len(watched.uids["pods"]) < 2 * JOBS, "the kill came too late to be in the middle"
    await submitted
    async with operator_process(cluster, namespace, log):
        await watched.until(lambda: watched.succeeded() >= JOBS // 4)
    assert watched.succeeded() < JOBS, "the second kill came too late to be in the middle"
    async with operator_process(cluster, namespace, log):
        await watched.until(lambda: watched.succeeded() == JOBS)


async def _submit(client: Client, name: str, namespace: str) -> None:
    body = ring(name, backoffLimit=3)
    body["metadata"]["namespace"] = namespace
    await client.create(RINGS, body, namespace=namespace)


def _demand_nothing_lost_or_doubled(watched: Watched) -> None:
    """Each replica has had one pod, and those whose first pod was made to fail two; each service there was once."""
    names = [f"{name}-worker-{index}" for name in _names() for index in range(2)]
    assert {name: len(uids) for name, uids in watched.uids["pods"].items()} == {name: _pods_of(name) for name in names}
    assert {name: len(uids) for name, uids in watched.uids["services"].items()} == dict.fromkeys(names, 1)
    restarts = {job.metadata.name: b'"restarts":{"Worker":1}' in bytes(job.status) for job in watched.jobs.cache}
    assert restarts == {name: name.startswith("again-") for name in _names()}
    assert not any(b'"disruptions"' in bytes(job.status) for job in watched.jobs.cache)


def _names() -> list[str]:
    return [f"{'again' if number % 4 == 0 else 'plain'}-{number}" for number in range(JOBS)]


def _pods_of(name: str) -> int:
    return 2 if name.startswith("again-") and name.endswith("-worker-0") else 1
