"""Features that jobs of all kinds have, on the embedded and the real API server: start order, spot replicas, host network, code sync."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from real_cluster import RealCluster

from dlop.api.types import Options
from dlop.frameworks.fioravanzo.mxjob import MXJob
from dlop.frameworks.kubedl.pytorchjob import PyTorchJob as KubeDLPyTorchJob
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.frameworks.kubeflow.tfjob import TFJob
from dlop.job import DLJob
from dlop.kube.errors import InvalidError
from dlop.kube.resources import SERVICES
from dlop.kube.transport import Transport
from dlop.kube.types import JsonObject
from dlop.testing.pod_steps import Evict
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.sandbox import Clock, Sandbox, Scenario, open_sandbox, run_embedded, run_real

CODE = {"source": "git@example.org:team/train.git", "branch": "main", "depth": 1, "secretName": "key"}


def manifest(kind: type[DLJob], roles: dict[str, int], *, annotations: dict[str, Any] | None = None, **policy: Any) -> JsonObject:
    """A job whose replicas are restarted only after disruptions. `annotations` are encoded as JSON."""
    container = {"name": kind.container_properties.name, "image": "train:1", "workingDir": "/app"}
    specs: Any
    if kind is MXJob:
        template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
        specs = [{"replicas": count, "mxReplicaType": role, "template": template} for role, count in roles.items()]
    else:
        template = {"spec": {"containers": [container]}}
        specs = {role: {"replicas": count, "restartPolicy": "Never", "template": template} for role, count in roles.items()}
    metadata = {"name": "demo", "annotations": {name: json.dumps(value) for name, value in (annotations or {}).items()}}
    spec = {kind.schema.field: specs, "runPolicy": {"cleanPodPolicy": "None", **policy}}
    return {"apiVersion": kind.job_type.api_version, "kind": kind.job_type.kind, "metadata": metadata, "spec": spec}


def release(sandbox: Sandbox, *pods: str) -> None:
    """Let the scripts of these pods continue."""
    for pod in pods:
        sandbox.kubelet.release(f"{sandbox.namespace}/{pod}")


async def evict(sandbox: Sandbox, name: str) -> None:
    """Evict a pod, and wait for its replacement."""
    uid = (await sandbox.pod_uids())[name]
    await sandbox.kubelet.perform(f"{sandbox.namespace}/{name}", Evict())

    async def is_replaced() -> bool:
        return (await sandbox.pod_uids()).get(name, uid) != uid

    await sandbox.until(is_replaced)


def container_ports(pods: dict[str, JsonObject]) -> dict[str, JsonObject]:
    """The port of the framework by pod."""
    return {name: pod["spec"]["containers"][0]["ports"][0] for name, pod in pods.items()}


# --- start order ---------------------------------------------------------------------------------------------------------


async def parameter_servers_wait_for_workers_if_the_job_says_so(transport: Transport, clock: Clock) -> None:
    async with open_sandbox(transport, TFJob, clock=clock) as sandbox:
        sandbox.script.when("demo-worker-*").until_released().run().until_released().succeed()
        sandbox.start()
        body = manifest(TFJob, {"PS": 1, "Worker": 2})
        body["spec"]["tfReplicaSpecs"]["PS"]["dependsOn"] = [{"role": "worker", "condition": "Ready"}]
        body["spec"]["tfReplicaSpecs"]["Worker"]["dependsOn"] = []
        await sandbox.submit(body)
        await sandbox.settle()
        assert sorted(await sandbox.pods()) == ["demo-worker-0", "demo-worker-1"]
        release(sandbox, "demo-worker-0", "demo-worker-1")
        await sandbox.until_running(3)
        release(sandbox, "demo-worker-0", "demo-worker-1")
        await sandbox.until_condition("Succeeded")


# --- spot replicas -------------------------------------------------------------------------------------------------------


async def spot_replicas_fall_back_to_on_demand_pods(transport: Transport, clock: Clock) -> None:
    async with open_sandbox(transport, PyTorchJob, clock=clock) as sandbox:
        sandbox.script.when("*").run().until_released().succeed()
        sandbox.start()
        options = {"replicas": 1, "labels": {"tier": "spot"}, "maxDisruptions": 1}
        body = manifest(PyTorchJob, {"Master": 1, "Worker": 2}, disruptionLimit=0)
        body["spec"]["pytorchReplicaSpecs"]["Worker"]["spotReplicas"] = options
        await sandbox.submit(body)
        await sandbox.until_running(3)
        before = await sandbox.pods()
        assert {name for name, pod in before.items() if pod["metadata"]["labels"].get("tier") == "spot"} == {"demo-worker-1"}
        await evict(sandbox, "demo-worker-1")
        await sandbox.until_running(3)
        record = (await sandbox.status())["dlop"]
        assert (record["spotDisruptions"], record.get("disruptions")) == ({"Worker": 1}, None)
        assert [name for name, pod in (await sandbox.pods()).items() if "tier" in pod["metadata"]["labels"]] == []
        release(sandbox, *await sandbox.pods())
        await sandbox.until_condition("Succeeded")
        assert await sandbox.event_count("SpotFallback") == 1


# --- host network --------------------------------------------------------------------------------------------------------


async def every_replica_has_a_port_of_its_node_that_survives_the_operator(transport: Transport, clock: Clock) -> None:
    async with open_sandbox(transport, PyTorchJob, clock=clock) as sandbox:
        sandbox.script.when("*").run().until_released().succeed()
        sandbox.start()
        await sandbox.submit(manifest(PyTorchJob, {"Master": 1, "Worker": 2}, hostNetwork=True))
        await sandbox.until_running(3)
        pods = await sandbox.pods()
        ports = container_ports(pods)
        assert {pod["spec"]["hostNetwork"] for pod in pods.values()} == {True}
        assert len({port["hostPort"] for port in ports.values()}) == 3
        services = await sandbox.all(SERVICES)
        assert {name: service["spec"]["ports"][0]["port"] for name, service in services.items()} == {
            name: port["hostPort"] for name, port in ports.items() if name in services
        }
        await sandbox.restart()
        await evict(sandbox, "demo-worker-1")
        await sandbox.until_running(3)
        assert container_ports(await sandbox.pods()) == ports
        release(sandbox, *await sandbox.pods())
        await sandbox.until_condition("Succeeded")


# --- code sync -----------------------------------------------------------------------------------------------------------


def _with_code(kind: type[DLJob]) -> JsonObject:
    """A job with one replica, in KubeDL's spelling for the kind of KubeDL."""
    role = "SCHEDULER" if kind is MXJob else "Master"
    if kind is KubeDLPyTorchJob:
        return manifest(kind, {role: 1}, annotations={"kubedl.io/git-sync-config": CODE})
    return manifest(kind, {role: 1}, codeSync=[CODE], backoffLimit=0)


