"""A cluster as Kubeflow's operator leaves it: running jobs with their pods, services and statuses, as the recordings show them.

Nothing here bears a sign of dlop. Whoever takes the jobs over finds owner references, labels and a status in the old words.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dlop.api.names import LONGEST
from dlop.frameworks.kubeflow.mpi.job import MPIJob
from dlop.job import DLJob
from dlop.kube.client import Client, PatchType
from dlop.kube.resources import CONFIG_MAPS, PODS, SERVICES, Resource
from dlop.kube.types import JsonObject
from dlop.testing.kubelet import Kubelet
from tests.frameworks.golden_comparison import MOMENT, NAMESPACE
from tests.frameworks.golden_kinds import kind_of
from tests.frameworks.golden_kubelet import Started
from tests.frameworks.golden_player import OBJECTS, Golden, goldens
from tests.frameworks.kubeflow_manifests import KINDS

ALL_KINDS: tuple[type[DLJob], ...] = (*KINDS, MPIJob)
LONG_AGO = "2026-11-01T10:00:00Z"
"""When the old operator did everything."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment of a recording at which all pods of the job run."""

    golden: Golden
    restarts: tuple[int, ...]
    """How containers were restarted before: the last exit code, and how often."""
    status: JsonObject

    def renamed(self, name: str, *, namespace: str) -> Moment:
        """The same moment of a job with another name."""
        golden = Golden(self.golden.name, renamed(self.golden.body, name, namespace))
        return Moment(golden, self.restarts, renamed(self.status, name, namespace))


def moments() -> Iterator[Moment]:
    """The first such moment of each recording that has one. Jobs that are deleted when they are done are left out."""
    kinds = {kind.job_type.kind for kind in ALL_KINDS}
    for golden in map(Golden.read, goldens()):
        if golden.manifest["kind"] in kinds and "ttlSecondsAfterFinished" not in str(golden.manifest):
            yield from itertools.islice(_running(golden), 1)


def _running(golden: Golden) -> Iterator[Moment]:
    made = golden.body.get("objects", {}).get("pods", {})
    # A job that was edited is not what its manifest says.
    for step in itertools.takewhile(lambda step: step["do"][0] != "patch", golden.body["steps"]):
        phases, status = step["then"]["pods"], step["then"]["job"]
        if made.keys() == phases.keys() and set(phases.values()) == {"Running"} and "Running" in _true(status):
            yield Moment(golden, tuple(step["do"][2:]), status)


def _true(status: JsonObject) -> list[str]:
    return [condition["type"] for condition in status["conditions"] if condition["status"] == "True"]


@dataclass(frozen=True, slots=True)
class LeftJob:
    """A job that the old operator has left behind, as it is on the server."""

    name: str
    golden: str
    resource: Resource
    status: JsonObject
    pods: dict[str, str]
    """The uids of its pods by name."""


async def leave(client: Client, kubelet: Kubelet, moment: Moment, *, name: str, namespace: str) -> LeftJob:
    """Put such a job on the server."""
    left = moment.renamed(name, namespace=namespace)
    resource = kind_of(left.golden).job_type.resource
    uid: str = (await client.create(resource, left.golden.manifest, namespace=namespace))["metadata"]["uid"]
    objects = _without_refused(objects_while_running(left.golden))
    made = {each.plural: await make_all(client, each, objects, uid) for each in OBJECTS}
    pods = made[PODS.plural]
    async with asyncio.timeout(60):
        for pod in pods:
            await kubelet.perform(f"{namespace}/{pod}", Started(*left.restarts))
    status = await client.patch(
        resource, name, {"status": left.status}, namespace=namespace, patch_type=PatchType.MERGE, subresource="status"
    )
    return LeftJob(name, left.golden.name, resource, status["status"], pods)


def objects_while_running(golden: Golden) -> JsonObject:
    """The objects of a recording are those from before anything ran. Since then, launchers were told which workers do."""
    objects: JsonObject = golden.body["objects"]
    told = {name: {**body, "data": _telling_all_hosts(body["data"])} for name, body in objects.get(CONFIG_MAPS.plural, {}).items()}
    return {**objects, **({CONFIG_MAPS.plural: told} if told else {})}


def _telling_all_hosts(files: dict[str, str]) -> dict[str, str]:
    hosts = (line.replace(" slots=", ":") for line in files["hostfile"].splitlines())
    return {**files, "discover_hosts.sh": "\n".join(["#!/bin/sh", *(f"echo {host}" for host in hosts)])}


def _without_refused(objects: JsonObject) -> JsonObject:
    """The old operator gave services names that the server does not take, where the job had a long one."""
    services = {name: body for name, body in objects.get(SERVICES.plural, {}).items() if len(name) <= LONGEST}
    return {**objects, SERVICES.plural: services}


async def belongings(client: Client, namespace: str) -> dict[str, JsonObject]:
    """Every object that jobs own, as it is, without the marks by which dlop finds what is neither a pod nor a service."""
    found: dict[str, JsonObject] = {}
    for resource in OBJECTS:
        owned = (body for body in (await client.list(resource, namespace=namespace))["items"] if body["metadata"].get("ownerReferences"))
        found |= {f"{resource.plural}/{body['metadata']['name']}": _without_marks(body, resource) for body in owned}
    return found


def _without_marks(body: JsonObject, resource: Resource) -> JsonObject:
    if resource in (PODS, SERVICES):
        return body
    kept = {name: value for name, value in body["metadata"].items() if name not in ("resourceVersion", "managedFields")}
    for name in ("labels", "annotations"):
        kept[name] = {key: value for key, value in (kept.get(name) or {}).items() if not key.startswith("dlop.dev/")}
    return {**body, "metadata": kept}


async def make_all(client: Client, resource: Resource, objects: JsonObject, owner_uid: str) -> dict[str, str]:
    """Create all objects of a type; their uids by name."""
    return {name: await _make(client, resource, body, owner_uid) for name, body in objects.get(resource.plural, {}).items()}


async def _make(client: Client, resource: Resource, body: JsonObject, owner_uid: str) -> str:
    owners = [{**owner, "uid": owner_uid} for owner in body["metadata"]["ownerReferences"]]
    whole = {"apiVersion": resource.api_version, "kind": resource.kind, **body, "metadata": {**body["metadata"], "ownerReferences": owners}}
    made = await client.create(resource, whole, namespace=body["metadata"]["namespace"])
    uid: str = made["metadata"]["uid"]
    return uid


def renamed(body: JsonObject, name: str, namespace: str) -> JsonObject:
    """Whatever is called after the job or the namespace is called after the new ones."""
    renamed: JsonObject = _in(_with_times(json.loads(json.dumps(body).replace("demo", name))), namespace)
    return renamed


def _with_times(body: Any) -> Any:
    """Conditions with the times that they must have had."""
    if isinstance(body, dict) and {"type", "status", "reason", "message"} <= body.keys():
        return {**body, "lastUpdateTime": LONG_AGO, "lastTransitionTime": LONG_AGO}
    if isinstance(body, dict):
        return {key: _with_times(value) for key, value in body.items()}
    if isinstance(body, list):
        return [_with_times(value) for value in body]
    return LONG_AGO if body == MOMENT else body


def _in(body: Any, namespace: str) -> Any:
    if isinstance(body, dict):
        return {key: _in(value, namespace) for key, value in body.items()}
    if isinstance(body, list):
        return [_in(value, namespace) for value in body]
    return body.replace(NAMESPACE, namespace) if isinstance(body, str) else body
