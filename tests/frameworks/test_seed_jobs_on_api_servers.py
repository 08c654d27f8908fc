"""The jobs of the first operators reach their ends under the whole operator: one script, the embedded API server and the real one."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from typing import Any

from real_cluster import RealCluster

from dlop.api.crd import definitions
from dlop.deploy.apply import apply
from dlop.embedded.cluster import EmbeddedCluster
from dlop.frameworks.fioravanzo.mxjob import MXJob
from dlop.frameworks.mpba.mxjob import MXJob as ListedMXJob
from dlop.job import DLJob
from dlop.kube.client import Client
from dlop.kube.http.transport import connect
from dlop.kube.resources import NAMESPACES
from dlop.kube.transport import Transport
from dlop.kube.types import JsonObject
from dlop.operator.settings import Settings
from dlop.testing.kubelet import Kubelet
from dlop.testing.operator_runner import RunningOperator
from dlop.testing.script import Script
from tests.frameworks.manifests import example

FRAMEWORKS: tuple[type[DLJob], ...] = (MXJob, ListedMXJob)


def script() -> Script:
    made = Script()
    made.when("bad-scheduler-*").run().fail(exit_code=3)
    made.when("again-scheduler-*", times=1).run().fail(exit_code=137)
    made.when("memory-scheduler-*").run().fail(exit_code=137, reason="OOMKilled")
    made.when("*-scheduler-*").run().after(5).succeed()
    made.when("worker-poc-bad-0").run().fail(exit_code=9)
    made.when("scheduler-*").run().after(5).succeed()
    made.when("worker-*").run().after(5).succeed()
    return made


def jobs() -> dict[str, tuple[type[DLJob], JsonObject]]:
    made: dict[str, tuple[type[DLJob], JsonObject]] = {}
    for name in ("good", "bad", "again", "memory"):
        made[name] = (MXJob, named("01-mxnet-linear", name))
    for name in ("poc-good", "poc-bad"):
        made[name] = (ListedMXJob, named("02-mxnet-poc", name))
    made["poc-bad"][1]["spec"][2]["template"]["spec"]["restartPolicy"] = "Never"
    return made


def named(manifest: str, name: str) -> JsonObject:
    return example(manifest) | {"metadata": {"name": name}}


EXPECTED = {
    "good": ("Done", "Succeeded", {}),
    "bad": ("Done", "Failed", {}),
    "again": ("Done", "Succeeded", {"SCHEDULER": 1}),
    "memory": ("Done", "Failed", {}),
    "poc-good": ("Succeeded", "True", {}),
    "poc-bad": ("Failed", "True", {}),
}


async def ends(transport: Transport) -> dict[str, Any]:
    """How all jobs end on this server."""
    client = Client(transport)
    await apply(client, definitions(FRAMEWORKS), say=lambda _: None)
    namespace = f"seeds-{uuid.uuid4().hex[:8]}"
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    settings = Settings.model_validate({"leader_election": False, "bind_address": "off", "namespaces": [namespace]})
    operator = RunningOperator(transport, frameworks=FRAMEWORKS, clock=time.time, rng=random.Random(0), settings=settings)
    try:
        async with Kubelet(client, script(), namespace=namespace, time_scale=0.05):
            operator.start()
            for kind, manifest in jobs().values():
                await client.create(kind.job_type.resource, manifest, namespace=namespace)
            async with asyncio.timeout(60):
                return {name: await end_of(client, kind, name, namespace, operator) for name, (kind, _) in jobs().items()}
    finally:
        await operator.stop()
        await client.delete(NAMESPACES, namespace)


async def end_of(client: Client, kind: type[DLJob], name: str, namespace: str, operator: RunningOperator) -> Any:
    while True:
        operator.demand()
        status = (await client.get(kind.job_type.resource, name, namespace=namespace)).get("status", {})
        record = status.get("dlop", {})
        if record.get("phase") in ("Succeeded", "Failed"):
            return (*told(status), record.get("restarts", {}))
        await asyncio.sleep(0.05)


def told(status: JsonObject) -> tuple[str, str]:
    """The state in the words of the kind."""
    if "conditions" in status:
        return status["conditions"][-1]["type"], status["conditions"][-1]["status"]
    return status["phase"], status["state"]


async def test_all_jobs_end_as_they_should_on_the_embedded_server() -> None:
    async with EmbeddedCluster() as cluster:
        assert await ends(cluster.transport()) == EXPECTED


async def test_all_jobs_end_as_they_should_on_the_real_server(real_cluster: RealCluster) -> None:
    transport = await connect(str(real_cluster.kubeconfig_path))
    try:
        assert await ends(transport) == EXPECTED
    finally:
        await transport.close()
