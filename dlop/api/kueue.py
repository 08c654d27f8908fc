"""The Workload of a job: what Kueue has decided, and what the operator answers in its status.

    condition of the Workload    who sets it    the operator
    Admitted                     Kueue          creates the pods where the ResourceFlavors are
    PodsReady                    the operator   sets it when the job runs
    Evicted                      Kueue          deletes the pods, and then returns the quota: QuotaReserved=False, Requeued
    Finished                     the operator   sets it when the job has finished, which returns the quota

Pure functions on Workloads and pod templates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dlop.api.pod_template import extend_template
from dlop.kube.objects import PodSetUpdate, ResourceFlavor, Workload
from dlop.kube.timestamps import format_time
from dlop.kube.types import JsonObject

POD_SET_LABEL = "kueue.x-k8s.io/podset"
"""On pods: their pod set in the Workload."""
_MAX_MESSAGE_LENGTH = 1_024
_REQUEUED_AT_ONCE = ("Preempted", "NodeFailures")
"""Reasons of evictions after which Kueue may admit the Workload again at once. After others it decides itself when."""


def true_condition(workload: Workload, type: str) -> JsonObject:
    """A condition of the Workload if it is true; otherwise empty."""
    return next((each for each in workload.status.conditions if each.get("type") == type and each.get("status") == "True"), {})


def is_admitted(workload: Workload) -> bool:
    """Whether the job may run."""
    return bool(true_condition(workload, "Admitted")) and not true_condition(workload, "Evicted") and not is_finished(workload)


def is_finished(workload: Workload) -> bool:
    """Whether the Workload needs no more quota."""
    return bool(true_condition(workload, "Finished"))


def holds_quota(workload: Workload) -> bool:
    """Whether quota is reserved for the Workload."""
    return bool(true_condition(workload, "QuotaReserved")) or workload.status.admission is not None


def decision(workload: Workload) -> tuple[Any, ...]:
    """What Kueue has decided. The rest of the status changes more often, and has no consequences for the job."""
    conditions = [(true_condition(workload, type).get("reason")) for type in ("Admitted", "Evicted", "Finished", "QuotaReserved")]
    return (*conditions, workload.status.admission, workload.status.admission_checks)


def pod_set_name(role: str) -> str:
    """The name of the pod set of a role."""
    return role.lower()


# --- what the operator writes into the status of a Workload ----------------------------------------------------------------


def released_status(workload: Workload, *, now: float) -> JsonObject:
    """The status that returns the quota of a Workload. If it was evicted, it waits in its queue again."""
    evicted = true_condition(workload, "Evicted")
    reason, message = str(evicted.get("reason") or ""), str(evicted.get("message") or "")
    changes = [
        _condition("QuotaReserved", "Pending", message, is_true=False),
        _condition("Admitted", "NoReservation", "The workload has no reservation", is_true=False),
    ]
    if evicted:
        changes.append(_condition("Requeued", reason, message, is_true=reason in _REQUEUED_AT_ONCE))
    if any(each.get("type") == "PodsReady" for each in workload.status.conditions):
        # With another reason, Kueue would count the time of the next start from the loss of a pod.
        changes.append(_condition("PodsReady", "WaitForStart", "The job waits in its queue", is_true=False))
    return {"admission": None, "conditions": _with_conditions(workload, *changes, now=now)}


def ready_status(workload: Workload, *, is_running: bool, now: float) -> JsonObject | None:
    """The status that says whether the pods of the job run; None if it says so already, or if they have not run yet."""
    if is_running == bool(true_condition(workload, "PodsReady")):
        return None
    if is_running:
        change = _condition("PodsReady", "Started", "The job runs", is_true=True)
    else:
        change = _condition("PodsReady", "WaitForRecovery", "The job waits for pods that replace lost ones", is_true=False)
    return {"conditions": _with_conditions(workload, change, now=now)}


def finished_status(workload: Workload, *, succeeded: bool, message: str, now: float) -> JsonObject | None:
    """The status that returns the quota of a finished job; None if it has been written."""
    if is_finished(workload):
        return None
    change = _condition("Finished", "Succeeded" if succeeded else "Failed", message, is_true=True)
    return {"conditions": _with_conditions(workload, change, now=now)}


def _condition(type: str, reason: str, message: str, *, is_true: bool) -> JsonObject:
    return {"type": type, "status": "True" if is_true else "False", "reason": reason, "message": message[:_MAX_MESSAGE_LENGTH]}


def _with_conditions(workload: Workload, *changes: JsonObject, now: float) -> list[JsonObject]:
    """All conditions, because a merge patch replaces the list."""
    old = {each.get("type"): each for each in workload.status.conditions}
    new = {change["type"]: _with_times(change, old.get(change["type"]), workload, now=now) for change in changes}
    return [*({**old, **new}.values())]


def _with_times(change: JsonObject, old: JsonObject | None, workload: Workload, *, now: float) -> JsonObject:
    is_same = old is not None and old.get("status") == change["status"]
    since = old.get("lastTransitionTime") if old is not None and is_same else None
    return {**change, "lastTransitionTime": since or format_time(now), "observedGeneration": workload.metadata.generation}


# --- pods ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where the pods of a role run, and what Kueue adds to them."""

    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: tuple[JsonObject, ...] = ()


def flavors_of(workload: Workload) -> frozenset[str]:
    """The names of the ResourceFlavors to which the Workload is assigned."""
    admission = workload.status.admission
    assignments = () if admission is None else admission.pod_set_assignments
    return frozenset(flavor for assignment in assignments for flavor in assignment.flavors.values())


def placements(workload: Workload, flavors: Mapping[str, ResourceFlavor]) -> dict[str, Placement] | None:
    """The placements by pod set; None if one of the ResourceFlavors is not known."""
    admission = workload.status.admission
    if admission is None or not flavors_of(workload) <= flavors.keys():
        return None
    return {
        assignment.name: _placement(
            assignment.name, [flavors[name] for name in dict.fromkeys(assignment.flavors.values())], _updates(workload, assignment.name)
        )
        for assignment in admission.pod_set_assignments
    }


def _updates(workload: Workload, pod_set: str) -> list[PodSetUpdate]:
    return [update for check in workload.status.admission_checks for update in check.pod_set_updates if update.name == pod_set]


def _placement(pod_set: str, flavors: list[ResourceFlavor], updates: list[PodSetUpdate]) -> Placement:
    placement = Placement(labels={POD_SET_LABEL: pod_set})
    for flavor in flavors:
        placement = Placement(
            labels=placement.labels,
            node_selector={**placement.node_selector, **flavor.spec.node_labels},
            tolerations=(*placement.tolerations, *flavor.spec.tolerations),
        )
    for update in updates:
        placement = Placement(
            labels={**placement.labels, **update.labels},
            annotations={**placement.annotations, **update.annotations},
            node_selector={**placement.node_selector, **update.node_selector},
            tolerations=(*placement.tolerations, *update.tolerations),
        )
    return placement


def with_placement(template: JsonObject, placement: Placement) -> JsonObject:
    """A copy of a pod template for pods that Kueue has admitted."""
    return extend_template(
        template,
        labels=placement.labels,
        annotations=placement.annotations,
        node_selector=placement.node_selector,
        tolerations=placement.tolerations,
    )
