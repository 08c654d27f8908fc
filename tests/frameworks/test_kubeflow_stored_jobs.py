"""Jobs that were stored under the definitions of Kubeflow's operator are still readable, and run, even if they would be refused today."""

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
from dlop.api.crd import definitions
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
from dlop.testing.kubelet import Kubelet
from dlop.testing.operator_runner import RunningOperator
from dlop.testing.script import Script
from dlop.testing.virtual_time import LoopClock, virtual_time
from tests.frameworks.kubeflow_jobs import env, job, mpi_job
from tests.frameworks.kubeflow_manifests import KINDS

ALL_KINDS: tuple[type[DLJob], ...] = (*KINDS, MPIJob)
TAKEN_BEFORE = {"backoffLimit": -1, "ttlSecondsAfterFinished": -1, "managedBy": "", "activeDeadlineSeconds": 9_999_999_999}
ANYTHING: JsonObject = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def old_definitions() -> list[JsonObject]:
    """They take what the new ones do not."""
    found = copy.deepcopy(definitions(ALL_KINDS))
    for each in found:
        schema = {"type": "object", "properties": {"spec": ANYTHING, "status": ANYTHING}}
        each["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": schema}
    return found


def stored(kind: type[DLJob]) -> JsonObject:
    """A job as programs write it, with nulls and empty things all over; one that would be refused today where that is possible."""
    found = mpi_job() if kind is MPIJob else job(kind)
    # Half of them were there before names were cut to what a label takes.
    name = kind.job_type.singular if kind in (MPIJob, PyTorchJob, XGBoostJob) else kind.job_type.singular.ljust(70, "x")
    found["metadata"] = {"name": name, "creationTimestamp": None}
    found["spec"] |= {"unheardOf": {"of": 1}, "runPolicy": {"suspend": False, "schedulingPolicy": None, **TAKEN_BEFORE}}
    if kind is TFJob:
        found["spec"]["successPolicy"] = "Default"
    for role in found["spec"][kind.replica_specs_field].values():
        role["restartPolicy"] = ""
        role["template"]["metadata"] = {"creationTimestamp": None}
        role["template"]["spec"]["containers"][0] |= {"resources": {}, "command": None, "env": None}
    if kind in (PyTorchJob, XGBoostJob):
        del found["spec"][kind.replica_specs_field]["Master"]["replicas"]
    return {**found, "status": {"conditions": None, "replicaStatuses": None}}


async def store(client: Client, namespace: str) -> dict[type[DLJob], str]:
    """A job of each kind under the old definitions, which then give way to the new ones."""
    await apply(client, old_definitions(), say=lambda _: None)
    names = {}
    for kind in ALL_KINDS:
        made = await client.create(kind.job_type.resource, stored(kind), namespace=namespace)
        names[kind] = made["metadata"]["name"]
        created = {"type": "Created", "status": "True", "reason": f"{kind.job_type.kind}Created", "message": "as before"}
        body, resource = {"status": {"conditions": [created]}}, kind.job_type.resource
        await client.patch(resource, names[kind], body, namespace=namespace, patch_type=PatchType.MERGE, subresource="status")
    await apply(client, definitions(ALL_KINDS), say=lambda _: None)
    return names


async def until_all_have_succeeded(client: Client, namespace: str, names: dict[type[DLJob], str]) -> dict[type[DLJob], JsonObject]:
    found: dict[type[DLJob], JsonObject] = {}
    try:
        async with asyncio.timeout(60):
            while not found or not all(_has_succeeded(body) for body in found.values()):
                await asyncio.sleep(0.2)
                found = {kind: await client.get(kind.job_type.resource, name, namespace=namespace) for kind, name in names.items()}
    except TimeoutError:
        raise AssertionError({kind.job_type.kind: body.get("status") for kind, body in found.items()}) from None
    return found


def _has_succeeded(body: JsonObject) -> bool:
    return any(each["type"] == "Succeeded" and each["status"] == "True" for each in body.get("status", {}).get("conditions", ()))


