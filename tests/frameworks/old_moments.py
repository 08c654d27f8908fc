"""Every moment of a recording at which the old operator could have been stopped, and the cluster as it was then."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from dlop.kube.client import Client, PatchType
from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject
from dlop.testing.kubelet import Kubelet
from dlop.testing.pod_steps import Step
from tests.frameworks.golden_kubelet import Ended, Started
from tests.frameworks.golden_player import OBJECTS, Golden, goldens
from tests.frameworks.old_operator import make_all, objects_while_running, renamed


@dataclass(frozen=True, slots=True)
class Stop:
    """One such moment."""

    golden: Golden
    steps_done: int
    manifest: JsonObject
    """The job, with all edits up to then."""
    view: JsonObject
    lives: dict[str, Step] = field(default_factory=dict)
    """What has happened to the pods that have started, by name."""

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.golden.name}-{self.steps_done}"

    def known(self, plural: str) -> JsonObject:
        """The objects of a type that were recorded whole, at first or in the end, by name."""
        at_first = objects_while_running(self.golden) if self.lives else self.golden.body["objects"]
        first, last = (objects.get(plural, {}) for objects in (at_first, self.golden.body.get("objects_after", {})))
        return {**first, **last} if self.steps_done == len(self.golden.body["steps"]) else {**last, **first}

    @property
    def objects(self) -> JsonObject:
        """What there was, by type and name: of pods and services those that were seen, and all of the others."""
        found = {each.plural: self.known(each.plural) for each in OBJECTS}
        seen = {plural: {name: found[plural][name] for name in self.view[plural]} for plural in ("pods", "services")}
        return found | seen


async def bring_back(stop: Stop, client: Client, kubelet: Kubelet, resource: Resource, *, namespace: str) -> str:
    """Make the cluster what it was; the uid of the job."""
    name = stop.manifest["metadata"]["name"]
    uid: str = (await client.create(resource, stop.manifest, namespace=namespace))["metadata"]["uid"]
    objects = renamed(stop.objects, name, namespace)
    for each in OBJECTS:
        await make_all(client, each, objects, uid)
    for pod, life in stop.lives.items():
        await kubelet.perform(f"{namespace}/{pod}", life)
    if status := stop.view["job"]:
        body = {"status": renamed(status, name, namespace)}
        await client.patch(resource, name, body, namespace=namespace, patch_type=PatchType.MERGE, subresource="status")
    return uid


def stops() -> Iterator[Stop]:
    """Of all recordings. Left out are those whose pods were not recorded whole: they were made in the middle, and deleted again."""
    for golden in map(Golden.read, goldens()):
        yield from (stop for stop in _stops(golden) if set(stop.view["pods"]) <= set(stop.known("pods")))


def _stops(golden: Golden) -> Iterator[Stop]:
    """From when the job was created until the last step, or until it is gone."""
    if golden.body["create"]["http"] != 201:
        return
    now = Stop(golden, 0, golden.manifest, golden.body["settled"])
    yield now
    for number, step in enumerate(golden.body["steps"], 1):
        if step["then"]["job"] is None:
            return
        now = Stop(golden, number, _edited(now.manifest, step), step["then"], _lived(now.lives, step))
        yield now


def _edited(manifest: JsonObject, step: JsonObject) -> JsonObject:
    deed, what, *_ = step["do"]
    return _merged(copy.deepcopy(manifest), what) if deed == "patch" and step.get("http", 200) == 200 else manifest


def _merged(old: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    found = {**(old if isinstance(old, dict) else {})}
    for name, value in patch.items():
        found[name] = _merged(found.get(name), value)
    return {name: value for name, value in found.items() if value is not None}


def _lived(lives: dict[str, Step], step: JsonObject) -> dict[str, Step]:
    """A pod that waits is a new one, whatever has happened to the one before it."""
    deed, what, *more = step["do"]
    happened: dict[str, Step] = {"run": Started(*more), "succeed": Ended(0), "fail": Ended(*more[:1] or (1,))}
    now = {name: happened[deed] for name in step["then"]["pods"] if deed in happened and _matches(name, what)}
    return {name: (lives | now)[name] for name, phase in step["then"]["pods"].items() if phase != "Pending" and name in lives | now}


def _matches(name: str, patterns: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns.split(","))
