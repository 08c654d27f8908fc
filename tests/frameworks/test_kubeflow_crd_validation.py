"""The CRDs of kubeflow.org reject what the webhook of Kubeflow's operator rejects, with the same field paths."""

from __future__ import annotations

import copy
import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from real_cluster import RealCluster

from dlop import DLJob
from dlop.api.crd import build_crds
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
from tests.kubernetes_versions import is_at_least

Case = tuple[JsonObject, str]
_VALUE = r'(?<=Invalid value: )"[^"]*": '
ALL_KINDS: tuple[type[DLJob], ...] = (*KINDS, MPIJob)
TRAINING_OPERATOR, MULTIKUEUE = "kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue"
INVALID_POLICY_VALUES: JsonObject = {
    "cleanPodPolicy": "none",
    "ttlSecondsAfterFinished": -1,
    "backoffLimit": -1,
    "activeDeadlineSeconds": -1,
}
"""Values that Kubeflow's operator accepted with a different meaning."""
LEADING: dict[type[DLJob], str] = {MPIJob: "Launcher", XGBoostJob: "Master", PyTorchJob: "Master"}
"""The role of a minimal job, if it is not Worker."""


def minimal_job(kind: type[DLJob], **more: Any) -> JsonObject:
    if kind is not MPIJob:
        return manifest(kind, {LEADING.get(kind, "Worker"): 1}, **more)
    job = mpi_job(**more)
    del job["spec"]["mpiReplicaSpecs"]["Worker"]
    return job


def changed(job: JsonObject, change: Callable[[JsonObject], object]) -> JsonObject:
    copied = copy.deepcopy(job)
    change(copied)
    return copied


def named(job: JsonObject, name: str) -> JsonObject:
    return {**job, "metadata": {**job["metadata"], "name": name}}


def invalid_jobs(kind: type[DLJob]) -> Iterator[tuple[str, JsonObject, str]]:
    """Invalid jobs of any kind, with a name and the expected message."""
    field, leading, valid = kind.schema.field, LEADING.get(kind, "Worker"), minimal_job(kind)
    containers = f"spec.{field}.{leading}.template.spec.containers"
    roles = "Launcher, Worker" if kind is MPIJob else ", ".join(role.name for role in kind.replica_types)

    def container(job: JsonObject) -> JsonObject:
        first: JsonObject = job["spec"][field][leading]["template"]["spec"]["containers"][0]
        return first

    def pod_spec(job: JsonObject) -> JsonObject:
        spec: JsonObject = job["spec"][field][leading]["template"]["spec"]
        return spec

    yield "no replica specs", changed(valid, lambda job: job["spec"].pop(field)), f"spec.{field}: Required value"
    yield "no roles", changed(valid, lambda job: job["spec"].update({field: {}})), f"spec.{field}: Invalid value"
    unknown_role = changed(valid, lambda job: job["spec"][field].update(Captain=job["spec"][field][leading]))
    yield "an unknown role", unknown_role, f"spec.{field}: Invalid value: must be one of {roles}, got Captain"
    yield "no list of containers", changed(valid, lambda job: pod_spec(job).pop("containers")), f"{containers}: Required value"
    yield "no container", changed(valid, lambda job: pod_spec(job).update(containers=[])), f"{containers}: Invalid value"
    yield "no image", changed(valid, lambda job: container(job).pop("image")), f"{containers}[0].image: Required value"
    yield "an empty image", changed(valid, lambda job: container(job).update(image="")), f"{containers}[0].image: Invalid value"
    yield "no name", changed(valid, lambda job: container(job).pop("name")), f"{containers}[0].name: Required value"
    yield "another manager", minimal_job(kind, runPolicy={"managedBy": "unknown"}), "spec.runPolicy.managedBy: Unsupported value"
    yield "no manager's name", minimal_job(kind, runPolicy={"managedBy": ""}), "spec.runPolicy.managedBy: Unsupported value"
    for name, value in INVALID_POLICY_VALUES.items():
        yield f"{name}: {value!r}", minimal_job(kind, runPolicy={name: value}), f"spec.runPolicy.{name}: "
    if kind is MPIJob:
        return
    yield "a long name", named(valid, "a" * 64), "metadata.name: Invalid value"
    yield "no DNS label", named(valid, "1st"), "metadata.name: Invalid value"
    yield "a dot in its name", named(valid, "a.b"), "metadata.name: Invalid value"
    message = f"must have at least one container with name {kind.container_properties.name}"
    path = f"spec.{field}[{leading}].template.spec.containers: Required value: {message}"
    yield "another container", changed(valid, lambda job: container(job).update(name="main")), path


