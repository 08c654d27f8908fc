"""Points of the recordings at which Kubeflow's operator could have been stopped, and the state of the cluster at that point."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from dlop.kube.client import Client, PatchType
from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject
from dlop.testing.kubelet import ScriptedKubelet
from dlop.testing.pod_steps import Step
from tests.frameworks.golden_pod_steps import FinishPod, RunPod
from tests.frameworks.golden_recordings import OBJECTS, Golden, golden_names
from tests.frameworks.takeover_jobs import create_all, objects_while_running, rename_job


@dataclass(frozen=True, slots=True)
class StopPoint:
    """The state of the cluster after `steps_done` steps of a recording."""

    golden: Golden
    steps_done: int
    manifest: JsonObject
    """The job with all patches so far."""
    view: JsonObject
    pod_steps: dict[str, Step] = field(default_factory=dict)
    """The last step of each started pod, by name."""

    @property
    def title(self) -> str:
        return f"{self.golden.name}-{self.steps_done}"

    def recorded_objects(self, plural: str) -> JsonObject:
        """Objects of a type whose bodies were recorded initially or at the end, by name."""
        initial = objects_while_running(self.golden) if self.pod_steps else self.golden.body["objects"]
        first, last = (objects.get(plural, {}) for objects in (initial, self.golden.body.get("objects_after", {})))
        return {**first, **last} if self.steps_done == len(self.golden.body["steps"]) else {**last, **first}

    @property
    def objects(self) -> JsonObject:
        """Existing objects by type and name. Only for pods and services does the recording list the names at this point."""
        objects = {resource.plural: self.recorded_objects(resource.plural) for resource in OBJECTS}
        existing = {plural: {name: objects[plural][name] for name in self.view[plural]} for plural in ("pods", "services")}
        return objects | existing


async def restore(point: StopPoint, client: Client, kubelet: ScriptedKubelet, resource: Resource, *, namespace: str) -> str:
    """Restore the state of the cluster. Returns the uid of the job."""
    name = point.manifest["metadata"]["name"]
    uid: str = (await client.create(resource, point.manifest, namespace=namespace))["metadata"]["uid"]
    objects = rename_job(point.objects, name, namespace)
    for resource_type in OBJECTS:
        await create_all(client, resource_type, objects, uid)
    for pod, step in point.pod_steps.items():
        await kubelet.perform(f"{namespace}/{pod}", step)
    if status := point.view["job"]:
        body = {"status": rename_job(status, name, namespace)}
        await client.patch(resource, name, body, namespace=namespace, patch_type=PatchType.MERGE, subresource="status")
    return uid


def stop_points() -> Iterator[StopPoint]:
    """Points of all recordings, without those at which a pod existed whose body was not recorded."""
    for golden in map(Golden.read, golden_names()):
        yield from (point for point in _stop_points(golden) if set(point.view["pods"]) <= set(point.recorded_objects("pods")))


def _stop_points(golden: Golden) -> Iterator[StopPoint]:
    """From the creation of the job to the last step, or to the deletion of the job."""
    if golden.body["create"]["http"] != 201:
        return
    point = StopPoint(golden, 0, golden.manifest, golden.body["settled"])
    yield point
    for number, step in enumerate(golden.body["steps"], 1):
        if step["then"]["job"] is None:
            return
        point = StopPoint(golden, number, _patch_manifest(point.manifest, step), step["then"], _advance(point.pod_steps, step))
        yield point


def _patch_manifest(manifest: JsonObject, step: JsonObject) -> JsonObject:
    action, target, *_ = step["do"]
    return _merge(copy.deepcopy(manifest), target) if action == "patch" and step.get("http", 200) == 200 else manifest


def _merge(old: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = {**(old if isinstance(old, dict) else {})}
    for name, value in patch.items():
        merged[name] = _merge(merged.get(name), value)
    return {name: value for name, value in merged.items() if value is not None}


def _advance(pod_steps: dict[str, Step], step: JsonObject) -> dict[str, Step]:
    """The last step of each pod after this step of the recording. A pending pod is new and has none."""
    action, target, *more = step["do"]
    by_action: dict[str, Step] = {"run": RunPod(*more), "succeed": FinishPod(0), "fail": FinishPod(*more[:1] or (1,))}
    changed = {name: by_action[action] for name in step["then"]["pods"] if action in by_action and _matches(name, target)}
    latest = pod_steps | changed
    return {name: latest[name] for name, phase in step["then"]["pods"].items() if phase != "Pending" and name in latest}


def _matches(name: str, patterns: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns.split(","))
