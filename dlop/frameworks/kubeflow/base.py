"""Policies that the kinds of kubeflow.org/v1 have in common. `schema.py` has the schema.

Labels, conditions, reasons, messages and `replicaStatuses` are those of Kubeflow's training operator, because its Python client, Kueue
and Katib depend on them.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

from dlop import (
    ContainerProperties,
    DLJob,
    JobResult,
    JsonObject,
    Outcome,
    Phase,
    Progress,
    Reason,
    ReplicaState,
    RestartPolicy,
    RoleProgress,
    RoleSpec,
    cached_property,
)
from dlop.policies import LeaderRole, Naming, Status, label_value

_OPERATOR_NAME, _JOB_NAME, _REPLICA_TYPE, _REPLICA_INDEX, _JOB_ROLE = (
    f"training.kubeflow.org/{name}" for name in ("operator-name", "job-name", "replica-type", "replica-index", "job-role")
)
_LIMITS = (Reason.BACKOFF_LIMIT_EXCEEDED, Reason.DEADLINE_EXCEEDED)
Job = TypeVar("Job", bound="KubeflowJob")


@dataclass(frozen=True, slots=True)
class KubeflowContainer(ContainerProperties):
    """The training container must have its name. All containers get the environment, which overrides the user's variables."""

    required: bool = field(default=True, kw_only=True)
    sets_env_in_all_containers: bool = field(default=True, kw_only=True)
    overrides_user_env: bool = field(default=True, kw_only=True)


@dataclass(frozen=True, kw_only=True)
class KubeflowNaming(Naming["KubeflowJob"]):
    """Labels of Kubeflow's operator. Host names are service names without a domain."""

    master_role: str = ""
    """The role whose pods have the label `job-role: master`; by default only replica 0 of the leader has it."""

    def host(self, job: KubeflowJob, role: RoleSpec, index: int) -> str:
        return self.service_name(job, role, index) or ""

    def role_labels(self, job: KubeflowJob, role: RoleSpec) -> Mapping[str, str]:
        return {
            _OPERATOR_NAME: f"{job.job_type.kind.lower()}-controller",
            _JOB_NAME: label_value(job.metadata.name),
            _REPLICA_TYPE: role.name.lower(),
        }

    def labels(self, job: KubeflowJob, role: RoleSpec, index: int) -> Mapping[str, str]:
        return {**self.role_labels(job, role), _REPLICA_INDEX: str(index)}

    def pod_labels(self, job: KubeflowJob, role: RoleSpec, index: int) -> Mapping[str, str]:
        return {_JOB_ROLE: "master"} if self.is_master(job, role, index) else {}

    def is_master(self, job: KubeflowJob, role: RoleSpec, index: int) -> bool:
        """Whether the pod gets the label `job-role: master`, by which clients find the log of the job."""
        return role.name == self.master_role if self.master_role else role.name == job.leader and index == 0


class KubeflowLifecycle(LeaderRole[Job]):
    """The first of the leading roles that the job has decides. The environment of all replicas contains the size of the job."""

    def fixed_roles(self, job: Job) -> tuple[str, ...]:
        """All roles except elastic workers."""
        return tuple(role.name for role in job.spec.roles if role.name != "Worker" or not self.has_elastic_workers(job))

    def has_elastic_workers(self, job: Job) -> bool:
        """Whether the Worker role can be scaled without a restart of the job."""
        return False