async def a_job_succeeds_with_its_code(transport: Transport, clock: Clock, kind: type[DLJob]) -> None:
    async with open_sandbox(transport, kind, clock=clock, options=Options(git_sync_image="git-sync:4")) as sandbox:
        sandbox.script.when("*").run().succeed()
        sandbox.start()
        await sandbox.submit(_with_code(kind))
        await _until_finished(sandbox, "Succeeded")
        (pod,) = (pod["spec"] for pod in (await sandbox.pods()).values())
        clone, main = pod["initContainers"][-1], pod["containers"][0]
        assert {mount["name"]: mount["mountPath"] for mount in clone["volumeMounts"] if "git" in mount["name"]} == {
            "git-sync": "/code",
            "git-sync-secret": "/etc/git-secret",
        }
        assert [mount["mountPath"] for mount in main["volumeMounts"] if mount["name"] == "git-sync"] == ["/app/train"]


async def a_job_fails_with_the_message_of_git(transport: Transport, clock: Clock, kind: type[DLJob]) -> None:
    async with open_sandbox(transport, kind, clock=clock, options=Options(git_sync_image="git-sync:4")) as sandbox:
        sandbox.script.when("*").fail_init("git-sync-code", 128, message="fatal: repository not found")
        sandbox.start()
        await sandbox.submit(_with_code(kind))
        await _until_finished(sandbox, "Failed")
        failure = (await sandbox.status())["dlop"]["lastFailure"]
        assert failure["reason"] == "CodeSyncFailed"
        assert failure["message"].endswith("cannot clone git@example.org:team/train.git (branch main): fatal: repository not found")


