"""Gang scheduling: the scheduler places all pods of a job together or none, based on a PodGroup and metadata of the pods.

    --gang-scheduler-name           API of the PodGroup                    pods reference it by   pods and services are created
    volcano                         scheduling.volcano.sh/v1beta1          annotations            when Volcano admits the group
    kube-batch                      scheduling.incubator.k8s.io/v1alpha1   an annotation          at once
    kube-coscheduler, coscheduler   scheduling.sigs.k8s.io/v1alpha1        labels                 at once
    any other                       scheduling.x-k8s.io/v1alpha1           a label                at once

kube-batch and kube-coscheduler are KubeDL's names. kube-coscheduler is a default scheduler with an early version of the coscheduling
plugin, so its pods name the default scheduler. For the others, the flag is also the `schedulerName` of the pods.

Pure functions from the spec of a job to its PodGroup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from dlop.api.constants import (
    COSCHEDULER_LABEL,
    COSCHEDULER_NAME_LABEL,
    COSCHEDULER_SIZE_LABEL,
    GROUP_ANNOTATION,
    GROUP_LABEL,
    LAST_APPLIED_ANNOTATION,
    TASK_ANNOTATION,
)
from dlop.api.pod_resources import Requests, parse_quantities, pod_requests, scale_requests, sum_requests
from dlop.api.pod_template import pod_spec
from dlop.api.spec import RoleSpec, SchedulingPolicy
from dlop.kube.objects import Pod
from dlop.kube.resources import (
    COSCHEDULER_POD_GROUPS,
    KUBE_BATCH_POD_GROUPS,
    SCHEDULER_PLUGINS_POD_GROUPS,
    VOLCANO_POD_GROUPS,
    Resource,
)
from dlop.kube.types import JsonObject

VOLCANO = "volcano"
KUBE_BATCH = "kube-batch"
DEFAULT_SCHEDULER = "default-scheduler"
DEFAULT_PRIORITY_CLASS = ""
"""The key of the priority of pods without a priority class."""

_NOT_ADMITTED = ("", "Pending")
_FIELDS = ("minMember", "minResources", "queue", "priorityClassName", "scheduleTimeoutSeconds")
"""The fields of a PodGroup spec that dlop manages. All others are left to their owners."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangApi:
    """How a scheduler represents groups of pods."""

    resource: Resource
    """The PodGroups."""
    fields: frozenset[str]
    """The fields of their specs besides `minMember`."""
    group_labels: tuple[str, ...] = ()
    """Labels of pods with the name of their group."""
    size_label: str = ""
    """Label of pods with the `minMember` of their group."""
    group_annotation: str = ""
    """Annotation of pods with the name of their group."""
    role_annotation: str = ""
    """Annotation of pods with their role."""
    pod_scheduler: str = ""
    """The `schedulerName` of pods; empty if it is the value of the flag."""
    default_queue: str = ""
    admits_groups: bool = False
    """Whether pods are created only when the scheduler has admitted their group."""


_QUEUES = frozenset({"queue", "priorityClassName"})
_TIMEOUTS = frozenset({"minResources", "scheduleTimeoutSeconds"})
_VOLCANO_API = GangApi(
    resource=VOLCANO_POD_GROUPS,
    fields=_QUEUES | {"minResources"},
    group_annotation=GROUP_ANNOTATION,
    role_annotation=TASK_ANNOTATION,
    default_queue="default",
    admits_groups=True,
)
_KUBE_BATCH_API = GangApi(resource=KUBE_BATCH_POD_GROUPS, fields=_QUEUES, group_annotation=GROUP_ANNOTATION)
_COSCHEDULER_API = GangApi(
    resource=COSCHEDULER_POD_GROUPS,
    fields=_TIMEOUTS,
    group_labels=(COSCHEDULER_LABEL, COSCHEDULER_NAME_LABEL),
    size_label=COSCHEDULER_SIZE_LABEL,
    pod_scheduler=DEFAULT_SCHEDULER,
)
_SCHEDULER_PLUGINS_API = GangApi(resource=SCHEDULER_PLUGINS_POD_GROUPS, fields=_TIMEOUTS, group_labels=(GROUP_LABEL,))
_APIS = {VOLCANO: _VOLCANO_API, KUBE_BATCH: _KUBE_BATCH_API, "kube-coscheduler": _COSCHEDULER_API, "coscheduler": _COSCHEDULER_API}
POD_GROUPS = tuple(dict.fromkeys(api.resource for api in (*_APIS.values(), _SCHEDULER_PLUGINS_API)))


@dataclass(frozen=True, slots=True)
class Gang:
    """The pods of one job as a scheduling unit."""

    scheduler: str
    """The value of `--gang-scheduler-name`."""
    name: str
    """Name of the PodGroup."""

    @property
    def ref(self) -> tuple[Resource, str]:
        """Resource and name of the PodGroup."""
        return self.resource, self.name

    @property
    def api(self) -> GangApi:
        return gang_api(self.scheduler)

    @property
    def resource(self) -> Resource:
        return self.api.resource

    @property
    def has_queues(self) -> bool:
        """Whether the PodGroup has a queue."""
        return "queue" in self.api.fields

    @property
    def pod_scheduler(self) -> str:
        """The `schedulerName` of the pods."""
        return self.api.pod_scheduler or self.scheduler

    def is_admitted(self, phase: str) -> bool:
        """Whether pods may be created while the PodGroup is in this phase."""
        return not self.api.admits_groups or phase not in _NOT_ADMITTED


