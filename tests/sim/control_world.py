"""An operator on the embedded cluster, on virtual time, with a small kind of its own and every request noted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from random import Random
from typing import Any

from dlop.api.types import ContainerProperties, JobType, ReplicaType
from dlop.embedded.apiserver.faults import Faults
from dlop.embedded.cluster import EmbeddedCluster
from dlop.job import DLJob
from dlop.kube.client import Client, Propagation
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, EVENTS, PODS, SERVICES
from dlop.kube.transport import Request, Response, StreamResponse, Transport
from dlop.kube.types import JsonObject
from dlop.operator.operator import Operator
from dlop.operator.settings import Settings
from dlop.replica import Replica

START = 1_750_000_000.0
NAMESPACE = "default"


class RingJob(DLJob):
    """Peers in a ring."""

    job_type = JobType(group="example.org", version="v1", kind="RingJob")
    replica_types = (ReplicaType("Worker"),)
    container_properties = ContainerProperties(name="main", port=7000)

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        return {"RANK": str(replica.index), "PEERS": ",".join(self.addresses("Worker"))}


RINGS = RingJob.job_type.resource

DEFINITION: JsonObject = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "ringjobs.example.org"},
    "spec": {
        "group": "example.org",
        "scope": "Namespaced",
        "names": {"plural": "ringjobs", "singular": "ringjob", "kind": "RingJob", "listKind": "RingJobList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def ring(name: str = "ring", *, workers: int = 3, run_policy: JsonObject | None = None, **more: Any) -> JsonObject:
    """A manifest."""
    worker = {"replicas": workers, "template": {"spec": {"containers": [{"name": "main", "image": "ring:1"}]}}}
    spec = {"runPolicy": run_policy or {}, "replicaSpecs": {"Worker": worker}, **more}
    return {"apiVersion": "example.org/v1", "kind": "RingJob", "metadata": {"name": name}, "spec": spec}


class NotingTransport:
    """Notes what the operator asks for."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.requests: list[Request] = []

    async def send(self, request: Request, *, timeout_seconds: float) -> Response:
        self.requests.append(request)
        return await self._transport.send(request, timeout_seconds=timeout_seconds)

    def stream(self, request: Request, *, idle_timeout_seconds: float) -> AbstractAsyncContextManager[StreamResponse]:
        return self._transport.stream(request, idle_timeout_seconds=idle_timeout_seconds)

    async def refresh_credentials(self) -> str:
        return await self._transport.refresh_credentials()

    async def close(self) -> None:
        await self._transport.close()


