"""An operator on the real API server that has exactly the permissions of its service account, for jobs of one kind."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from dlop import DLJob
from dlop.deploy.apply import apply
from dlop.deploy.rbac import find_grants, permission_set_rbac
from dlop.kube.client import Client
from dlop.kube.http.transport import connect
from dlop.kube.resources import NAMESPACES, Resource
from dlop.kube.types import JsonObject
from dlop.operator.settings import Settings
from dlop.testing.kubelet import ScriptedKubelet
from dlop.testing.operator_runner import RunningOperator
from tests.cluster.deployed_operator import DeployedOperator, discard

_TIMEOUT_SECONDS = 90.0


@asynccontextmanager
async def run_restricted_operator(deployed: DeployedOperator, folder: Path, *, kind: type[DLJob]) -> AsyncIterator[str]:
    """Run an operator with the permissions of its service account, and a kubelet, for a new namespace. Yields its name."""
    # A namespace without pod security enforcement, unlike that of the operator.
    namespace = f"{deployed.options.namespace}-jobs"
    await deployed.admin.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    transport = await connect(str(folder / "operator.kubeconfig"))
    settings = Settings.model_validate({"leader_election": False, "bind_address": "off", "namespaces": [namespace]})
    operator = RunningOperator(transport, frameworks=[kind], clock=time.time, rng=random.Random(0), settings=settings)
    try:
        async with ScriptedKubelet(deployed.admin, namespace=namespace):
            operator.start()
            yield namespace
    finally:
        await operator.stop()
        await transport.close()
        await deployed.admin.delete(NAMESPACES, namespace)


async def wait_for_condition(client: Client, resource: Resource, name: str, condition: str, *, namespace: str) -> JsonObject:
    """Wait until a condition of a job is True, and return it."""
    async with (
        asyncio.timeout(_TIMEOUT_SECONDS),
        client.watch(resource, namespace=namespace, field_selector=f"metadata.name={name}", bookmarks=False) as events,
    ):
        async for event in events:
            conditions = event.decode().get("status", {}).get("conditions", ())
            current: JsonObject | None = next((item for item in conditions if item["type"] == condition and item["status"] == "True"), None)
            if current is not None:
                return current
    raise AssertionError("the watch ended")


async def grant(deployed: DeployedOperator, name: str, *, kind: type[DLJob], namespace: str) -> None:
    """Grant the operator a permission set in one namespace."""
    grants = find_grants([name], [kind])
    await apply(deployed.admin, permission_set_rbac(grants, deployed.options.account, [namespace]), report=discard)
