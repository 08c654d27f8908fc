"""A namespace of the embedded or the real API server with a kubelet and an operator, for scenarios that run on both."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from real_cluster import RealCluster

from dlop.api.crd import build_crds
from dlop.api.types import Options
from dlop.deploy.apply import apply
from dlop.embedded.cluster import EmbeddedCluster
from dlop.job import DLJob
from dlop.kube.client import Client, PatchType
from dlop.kube.http.transport import connect
from dlop.kube.resources import EVENTS, NAMESPACES, PODS, SERVICES, Resource
from dlop.kube.transport import Transport
from dlop.kube.types import JsonObject
from dlop.operator.settings import Settings
from dlop.testing.kubelet import ScriptedKubelet
from dlop.testing.operator_runner import RunningOperator
from dlop.testing.script import Script
from dlop.testing.virtual_time import LoopClock

Clock = Callable[[], float]
SETTLE_SECONDS = 3.0
"""Longer than any delay between a change and the operator's reaction."""


@dataclass(slots=True)
class Sandbox:
    """The namespace. The job of every scenario is named demo."""

    client: Client
    kubelet: ScriptedKubelet
    script: Script
    namespace: str
    kind: type[DLJob]
    make_operator: Callable[[], RunningOperator]
    operator: RunningOperator

    @property
    def resource(self) -> Resource:
        return self.kind.job_type.resource

    def start(self) -> None:
        self.operator.start()

    async def restart(self) -> None:
        """Kill the operator and start another one."""
        await self.operator.crash()
        self.operator = self.make_operator()
        self.operator.start()

    async def submit(self, manifest: JsonObject) -> JsonObject:
        return await self.client.create(self.resource, manifest, namespace=self.namespace)

    async def edit(self, patch: JsonObject) -> JsonObject:
        return await self.client.patch(self.resource, "demo", patch, namespace=self.namespace, patch_type=PatchType.MERGE)

    async def status(self) -> JsonObject:
        status: JsonObject = (await self.client.get(self.resource, "demo", namespace=self.namespace)).get("status", {})
        return status

    async def names(self, resource: Resource) -> list[str]:
        return sorted(await self.all(resource))

    async def all(self, resource: Resource) -> dict[str, JsonObject]:
        """All objects of the type in the namespace, by name."""
        response = await self.client.list(resource, namespace=self.namespace)
        return {body["metadata"]["name"]: body for body in response["items"]}

    async def pods(self) -> dict[str, JsonObject]:
        return await self.all(PODS)

    async def pod_uids(self) -> dict[str, str]:
        return {name: pod["metadata"]["uid"] for name, pod in (await self.pods()).items()}

    async def has_children(self) -> bool:
        return bool(await self.names(PODS) or await self.names(SERVICES))

    async def event_count(self, reason: str) -> int:
        events = [event for event in (await self.all(EVENTS)).values() if event["reason"] == reason]
        return sum((event.get("series") or {}).get("count", 1) for event in events)

    def writes(self, plural: str) -> list[str]:
        """Methods of the successful writes of the current operator to objects of a type."""
        requests = (write.request for write in self.operator.transport.writes if write.status is not None and write.status < 300)
        return [request.method for request in requests if plural in request.path.split("/")]

    async def settle(self) -> None:
        """Wait until the operator and the kubelet have reacted to all changes."""
        await asyncio.sleep(SETTLE_SECONDS)

    async def until(self, reached: Callable[[], Awaitable[Any]], *, within_seconds: float = 60.0) -> None:
        """Wait until `reached` returns a true value."""
        try:
            async with asyncio.timeout(within_seconds):
                while not await reached():
                    self.operator.raise_if_stopped()
                    await asyncio.sleep(0.05)
        except TimeoutError:
            pods = {name: pod["status"]["phase"] for name, pod in (await self.pods()).items()}
            raise AssertionError(f"not reached within {within_seconds:g} s; pods {pods}, status {await self.status()}") from None

    async def until_condition(self, kind: str, status: str = "True", *, within_seconds: float = 60.0) -> JsonObject:
        """Wait until a condition of the job has this status."""

        async def reached() -> bool:
            return (await self.condition(kind) or {}).get("status") == status

        await self.until(reached, within_seconds=within_seconds)
        return await self.condition(kind) or {}

    async def condition(self, kind: str) -> JsonObject | None:
        return next((condition for condition in (await self.status()).get("conditions", ()) if condition["type"] == kind), None)

    async def until_running(self, pods: int) -> None:
        """Wait until the job has `pods` pods and all of them run."""

        async def reached() -> bool:
            phases = [pod["status"].get("phase") for pod in (await self.pods()).values()]
            return phases == ["Running"] * pods

        await self.until(reached)


@asynccontextmanager
async def open_sandbox(
    transport: Transport, kind: type[DLJob], *, clock: Clock, options: Options | None = None, further_crds: tuple[JsonObject, ...] = ()
) -> AsyncIterator[Sandbox]:
    """Creates the namespace and deletes it at the end. The operator is not started. `further_crds` are applied with the kind's own."""
    client = Client(transport)
    await apply(client, [*build_crds([kind]), *further_crds], report=lambda _: None)
    namespace = f"sandbox-{uuid.uuid4().hex[:8]}"
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    settings = Settings.model_validate({"leader_election": False, "bind_address": "off", "namespaces": [namespace]})

    numbers = itertools.count()

    def operator() -> RunningOperator:
        rng = random.Random(next(numbers))  # two operators must not generate the same names
        return RunningOperator(transport, frameworks=[kind], clock=clock, rng=rng, settings=settings, options=options)

    script = Script()
    try:
        async with ScriptedKubelet(client, script, namespace=namespace, clock=clock, stop_seconds=0.1) as kubelet:
            sandbox = Sandbox(client, kubelet, script, namespace, kind, operator, operator())
            try:
                yield sandbox
            finally:
                await sandbox.operator.stop()
    finally:
        await client.delete(NAMESPACES, namespace)


Scenario = Callable[..., Awaitable[None]]


async def run_embedded(scenario: Scenario, *arguments: Any) -> None:
    """Run a scenario on the embedded API server. Requires virtual time."""
    clock = LoopClock()
    async with EmbeddedCluster(clock=clock) as cluster:
        await scenario(cluster.transport(), clock, *arguments)


async def run_real(scenario: Scenario, real_cluster: RealCluster, *arguments: Any) -> None:
    transport = await connect(str(real_cluster.kubeconfig_path))
    try:
        await scenario(transport, time.time, *arguments)
    finally:
        await transport.close()