async def run_stored_jobs(transport: Transport, *, clock: Callable[[], float]) -> None:
    client, namespace = Client(transport), f"stored-{uuid.uuid4().hex[:8]}"
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    names = await store(client, namespace)
    listed = {kind: (await client.list(kind.job_type.resource, namespace=namespace))["items"] for kind in ALL_KINDS}
    assert {kind: [body["metadata"]["name"] for body in found] for kind, found in listed.items()} == {
        kind: [name] for kind, name in names.items()
    }
    settings = Settings.model_validate({"leader_election": False, "bind_address": "off", "namespaces": [namespace]})
    operator = RunningOperator(transport, frameworks=ALL_KINDS, clock=clock, rng=random.Random(0), settings=settings)
    script = Script()
    script.when("mpijob-worker-*").run()
    script.when("*").run().after(0.5).succeed()
    try:
        async with Kubelet(client, script, namespace=namespace, clock=clock):
            operator.start()
            found = await until_all_have_succeeded(client, namespace, names)
            pods = (await client.list(PODS, namespace=namespace))["items"]
    finally:
        await operator.stop()
    assert {body["status"]["conditions"][0]["message"] for body in found.values()} == {"as before"}
    assert {_owner(pod) for pod in pods} == {kind.job_type.kind for kind in ALL_KINDS}


def _owner(pod: JsonObject) -> Any:
    return pod["metadata"]["ownerReferences"][0]["kind"]


@pytest.mark.parametrize("word", ["none", "", "Always"])
@pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.job_type.kind)
def test_any_other_word_for_what_becomes_of_pods_means_all_of_them_as_ever(kind: type[DLJob], word: str) -> None:
    found = stored(kind)
    found["spec"]["runPolicy"]["cleanPodPolicy"] = word
    assert read(kind, found["spec"]).spec.run_policy.clean_pod_policy is CleanPodPolicy.ALL


@pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.job_type.kind)
def test_numbers_that_mean_nothing_are_as_if_nothing_was_said(kind: type[DLJob]) -> None:
    found = stored(kind)
    found["spec"]["runPolicy"] = {
        **dict.fromkeys(("backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"), -1),
        "schedulingPolicy": {"minAvailable": -1, "scheduleTimeoutSeconds": -1, "queue": "q"},
    }
    policy = SchedulingPolicy(queue="q")
    assert read(kind, found["spec"]).spec.run_policy == RunPolicy(clean_pod_policy=CleanPodPolicy.NONE, scheduling=policy)


def test_elastic_workers_meet_at_their_own_port_where_none_was_told() -> None:
    found = job(PyTorchJob, {"Worker": 2}, elasticPolicy={"rdzvPort": 0, "minReplicas": -1, "maxRestarts": -1})
    replica = next(read(PyTorchJob, found["spec"]).all_replicas())
    assert {"PET_RDZV_ENDPOINT": "demo-worker-0:23456", "PET_NNODES": "2:2"}.items() <= env(replica.pod()).items()


def read(kind: type[DLJob], spec: JsonObject) -> DLJob:
    """A job of this spec that is stored."""
    return kind(CustomObject(metadata=ObjectMeta(name="demo", namespace="team", uid="u"), spec=msgspec.Raw(msgspec.json.encode(spec))))


@virtual_time
async def test_jobs_stored_under_the_old_definitions_are_read_and_run_on_the_embedded_server() -> None:
    clock = LoopClock()
    async with EmbeddedCluster(clock=clock) as cluster:
        await run_stored_jobs(cluster.transport(), clock=clock)


@pytest.fixture
def own_cluster() -> Any:
    """For the definitions of the others must not be changed."""
    with RealCluster.started() as found:
        yield found


@pytest.mark.timeout(300)
async def test_jobs_stored_under_the_old_definitions_are_read_and_run_on_the_real_server(own_cluster: RealCluster) -> None:
    transport = await connect(str(own_cluster.kubeconfig_path))
    try:
        await run_stored_jobs(transport, clock=time.time)
    finally:
        await transport.close()
