"""What the webhook of Kubeflow's operator refused, the API server refuses by the definitions alone, at the same fields."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from real_cluster import RealCluster

from dlop import DLJob
from dlop.api.crd import definitions
from dlop.frameworks.kubeflow.jaxjob import JAXJob
from dlop.frameworks.kubeflow.mxjob import MXJob
from dlop.frameworks.kubeflow.paddlejob import PaddleJob
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.frameworks.kubeflow.tfjob import TFJob
from dlop.frameworks.kubeflow.xgboostjob import XGBoostJob
from dlop.kube.client import Client, PatchType
from dlop.kube.errors import InvalidError, JsonObject
from dlop.kube.http import connect
from dlop.kube.resources import NAMESPACES
from dlop.kube.transport import Transport
from dlop.local.cluster import EmbeddedCluster
from dlop.manifests.applying import apply
from tests.compat.kubeflow_manifests import KINDS, manifest, role

Case = tuple[JsonObject, str]


def changed(kind: type[DLJob], roles: dict[str, Any], change: Callable[[JsonObject], object]) -> JsonObject:
    found = manifest(kind, roles)
    change(found)
    return found


def first_container(kind: type[DLJob], name: str) -> Callable[[JsonObject], JsonObject]:
    def found(job: JsonObject) -> JsonObject:
        container: JsonObject = job["spec"][kind.replica_specs_field][name]["template"]["spec"]["containers"][0]
        return container

    return found


REFUSED: dict[str, Case] = {
    "no DNS label": (manifest(PyTorchJob, {"Master": 1}, name="1st"), "metadata.name: Invalid value"),
    "no roles": (manifest(TFJob, {}), "spec.tfReplicaSpecs: Invalid value"),
    "an unknown role": (manifest(PyTorchJob, {"Chief": 1}), "spec.pytorchReplicaSpecs: Invalid value: must be one of Master, Worker"),
    "another case": (manifest(JAXJob, {"worker": 1}), "spec.jaxReplicaSpecs: Invalid value: must be one of Worker"),
    "another container": (
        changed(PaddleJob, {"Worker": 1}, lambda job: first_container(PaddleJob, "Worker")(job).update(name="main")),
        "spec.paddleReplicaSpecs[Worker].template.spec.containers: Required value: must have at least one container with name paddle",
    ),
    "no image": (
        changed(MXJob, {"Worker": 1}, lambda job: first_container(MXJob, "Worker")(job).pop("image")),
        "spec.mxReplicaSpecs.Worker.template.spec.containers[0].image: Required value",
    ),
    "two masters": (manifest(PyTorchJob, {"Master": 2}), "spec.pytorchReplicaSpecs[Master].replicas: Forbidden: must be 1"),
    "a master without a number": (
        manifest(PyTorchJob, {"Master": role(PyTorchJob, None)}),
        "spec.pytorchReplicaSpecs[Master].replicas: Forbidden: must be 1",
    ),
    "no worker": (
        manifest(PyTorchJob, {"Master": 1, "Worker": 0}),
        "spec.pytorchReplicaSpecs[Worker].replicas: Forbidden: must be at least 1",
    ),
    "elastic without workers": (
        manifest(PyTorchJob, {"Master": 1}, elasticPolicy={}),
        "spec.pytorchReplicaSpecs[Worker]: Required value: must be configured if elastic policy is used",
    ),
    "processes twice": (
        manifest(PyTorchJob, {"Worker": 1}, elasticPolicy={"nProcPerNode": 1}, nprocPerNode="1"),
        "spec.elasticPolicy.nProcPerNode: Forbidden",
    ),
    "two chiefs": (manifest(TFJob, {"Chief": 1, "Master": 1}), "spec.tfReplicaSpecs: Forbidden: must have at most one of"),
    "xgboost without a master": (manifest(XGBoostJob, {"Worker": 1}), "spec.xgbReplicaSpecs[Master]: Required value: must be present"),
    "another manager": (
        manifest(TFJob, {"Worker": 1}, runPolicy={"managedBy": "somebody"}),
        "spec.runPolicy.managedBy: Unsupported value",
    ),
}

CHANGES: dict[str, tuple[JsonObject, JsonObject, str]] = {
    "the manager": (
        manifest(PyTorchJob, {"Master": 1}),
        {"spec": {"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}},
        "spec.runPolicy.managedBy: Invalid value: field is immutable",
    ),
    "the queue": (
        manifest(TFJob, {"Worker": 1}, runPolicy={"schedulingPolicy": {"queue": "a"}}),
        {"spec": {"runPolicy": {"schedulingPolicy": {"queue": "b"}}}},
        'spec.runPolicy.schedulingPolicy.queue: Invalid value: "b": spec.runPolicy.schedulingPolicy.queue is immutable',
    ),
}

TAKEN: dict[str, JsonObject] = {
    "roles of TensorFlow in any case": manifest(TFJob, {"worker": 1, "ps": 1}),
    "a master alone": manifest(PyTorchJob, {"Master": 1}),
    "the old operator as manager": manifest(JAXJob, {"Worker": 1}, runPolicy={"managedBy": "kubeflow.org/training-operator"}),
    "all of a run policy": manifest(
        XGBoostJob,
        {"Master": 1, "Worker": 0},
        runPolicy={
            "cleanPodPolicy": "All",
            "backoffLimit": 1,
            "restartScope": "Job",
            "schedulingPolicy": {"minAvailable": 1, "minResources": {"cpu": 1, "memory": "1Gi"}, "priorityClass": "high"},
        },
    ),
}


def kind_of(job: JsonObject) -> type[DLJob]:
    return next(kind for kind in KINDS if kind.job_type.kind == job["kind"])


async def refusal(client: Client, namespace: str, job: JsonObject, patch: JsonObject | None = None) -> str:
    """What the server says to a job, or to the change of one; empty when it takes it."""
    resource = kind_of(job).job_type.resource
    try:
        await client.create(resource, job, namespace=namespace)
        if patch is not None:
            await client.patch(resource, "demo", patch, namespace=namespace, patch_type=PatchType.MERGE)
    except InvalidError as error:
        return str(error)
    return ""


async def all_refusals(transport: Transport) -> dict[str, str]:
    """What the server says to every case, each in a namespace of its own."""
    client = Client(transport)
    await apply(client, definitions(KINDS), say=lambda _: None)
    found: dict[str, str] = {}
    cases: dict[str, tuple[JsonObject, JsonObject | None]] = {name: (job, None) for name, (job, _) in REFUSED.items()}
    cases |= {name: (job, patch) for name, (job, patch, _) in CHANGES.items()} | {name: (job, None) for name, job in TAKEN.items()}
    for name, (job, patch) in cases.items():
        namespace = f"refusals-{uuid.uuid4().hex[:12]}"
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        found[name] = await refusal(client, namespace, job, patch)
        await client.delete(NAMESPACES, namespace)
    return found


def demand(found: dict[str, str]) -> None:
    expected = {name: words for name, (_, words) in REFUSED.items()} | {name: words for name, (_, _, words) in CHANGES.items()}
    assert {name: found[name] for name, words in expected.items() if words not in found[name]} == {}
    assert {name: found[name] for name in TAKEN if found[name]} == {}


async def test_the_embedded_server_refuses_what_the_webhook_refused() -> None:
    async with EmbeddedCluster() as cluster:
        demand(await all_refusals(cluster.transport()))


@pytest.mark.timeout(300)
async def test_the_real_server_refuses_what_the_webhook_refused(real_cluster: RealCluster) -> None:
    transport = await connect(str(real_cluster.kubeconfig_path))
    try:
        demand(await all_refusals(transport))
    finally:
        await transport.close()
