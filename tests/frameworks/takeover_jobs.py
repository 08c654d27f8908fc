"""Running jobs with pods, services and statuses as Kubeflow's operator leaves them, restored from the recordings.

The objects carry no trace of dlop, only owner references, labels and the status that Kubeflow's operator wrote.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dlop.api.names import MAX_LABEL_LENGTH
from dlop.frameworks.kubeflow.mpi.job import MPIJob
from dlop.job import DLJob
from dlop.kube.client import Client, PatchType
from dlop.kube.resources import CONFIG_MAPS, PODS, SERVICES, Resource
from dlop.kube.types import JsonObject
from dlop.testing.kubelet import ScriptedKubelet
from tests.frameworks.golden_diff import NAMESPACE_PLACEHOLDER, TIME_PLACEHOLDER
from tests.frameworks.golden_pod_steps import RunPod
from tests.frameworks.golden_recordings import OBJECTS, Golden, framework_of, golden_names
from tests.frameworks.kubeflow_manifests import KINDS

ALL_KINDS: tuple[type[DLJob], ...] = (*KINDS, MPIJob)
RECORDED_AT = "2026-11-01T10:00:00Z"
"""Time of all actions of Kubeflow's operator."""


@dataclass(frozen=True, slots=True)
class RunningState:
    """A point of a recording at which all pods of the job run."""

    golden: Golden
    restarts: tuple[int, ...]
    """Restarts of containers before: the last exit code and the count."""
    status: JsonObject

    def with_name(self, name: str, *, namespace: str) -> RunningState:
        golden = Golden(self.golden.name, rename_job(self.golden.body, name, namespace))
        return RunningState(golden, self.restarts, rename_job(self.status, name, namespace))


def running_states() -> Iterator[RunningState]:
    """The first running state of each recording that has one, without jobs that are deleted when they finish."""
    kinds = {kind.job_type.kind for kind in ALL_KINDS}
    for golden in map(Golden.read, golden_names()):
        if golden.manifest["kind"] in kinds and "ttlSecondsAfterFinished" not in str(golden.manifest):
            yield from itertools.islice(_running_states(golden), 1)


def _running_states(golden: Golden) -> Iterator[RunningState]:
    recorded_pods = golden.body.get("objects", {}).get("pods", {})
    # After a patch, the job differs from the recorded manifest.
    for step in itertools.takewhile(lambda step: step["do"][0] != "patch", golden.body["steps"]):
        phases, status = step["then"]["pods"], step["then"]["job"]
        if recorded_pods.keys() == phases.keys() and set(phases.values()) == {"Running"} and "Running" in _true_conditions(status):
            yield RunningState(golden, tuple(step["do"][2:]), status)


def _true_conditions(status: JsonObject) -> list[str]:
    return [condition["type"] for condition in status["conditions"] if condition["status"] == "True"]


@dataclass(frozen=True, slots=True)
class InheritedJob:
    """A job on the server that Kubeflow's operator has run so far."""

    name: str
    golden: str
    resource: Resource
    status: JsonObject
    pods: dict[str, str]
    """The uids of its pods by name."""


async def create_inherited_job(client: Client, kubelet: ScriptedKubelet, state: RunningState, *, name: str, namespace: str) -> InheritedJob:
    """Create a job on the server with all its objects and its status."""
    state = state.with_name(name, namespace=namespace)
    resource = framework_of(state.golden).job_type.resource
    uid: str = (await client.create(resource, state.golden.manifest, namespace=namespace))["metadata"]["uid"]
    objects = _without_invalid_services(objects_while_running(state.golden))
    uids = {resource_type.plural: await create_all(client, resource_type, objects, uid) for resource_type in OBJECTS}
    pods = uids[PODS.plural]
    async with asyncio.timeout(60):
        for pod in pods:
            await kubelet.perform(f"{namespace}/{pod}", RunPod(*state.restarts))
    status = await client.patch(
        resource, name, {"status": state.status}, namespace=namespace, patch_type=PatchType.MERGE, subresource="status"
    )
    return InheritedJob(name, state.golden.name, resource, status["status"], pods)


