"""Where a recording is played: a namespace of an API server, with an operator and a kubelet that does only what it is told."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from dlop.api.crd import definitions
from dlop.deploy.apply import apply
from dlop.job import DLJob
from dlop.kube.client import Client
from dlop.kube.errors import NotFoundError
from dlop.kube.resources import NAMESPACES, Resource
from dlop.kube.transport import Transport
from dlop.kube.types import JsonObject
from dlop.operator.settings import Settings
from dlop.testing.kubelet import Kubelet
from dlop.testing.operator_runner import RunningOperator
from dlop.testing.script import Script


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the world may take, in seconds of the event loop."""

    reached_within: float
    """To become what was recorded."""
    unchanged_for: float
    """To show that it stays so."""
    noticed_within: float
    """To show that one pod's change made a difference, before the next pod changes."""
    synced_within: float = 30.0
    """For the operator to begin."""
    between_looks: float = 0.05


ON_VIRTUAL_TIME = Patience(reached_within=10.0, unchanged_for=5.0, noticed_within=5.0)
ON_A_REAL_SERVER = Patience(reached_within=10.0, unchanged_for=0.3, noticed_within=0.5)


@dataclass(frozen=True, slots=True)
class Stage:
    """A namespace of an API server with an operator and a kubelet that does only what it is told."""

    client: Client
    kubelet: Kubelet
    operator: RunningOperator
    namespace: str
    resource: Resource
    patience: Patience

    async def begin(self) -> None:
        """Start the operator, and wait until it works: else one that does nothing could pass for one that leaves things alone."""
        self.operator.start()
        async with asyncio.timeout(self.patience.synced_within):
            await self.operator.operator.wait_synced()

    async def until_looked_at(self) -> None:
        """Wait until the operator has looked at the only job there is, and done what it found to do.

        Raises:
            AssertionError: it has not within the time that it has for what was recorded.
        """
        passes, kind = self.operator.operator.metrics.registry, self.resource.qualified_name
        try:
            async with asyncio.timeout(self.patience.reached_within):
                while not passes.get_sample_value("controller_runtime_reconcile_time_seconds_count", {"controller": kind}):
                    self.operator.demand()
                    await asyncio.sleep(self.patience.between_looks)
        except TimeoutError:
            raise AssertionError("the operator has not looked at the job") from None

    async def job(self, name: str) -> JsonObject | None:
        """The job, if it is there."""
        with suppress(NotFoundError):
            return await self.client.get(self.resource, name, namespace=self.namespace)
        return None

    async def all(self, resource: Resource) -> dict[str, JsonObject]:
        """All objects of a type, by name."""
        found = await self.client.list(resource, namespace=self.namespace)
        return {body["metadata"]["name"]: body for body in sorted(found["items"], key=lambda body: str(body["metadata"]["name"]))}


@asynccontextmanager
async def stage(
    transport: Transport, framework: type[DLJob], *, clock: Callable[[], float], patience: Patience, begun: bool = True
) -> AsyncIterator[Stage]:
    """A new namespace with everything that a recording needs; nothing of it stays. The operator may be left to `begin` later."""
    client = Client(transport)
    await apply(client, definitions([framework]), say=lambda _: None)
    namespace = f"golden-{uuid.uuid4().hex[:8]}"
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    settings = Settings.model_validate({"leader_election": False, "bind_address": "off", "namespaces": [namespace]})
    operator = RunningOperator(transport, frameworks=[framework], clock=clock, rng=random.Random(0), settings=settings)
    script = Script()
    script.when("*").until_told()
    try:
        async with Kubelet(client, script, namespace=namespace, clock=clock, stop_seconds=0.1) as kubelet:
            there = Stage(client, kubelet, operator, namespace, framework.job_type.resource, patience)
            if begun:
                await there.begin()
            yield there
    finally:
        await operator.stop()
        await client.delete(NAMESPACES, namespace)
