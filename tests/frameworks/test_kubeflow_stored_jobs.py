"""Jobs that were stored under the CRDs of Kubeflow's operator can be read and run, even if the CRDs of dlop would reject them."""

from __future__ import annotations

import asyncio
import copy
import random
import time
import uuid
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from real_cluster import RealCluster

from dlop import CleanPodPolicy, RunPolicy
from dlop.api.crd import build_crds
from dlop.api.spec import SchedulingPolicy
from dlop.deploy.apply import apply
from dlop.embedded.cluster import EmbeddedCluster
from dlop.frameworks.kubeflow.mpi.job import MPIJob
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.frameworks.kubeflow.tfjob import TFJob
from dlop.frameworks.kubeflow.xgboostjob import XGBoostJob
from dlop.job import DLJob
from dlop.kube.client import Client, PatchType
from dlop.kube.http.transport import connect
from dlop.kube.objects import CustomObject, ObjectMeta
from dlop.kube.resources import NAMESPACES, PODS
from dlop.kube.transport import Transport
from dlop.kube.types import JsonObject
from dlop.operator.settings import Settings
from dlop.testing.kubelet import ScriptedKubelet
from dlop.testing.operator_runner import RunningOperator
from dlop.testing.script import Script
from dlop.testing.virtual_time import LoopClock, virtual_time
from tests.frameworks.kubeflow_jobs import env, job, mpi_job
from tests.frameworks.kubeflow_manifests import KINDS

ALL_KINDS: tuple[type[DLJob], ...] = (*KINDS, MPIJob)
LEGACY_VALUES = {"backoffLimit": -1, "ttlSecondsAfterFinished": -1, "managedBy": "", "activeDeadlineSeconds": 9_999_999_999}
ANYTHING: JsonObject = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def permissive_crds() -> list[JsonObject]:
    """CRDs that accept any spec."""
    crds = copy.deepcopy(build_crds(ALL_KINDS))
    for crd in crds:
        schema = {"type": "object", "properties": {"spec": ANYTHING, "status": ANYTHING}}
        crd["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": schema}
    return crds


def stored_manifest(kind: type[DLJob]) -> JsonObject:
    """A job as programs write it, with nulls, empty values and values that the CRDs of dlop reject."""
    manifest = mpi_job() if kind is MPIJob else job(kind)
    # Half of the jobs have names that are longer than a label value can be.
    name = kind.job_type.singular if kind in (MPIJob, PyTorchJob, XGBoostJob) else kind.job_type.singular.ljust(70, "x")
    manifest["metadata"] = {"name": name, "creationTimestamp": None}
    manifest["spec"] |= {"unknownField": {"of": 1}, "runPolicy": {"suspend": False, "schedulingPolicy": None, **LEGACY_VALUES}}
    if kind is TFJob:
        manifest["spec"]["successPolicy"] = "Default"
    for role in manifest["spec"][kind.schema.field].values():
        role["restartPolicy"] = ""
        role["template"]["metadata"] = {"creationTimestamp": None}
        role["template"]["spec"]["containers"][0] |= {"resources": {}, "command": None, "env": None}
    if kind in (PyTorchJob, XGBoostJob):
        del manifest["spec"][kind.schema.field]["Master"]["replicas"]
    return {**manifest, "status": {"conditions": None, "replicaStatuses": None}}


async def store(client: Client, namespace: str) -> dict[type[DLJob], str]:
    """Store a job of each kind under permissive CRDs, and then install the CRDs of dlop."""
    await apply(client, permissive_crds(), report=lambda _: None)
    names = {}
    for kind in ALL_KINDS:
        created_job = await client.create(kind.job_type.resource, stored_manifest(kind), namespace=namespace)
        names[kind] = created_job["metadata"]["name"]
        created = {"type": "Created", "status": "True", "reason": f"{kind.job_type.kind}Created", "message": "as before"}
        body, resource = {"status": {"conditions": [created]}}, kind.job_type.resource
        await client.patch(resource, names[kind], body, namespace=namespace, patch_type=PatchType.MERGE, subresource="status")
    await apply(client, build_crds(ALL_KINDS), report=lambda _: None)
    return names


async def until_all_have_succeeded(client: Client, namespace: str, names: dict[type[DLJob], str]) -> dict[type[DLJob], JsonObject]:
    jobs: dict[type[DLJob], JsonObject] = {}
    try:
        async with asyncio.timeout(60):
            while not jobs or not all(_has_succeeded(body) for body in jobs.values()):
                await asyncio.sleep(0.2)
                jobs = {kind: await client.get(kind.job_type.resource, name, namespace=namespace) for kind, name in names.items()}
    except TimeoutError:
        raise AssertionError({kind.job_type.kind: body.get("status") for kind, body in jobs.items()}) from None
    return jobs