def objects_while_running(golden: Golden) -> JsonObject:
    """The recorded objects with the config maps of launchers updated. They were recorded before any worker ran."""
    objects: JsonObject = golden.body["objects"]
    config_maps = {name: {**body, "data": _with_all_hosts(body["data"])} for name, body in objects.get(CONFIG_MAPS.plural, {}).items()}
    return {**objects, **({CONFIG_MAPS.plural: config_maps} if config_maps else {})}


def _with_all_hosts(files: dict[str, str]) -> dict[str, str]:
    hosts = (line.replace(" slots=", ":") for line in files["hostfile"].splitlines())
    return {**files, "discover_hosts.sh": "\n".join(["#!/bin/sh", *(f"echo {host}" for host in hosts)])}


def _without_invalid_services(objects: JsonObject) -> JsonObject:
    """Kubeflow's operator gives services of long jobs names that the server rejects."""
    services = {name: body for name, body in objects.get(SERVICES.plural, {}).items() if len(name) <= MAX_LABEL_LENGTH}
    return {**objects, SERVICES.plural: services}


async def owned_objects(client: Client, namespace: str) -> dict[str, JsonObject]:
    """All objects with an owner, without the labels and annotations that dlop adds to objects other than pods and services."""
    objects: dict[str, JsonObject] = {}
    for resource in OBJECTS:
        owned = (body for body in (await client.list(resource, namespace=namespace))["items"] if body["metadata"].get("ownerReferences"))
        objects |= {f"{resource.plural}/{body['metadata']['name']}": _without_own_metadata(body, resource) for body in owned}
    return objects


def _without_own_metadata(body: JsonObject, resource: Resource) -> JsonObject:
    if resource in (PODS, SERVICES):
        return body
    metadata = {name: value for name, value in body["metadata"].items() if name not in ("resourceVersion", "managedFields")}
    for name in ("labels", "annotations"):
        metadata[name] = {key: value for key, value in (metadata.get(name) or {}).items() if not key.startswith("dlop.dev/")}
    return {**body, "metadata": metadata}


async def create_all(client: Client, resource: Resource, objects: JsonObject, owner_uid: str) -> dict[str, str]:
    """Create all objects of a type. Returns their uids by name."""
    return {name: await _create(client, resource, body, owner_uid) for name, body in objects.get(resource.plural, {}).items()}


async def _create(client: Client, resource: Resource, body: JsonObject, owner_uid: str) -> str:
    owners = [{**owner, "uid": owner_uid} for owner in body["metadata"]["ownerReferences"]]
    manifest = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        **body,
        "metadata": {**body["metadata"], "ownerReferences": owners},
    }
    created = await client.create(resource, manifest, namespace=body["metadata"]["namespace"])
    uid: str = created["metadata"]["uid"]
    return uid


def rename_job(body: JsonObject, name: str, namespace: str) -> JsonObject:
    """Replaces the recorded job name and the placeholders for namespace and time."""
    renamed: JsonObject = _with_namespace(_with_times(json.loads(json.dumps(body).replace("demo", name))), namespace)
    return renamed


def _with_times(body: Any) -> Any:
    """Adds the times that recorded conditions lack."""
    if isinstance(body, dict) and {"type", "status", "reason", "message"} <= body.keys():
        return {**body, "lastUpdateTime": RECORDED_AT, "lastTransitionTime": RECORDED_AT}
    if isinstance(body, dict):
        return {key: _with_times(value) for key, value in body.items()}
    if isinstance(body, list):
        return [_with_times(value) for value in body]
    return RECORDED_AT if body == TIME_PLACEHOLDER else body


def _with_namespace(body: Any, namespace: str) -> Any:
    if isinstance(body, dict):
        return {key: _with_namespace(value, namespace) for key, value in body.items()}
    if isinstance(body, list):
        return [_with_namespace(value, namespace) for value in body]
    return body.replace(NAMESPACE_PLACEHOLDER, namespace) if isinstance(body, str) else body
