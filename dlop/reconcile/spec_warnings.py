"""Warnings about valid specs that may not do what the user expects. They are reported once per generation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlop.api.constants import KUEUE_PERMISSIONS, QUEUE_LABEL, Reason, rbac_hint
from dlop.api.gang import Gang, scheduler_mismatches
from dlop.api.schema import format_path
from dlop.api.spec import RoleSpec
from dlop.kube.resources import Resource
from dlop.policies.kueue import has_queue_label

if TYPE_CHECKING:
    from dlop.job import DLJob


_AUTOSCALER_HINT = "an operator for all namespaces runs it with --autoscaler"
_GANG_QUEUES = "a gang scheduler that has queues (volcano, kube-batch)"


@dataclass(frozen=True, slots=True)
class SpecWarning:
    """A warning about one field."""

    reason: str
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def spec_warnings(job: DLJob, *, unreadable_for_queue: Sequence[Resource] | None = None) -> Iterator[SpecWarning]:
    """All warnings about the spec of a job. Without a cluster, it is not known what can be read for a queue of Kueue.

    Raises:
        SpecError: the spec is invalid.
    """
    for warning in job.spec_warnings:
        yield SpecWarning(Reason.SPEC_WARNING, warning.path, warning.message)
    for role in job.spec.roles:
        if job.members is None or role.name not in job.members.roles:
            yield from _restart_policy_warnings(job, role)
        if role.elastic is not None and not job.options.autoscaler:
            message = (
                f"has no effect while the autoscaler is off, so the job keeps {role.replicas} replicas of {role.name}; {_AUTOSCALER_HINT}"
            )
            yield SpecWarning(Reason.AUTOSCALER_OFF, role.elastic.path, message)
    if job.gang is not None:
        yield from _scheduler_warnings(job, job.gang)
        yield from _min_available_warnings(job)
    if job.spec.run_policy.scheduling.queue:
        yield from _queue_warnings(job, unreadable_for_queue)


def _restart_policy_warnings(job: DLJob, role: RoleSpec) -> Iterator[SpecWarning]:
    template_policy = (role.template.get("spec") or {}).get("restartPolicy")
    pod_policy = str(job.lifecycle.pod_restart_policy(job, role, 0))
    if template_policy and template_policy not in (pod_policy, role.restart_policy):
        message = f"{template_policy} has no effect; the restartPolicy of the role sets it to {pod_policy}"
        yield SpecWarning(Reason.SET_RESTART_POLICY, f"{job.schema.template_path(job.spec_field, role.name)}.spec.restartPolicy", message)


def _scheduler_warnings(job: DLJob, gang: Gang) -> Iterator[SpecWarning]:
    for role, scheduler in scheduler_mismatches(gang, (member.role for member in job.gang_members)):
        message = (
            f"these pods are scheduled by {scheduler} and not by the gang scheduler {gang.pod_scheduler}; remove the field to change this"
        )
        yield SpecWarning(Reason.SCHEDULER_MISMATCH, f"{job.schema.template_path(job.spec_field, role)}.spec.schedulerName", message)


def _min_available_warnings(job: DLJob) -> Iterator[SpecWarning]:
    min_available, pods = job.spec.run_policy.scheduling.min_available, sum(member.role.replicas for member in job.gang_members)
    if min_available is not None and min_available > pods > 0:
        message = f"is {min_available}, but the job has only {pods} pods and can never be scheduled; set it to at most {pods}, or remove it"
        path = f"{format_path(job.schema.used_scheduling_path(job.spec_field))}.minAvailable"
        yield SpecWarning(Reason.MIN_AVAILABLE_TOO_HIGH, path, message)


def _queue_warnings(job: DLJob, unreadable: Sequence[Resource] | None) -> Iterator[SpecWarning]:
    if has_queue_label(job) or (job.gang is not None and job.gang.has_queues):
        return
    message = _queue_problem(job, unreadable)
    if message:
        path = f"{format_path(job.schema.used_scheduling_path(job.spec_field))}.queue"
        yield SpecWarning(Reason.QUEUE_IGNORED, path, message)


def _queue_problem(job: DLJob, unreadable: Sequence[Resource] | None) -> str:
    """Why the queue has no effect; empty if the job waits in a queue of Kueue."""
    if job.members is not None:
        return f"has no effect for this kind; for Kueue, set the label {QUEUE_LABEL} in its pod templates"
    if unreadable is None:
        return f"has an effect only with {_GANG_QUEUES}, or with Kueue and the permission set {KUEUE_PERMISSIONS}"
    if not unreadable:
        return ""
    names = ", ".join(resource.qualified_name for resource in unreadable)
    if not any(resource.namespaced for resource in unreadable):
        return f"has no effect: the operator is not allowed to read {names}, which is cluster-scoped; run one for all namespaces"
    hint = rbac_hint(KUEUE_PERMISSIONS, namespace=job.metadata.namespace)
    return (
        f"has no effect without {_GANG_QUEUES} or Kueue; for a queue of Kueue the operator must be able to read {names}: "
        f"install Kueue 0.15 or newer, and {hint}"
    )