class World:
    """A cluster that goes on while operators come and go."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.client: Client = cluster.client()
        self.notes = NotingTransport(cluster.transport())
        self.clock = _clock()

    @property
    def faults(self) -> Faults:
        return self.cluster.faults

    @asynccontextmanager
    async def operating(
        self,
        *,
        identity: str = "one",
        transport: Transport | None = None,
        job_class: type[DLJob] = RingJob,
        more_classes: tuple[type[DLJob], ...] = (),
        **settings: Any,
    ) -> AsyncIterator[Operator]:
        """An operator, for as long as the context lasts; at its end it is killed, not stopped."""
        chosen = Settings(**{"leader_election": False, **settings})
        operator = Operator(
            chosen,
            [job_class, *more_classes],
            transport=transport or self.notes,
            clock=self.clock,
            rng=Random(identity),
            identity=identity,
        )
        running = asyncio.create_task(operator.run(), name="operator")
        try:
            await asyncio.wait((running, asyncio.ensure_future(operator.wait_synced())), return_when=asyncio.FIRST_COMPLETED)
            yield operator
        finally:
            running.cancel()
            await asyncio.wait((running,))
            _raise_if_failed(running)

    # --- what people do ----------------------------------------------------------------------------------------------

    async def install(self) -> None:
        await self.client.create(CUSTOM_RESOURCE_DEFINITIONS, DEFINITION)
        await a_while(1)

    async def submit(self, manifest: JsonObject) -> JsonObject:
        return await self.client.create(RINGS, manifest, namespace=NAMESPACE)

    async def remove(self, name: str, *, propagation: Propagation = Propagation.BACKGROUND) -> None:
        await self.client.delete(RINGS, name, namespace=NAMESPACE, propagation=propagation)

    async def report(self, phase: str, *, exit_code: int = 0, names: tuple[str, ...] = ()) -> None:
        """Let all pods, or these, be in a phase, as a kubelet would say it."""
        for name in names or await self.pod_names():
            await self.report_one(phase, name, exit_code=exit_code)

    async def report_one(self, phase: str, name: str, *, exit_code: int = 0) -> None:
        """Let one pod be in a phase."""
        state: JsonObject = {"running": {}} if phase == "Running" else {"terminated": {"exitCode": exit_code}}
        main = {"name": "main", "image": "", "imageID": "", "ready": True, "restartCount": 0, "state": state}
        status = {"phase": phase, "containerStatuses": [main]}
        await self.client.patch(PODS, name, {"status": status}, namespace=NAMESPACE, subresource="status")

    async def bind(self, name: str) -> None:
        """Give a pod a node: from then on its deletion waits for the node."""
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": "node"}}
        await self.client.create(PODS, body, namespace=NAMESPACE, name=name, subresource="binding")

    # --- what there is -----------------------------------------------------------------------------------------------

    async def pods(self) -> list[JsonObject]:
        found: list[JsonObject] = (await self.client.list(PODS, namespace=NAMESPACE))["items"]
        return found

    async def pod_names(self) -> list[str]:
        return sorted(pod["metadata"]["name"] for pod in await self.pods())

    async def service_names(self) -> list[str]:
        return sorted(found["metadata"]["name"] for found in (await self.client.list(SERVICES, namespace=NAMESPACE))["items"])

    async def events(self) -> list[JsonObject]:
        found: list[JsonObject] = (await self.client.list(EVENTS, namespace=NAMESPACE))["items"]
        return found

    async def reasons(self) -> Counter[str]:
        return Counter(event["reason"] for event in await self.events())

    async def status(self, name: str = "ring") -> JsonObject:
        job = await self.client.get(RINGS, name, namespace=NAMESPACE)
        return dict(job.get("status") or {})

    async def conditions(self, name: str = "ring") -> dict[str, JsonObject]:
        """The conditions that hold."""
        found = (await self.status(name)).get("conditions") or []
        return {condition["type"]: condition for condition in found if condition["status"] == "True"}

    # --- what the operator did -----------------------------------------------------------------------------------------

    def writes(self, *, method: str | None = None, plural: str | None = None) -> list[Request]:
        """The operator's writes, without events and leases."""
        return [
            request
            for request in self.notes.requests
            if request.is_write
            and not _is_about(request, "events")
            and not _is_about(request, "leases")
            and (method is None or request.method == method)
            and (plural is None or _is_about(request, plural))
        ]

    def creates(self, plural: str) -> int:
        return len(self.writes(method="POST", plural=plural))

    def forget_requests(self) -> None:
        self.notes.requests.clear()


def _is_about(request: Request, plural: str) -> bool:
    return plural in request.path.split("/")


def _clock() -> Any:
    loop = asyncio.get_running_loop()
    return lambda: START + loop.time()


def _raise_if_failed(running: asyncio.Task[None]) -> None:
    if not running.cancelled() and running.exception() is not None:
        raise running.exception() or AssertionError


@asynccontextmanager
async def world(*, installed: bool = True) -> AsyncIterator[World]:
    """A cluster in which rings are known, or are not yet."""
    loop = asyncio.get_running_loop()
    numbers = iter(range(1_000_000))
    async with EmbeddedCluster(
        clock=lambda: START + loop.time(),
        new_uid=lambda: f"00000000-0000-4000-8000-{next(numbers):012d}",
        randomness=Random(7),
    ) as cluster:
        made = World(cluster)
        if installed:
            await made.install()
        yield made


async def a_while(seconds: float = 5.0) -> None:
    """Let everything happen that is going to."""
    await asyncio.sleep(seconds)