INVALID_FOR_ALL_KINDS: dict[str, Case] = {
    f"{kind.job_type.kind}: {name}": (job, message) for kind in ALL_KINDS for name, job, message in invalid_jobs(kind)
}

INVALID: dict[str, Case] = {
    **INVALID_FOR_ALL_KINDS,
    "another case": (manifest(JAXJob, {"worker": 1}), "spec.jaxReplicaSpecs: Invalid value: must be one of Worker, got worker"),
    # PyTorchJob
    "two masters": (manifest(PyTorchJob, {"Master": 2}), "spec.pytorchReplicaSpecs[Master].replicas: Forbidden: must be 1"),
    "no master": (manifest(PyTorchJob, {"Master": 0, "Worker": 1}), "spec.pytorchReplicaSpecs[Master].replicas: Forbidden: must be 1"),
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
    # MXJob
    "two schedulers": (manifest(MXJob, {"Scheduler": 2}), "spec.mxReplicaSpecs[Scheduler].replicas: Forbidden: must be at most 1"),
    "no mode": (changed(minimal_job(MXJob), lambda job: job["spec"].pop("jobMode")), "spec.jobMode: Required value"),
    # MPIJob
    "no launcher": (
        changed(mpi_job(), lambda job: job["spec"]["mpiReplicaSpecs"].pop("Launcher")),
        "spec.mpiReplicaSpecs[Launcher]: Required value: must be present",
    ),
    "two launchers": (
        changed(mpi_job(), lambda job: job["spec"]["mpiReplicaSpecs"]["Launcher"].update(replicas=2)),
        "spec.mpiReplicaSpecs[Launcher].replicas: Forbidden: must be 1",
    ),
    "zero launchers": (
        changed(mpi_job(), lambda job: job["spec"]["mpiReplicaSpecs"]["Launcher"].update(replicas=0)),
        "spec.mpiReplicaSpecs[Launcher].replicas: Forbidden: must be 1",
    ),
    "a launcher in small letters": (
        changed(mpi_job(), lambda job: job["spec"]["mpiReplicaSpecs"].update(launcher=job["spec"]["mpiReplicaSpecs"]["Worker"])),
        "spec.mpiReplicaSpecs: Invalid value: must be one of Launcher, Worker, got launcher",
    ),
    "a command as main container": (mpi_job(mainContainer="main; rm -rf /"), "spec.mainContainer: Invalid value"),
    "negative slots": (mpi_job(slotsPerWorker=-1), "spec.slotsPerWorker: Invalid value"),
}

