"""What Kubeflow's operator refused, by its webhook or later, the API server refuses by the definitions alone, at the same fields."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from real_cluster import RealCluster

from dlop import DLJob
from dlop.api.crd import definitions
from dlop.deploy.apply import apply
from dlop.embedded.cluster import EmbeddedCluster
from dlop.frameworks.kubeflow.jaxjob import JAXJob
from dlop.frameworks.kubeflow.mpi.job import MPIJob
from dlop.frameworks.kubeflow.mxjob import MXJob
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.frameworks.kubeflow.tfjob import TFJob
from dlop.frameworks.kubeflow.xgboostjob import XGBoostJob
from dlop.kube.client import Client, PatchType
from dlop.kube.errors import InvalidError
from dlop.kube.http.transport import connect
from dlop.kube.resources import NAMESPACES
from dlop.kube.transport import Transport
from dlop.kube.types import JsonObject
from tests.frameworks.kubeflow_jobs import mpi_job
from tests.frameworks.kubeflow_manifests import KINDS, manifest, role

Case = tuple[JsonObject, str]
ALL_KINDS: tuple[type[DLJob], ...] = (*KINDS, MPIJob)
OLD, OTHER = "kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue"
REFUSED_IN_POLICY: JsonObject = {"cleanPodPolicy": "none", "ttlSecondsAfterFinished": -1, "backoffLimit": -1, "activeDeadlineSeconds": -1}
"""What the old operator took, and meant something else by."""
LEADING: dict[type[DLJob], str] = {MPIJob: "Launcher", XGBoostJob: "Master", PyTorchJob: "Master"}
"""The role of a job of one role, where that is not Worker."""


def small(kind: type[DLJob], **more: Any) -> JsonObject:
    """The smallest job there is."""
    if kind is not MPIJob:
        return manifest(kind, {LEADING.get(kind, "Worker"): 1}, **more)
    found = mpi_job(**more)
    del found["spec"]["mpiReplicaSpecs"]["Worker"]
    return found


def changed(found: JsonObject, change: Callable[[JsonObject], object]) -> JsonObject:
    found = copy.deepcopy(found)
    change(found)
    return found


def named(found: JsonObject, name: str) -> JsonObject:
    return {**found, "metadata": {**found["metadata"], "name": name}}


def refused_of(kind: type[DLJob]) -> Iterator[tuple[str, JsonObject, str]]:
    """What no kind takes."""
    field, leading, whole = kind.replica_specs_field, LEADING.get(kind, "Worker"), small(kind)
    place = f"spec.{field}.{leading}.template.spec.containers"
    roles = "Launcher, Worker" if kind is MPIJob else ", ".join(role.name for role in kind.replica_types)

    def container(job: JsonObject) -> JsonObject:
        found: JsonObject = job["spec"][field][leading]["template"]["spec"]["containers"][0]
        return found

    def pod(job: JsonObject) -> JsonObject:
        found: JsonObject = job["spec"][field][leading]["template"]["spec"]
        return found

    yield "no replica specs", changed(whole, lambda job: job["spec"].pop(field)), f"spec.{field}: Required value"
    yield "no roles", changed(whole, lambda job: job["spec"].update({field: {}})), f"spec.{field}: Invalid value"
    odd = changed(whole, lambda job: job["spec"][field].update(Captain=job["spec"][field][leading]))
    yield "an unknown role", odd, f"spec.{field}: Invalid value: must be one of {roles}, not Captain"
    yield "no list of containers", changed(whole, lambda job: pod(job).pop("containers")), f"{place}: Required value"
    yield "no container", changed(whole, lambda job: pod(job).update(containers=[])), f"{place}: Invalid value"
    yield "no image", changed(whole, lambda job: container(job).pop("image")), f"{place}[0].image: Required value"
    yield "an empty image", changed(whole, lambda job: container(job).update(image="")), f"{place}[0].image: Invalid value"
    yield "no name", changed(whole, lambda job: container(job).pop("name")), f"{place}[0].name: Required value"
    yield "another manager", small(kind, runPolicy={"managedBy": "somebody"}), "spec.runPolicy.managedBy: Unsupported value"
    yield "no manager's name", small(kind, runPolicy={"managedBy": ""}), "spec.runPolicy.managedBy: Unsupported value"
    for word, value in REFUSED_IN_POLICY.items():
        yield f"{word}: {value!r}", small(kind, runPolicy={word: value}), f"spec.runPolicy.{word}: "
    if kind is MPIJob:
        return
    yield "a long name", named(whole, "a" * 64), "metadata.name: Invalid value"
    yield "no DNS label", named(whole, "1st"), "metadata.name: Invalid value"
    yield "a dot in its name", named(whole, "a.b"), "metadata.name: Invalid value"
    needed = f"must have at least one container with name {kind.container_properties.name}"
    path = f"spec.{field}[{leading}].template.spec.containers: Required value: {needed}"
    yield "another container", changed(whole, lambda job: container(job).update(name="main")), path


OF_ALL: dict[str, Case] = {f"{kind.job_type.kind}: {name}": (job, words) for kind in ALL_KINDS for name, job, words in refused_of(kind)}

REFUSED: dict[str, Case] = {
    **OF_ALL,
    "another case": (manifest(JAXJob, {"worker": 1}), "spec.jaxReplicaSpecs: Invalid value: must be one of Worker, not worker"),
    # PyTorchJob
    "two masters": (manifest(PyTorchJob, {"Master": 2}), "spec.pytorchReplicaSpecs[Master].replicas: Forbidden: must be 1"),
    "no master": (manifest(PyTorchJob, {"Master": 0, "Worker": 1}), "spec.pytorchReplicaSpecs[Master].replicas: Forbidden: must be 1"),
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
        "spec.elasticPolicy.nProcPerNode: Forbidden: must not be used together with spec.nprocPerNode",
    ),
    # TFJob
    "two chiefs": (manifest(TFJob, {"Chief": 1, "Master": 1}), "spec.tfReplicaSpecs: Forbidden: must have at most one of Chief and Master"),
    "two chiefs in small letters": (manifest(TFJob, {"chief": 1, "master": 1}), "spec.tfReplicaSpecs: Forbidden: must have at most one of"),
    # XGBoostJob
    "xgboost without a master": (manifest(XGBoostJob, {"Worker": 1}), "spec.xgbReplicaSpecs[Master]: Required value: must be present"),
    "xgboost of two masters": (manifest(XGBoostJob, {"Master": 2}), "spec.xgbReplicaSpecs[Master].replicas: Forbidden: must be 1"),
    "xgboost of a master without a number": (
        manifest(XGBoostJob, {"Master": role(XGBoostJob, None)}),
        "spec.xgbReplicaSpecs[Master].replicas: Forbidden: must be 1",
    ),
    # MXJob
    "two schedulers": (manifest(MXJob, {"Scheduler": 2}), "spec.mxReplicaSpecs[Scheduler].replicas: Forbidden: must be at most 1"),
    "no mode": (changed(small(MXJob), lambda job: job["spec"].pop("jobMode")), "spec.jobMode: Required value"),
    # MPIJob
    "no launcher": (
        changed(mpi_job(), lambda job: job["spec"]["mpiReplicaSpecs"].pop("Launcher")),
        "spec.mpiReplicaSpecs[Launcher]: Required value: must be present",
    ),
    "two launchers": (
        changed(mpi_job(), lambda job: job["spec"]["mpiReplicaSpecs"]["Launcher"].update(replicas=2)),
        "spec.mpiReplicaSpecs[Launcher].replicas: Forbidden: must be 1",
    ),
    "a launcher of none": (
        changed(mpi_job(), lambda job: job["spec"]["mpiReplicaSpecs"]["Launcher"].update(replicas=0)),
        "spec.mpiReplicaSpecs[Launcher].replicas: Forbidden: must be 1",
    ),
    "a launcher in small letters": (
        changed(mpi_job(), lambda job: job["spec"]["mpiReplicaSpecs"].update(launcher=job["spec"]["mpiReplicaSpecs"]["Worker"])),
        "spec.mpiReplicaSpecs: Invalid value: must be one of Launcher, Worker, not launcher",
    ),
    "a command for a container": (mpi_job(mainContainer="main; rm -rf /"), "spec.mainContainer: Invalid value"),
    "slots below none": (mpi_job(slotsPerWorker=-1), "spec.slotsPerWorker: Invalid value"),
}

CHANGES: dict[str, tuple[JsonObject, JsonObject, str]] = {
    **{
        f"the manager of a {kind.job_type.kind}, from {before} to {after}": (
            small(kind, **({"runPolicy": {"managedBy": before}} if before else {})),
            {"spec": {"runPolicy": {"managedBy": after}}},
            "spec.runPolicy.managedBy: Invalid value: field is immutable",
        )
        for kind in ALL_KINDS
        for before, after in ((None, OTHER), (OLD, OTHER), (OTHER, None))
    },
    **{
        f"the queue of a {kind.job_type.kind}": (
            small(kind, runPolicy={"schedulingPolicy": {"queue": "a"}}),
            {"spec": {"runPolicy": {"schedulingPolicy": {"queue": "b"}}}},
            'spec.runPolicy.schedulingPolicy.queue: Invalid value: "b": spec.runPolicy.schedulingPolicy.queue is immutable',
        )
        for kind in ALL_KINDS
    },
    "a second master": (
        manifest(PyTorchJob, {"Master": 1}),
        {"spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 2}}}},
        "spec.pytorchReplicaSpecs[Master].replicas: Forbidden: must be 1",
    ),
    "the last worker": (
        manifest(PyTorchJob, {"Master": 1, "Worker": 1}),
        {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 0}}}},
        "spec.pytorchReplicaSpecs[Worker].replicas: Forbidden: must be at least 1",
    ),
    "a role that there is not": (
        small(JAXJob),
        {"spec": {"jaxReplicaSpecs": {"Captain": role(JAXJob)}}},
        "spec.jaxReplicaSpecs: Invalid value: must be one of Worker, not Captain",
    ),
    "the launcher": (mpi_job(), {"spec": {"mpiReplicaSpecs": {"Launcher": None}}}, "spec.mpiReplicaSpecs[Launcher]: Required value"),
}

TAKEN: dict[str, JsonObject] = {
    **{f"a small {kind.job_type.kind}": small(kind) for kind in ALL_KINDS},
    **{f"a {kind.job_type.kind} of the old operator": small(kind, runPolicy={"managedBy": OLD}) for kind in ALL_KINDS},
    **{f"a {kind.job_type.kind} of a long name": named(small(kind), "a" * 63) for kind in ALL_KINDS},
    **{f"a {kind.job_type.kind} of much time": small(kind, runPolicy={"activeDeadlineSeconds": 2**63 - 1}) for kind in ALL_KINDS},
    "roles of TensorFlow in any case": manifest(TFJob, {"worker": 1, "ps": 1}),
    "a launcher without a number": changed(mpi_job(), lambda job: job["spec"]["mpiReplicaSpecs"]["Launcher"].pop("replicas")),
    "an MPI job that begins with a digit": named(mpi_job(), "2.tries"),
    "a worker without a number": manifest(PyTorchJob, {"Master": 1, "Worker": role(PyTorchJob, None)}),
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
    return next(kind for kind in ALL_KINDS if kind.job_type.kind == job["kind"])


async def refusal(client: Client, namespace: str, job: JsonObject) -> str:
    """What the server says to a job; empty when it takes it."""
    try:
        await client.create(kind_of(job).job_type.resource, job, namespace=namespace, dry_run=True)
    except InvalidError as error:
        return str(error)
    return ""


async def refusal_of_change(client: Client, namespace: str, job: JsonObject, patch: JsonObject) -> str:
    """What the server says to the change of a job that runs; empty when it takes it."""
    name, resource = f"job-{uuid.uuid4().hex[:12]}", kind_of(job).job_type.resource
    await client.create(resource, {**job, "metadata": {"name": name}}, namespace=namespace)
    status = {"status": {"startTime": "2026-01-01T00:00:00Z"}}
    await client.patch(resource, name, status, namespace=namespace, patch_type=PatchType.MERGE, subresource="status")
    try:
        await client.patch(resource, name, patch, namespace=namespace, patch_type=PatchType.MERGE)
    except InvalidError as error:
        return str(error)
    return ""


async def all_refusals(transport: Transport) -> dict[str, str]:
    """What the server says to every case."""
    client = Client(transport)
    await apply(client, definitions(ALL_KINDS), say=lambda _: None)
    namespace = f"refusals-{uuid.uuid4().hex[:12]}"
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    jobs = {name: job for name, (job, _) in REFUSED.items()} | TAKEN
    found = {name: await refusal(client, namespace, job) for name, job in jobs.items()}
    found |= {name: await refusal_of_change(client, namespace, job, patch) for name, (job, patch, _) in CHANGES.items()}
    await client.delete(NAMESPACES, namespace)
    return found


def demand(found: dict[str, str]) -> None:
    expected = {name: words for name, (_, words) in REFUSED.items()} | {name: words for name, (_, _, words) in CHANGES.items()}
    assert {name: (words, found[name]) for name, words in expected.items() if words not in found[name]} == {}
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