def _has_succeeded(body: JsonObject) -> bool:
    return any(each["type"] == "Succeeded" and each["status"] == "True" for each in body.get("status", {}).get("conditions", ()))


async def run_stored_jobs(transport: Transport, *, clock: Callable[[], float]) -> None:
    client, namespace = Client(transport), f"stored-{uuid.uuid4().hex[:8]}"
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    names = await store(client, namespace)
    listed = {kind: (await client.list(kind.job_type.resource, namespace=namespace))["items"] for kind in ALL_KINDS}
    assert {kind: [body["metadata"]["name"] for body in bodies] for kind, bodies in listed.items()} == {
        kind: [name] for kind, name in names.items()
    }
    settings = Settings.model_validate({"leader_election": False, "bind_address": "off", "namespaces": [namespace]})
    operator = RunningOperator(transport, frameworks=ALL_KINDS, clock=clock, rng=random.Random(0), settings=settings)
    script = Script()
    script.when("mpijob-worker-*").run()
    script.when("*").run().after(0.5).succeed()
    try:
        async with ScriptedKubelet(client, script, namespace=namespace, clock=clock):
            operator.start()
            jobs = await until_all_have_succeeded(client, namespace, names)
            pods = (await client.list(PODS, namespace=namespace))["items"]
    finally:
        await operator.stop()
    assert {body["status"]["conditions"][0]["message"] for body in jobs.values()} == {"as before"}
    assert {_owner(pod) for pod in pods} == {kind.job_type.kind for kind in ALL_KINDS}


def _owner(pod: JsonObject) -> Any:
    return pod["metadata"]["ownerReferences"][0]["kind"]


@pytest.mark.parametrize("value", ["none", "", "Always"])
@pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.job_type.kind)
def test_an_unknown_clean_pod_policy_means_all(kind: type[DLJob], value: str) -> None:
    manifest = stored_manifest(kind)
    manifest["spec"]["runPolicy"]["cleanPodPolicy"] = value
    assert read(kind, manifest["spec"]).spec.run_policy.clean_pod_policy is CleanPodPolicy.ALL


@pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.job_type.kind)
def test_negative_numbers_are_ignored(kind: type[DLJob]) -> None:
    manifest = stored_manifest(kind)
    manifest["spec"]["runPolicy"] = {
        **dict.fromkeys(("backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"), -1),
        "schedulingPolicy": {"minAvailable": -1, "scheduleTimeoutSeconds": -1, "queue": "q"},
    }
    policy = SchedulingPolicy(queue="q")
    assert read(kind, manifest["spec"]).spec.run_policy == RunPolicy(clean_pod_policy=CleanPodPolicy.NONE, scheduling=policy)


def test_a_rendezvous_port_of_zero_is_ignored() -> None:
    manifest = job(PyTorchJob, {"Worker": 2}, elasticPolicy={"rdzvPort": 0, "minReplicas": -1, "maxRestarts": -1})
    replica = next(read(PyTorchJob, manifest["spec"]).all_replicas())
    assert {"PET_RDZV_ENDPOINT": "demo-worker-0:23456", "PET_NNODES": "2:2"}.items() <= env(replica.pod()).items()


def read(kind: type[DLJob], spec: JsonObject) -> DLJob:
    return kind(CustomObject(metadata=ObjectMeta(name="demo", namespace="team", uid="u"), spec=msgspec.Raw(msgspec.json.encode(spec))))


@virtual_time
async def test_jobs_stored_under_permissive_crds_run_on_the_embedded_server() -> None:
    clock = LoopClock()
    async with EmbeddedCluster(clock=clock) as cluster:
        await run_stored_jobs(cluster.transport(), clock=clock)


@pytest.fixture
def own_cluster() -> Any:
    """A cluster of its own, because the CRDs are replaced."""
    with RealCluster.started() as cluster:
        yield cluster


@pytest.mark.timeout(300)
async def test_jobs_stored_under_permissive_crds_run_on_the_real_server(own_cluster: RealCluster) -> None:
    transport = await connect(str(own_cluster.kubeconfig_path))
    try:
        await run_stored_jobs(transport, clock=time.time)
    finally:
        await transport.close()
