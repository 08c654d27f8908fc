"""Warnings about valid specs that may not do what the user expects. They are reported once per generation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlop.api.constants import QUEUE_LABEL, Reason
from dlop.api.gang import Gang, scheduler_mismatches
from dlop.api.schema import format_path
from dlop.api.spec import RoleSpec
from dlop.kube.types import JsonObject

if TYPE_CHECKING:
    from dlop.job import DLJob


_AUTOSCALER_HINT = "an operator for all namespaces runs it with --autoscaler"
_QUEUE_HINT = f"for Kueue, set the label {QUEUE_LABEL} of the job if Kueue manages jobs of this kind, or else in its pod templates"


@dataclass(frozen=True, slots=True)
class SpecWarning:
    """A warning about one field."""

    reason: str
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def spec_warnings(job: DLJob) -> Iterator[SpecWarning]:
    """All warnings about the spec of a job.

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
        yield from _queue_warnings(job)


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


def _queue_warnings(job: DLJob) -> Iterator[SpecWarning]:
    """The operator does not change the labels of jobs and pods that make Kueue manage them: that is the user's decision."""
    has_label = QUEUE_LABEL in job.metadata.labels or any(QUEUE_LABEL in _template_labels(role) for role in job.spec.roles)
    if not has_label and (job.gang is None or not job.gang.has_queues):
        path = f"{format_path(job.schema.used_scheduling_path(job.spec_field))}.queue"
        message = f"has no effect without a gang scheduler that has queues (volcano, kube-batch); {_QUEUE_HINT}"
        yield SpecWarning(Reason.QUEUE_IGNORED, path, message)


def _template_labels(role: RoleSpec) -> JsonObject:
    labels = (role.template.get("metadata") or {}).get("labels")
    return labels if isinstance(labels, dict) else {}
