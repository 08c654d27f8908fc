"""A namespace of an API server in which a recording is replayed, with an operator and a kubelet that acts on request only."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from dlop.api.crd import build_crds
from dlop.deploy.apply import apply
from dlop.job import DLJob
from dlop.kube.client import Client
from dlop.kube.errors import NotFoundError
from dlop.kube.resources import NAMESPACES, Resource
from dlop.kube.transport import Transport
from dlop.kube.types import JsonObject
from dlop.operator.settings import Settings
from dlop.testing.kubelet import ScriptedKubelet
from dlop.testing.operator_runner import RunningOperator
from dlop.testing.script import Script


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Timeouts in seconds of the event loop."""

    reached_within: float
    """Time limit for reaching the recorded state."""
    unchanged_for: float
    """How long the recorded state must last."""
    noticed_within: float
    """Time limit for the operator to react to a pod before the next pod changes."""
    synced_within: float = 30.0
    """Time limit for the caches of the operator to sync."""
    poll_interval: float = 0.05


VIRTUAL_TIME = Timeouts(reached_within=10.0, unchanged_for=5.0, noticed_within=5.0)
REAL_SERVER = Timeouts(reached_within=60.0, unchanged_for=0.3, noticed_within=0.5)


@dataclass(frozen=True, slots=True)
class GoldenSandbox:
    """The namespace with its operator and kubelet."""

    client: Client
    kubelet: ScriptedKubelet
    operator: RunningOperator
    namespace: str
    resource: Resource
    timeouts: Timeouts

    async def start_operator(self) -> None:
        """Start the operator and wait for its caches. Otherwise a slow operator would look like one that leaves the job alone."""
        self.operator.start()
        async with asyncio.timeout(self.timeouts.synced_within):
            await self.operator.operator.wait_synced()

    async def wait_reconciled(self) -> None:
        """Wait until the operator has finished a reconcile pass for the only job.

        Raises:
            AssertionError: it has not within `reached_within`.
        """
        registry, controller = self.operator.operator.metrics.registry, self.resource.qualified_name
        try:
            async with asyncio.timeout(self.timeouts.reached_within):
                while not registry.get_sample_value("controller_runtime_reconcile_time_seconds_count", {"controller": controller}):
                    self.operator.raise_if_stopped()
                    await asyncio.sleep(self.timeouts.poll_interval)
        except TimeoutError:
            raise AssertionError("the operator has not reconciled the job") from None

    async def job(self, name: str) -> JsonObject | None:
        with suppress(NotFoundError):
            return await self.client.get(self.resource, name, namespace=self.namespace)
        return None

    async def all(self, resource: Resource) -> dict[str, JsonObject]:
        """All objects of the type in the namespace, by name and sorted."""
        response = await self.client.list(resource, namespace=self.namespace)
        return {body["metadata"]["name"]: body for body in sorted(response["items"], key=lambda body: str(body["metadata"]["name"]))}


@asynccontextmanager
async def open_golden_sandbox(
    transport: Transport, framework: type[DLJob], *, clock: Callable[[], float], timeouts: Timeouts, start_operator: bool = True
) -> AsyncIterator[GoldenSandbox]:
    """Creates the namespace and deletes it at the end. Without `start_operator`, the caller starts the operator."""
    client = Client(transport)
    await apply(client, build_crds([framework]), report=lambda _: None)
    namespace = f"golden-{uuid.uuid4().hex[:8]}"
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    settings = Settings.model_validate({"leader_election": False, "bind_address": "off", "namespaces": [namespace]})
    operator = RunningOperator(transport, frameworks=[framework], clock=clock, rng=random.Random(0), settings=settings)
    script = Script()
    script.when("*").until_released()
    try:
        async with ScriptedKubelet(client, script, namespace=namespace, clock=clock, stop_seconds=0.1) as kubelet:
            sandbox = GoldenSandbox(client, kubelet, operator, namespace, framework.job_type.resource, timeouts)
            if start_operator:
                await sandbox.start_operator()
            yield sandbox
    finally:
        await operator.stop()
        await client.delete(NAMESPACES, namespace)
