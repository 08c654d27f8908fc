"""Gang scheduling: a scheduler places all pods of a job at once, or none. It is told so by a PodGroup, and by marks on the pods.

    --gang-scheduler-name   the group is one of             pods are marked by    pods and services wait for the group
    volcano                 scheduling.volcano.sh/v1beta1   annotations           until volcano lets it in
    any other               scheduling.x-k8s.io/v1alpha1    a label               not at all

Pure: from what a job asks for to the group that it is to have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from dlop.api.constants import GROUP_ANNOTATION, GROUP_LABEL, TASK_ANNOTATION
from dlop.api.pod_resources import Requests, amounts, requests_of, times, total
from dlop.api.spec import JobSpec, RoleSpec, SchedulingPolicy
from dlop.kube.objects import Pod
from dlop.kube.resources import SCHEDULER_PLUGINS_POD_GROUPS, VOLCANO_POD_GROUPS, Resource
from dlop.kube.types import JsonObject

VOLCANO = "volcano"
POD_GROUPS = (VOLCANO_POD_GROUPS, SCHEDULER_PLUGINS_POD_GROUPS)
DEFAULT_CLASS = ""
"""Under which name the priority is known that a pod has without a class."""

_DEFAULT_QUEUE = "default"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_NOT_LET_IN = ("", "Pending")
_FIELDS = ("minMember", "minResources", "queue", "priorityClassName", "scheduleTimeoutSeconds")
"""Of a group: those that are the job's to say. Whatever else is there is somebody else's."""


@dataclass(frozen=True, slots=True)
class Gang:
    """The pods of one job, as its scheduler sees them."""

    scheduler: str
    name: str
    """Of the group."""

    @property
    def place(self) -> tuple[Resource, str]:
        """Where the group is."""
        return self.resource, self.name

    @property
    def is_of_volcano(self) -> bool:
        """Whether it is volcano that places them."""
        return self.scheduler == VOLCANO

    @property
    def resource(self) -> Resource:
        """What the group is an object of."""
        return group_resource(self.scheduler)

    def is_let_in(self, phase: str) -> bool:
        """Whether pods may be made while their group is in this phase."""
        return not self.is_of_volcano or phase not in _NOT_LET_IN


@dataclass(frozen=True, slots=True)
class GangMember:
    """The pods of one role, as members of a group."""

    role: RoleSpec
    count: int
    """How many there are, or are still to come: what has finished and is gone does not come again."""
    waits: bool = False
    """Whether they come only when others run. Who waited for them to be placed together would wait for ever."""


def group_resource(scheduler: str) -> Resource:
    """What a scheduler of this name calls a group."""
    return VOLCANO_POD_GROUPS if scheduler == VOLCANO else SCHEDULER_PLUGINS_POD_GROUPS


# --- marks on pods -------------------------------------------------------------------------------------------------------


def with_pod_group(pod: JsonObject, gang: Gang, *, role: str) -> JsonObject:
    """The pod as a member of its group. A scheduler that the user has named stays."""
    metadata, spec = pod["metadata"], pod["spec"]
    spec = spec if spec.get("schedulerName") else {**spec, "schedulerName": gang.scheduler}
    if gang.is_of_volcano:
        marks = {GROUP_ANNOTATION: gang.name, TASK_ANNOTATION: role.lower()}
        metadata = {**metadata, "annotations": {**(metadata.get("annotations") or {}), **marks}}
    else:
        metadata = {**metadata, "labels": {**(metadata.get("labels") or {}), GROUP_LABEL: gang.name}}
    return {**pod, "metadata": metadata, "spec": spec}


def group_of(pod: Pod) -> tuple[Resource, str] | None:
    """The group that a pod is marked as a member of, whoever has marked it."""
    metadata = pod.metadata
    if name := metadata.annotations.get(GROUP_ANNOTATION):
        return VOLCANO_POD_GROUPS, name
    name = metadata.labels.get(GROUP_LABEL, "")
    return (SCHEDULER_PLUGINS_POD_GROUPS, name) if name else None


def other_schedulers(gang: Gang, spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Roles whose templates name a scheduler that does not know of the group, with its name."""
    for role in spec.roles:
        named = _pod_spec(role).get("schedulerName")
        if isinstance(named, str) and named not in ("", gang.scheduler):
            yield role.name, named