async def _until_finished(sandbox: Sandbox, phase: str) -> None:
    async def is_finished() -> bool:
        return bool((await sandbox.status()).get("dlop", {}).get("phase") == phase)

    await sandbox.until(is_finished)


# --- bad input -----------------------------------------------------------------------------------------------------------


def _invalid_job(change: Callable[[JsonObject], Any]) -> JsonObject:
    body = manifest(PyTorchJob, {"Master": 1, "Worker": 2})
    change(body["spec"])
    return body


INVALID: dict[str, Callable[[JsonObject], Any]] = {
    "spec.runPolicy.codeSync[0].source": lambda spec: spec["runPolicy"].update(codeSync=[{"branch": "main"}]),
    "spec.runPolicy.codeSync[0].depth": lambda spec: spec["runPolicy"].update(codeSync=[{**CODE, "depth": -1}]),
    "spec.runPolicy.codeSync[0]": lambda spec: spec["runPolicy"].update(codeSync=["train.git"]),
    "spec.runPolicy.hostNetwork": lambda spec: spec["runPolicy"].update(hostNetwork="yes"),
    "spec.pytorchReplicaSpecs.Worker.dependsOn[0].condition": lambda spec: spec["pytorchReplicaSpecs"]["Worker"].update(
        dependsOn=[{"role": "Master", "condition": "Done"}]
    ),
    "spec.pytorchReplicaSpecs.Worker.spotReplicas.replicas": lambda spec: spec["pytorchReplicaSpecs"]["Worker"].update(
        spotReplicas={"replicas": -1}
    ),
}
"""By field, changes that the CRD rejects."""


async def the_crd_rejects_invalid_features(transport: Transport, clock: Clock) -> None:
    async with open_sandbox(transport, PyTorchJob, clock=clock) as sandbox:
        for path, change in INVALID.items():
            with pytest.raises(InvalidError) as error:
                await sandbox.submit(_invalid_job(change))
            assert path in [cause["field"] for cause in error.value.causes]


SCENARIOS: tuple[tuple[Scenario, tuple[type[DLJob], ...]], ...] = (
    (parameter_servers_wait_for_workers_if_the_job_says_so, ()),
    (spot_replicas_fall_back_to_on_demand_pods, ()),
    (every_replica_has_a_port_of_its_node_that_survives_the_operator, ()),
    *(
        (scenario, (kind,))
        for scenario in (a_job_succeeds_with_its_code, a_job_fails_with_the_message_of_git)
        for kind in (PyTorchJob, KubeDLPyTorchJob, MXJob)
    ),
    (the_crd_rejects_invalid_features, ()),
)


def _name(value: Any) -> str:
    return ",".join(kind.job_type.resource.qualified_name for kind in value) if isinstance(value, tuple) else str(value.__name__)


@pytest.mark.parametrize(("scenario", "kinds"), SCENARIOS, ids=_name)
@virtual_time
async def test_on_the_embedded_api_server(scenario: Scenario, kinds: tuple[type[DLJob], ...]) -> None:
    await run_embedded(scenario, *kinds)


async def test_on_the_real_api_server(real_cluster: RealCluster) -> None:
    async with asyncio.TaskGroup() as group:
        for scenario, kinds in SCENARIOS:
            group.create_task(run_real(scenario, real_cluster, *kinds), name=_name(scenario))
