"""A TensorBoard with an Ingress is created and deleted, on the embedded and on the real API server."""

from __future__ import annotations

import json

from real_cluster import RealCluster

from dlop.frameworks.kubedl.tfjob import TFJob
from dlop.kube.resources import PODS, SERVICES
from dlop.kube.transport import Transport
from dlop.kube.types import JsonObject
from dlop.policies import INGRESSES
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.ingress_crd import INGRESS_CRD
from tests.frameworks.kubedl_manifests import kubedl_job
from tests.frameworks.sandbox import Clock, open_sandbox, run_embedded, run_real

_BOARD = "demo-tensorboard-0"
_CONFIG = {
    "logDir": "/logs",
    "ttlSecondsAfterJobFinished": 5,
    "image": "example.org/tensorboard:2",
    "ingressSpec": {"host": "boards.example.org", "pathPrefix": "tb", "annotations": {"team": "blue"}},
}


async def _is_created_and_deleted(transport: Transport, clock: Clock, *crds: JsonObject) -> None:
    manifest = kubedl_job(TFJob, {"PS": 1, "Worker": 1})
    manifest["metadata"]["annotations"] = {"kubedl.io/tensorboard-config": json.dumps(_CONFIG)}
    async with open_sandbox(transport, TFJob, clock=clock, further_crds=crds) as sandbox:
        sandbox.script.when("demo-worker-0").run().until_released().succeed()
        sandbox.start()
        await sandbox.submit(manifest)
        await sandbox.until_running(3)
        pod = (await sandbox.pods())[_BOARD]
        (container,) = pod["spec"]["containers"]
        assert (container["name"], container["image"]) == ("tensorboard", "example.org/tensorboard:2")
        assert _BOARD in await sandbox.names(SERVICES)
        ingress = (await sandbox.all(INGRESSES))[_BOARD]
        assert ingress["metadata"]["annotations"]["team"] == "blue"
        (rule,) = ingress["spec"]["rules"]
        (path,) = rule["http"]["paths"]
        assert (rule["host"], path["path"], path["pathType"]) == ("boards.example.org", f"/tb/{sandbox.namespace}/demo", "Prefix")
        sandbox.kubelet.release(f"{sandbox.namespace}/demo-worker-0")
        await sandbox.until_condition("Succeeded")
        assert _BOARD in await sandbox.names(PODS)

        async def is_gone() -> bool:
            return all([_BOARD not in await sandbox.names(resource) for resource in (PODS, SERVICES, INGRESSES)])

        await sandbox.until(is_gone)


@virtual_time
async def test_a_tensorboard_is_created_and_deleted_on_the_embedded_server() -> None:
    await run_embedded(_is_created_and_deleted, INGRESS_CRD)


async def test_a_tensorboard_is_created_and_deleted_on_the_real_server(real_cluster: RealCluster) -> None:
    await run_real(_is_created_and_deleted, real_cluster)
