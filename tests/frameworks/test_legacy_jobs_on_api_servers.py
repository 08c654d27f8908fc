"""Jobs of early operators and of KubeDL succeed and fail as expected, on the embedded and on the real API server."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from real_cluster import RealCluster

from dlop.api.crd import build_crds
from dlop.deploy.apply import apply
from dlop.embedded.cluster import EmbeddedCluster
from dlop.frameworks.batch_paddlepaddle.paddlejob import PaddleJob as BatchPaddleJob
from dlop.frameworks.fioravanzo.mxjob import MXJob
from dlop.frameworks.kubedl.base import KubeDLJob
from dlop.frameworks.kubedl.marsjob import MarsJob
from dlop.frameworks.kubedl.tfjob import TFJob as KubeDLTFJob
from dlop.frameworks.mpba.mxjob import MXJob as ListedMXJob
from dlop.frameworks.paddlepaddle.paddlejob import PaddleJob
from dlop.frameworks.paddlepaddle.trainingjob import TrainingJob
from dlop.job import DLJob
from dlop.kube.client import Client
from dlop.kube.http.transport import connect
from dlop.kube.resources import NAMESPACES
from dlop.kube.transport import Transport
from dlop.kube.types import JsonObject
from dlop.operator.settings import Settings
from dlop.policies import INGRESSES
from dlop.testing.kubelet import ScriptedKubelet
from dlop.testing.operator_runner import RunningOperator
from dlop.testing.script import Script
from tests.frameworks.example_manifests import example
from tests.frameworks.kubedl_manifests import KINDS as KUBEDL_KINDS
from tests.frameworks.kubedl_manifests import ROLES, kubedl_job
from tests.frameworks.kubedl_manifests import role as kubedl_role
from tests.frameworks.paddle_manifests import batch_job, batch_role, sample, stored_training_job, training_example, training_job

FRAMEWORKS: tuple[type[DLJob], ...] = (MXJob, ListedMXJob, PaddleJob, TrainingJob, BatchPaddleJob, *KUBEDL_KINDS)


def make_script() -> Script:
    script = Script()
    script.when("kubedl-again-worker-1", times=1).run().fail(exit_code=130)
    script.when("*kubedl-*-bad-*").run().fail(exit_code=139)
    script.when("*kubedl-*").run().after(5).succeed()
    script.when("bad-scheduler-*").run().fail(exit_code=3)
    script.when("again-scheduler-*", times=1).run().fail(exit_code=137)
    script.when("memory-scheduler-*").run().fail(exit_code=137, reason="OOMKilled")
    script.when("*-scheduler-*").run().after(5).succeed()
    script.when("worker-poc-bad-0").run().fail(exit_code=9)
    script.when("scheduler-*").run().after(5).succeed()
    script.when("worker-*").run().after(5).succeed()
    script.when("paddle-bad-trainer-1").run().fail(exit_code=134)
    script.when("paddle-*-trainer-*").run().after(5).succeed()
    script.when("training-bad-trainer-1").run().fail(exit_code=134)
    script.when("training-tolerant-trainer-1").run().fail(exit_code=134)
    script.when("training-walltime-trainer-*").run()
    script.when("training-*-trainer-*").run().after(5).succeed()
    script.when("training-*").run()
    script.when("batch-bad-ps-0").run().fail(exit_code=1)
    script.when("batch-*").run().after(5).succeed()
    return script


def jobs() -> dict[str, tuple[type[DLJob], JsonObject]]:
    manifests: dict[str, tuple[type[DLJob], JsonObject]] = {}
    for name in ("good", "bad", "again", "memory"):
        manifests[name] = (MXJob, named("01-mxnet-linear", name))
    for name in ("poc-good", "poc-bad"):
        manifests[name] = (ListedMXJob, named("02-mxnet-poc", name))
    manifests["poc-bad"][1]["spec"][2]["template"]["spec"]["restartPolicy"] = "Never"
    for name in ("paddle-good", "paddle-bad"):
        manifests[name] = (PaddleJob, sample(name))
    for name in ("training-good", "training-bad"):
        manifests[name] = (TrainingJob, training_job(name))
    manifests["training-stored"] = (TrainingJob, stored_training_job("training-stored"))
    for name, version in (("training-tolerant", "v1"), ("training-alpha", "v1alpha1")):
        manifest = {**training_example(), "apiVersion": f"paddlepaddle.org/{version}", "metadata": {"name": name}}
        manifests[name] = (TrainingJob, manifest)
    manifests |= {name: (TrainingJob, training_job(name, **fields)) for name, fields in _TRAINING_MODES.items()}
    manifests |= {name: (BatchPaddleJob, batch_job(name, **fields)) for name, fields in _BATCH_MODES.items()}
    for kind, result in itertools.product(KUBEDL_KINDS, ("good", "bad")):
        manifests[_kubedl_name(kind, result)] = (kind, kubedl_job_that_ends(kind, _kubedl_name(kind, result)))
    manifests["kubedl-again"] = (KubeDLTFJob, kubedl_job_that_ends(KubeDLTFJob, "kubedl-again", successPolicy="AllWorkers"))
    return manifests


def _kubedl_name(kind: type[KubeDLJob], result: str) -> str:
    return f"kubedl-{kind.job_type.kind.lower()}-{result}"


def kubedl_job_that_ends(kind: type[KubeDLJob], name: str, **fields: Any) -> JsonObject:
    """A job whose containers are not restarted in place."""
    roles = {role: kubedl_role(replicas, restartPolicy="ExitCode") for role, replicas in ROLES[kind].items()}
    return kubedl_job(kind, roles, name=name, **fields)


_NCCL_PORTS = {"trainer_port": 8000, "trainer_ports_num": 1}
_TRAINING_MODES: dict[str, dict[str, Any]] = {
    "training-local": {"local_job": True},
    "training-nccl": {"is_nccl": True},
    "training-framework-local": {"frame_work": {"name": "paddle", "type": "local"}},
    "training-nccl2": {"frame_work": {"name": "paddle", "type": "nccl2"}, **_NCCL_PORTS},
    "training-multi": {"frame_work": {"name": "tensorflow", "type": "multi"}, **_NCCL_PORTS},
    "training-host": {"host_network": True},
    "training-walltime": {"annotations": {"walltime": 1}, "trainer": {"min-instance": 1, "entrypoint": "walltime"}},
}
_BATCH_MODES: dict[str, dict[str, Any]] = {
    "batch-good": {},
    "batch-named": {"intranet": "Service"},
    "batch-host": {"intranet": "Host"},
    "batch-gloo": {"withGloo": 1, "intranet": "Service"},
    "batch-heter": {"heter": batch_role(1)},
    "batch-elastic": {"elastic": 1},
    "batch-bad": {},
}


def named(manifest: str, name: str) -> JsonObject:
    return example(manifest) | {"metadata": {"name": name}}


EXPECTED = {
    "good": ("Done", "Succeeded", {}),
    "bad": ("Done", "Failed", {}),
    "again": ("Done", "Succeeded", {"SCHEDULER": 1}),
    "memory": ("Done", "Failed", {}),
    "poc-good": ("Succeeded", "True", {}),
    "poc-bad": ("Failed", "True", {}),
    "paddle-good": ("succeeded", "Succeeded", {}),
    "paddle-bad": ("failed", "Failed", {}),
    **dict.fromkeys(("training-good", "training-stored", "training-tolerant", "training-alpha"), ("Succeed", "Succeeded", {})),
    **dict.fromkeys(_TRAINING_MODES, ("Succeed", "Succeeded", {})),
    "training-bad": ("Failed", "Failed", {}),
    "training-walltime": ("Timeout", "Failed", {}),
    **dict.fromkeys(_BATCH_MODES, ("Completed", "Succeeded", {})),
    "batch-bad": ("Failed", "Failed", {}),
    **{_kubedl_name(kind, "good"): ("Succeeded", "True", {}) for kind in KUBEDL_KINDS},
    **{_kubedl_name(kind, "bad"): ("Failed", "True", {}) for kind in KUBEDL_KINDS},
    "kubedl-again": ("Succeeded", "True", {"Worker": 1}),
}


@asynccontextmanager
async def running_operator(transport: Transport) -> AsyncIterator[tuple[Client, str, RunningOperator]]:
    """A client, a namespace of its own, and an operator and a kubelet for it."""
    client = Client(transport)
    await apply(client, build_crds(FRAMEWORKS), report=lambda _: None)
    namespace = f"seeds-{uuid.uuid4().hex[:8]}"
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    settings = Settings.model_validate({"leader_election": False, "bind_address": "off", "namespaces": [namespace]})
    operator = RunningOperator(transport, frameworks=FRAMEWORKS, clock=time.time, rng=random.Random(0), settings=settings)
    try:
        async with ScriptedKubelet(client, make_script(), namespace=namespace, time_scale=0.05):
            operator.start()
            yield client, namespace, operator
    finally:
        await operator.stop()
        await client.delete(NAMESPACES, namespace)


async def run_jobs(transport: Transport) -> dict[str, Any]:
    """Runs all jobs and returns their results."""
    async with running_operator(transport) as (client, namespace, operator):
        for kind, manifest in jobs().values():
            await client.create(kind.job_type.resource_in(manifest["apiVersion"]), manifest, namespace=namespace)
        async with asyncio.timeout(60):
            return {name: await wait_finished(client, kind, name, namespace, operator) for name, (kind, _) in jobs().items()}


async def wait_finished(client: Client, kind: type[DLJob], name: str, namespace: str, operator: RunningOperator) -> Any:
    while True:
        operator.raise_if_stopped()
        status = (await client.get(kind.job_type.resource, name, namespace=namespace)).get("status", {})
        record = status.get("dlop", {})
        if record.get("phase") in ("Succeeded", "Failed"):
            return (*state_of(status), record.get("restarts", {}))
        await asyncio.sleep(0.05)


def state_of(status: JsonObject) -> tuple[str, str]:
    """The state in the status format of the kind, and the last condition if it has both."""
    if "conditions" in status and "phase" in status:
        return status["phase"], status["conditions"][-1]["type"]
    if "conditions" in status:
        return status["conditions"][-1]["type"], status["conditions"][-1]["status"]
    return status["phase"], status["state"]


async def test_all_jobs_finish_as_expected_on_the_embedded_server() -> None:
    async with EmbeddedCluster() as cluster:
        assert await run_jobs(cluster.transport()) == EXPECTED


async def test_all_jobs_finish_as_expected_on_the_real_server(real_cluster: RealCluster) -> None:
    transport = await connect(str(real_cluster.kubeconfig_path))
    try:
        assert await run_jobs(transport) == EXPECTED
    finally:
        await transport.close()


async def test_a_marsjob_with_a_web_host_gets_an_ingress_on_the_real_server(real_cluster: RealCluster) -> None:
    transport = await connect(str(real_cluster.kubeconfig_path))
    try:
        async with running_operator(transport) as (client, namespace, operator), asyncio.timeout(60):
            manifest = kubedl_job_that_ends(MarsJob, "kubedl-web", webHost="mars.example.org")
            await client.create(MarsJob.job_type.resource, manifest, namespace=namespace)
            assert await wait_finished(client, MarsJob, "kubedl-web", namespace, operator) == ("Succeeded", "True", {})
            ingress = await client.get(INGRESSES, "kubedl-web-webservice-0", namespace=namespace)
            paths = [path["path"] for path in ingress["spec"]["rules"][0]["http"]["paths"]]
            address = f"/mars/{namespace}/kubedl-web-webservice-0"
            assert paths == [f"{address}/(.*)", address]
            status = (await client.get(MarsJob.job_type.resource, "kubedl-web", namespace=namespace))["status"]
            assert status["webServiceAddresses"] == [f"mars.example.org{address}"]
    finally:
        await transport.close()
