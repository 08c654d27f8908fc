"""Test environment: operators on the embedded cluster, on virtual time, with a minimal CRD and a record of every request."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from random import Random
from typing import Any

from dlop.api.types import Options
from dlop.embedded.apiserver.faults import Faults
from dlop.embedded.cluster import EmbeddedCluster
from dlop.job import DLJob
from dlop.kube.client import Client, Propagation
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, EVENTS, PODS, SERVICES
from dlop.kube.transport import Request, Response, StreamResponse, Transport
from dlop.kube.types import JsonObject
from dlop.operator.operator import Operator
from dlop.operator.settings import Settings
from tests.sim.ring_job import RingJob

START = 1_750_000_000.0
NAMESPACE = "default"
RING_JOBS = RingJob.job_type.resource

RING_CRD: JsonObject = {
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


def ring(name: str = "ring", *, workers: int = 3, run_policy: JsonObject | None = None) -> JsonObject:
    worker = {"replicas": workers, "template": {"spec": {"containers": [{"name": "main", "image": "ring:1"}]}}}
    spec = {"runPolicy": run_policy or {}, "replicaSpecs": {"Worker": worker}}
    return {"apiVersion": "example.org/v1", "kind": "RingJob", "metadata": {"name": name}, "spec": spec}


class RecordingTransport:
    """Records the requests of an operator."""

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


class OperatorEnv:
    """A cluster on which operators can be started and stopped."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.client: Client = cluster.client()
        self.transport = RecordingTransport(cluster.transport())
        self.clock = _make_clock()

    @property
    def faults(self) -> Faults:
        return self.cluster.faults

    @asynccontextmanager
    async def run_operator(
        self,
        *,
        identity: str = "one",
        transport: Transport | None = None,
        job_class: type[DLJob] = RingJob,
        extra_classes: tuple[type[DLJob], ...] = (),
        options: Options | None = None,
        **settings: Any,
    ) -> AsyncIterator[Operator]:
        """Run an operator while the context is open. On exit it is killed, not stopped."""
        operator = Operator(
            Settings(**{"leader_election": False, **settings}),
            [job_class, *extra_classes],
            options=options,
            transport=transport or self.transport,
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

    # --- user and kubelet actions ------------------------------------------------------------------------------------

    async def install_crd(self) -> None:
        await self.client.create(CUSTOM_RESOURCE_DEFINITIONS, RING_CRD)
        await settle(1)

    async def submit(self, manifest: JsonObject) -> JsonObject:
        return await self.client.create(RING_JOBS, manifest, namespace=NAMESPACE)

    async def delete_job(self, name: str, *, propagation: Propagation = Propagation.BACKGROUND) -> None:
        await self.client.delete(RING_JOBS, name, namespace=NAMESPACE, propagation=propagation)

    async def set_pod_phases(self, phase: str, *, exit_code: int = 0, names: tuple[str, ...] = ()) -> None:
        """Set the phase of these pods, or of all, as a kubelet does."""
        for name in names or await self.pod_names():
            await self.set_pod_phase(phase, name, exit_code=exit_code)

    async def set_pod_phase(self, phase: str, name: str, *, exit_code: int = 0) -> None:
        state: JsonObject = {"running": {}} if phase == "Running" else {"terminated": {"exitCode": exit_code}}
        main = {"name": "main", "image": "", "imageID": "", "ready": True, "restartCount": 0, "state": state}
        status = {"phase": phase, "containerStatuses": [main]}
        await self.client.patch(PODS, name, {"status": status}, namespace=NAMESPACE, subresource="status")

    async def bind(self, name: str) -> None:
        """Bind a pod to a node. After that, its deletion waits for the kubelet."""
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": "node"}}
        await self.client.create(PODS, body, namespace=NAMESPACE, name=name, subresource="binding")

    # --- state of the cluster ----------------------------------------------------------------------------------------

    async def pods(self) -> list[JsonObject]:
        pods: list[JsonObject] = (await self.client.list(PODS, namespace=NAMESPACE))["items"]
        return pods

    async def pod_names(self) -> list[str]:
        return sorted(pod["metadata"]["name"] for pod in await self.pods())

    async def service_names(self) -> list[str]:
        return sorted(service["metadata"]["name"] for service in (await self.client.list(SERVICES, namespace=NAMESPACE))["items"])

    async def events(self) -> list[JsonObject]:
        events: list[JsonObject] = (await self.client.list(EVENTS, namespace=NAMESPACE))["items"]
        return events

    async def event_reasons(self) -> Counter[str]:
        return Counter(event["reason"] for event in await self.events())

    async def status(self, name: str = "ring") -> JsonObject:
        job = await self.client.get(RING_JOBS, name, namespace=NAMESPACE)
        return dict(job.get("status") or {})

    async def conditions(self, name: str = "ring") -> dict[str, JsonObject]:
        """Conditions with status True, by type."""
        conditions = (await self.status(name)).get("conditions") or []
        return {condition["type"]: condition for condition in conditions if condition["status"] == "True"}

    # --- requests of the operators -----------------------------------------------------------------------------------

    def writes(self, *, method: str | None = None, plural: str | None = None) -> list[Request]:
        """Recorded writes, without events and leases."""
        return [
            request
            for request in self.transport.requests
            if request.is_write
            and not _is_for(request, "events")
            and not _is_for(request, "leases")
            and (method is None or request.method == method)
            and (plural is None or _is_for(request, plural))
        ]

    def create_count(self, plural: str) -> int:
        return len(self.writes(method="POST", plural=plural))

    def clear_requests(self) -> None:
        self.transport.requests.clear()


def _is_for(request: Request, plural: str) -> bool:
    return plural in request.path.split("/")


def _make_clock() -> Callable[[], float]:
    loop = asyncio.get_running_loop()
    return lambda: START + loop.time()


def _raise_if_failed(running: asyncio.Task[None]) -> None:
    if not running.cancelled() and running.exception() is not None:
        raise running.exception() or AssertionError


@asynccontextmanager
async def operator_env(*, installed: bool = True) -> AsyncIterator[OperatorEnv]:
    """A cluster, by default with the CRD of RingJob."""
    numbers = iter(range(1_000_000))
    async with EmbeddedCluster(
        clock=_make_clock(),
        new_uid=lambda: f"00000000-0000-4000-8000-{next(numbers):012d}",
        rng=Random(7),
    ) as cluster:
        env = OperatorEnv(cluster)
        if installed:
            await env.install_crd()
        yield env


async def settle(seconds: float = 5.0) -> None:
    """Let virtual time pass, so that operators and controllers finish their work."""
    await asyncio.sleep(seconds)