INVALID_CHANGES: dict[str, tuple[JsonObject, JsonObject, str]] = {
    **{
        f"the manager of a {kind.job_type.kind}, from {before} to {after}": (
            minimal_job(kind, **({"runPolicy": {"managedBy": before}} if before else {})),
            {"spec": {"runPolicy": {"managedBy": after}}},
            "spec.runPolicy.managedBy: Invalid value: field is immutable",
        )
        for kind in ALL_KINDS
        for before, after in ((None, MULTIKUEUE), (TRAINING_OPERATOR, MULTIKUEUE), (MULTIKUEUE, None))
    },
    **{
        f"the queue of a {kind.job_type.kind}": (
            minimal_job(kind, runPolicy={"schedulingPolicy": {"queue": "a"}}),
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
    "an unknown role": (
        minimal_job(JAXJob),
        {"spec": {"jaxReplicaSpecs": {"Captain": role(JAXJob)}}},
        "spec.jaxReplicaSpecs: Invalid value: must be one of Worker, got Captain",
    ),
    "the launcher": (mpi_job(), {"spec": {"mpiReplicaSpecs": {"Launcher": None}}}, "spec.mpiReplicaSpecs[Launcher]: Required value"),
}

VALID: dict[str, JsonObject] = {
    **{f"a minimal {kind.job_type.kind}": minimal_job(kind) for kind in ALL_KINDS},
    **{
        f"a {kind.job_type.kind} managed by the training operator": minimal_job(kind, runPolicy={"managedBy": TRAINING_OPERATOR})
        for kind in ALL_KINDS
    },
    **{f"a {kind.job_type.kind} with a long name": named(minimal_job(kind), "a" * 63) for kind in ALL_KINDS},
    **{
        f"a {kind.job_type.kind} with a long deadline": minimal_job(kind, runPolicy={"activeDeadlineSeconds": 2**63 - 1})
        for kind in ALL_KINDS
    },
    "roles of TensorFlow in any case": manifest(TFJob, {"worker": 1, "ps": 1}),
    "a launcher without a number": changed(mpi_job(), lambda job: job["spec"]["mpiReplicaSpecs"]["Launcher"].pop("replicas")),
    "an MPI job that begins with a digit": named(mpi_job(), "2.tries"),
    # The webhook rejects these two.
    "a master without a number": manifest(PyTorchJob, {"Master": role(PyTorchJob, None)}),
    "xgboost of a master without a number": manifest(XGBoostJob, {"Master": role(XGBoostJob, None)}),
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


async def create_error(client: Client, namespace: str, job: JsonObject) -> str:
    """The error on creation of a job; empty if it is accepted."""
    try:
        await client.create(kind_of(job).job_type.resource, job, namespace=namespace, dry_run=True)
    except InvalidError as error:
        return str(error)
    return ""


async def patch_error(client: Client, namespace: str, job: JsonObject, patch: JsonObject) -> str:
    """The error on a patch of a running job; empty if it is accepted."""
    name, resource = f"job-{uuid.uuid4().hex[:12]}", kind_of(job).job_type.resource
    await client.create(resource, {**job, "metadata": {"name": name}}, namespace=namespace)
    status = {"status": {"startTime": "2026-01-01T00:00:00Z"}}
    await client.patch(resource, name, status, namespace=namespace, patch_type=PatchType.MERGE, subresource="status")
    try:
        await client.patch(resource, name, patch, namespace=namespace, patch_type=PatchType.MERGE)
    except InvalidError as error:
        return str(error)
    return ""


async def all_errors(transport: Transport) -> dict[str, str]:
    """The errors for all cases, by name."""
    client = Client(transport)
    await apply(client, build_crds(ALL_KINDS), report=lambda _: None)
    namespace = f"validation-{uuid.uuid4().hex[:12]}"
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    jobs = {name: job for name, (job, _) in INVALID.items()} | VALID
    errors = {name: await create_error(client, namespace, job) for name, job in jobs.items()}
    errors |= {name: await patch_error(client, namespace, job, patch) for name, (job, patch, _) in INVALID_CHANGES.items()}
    await client.delete(NAMESPACES, namespace)
    return errors


def _contains(error: str, message: str) -> bool:
    if is_at_least("1.35"):
        return message in error
    # Older servers report the type of a value instead of the value.
    return re.sub(_VALUE, "", message) in re.sub(_VALUE, "", error)


def check(errors: dict[str, str]) -> None:
    expected = {name: message for name, (_, message) in INVALID.items()}
    expected |= {name: message for name, (_, _, message) in INVALID_CHANGES.items()}
    assert {name: (message, errors[name]) for name, message in expected.items() if not _contains(errors[name], message)} == {}
    assert {name: errors[name] for name in VALID if errors[name]} == {}


async def test_the_embedded_server_rejects_what_the_webhook_rejects() -> None:
    async with EmbeddedCluster() as cluster:
        check(await all_errors(cluster.transport()))


@pytest.mark.timeout(300)
async def test_the_real_server_rejects_what_the_webhook_rejects(real_cluster: RealCluster) -> None:
    transport = await connect(str(real_cluster.kubeconfig_path))
    try:
        check(await all_errors(transport))
    finally:
        await transport.close()
