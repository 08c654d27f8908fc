"""Gang scheduling: the scheduler places all pods of a job together or none, based on a PodGroup and metadata of the pods.

    --gang-scheduler-name   API of the PodGroup             pods reference it by    pods and services are created
    volcano                 scheduling.volcano.sh/v1beta1   annotations             when Volcano admits the group
    any other               scheduling.x-k8s.io/v1alpha1    a label                 at once

Pure functions from the spec of a job to its PodGroup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from dlop.api.constants import GROUP_ANNOTATION, GROUP_LABEL, LAST_APPLIED_ANNOTATION, TASK_ANNOTATION
from dlop.api.pod_resources import Requests, parse_quantities, pod_requests, scale_requests, sum_requests
from dlop.api.spec import JobSpec, RoleSpec, SchedulingPolicy
from dlop.kube.objects import Pod
from dlop.kube.resources import SCHEDULER_PLUGINS_POD_GROUPS, VOLCANO_POD_GROUPS, Resource
from dlop.kube.types import JsonObject

VOLCANO = "volcano"
POD_GROUPS = (VOLCANO_POD_GROUPS, SCHEDULER_PLUGINS_POD_GROUPS)
DEFAULT_PRIORITY_CLASS = ""
"""The key of the priority of pods without a priority class."""

_DEFAULT_QUEUE = "default"
_NOT_ADMITTED = ("", "Pending")
_FIELDS = ("minMember", "minResources", "queue", "priorityClassName", "scheduleTimeoutSeconds")
"""The fields of a PodGroup spec that dlop manages. All others are left to their owners."""


@dataclass(frozen=True, slots=True)
class Gang:
    """The pods of one job as a scheduling unit."""

    scheduler: str
    name: str
    """Name of the PodGroup."""

    @property
    def ref(self) -> tuple[Resource, str]:
        """Resource and name of the PodGroup."""
        return self.resource, self.name

    @property
    def is_volcano(self) -> bool:
        return self.scheduler == VOLCANO

    @property
    def resource(self) -> Resource:
        return pod_group_resource(self.scheduler)

    def is_admitted(self, phase: str) -> bool:
        """Whether pods may be created while the PodGroup is in this phase. Only Volcano admits groups."""
        return not self.is_volcano or phase not in _NOT_ADMITTED


@dataclass(frozen=True, slots=True)
class GangMember:
    """The pods of one role as members of a PodGroup."""

    role: RoleSpec
    count: int
    """Pods that exist or will be created. A finished replica whose pod is deleted does not count."""
    waits: bool = False
    """Whether the pods are created only after other roles run. The group must not wait for them."""


def pod_group_resource(scheduler: str) -> Resource:
    """The PodGroup resource that this scheduler uses."""
    return VOLCANO_POD_GROUPS if scheduler == VOLCANO else SCHEDULER_PLUGINS_POD_GROUPS


# --- pods ----------------------------------------------------------------------------------------------------------------


def with_pod_group(pod: JsonObject, gang: Gang, *, role: str) -> JsonObject:
    """A copy of the pod as a member of its group. A `schedulerName` of the user is kept."""
    metadata, spec = pod["metadata"], pod["spec"]
    spec = spec if spec.get("schedulerName") else {**spec, "schedulerName": gang.scheduler}
    if gang.is_volcano:
        group_annotations = {GROUP_ANNOTATION: gang.name, TASK_ANNOTATION: role.lower()}
        metadata = {**metadata, "annotations": {**(metadata.get("annotations") or {}), **group_annotations}}
    else:
        metadata = {**metadata, "labels": {**(metadata.get("labels") or {}), GROUP_LABEL: gang.name}}
    return {**pod, "metadata": metadata, "spec": spec}


def pod_group_of(pod: Pod) -> tuple[Resource, str] | None:
    """Resource and name of the PodGroup that a pod references; None if it references none."""
    metadata = pod.metadata
    if name := metadata.annotations.get(GROUP_ANNOTATION):
        return VOLCANO_POD_GROUPS, name
    name = metadata.labels.get(GROUP_LABEL, "")
    return (SCHEDULER_PLUGINS_POD_GROUPS, name) if name else None


def scheduler_mismatches(gang: Gang, spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Roles whose templates name another scheduler, with the name of that scheduler."""
    for role in spec.roles:
        scheduler = _pod_spec(role).get("schedulerName")
        if isinstance(scheduler, str) and scheduler not in ("", gang.scheduler):
            yield role.name, scheduler