@dataclass(frozen=True, slots=True)
class GangMember:
    """The pods of one role as members of a PodGroup."""

    role: RoleSpec
    count: int
    """Pods that exist or will be created. A finished replica whose pod is deleted does not count."""
    spot: int = 0
    """How many of these are spot pods."""
    waits: bool = False
    """Whether the pods are created only after other roles run. The group must not wait for them."""


def gang_api(scheduler: str) -> GangApi:
    """The API of the scheduler with this name."""
    return _APIS.get(scheduler, _SCHEDULER_PLUGINS_API)


# --- pods ----------------------------------------------------------------------------------------------------------------


def with_pod_group(pod: JsonObject, gang: Gang, *, role: str, min_member: int) -> JsonObject:
    """A copy of the pod as a member of its group. A `schedulerName` of the user is kept.

    `min_member` is the `minMember` of the group before any pod exists. Some schedulers read it from the pods.
    """
    api, metadata, spec = gang.api, pod["metadata"], pod["spec"]
    spec = spec if spec.get("schedulerName") else {**spec, "schedulerName": gang.pod_scheduler}
    annotations = {api.group_annotation: gang.name, api.role_annotation: role.lower()}
    labels = dict.fromkeys(api.group_labels, gang.name) | ({api.size_label: str(min_member)} if api.size_label else {})
    metadata = _with_entries(metadata, "annotations", {name: value for name, value in annotations.items() if name})
    return {**pod, "metadata": _with_entries(metadata, "labels", labels), "spec": spec}


def with_default_scheduler(pod: JsonObject) -> JsonObject:
    """A copy of the pod for the default scheduler, whatever the template names."""
    return {**pod, "spec": {**pod["spec"], "schedulerName": DEFAULT_SCHEDULER}}


def _with_entries(metadata: JsonObject, field: str, entries: JsonObject) -> JsonObject:
    return {**metadata, field: {**(metadata.get(field) or {}), **entries}} if entries else metadata


def pod_group_of(pod: Pod) -> tuple[Resource, str] | None:
    """Resource and name of the PodGroup that a pod references; None if it references none."""
    metadata = pod.metadata
    if name := metadata.annotations.get(GROUP_ANNOTATION):
        return (KUBE_BATCH_POD_GROUPS if pod.spec.scheduler_name == KUBE_BATCH else VOLCANO_POD_GROUPS), name
    for api in (_SCHEDULER_PLUGINS_API, _COSCHEDULER_API):
        if name := metadata.labels.get(api.group_labels[0]):
            return api.resource, name
    return None


def scheduler_mismatches(gang: Gang, roles: Iterable[RoleSpec]) -> Iterator[tuple[str, str]]:
    """Roles whose templates name another scheduler, with the name of that scheduler."""
    for role in roles:
        scheduler = pod_spec(role.template).get("schedulerName")
        if isinstance(scheduler, str) and scheduler not in ("", gang.pod_scheduler):
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
    api, count = gang.api, min_members(policy, members)
    counted = members if policy.min_available is None else _first_members(members, count, priorities)
    requests = (scale_requests(pod_requests(make_pod(member.role)["spec"]), member.count) for member in counted if member.count)
    values: JsonObject = {
        "minResources": (policy.min_resources or _format_requests(sum_requests(requests))) if "minResources" in api.fields else None,
        "queue": queue or policy.queue or api.default_queue,
        "priorityClassName": policy.priority_class,
        "scheduleTimeoutSeconds": policy.schedule_timeout_seconds,
    }
    spec = {"minMember": count} | {name: value for name, value in values.items() if name in api.fields}
    return {name: value for name, value in spec.items() if value}


def min_members(policy: SchedulingPolicy, members: Sequence[GangMember]) -> int:
    """`minMember` of the group. It never exceeds the number of pods created at once, or the scheduler would wait indefinitely."""
    desired = sum(member.role.minimum for member in members)
    at_once = sum(member.count for member in members if not member.waits)
    count = at_once if policy.min_available is None else policy.min_available
    return count if at_once == desired else min(count, at_once)


def _first_members(members: Sequence[GangMember], count: int, priorities: Mapping[str, int]) -> Iterator[GangMember]:
    """The `count` pods with the highest priority. Roles with equal priority are taken in the order of the spec."""
    parts = [part for member in members for part in _with_priorities(member, priorities)]
    for _, member in sorted(parts, key=lambda part: -part[0]):
        pods = 0 if member.waits else min(member.count, count)
        count -= pods
        if pods:
            yield replace(member, count=pods)


def _with_priorities(member: GangMember, priorities: Mapping[str, int]) -> Iterator[tuple[int, GangMember]]:
    """The priority of the pods, and that of the spot pods apart if they have a priority class of their own."""
    spot = member.role.spot
    spot_pods = member.spot if spot is not None and spot.priority_class else 0
    yield _priority(member.role, priorities), replace(member, count=member.count - spot_pods)
    if spot is not None and spot_pods:
        yield priorities.get(spot.priority_class, 0), replace(member, count=spot_pods)


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
    name = pod_spec(role.template).get("priorityClassName")
    return priorities.get(name if isinstance(name, str) else DEFAULT_PRIORITY_CLASS, 0)
