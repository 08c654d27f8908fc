"""What the kinds of training.kubedl.io have in common: labels, exit codes, status and the inline run policy.

Names, labels, conditions and environment variables are those of KubeDL.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from dlop import (
    AGE,
    STATE_BY_CONDITIONS,
    Column,
    ContainerProperties,
    DLJob,
    JobResult,
    JobType,
    JsonObject,
    LastFailure,
    Outcome,
    Phase,
    Progress,
    Replica,
    ReplicaState,
    RestartPolicy,
    RoleProgress,
    RoleSpec,
)
from dlop.policies import LeaderRole, Lifecycle, Naming, Status, label_value

GROUP = "training.kubedl.io"
COLUMNS = (
    STATE_BY_CONDITIONS,
    AGE,
    Column("TTL-After-Finished", ".spec.ttlSecondsAfterFinished", type="integer", priority=1),
    Column("Max-Lifetime", ".spec.activeDeadlineSeconds", type="integer", priority=1),
)
_RETRYABLE_EXIT_CODES = frozenset({130, 137, 138, 143})
_RETRYABLE_REASONS = frozenset({"OOMKilled", "Killed", "Evicted", "UnexpectedAdmissionError"})
Job = TypeVar("Job", bound="KubeDLJob")


def kubedl_type(kind: str) -> JobType:
    return JobType(group=GROUP, version="v1alpha1", kind=kind)


@dataclass(frozen=True, slots=True)
class KubeDLContainer(ContainerProperties):
    """All containers get the environment, which overrides the user's variables."""

    sets_env_in_all_containers: bool = field(default=True, kw_only=True)
    overrides_user_env: bool = field(default=True, kw_only=True)


@dataclass(frozen=True, kw_only=True)
class KubeDLNaming(Naming["KubeDLJob"]):
    """Labels without a prefix. Host names are service names."""

    master_roles: tuple[str, ...] = ()
    """The roles whose pods have the label `job-role: master`."""
    qualifies_hosts: bool = False
    """Whether host names contain the namespace."""

    def host(self, job: KubeDLJob, role: RoleSpec, index: int) -> str:
        name, domain = self.service_name(job, role, index) or self.pod_name(job, role, index), job.options.cluster_domain
        return f"{name}.{job.metadata.namespace}.svc{f'.{domain}' if domain else ''}" if self.qualifies_hosts else name

    def role_labels(self, job: KubeDLJob, role: RoleSpec) -> Mapping[str, str]:
        return {"group-name": GROUP, "job-name": label_value(job.metadata.name), "replica-type": role.name.lower()}

    def labels(self, job: KubeDLJob, role: RoleSpec, index: int) -> Mapping[str, str]:
        return {**self.role_labels(job, role), "replica-index": str(index)}

    def pod_labels(self, job: KubeDLJob, role: RoleSpec, index: int) -> Mapping[str, str]:
        return {"job-role": "master"} if role.name in self.master_roles else {}


class ExitCodes(Lifecycle[Job]):
    """With restart policy ExitCode, only some signals and reasons are retried."""

    def is_final_failure(self, job: Job, role: RoleSpec, index: int, failure: LastFailure) -> bool | None:
        if role.restart_policy is not RestartPolicy.EXIT_CODE:
            return None
        return failure.exit_code not in _RETRYABLE_EXIT_CODES and failure.reason not in _RETRYABLE_REASONS

    def fixed_roles(self, job: Job) -> tuple[str, ...]:
        """The environment of all replicas contains the size of the job."""
        return tuple(role.name for role in job.spec.roles)


class KubeDLLeader(ExitCodes[Job], LeaderRole[Job]):
    """The first of the leading roles that the job has decides."""


@dataclass(frozen=True, kw_only=True)
class KubeDLStatus(Status["KubeDLJob"]):
    """`replicaStatuses` is always there, because KubeDL's CRDs require it."""

    reason_prefix: str = "Job"

    def describe_result(self, job: KubeDLJob, result: JobResult, progress: Progress) -> str:
        role = None if result.failed_replica is None else progress.role(result.failed_replica.role)
        if result.succeeded or role is None:
            return super().describe_result(job, result, progress)
        count = role.count(ReplicaState.FAILED)
        return f"{job.job_type.kind} {job.metadata.name} is failed because {count} {role.spec.name} replica(s) failed."

    def write(self, job: KubeDLJob, outcome: Outcome) -> JsonObject:
        status = super().write(job, outcome)
        return {**status, "replicaStatuses": {role.spec.name: _counts(role, outcome.phase) for role in outcome.progress.roles}}


def _counts(role: RoleProgress, phase: Phase) -> JsonObject:
    """Replicas that are active when the job succeeds count as succeeded."""
    active, succeeded = role.count(ReplicaState.RUNNING), role.count(ReplicaState.SUCCEEDED)
    if phase is Phase.SUCCEEDED:
        active, succeeded = 0, active + succeeded
    counts = {"active": active, "succeeded": succeeded, "failed": role.count(ReplicaState.FAILED, ReplicaState.RESTARTING)}
    return {name: count for name, count in counts.items() if count}


class KubeDLJob(DLJob, ABC):
    """A job of training.kubedl.io."""

    naming = KubeDLNaming()
    status = KubeDLStatus()

    def customize_pod(self, replica: Replica, pod: JsonObject) -> JsonObject:
        """Logs of failed containers are their termination message."""
        containers = [{"terminationMessagePolicy": "FallbackToLogsOnError", **container} for container in pod["spec"]["containers"]]
        return {**pod, "spec": {**pod["spec"], "containers": containers}}

    def master_variables(self, **others: str) -> dict[str, str]:
        """Address and size for programs that find each other through replica 0 of the master."""
        return {
            "MASTER_PORT": str(self.port("Master")),
            "MASTER_ADDR": self.host("Master"),
            "WORLD_SIZE": str(self.total_replicas - self.replicas("AIMaster")),
            "PYTHONUNBUFFERED": "0",
            **others,
        }