@dataclass(frozen=True, kw_only=True)
class KubeflowStatus(Status["KubeflowJob"]):
    """Conditions and counts as Kubeflow's operator writes them."""

    uses_qualified_name: bool | None = None
    """Whether messages name the job with its namespace; by default only for jobs that are led by their workers."""
    failure_message: str = "{kind} {name} is failed because {count} {role} replica(s) failed."
    """The message for failed replicas. The placeholders kind, namespace, name, count and role are replaced."""

    def running_message(self, job: KubeflowJob) -> str:
        return f"{job.job_type.kind} {self._display_name(job)} is running."

    def describe_result(self, job: KubeflowJob, result: JobResult, progress: Progress) -> str:
        if result.succeeded:
            completed = "successfully completed" if self._is_qualified(job) else "is successfully completed"
            return f"{job.job_type.kind} {self._display_name(job)} {completed}."
        role = None if result.failed_replica is None else progress.role(result.failed_replica.role)
        return super().describe_result(job, result, progress) if role is None else self._describe_failed_role(job, role)

    def _describe_failed_role(self, job: KubeflowJob, role: RoleProgress) -> str:
        name, metadata = role.spec.name, job.metadata
        if role.spec.restart_policy is RestartPolicy.EXIT_CODE:
            return f'job "{metadata.name}" is failing because "{name}" replica(s) failed.'
        return self.failure_message.format(
            kind=job.job_type.kind, namespace=metadata.namespace, name=metadata.name, count=role.count(ReplicaState.FAILED), role=name
        )

    def write(self, job: KubeflowJob, outcome: Outcome) -> JsonObject:
        """Replicas that are active when the job succeeds count as succeeded."""
        reason = outcome.phase.value if outcome.reason in _LIMITS else outcome.reason
        status = super().write(job, replace(outcome, reason=reason, message=self._message(job, outcome)))
        counts = status.pop("replicaStatuses")
        if outcome.started_at is None:
            return status
        replica_statuses = {role: _replica_status(job, each, outcome.phase) for role, each in counts.items()}
        if outcome.reason in _LIMITS:
            replica_statuses = _counts_before_limit(job, replica_statuses)
        return {**status, "replicaStatuses": replica_statuses}

    def _message(self, job: KubeflowJob, outcome: Outcome) -> str:
        name = job.metadata.name
        if outcome.phase is Phase.RUNNING:
            return self.running_message(job)
        if outcome.phase is Phase.RESTARTING and outcome.reason != Reason.RESIZED and outcome.record.last_failure is not None:
            return f"job {name} is restarting because {outcome.record.last_failure.role} replica(s) failed."
        if outcome.reason == Reason.BACKOFF_LIMIT_EXCEEDED:
            return f"Job {name} has failed because it has reached the specified backoff limit"
        if outcome.reason == Reason.DEADLINE_EXCEEDED:
            return f"Job {name} has failed because it was active longer than specified deadline"
        return outcome.message

    def _is_qualified(self, job: KubeflowJob) -> bool:
        return job.leader == "Worker" if self.uses_qualified_name is None else self.uses_qualified_name

    def _display_name(self, job: KubeflowJob) -> str:
        return f"{job.metadata.namespace}/{job.metadata.name}" if self._is_qualified(job) else job.metadata.name


class KubeflowJob(DLJob, ABC):
    """A job of kubeflow.org/v1."""

    naming = KubeflowNaming()
    lifecycle: ClassVar[KubeflowLifecycle[Any]]

    @cached_property
    def leader(self) -> str | None:
        """The role that leads the job; None if the job has none of the leading roles."""
        return self.lifecycle.leader(self)


def _counts_before_limit(job: KubeflowJob, counts: JsonObject) -> JsonObject:
    """The counts before a limit ended the job, which show the state at that time."""
    stored = job.stored_status.get("replicaStatuses")
    return stored if isinstance(stored, dict) and stored.keys() == counts.keys() else counts


def _replica_status(job: KubeflowJob, counts: JsonObject, phase: Phase) -> JsonObject:
    """The counts of a role. Only kinds with a scale subresource have a selector."""
    counts = _count_active_as_succeeded(counts) if phase is Phase.SUCCEEDED else counts
    return counts if job.schema.scale else {name: value for name, value in counts.items() if name != "selector"}


def _count_active_as_succeeded(counts: JsonObject) -> JsonObject:
    succeeded = counts.get("active", 0) + counts.get("succeeded", 0)
    others = {name: value for name, value in counts.items() if name not in ("active", "succeeded")}
    return {**({"succeeded": succeeded} if succeeded else {}), **others}