# --- PodGroups -----------------------------------------------------------------------------------------------------------


def pod_group_spec(
    gang: Gang,
    policy: SchedulingPolicy,
    members: Sequence[GangMember],
    *,
    queue: str,
    priorities: Mapping[str, int],
    make_pod: Callable[[RoleSpec], JsonObject],
) -> JsonObject:
    """The desired spec of the PodGroup.

    `queue` is the queue of the existing group, which is immutable; empty means that there is no group yet. `priorities` are the
    values of priority classes by name. `make_pod` renders the pod of a role.
    """
    count = min_members(policy, members)
    counted = members if policy.min_available is None else _first_members(members, count, priorities)
    requests = (scale_requests(pod_requests(make_pod(member.role)["spec"]), member.count) for member in counted if member.count)
    spec: JsonObject = {"minMember": count, "minResources": policy.min_resources or _format_requests(sum_requests(requests))}
    if gang.is_volcano:
        spec |= {"queue": queue or policy.queue or _DEFAULT_QUEUE, "priorityClassName": policy.priority_class}
    else:
        spec |= {"scheduleTimeoutSeconds": policy.schedule_timeout_seconds}
    return {name: value for name, value in spec.items() if value}


def min_members(policy: SchedulingPolicy, members: Sequence[GangMember]) -> int:
    """`minMember` of the group. It never exceeds the number of pods created at once, or the scheduler would wait indefinitely."""
    desired = sum(member.role.minimum for member in members)
    at_once = sum(member.count for member in members if not member.waits)
    count = at_once if policy.min_available is None else policy.min_available
    return count if at_once == desired else min(count, at_once)


def _first_members(members: Sequence[GangMember], count: int, priorities: Mapping[str, int]) -> Iterator[GangMember]:
    """The `count` pods with the highest priority. Roles with equal priority are taken in the order of the spec."""
    for member in sorted(members, key=lambda member: -_priority(member.role, priorities)):
        pods = 0 if member.waits else min(member.count, count)
        count -= pods
        if pods:
            yield replace(member, count=pods)


def pod_group_metadata(metadata: JsonObject, *, annotations: Mapping[str, str]) -> JsonObject:
    """The metadata of the PodGroup. The job's annotations are passed on, because schedulers may read them."""
    # The last-applied annotation of the job does not describe the PodGroup.
    passed_on = {name: value for name, value in annotations.items() if name != LAST_APPLIED_ANNOTATION}
    return {**metadata, "annotations": passed_on} if passed_on else metadata


def pod_group_body(gang: Gang, metadata: JsonObject, spec: JsonObject) -> JsonObject:
    return {"apiVersion": gang.resource.api_version, "kind": gang.resource.kind, "metadata": metadata, "spec": spec}


def pod_group_patch(current: JsonObject, desired: JsonObject) -> JsonObject:
    """A merge patch from one PodGroup spec to another, for the fields that dlop manages; empty if they are equivalent."""
    fields = ((name, current.get(name) or None, desired.get(name)) for name in _FIELDS)
    return {name: _field_patch(old, new) for name, old, new in fields if not _is_equivalent(old, new)}


def _is_equivalent(old: Any, new: Any) -> bool:
    """Quantities are compared by value, because they may be written differently (1000m and 1)."""
    if isinstance(old, dict) and isinstance(new, dict):
        return _values(old) == _values(new)
    return bool(old == new)


def _values(quantities: JsonObject) -> dict[str, Fraction]:
    return {name: quantity.value for name, quantity in parse_quantities(quantities).items()}


def _field_patch(old: Any, new: Any) -> Any:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return {**dict.fromkeys(old), **new}


def _format_requests(requests: Requests) -> JsonObject:
    return {name: str(quantity) for name, quantity in requests.items()}


def _priority(role: RoleSpec, priorities: Mapping[str, int]) -> int:
    name = _pod_spec(role).get("priorityClassName")
    return priorities.get(name if isinstance(name, str) else DEFAULT_PRIORITY_CLASS, 0)


def _pod_spec(role: RoleSpec) -> JsonObject:
    spec = role.template.get("spec")
    return spec if isinstance(spec, dict) else {}
