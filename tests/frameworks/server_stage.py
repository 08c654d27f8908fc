"""A namespace of an API server, embedded or real, with a kubelet and an operator in it: for stories that are told on both."""

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

from dlop.api.crd import definitions
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
from dlop.testing.kubelet import Kubelet
from dlop.testing.operator_runner import RunningOperator
from dlop.testing.script import Script
from dlop.testing.virtual_time import LoopClock

Clock = Callable[[], float]
QUIET_SECONDS = 3.0
"""So long after the last change, whoever has something to do has done it: no change waits that long for others."""


@dataclass(slots=True)
class Stage:
    """The namespace. All stories are about a job named demo."""

    client: Client
    kubelet: Kubelet
    script: Script
    namespace: str
    kind: type[DLJob]
    make_operator: Callable[[], RunningOperator]
    operator: RunningOperator

    @property
    def resource(self) -> Resource:
        """What the job is an object of."""
        return self.kind.job_type.resource

    def start(self) -> None:
        """Start the operator."""
        self.operator.start()

    async def restart(self) -> None:
        """Kill the operator, and start another one."""
        await self.operator.crash()
        self.operator = self.make_operator()
        self.operator.start()

    async def submit(self, manifest: JsonObject) -> JsonObject:
        return await self.client.create(self.resource, manifest, namespace=self.namespace)

    async def edit(self, patch: JsonObject) -> JsonObject:
        return await self.client.patch(self.resource, "demo", patch, namespace=self.namespace, patch_type=PatchType.MERGE)

    async def status(self) -> JsonObject:
        found: JsonObject = (await self.client.get(self.resource, "demo", namespace=self.namespace)).get("status", {})
        return found

    async def names(self, resource: Resource) -> list[str]:
        return sorted(await self.all(resource))

    async def all(self, resource: Resource) -> dict[str, JsonObject]:
        """All objects of the namespace by name."""
        found = await self.client.list(resource, namespace=self.namespace)
        return {body["metadata"]["name"]: body for body in found["items"]}

    async def pods(self) -> dict[str, JsonObject]:
        return await self.all(PODS)

    async def names_and_uids(self) -> dict[str, str]:
        """Of all pods: which they are."""
        return {name: pod["metadata"]["uid"] for name, pod in (await self.pods()).items()}

    async def has_children(self) -> bool:
        return bool(await self.names(PODS) or await self.names(SERVICES))

    async def told(self, reason: str) -> int:
        """How often this was told about the job."""
        found = [event for event in (await self.all(EVENTS)).values() if event["reason"] == reason]
        return sum((event.get("series") or {}).get("count", 1) for event in found)

    def writes(self, plural: str) -> list[str]:
        """The methods by which the present operator has changed objects of a type."""
        done = (write.request for write in self.operator.wire.writes if write.status is not None and write.status < 300)
        return [request.method for request in done if plural in request.path.split("/")]

    async def quiet(self) -> None:
        """Let everybody do what there is to do."""
        await asyncio.sleep(QUIET_SECONDS)

    async def until(self, reached: Callable[[], Awaitable[Any]], *, within_seconds: float = 60.0) -> None:
        """Wait until something is so."""
        try:
            async with asyncio.timeout(within_seconds):
                while not await reached():
                    self.operator.demand()
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
        return next((each for each in (await self.status()).get("conditions", ()) if each["type"] == kind), None)

    async def until_running(self, pods: int) -> None:
        """Wait until the job has so many pods, and all of them run."""

        async def reached() -> bool:
            phases = [pod["status"].get("phase") for pod in (await self.pods()).values()]
            return phases == ["Running"] * pods

        await self.until(reached)


@asynccontextmanager
async def stage(
    transport: Transport, kind: type[DLJob], *, clock: Clock, options: Options | None = None, more: tuple[JsonObject, ...] = ()
) -> AsyncIterator[Stage]:
    """The operator has not started yet. `more` are definitions besides that of the kind."""
    client = Client(transport)
    await apply(client, [*definitions([kind]), *more], say=lambda _: None)
    namespace = f"stage-{uuid.uuid4().hex[:8]}"
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    settings = Settings.model_validate({"leader_election": False, "bind_address": "off", "namespaces": [namespace]})

    numbers = itertools.count()

    def operator() -> RunningOperator:
        rng = random.Random(next(numbers))  # two operators must not make up the same names
        return RunningOperator(transport, frameworks=[kind], clock=clock, rng=rng, settings=settings, options=options)

    script = Script()
    try:
        async with Kubelet(client, script, namespace=namespace, clock=clock, stop_seconds=0.1) as kubelet:
            made = Stage(client, kubelet, script, namespace, kind, operator, operator())
            try:
                yield made
            finally:
                await made.operator.stop()
    finally:
        await client.delete(NAMESPACES, namespace)


Story = Callable[..., Awaitable[None]]


async def on_embedded(story: Story, *arguments: Any) -> None:
    """Tell a story on an embedded API server. On virtual time."""
    clock = LoopClock()
    async with EmbeddedCluster(clock=clock) as cluster:
        await story(cluster.transport(), clock, *arguments)


async def on_real(story: Story, real_cluster: RealCluster, *arguments: Any) -> None:
    """Tell it on the real one."""
    transport = await connect(str(real_cluster.kubeconfig_path))
    try:
        await story(transport, time.time, *arguments)
    finally:
        await transport.close()