# --- the group -----------------------------------------------------------------------------------------------------------


def group_spec(
    gang: Gang,
    policy: SchedulingPolicy,
    parts: Sequence[GangMember],
    *,
    queue: str,
    priorities: Mapping[str, int],
    make_pod: Callable[[RoleSpec], JsonObject],
) -> JsonObject:
    """What the group of a job is to say. `queue` is the one that it is in already, which stays; empty: none.

    `priorities` are the values of priority classes by name, `make_pod` gives the pod of a role, complete.
    """
    members = min_members(policy, parts)
    counted = parts if policy.min_available is None else _first(parts, members, priorities)
    needed = (times(requests_of(make_pod(part.role)["spec"]), part.count) for part in counted if part.count)
    found: JsonObject = {"minMember": members, "minResources": policy.min_resources or _written(total(needed))}
    if gang.is_of_volcano:
        found |= {"queue": queue or policy.queue or _DEFAULT_QUEUE, "priorityClassName": policy.priority_class}
    else:
        found |= {"scheduleTimeoutSeconds": policy.schedule_timeout_seconds}
    return {name: value for name, value in found.items() if value}


def min_members(policy: SchedulingPolicy, parts: Sequence[GangMember]) -> int:
    """How many pods have to be placed at once: never more than come at once, or the scheduler would wait for ever."""
    asked = sum(part.role.replicas for part in parts)
    at_once = sum(part.count for part in parts if not part.waits)
    members = at_once if policy.min_available is None else policy.min_available
    return members if at_once == asked else min(members, at_once)


def _first(parts: Sequence[GangMember], members: int, priorities: Mapping[str, int]) -> Iterator[GangMember]:
    """So many pods: those of the most important roles, among equals in the order of the roles."""
    for part in sorted(parts, key=lambda part: -_priority(part.role, priorities)):
        count = 0 if part.waits else min(part.count, members)
        members -= count
        if count:
            yield replace(part, count=count)


def group_metadata(owned: JsonObject, *, annotations: Mapping[str, str]) -> JsonObject:
    """The metadata of the group: the annotations of the job are for the scheduler too."""
    # What kubectl notes of a manifest would be a lie on another object.
    passed_on = {name: value for name, value in annotations.items() if name != _LAST_APPLIED}
    return {**owned, "annotations": passed_on} if passed_on else owned


def group_body(gang: Gang, metadata: JsonObject, spec: JsonObject) -> JsonObject:
    """The group, ready to be created."""
    return {"apiVersion": gang.resource.api_version, "kind": gang.resource.kind, "metadata": metadata, "spec": spec}


def difference(found: JsonObject, wanted: JsonObject) -> JsonObject:
    """What has to be written so that one spec of a group becomes the other: nothing, when they say the same.

    As a merge patch, in which None takes a field away.
    """
    fields = ((name, found.get(name) or None, wanted.get(name)) for name in _FIELDS)
    return {name: _patched(there, asked) for name, there, asked in fields if not _is_same(there, asked)}


def _is_same(there: Any, asked: Any) -> bool:
    """Quantities are compared as numbers: whoever wrote them first may have spelled them in another way."""
    if isinstance(there, dict) and isinstance(asked, dict):
        return _values(there) == _values(asked)
    return bool(there == asked)


def _values(given: JsonObject) -> dict[str, Fraction]:
    return {name: amount.value for name, amount in amounts(given).items()}


def _patched(there: Any, asked: Any) -> Any:
    if not isinstance(there, dict) or not isinstance(asked, dict):
        return asked
    return {**dict.fromkeys(there), **asked}


def _written(requests: Requests) -> JsonObject:
    return {name: str(amount) for name, amount in requests.items()}


def _priority(role: RoleSpec, priorities: Mapping[str, int]) -> int:
    named = _pod_spec(role).get("priorityClassName")
    return priorities.get(named if isinstance(named, str) else DEFAULT_CLASS, 0)


def _pod_spec(role: RoleSpec) -> JsonObject:
    spec = role.template.get("spec")
    return spec if isinstance(spec, dict) else {}
