"""Common base class of the kinds of kubeflow.org/v1: names, labels, defaults and the status.

Labels, conditions, reasons, messages and `replicaStatuses` are those of Kubeflow's training operator, because its Python client,
Kueue and Katib depend on them.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from dlop import CleanPodPolicy, DLJob, JobResult, Outcome, Phase, Progress, ReplicaState, RestartPolicy, RoleProgress, RoleSpec
from dlop.api.cached_property import cached_property
from dlop.api.constants import MANAGER, Reason
from dlop.api.names import label_value
from dlop.frameworks.kubeflow.legacy_values import normalize_legacy_values
from dlop.frameworks.kubeflow.schema import TRAINING_OPERATOR
from dlop.kube.types import JsonObject

_OPERATOR_NAME, _JOB_NAME, _REPLICA_TYPE, _REPLICA_INDEX, _JOB_ROLE = (
    f"training.kubeflow.org/{name}" for name in ("operator-name", "job-name", "replica-type", "replica-index", "job-role")
)
_LIMITS = (Reason.BACKOFF_LIMIT_EXCEEDED, Reason.DEADLINE_EXCEEDED)


class KubeflowJob(DLJob, ABC):
    """A job of kubeflow.org/v1."""

    leading_roles: ClassVar[tuple[str, ...]]
    """Roles that can lead a job. The first of them that the job has determines whether it is running and whether it has succeeded."""

    clean_pod_policy = CleanPodPolicy.NONE
    manager_names = (TRAINING_OPERATOR, MANAGER)
    sets_env_in_all_containers = True
    overrides_user_env = True
    name_pattern = "^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$"

    def normalize_legacy(self, spec: Any) -> Any:
        return normalize_legacy_values(spec, replica_specs=self.replica_specs_field)

    # Names and labels.

    def role_labels(self, role: RoleSpec) -> Mapping[str, str]:
        return {
            _OPERATOR_NAME: f"{self.job_type.kind.lower()}-controller",
            _JOB_NAME: label_value(self.metadata.name),
            _REPLICA_TYPE: role.name.lower(),
        }

    def labels(self, role: RoleSpec, index: int) -> Mapping[str, str]:
        return {**self.role_labels(role), _REPLICA_INDEX: str(index)}

    def pod_labels(self, role: RoleSpec, index: int) -> Mapping[str, str]:
        return {_JOB_ROLE: "master"} if self.is_master(role, index) else {}

    def is_master(self, role: RoleSpec, index: int) -> bool:
        """Whether the pod gets the label `job-role: master`, by which clients find the log of the job."""
        return role.name == self.leading_role and index == 0

    def host(self, role: str, index: int = 0) -> str:
        """The name of the replica's service, without the cluster domain."""
        role_spec = self.spec.role(role)
        return "" if role_spec is None else self.service_name(role_spec, index) or ""

    def role_port(self, role: str) -> int:
        """The port of the replicas of a role, or the default port if the job does not have the role."""
        role_spec = self.spec.role(role)
        return (self.port(role_spec) if role_spec is not None else None) or self.container_properties.port or 0

    @cached_property
    def total_replicas(self) -> int:
        return sum(role.replicas for role in self.spec.roles)

    # Lifecycle.

    def fixed_roles(self) -> tuple[str, ...]:
        """All roles except elastic workers."""
        return tuple(role.name for role in self.spec.roles if role.name != "Worker" or not self.has_elastic_workers())

    def has_elastic_workers(self) -> bool:
        """Whether the Worker role can be scaled without a restart of the job."""
        return False

    @cached_property
    def leading_role(self) -> str | None:
        """The first of `leading_roles` that the job has, or None."""
        return next((name for name in self.leading_roles if self.spec.role(name) is not None), None)

    def required_roles(self) -> tuple[str, ...]:
        leading = self.leading_role
        return super().required_roles() if leading is None else (leading,)

    def has_succeeded(self, progress: Progress) -> bool:
        """Whether all replicas of the leading role have succeeded. Other roles do not matter."""
        roles = (progress.role(name) for name in self.required_roles())
        return all(role is None or role.all(ReplicaState.SUCCEEDED) for role in roles)

    def has_failed(self, role: RoleProgress) -> bool:
        """Whether the failures of a role fail the job. Replicas that will be restarted do not count as failed."""
        return role.count(ReplicaState.FAILED) > 0

    def evaluate(self, progress: Progress) -> JobResult | None:
        """Success takes precedence over a replica that fails at the same time."""
        if self.has_succeeded(progress):
            return JobResult(succeeded=True, reason=Reason.SUCCEEDED, message=self.success_message())
        failed = next((role for role in progress.roles if self.has_failed(role)), None)
        if failed is None:
            return None
        return JobResult(succeeded=False, reason=Reason.FAILED, message=self._role_failure_message(failed))

    # Status.

    def running_message(self) -> str:
        return f"{self.job_type.kind} {self._display_name()} is running."

    def success_message(self) -> str:
        completed = "successfully completed" if self.uses_qualified_name() else "is successfully completed"
        return f"{self.job_type.kind} {self._display_name()} {completed}."

    def failure_message(self, *, failed: int, role: str) -> str:
        return f"{self.job_type.kind} {self.metadata.name} is failed because {failed} {role} replica(s) failed."

    def uses_qualified_name(self) -> bool:
        """Whether messages name the job with its namespace, as they do for jobs that are led by their workers."""
        return self.leading_role == "Worker"

    def write_status(self, outcome: Outcome) -> JsonObject:
        """Conditions and counts as Kubeflow's operator writes them. Replicas that are active when the job succeeds count as succeeded."""
        reason = outcome.phase.value if outcome.reason in _LIMITS else outcome.reason
        status = super().write_status(replace(outcome, reason=reason, message=self._message(outcome)))
        counts = status.pop("replicaStatuses")
        if outcome.started_at is None:
            return status
        replica_statuses = {role: self._replica_status(each, outcome.phase) for role, each in counts.items()}
        if outcome.reason in _LIMITS:
            replica_statuses = self._counts_before_limit(replica_statuses)
        return {**status, "replicaStatuses": replica_statuses}

    def _counts_before_limit(self, counts: JsonObject) -> JsonObject:
        """The counts before a limit ended the job, which show the state at that time."""
        stored = self.stored_status.get("replicaStatuses")
        return stored if isinstance(stored, dict) and stored.keys() == counts.keys() else counts

    def _replica_status(self, counts: JsonObject, phase: Phase) -> JsonObject:
        """The counts of a role. Only kinds with a scale subresource have a selector."""
        counts = _count_active_as_succeeded(counts) if phase is Phase.SUCCEEDED else counts
        return counts if self.scale_paths is not None else {name: value for name, value in counts.items() if name != "selector"}

    def _message(self, outcome: Outcome) -> str:
        name = self.metadata.name
        if outcome.phase is Phase.RUNNING:
            return self.running_message()
        if outcome.phase is Phase.RESTARTING and outcome.reason != Reason.RESIZED and outcome.record.last_failure is not None:
            return f"job {name} is restarting because {outcome.record.last_failure.role} replica(s) failed."
        if outcome.reason == Reason.BACKOFF_LIMIT_EXCEEDED:
            return f"Job {name} has failed because it has reached the specified backoff limit"
        if outcome.reason == Reason.DEADLINE_EXCEEDED:
            return f"Job {name} has failed because it was active longer than specified deadline"
        return outcome.message

    def _role_failure_message(self, role: RoleProgress) -> str:
        if role.spec.restart_policy is RestartPolicy.EXIT_CODE:
            return f'job "{self.metadata.name}" is failing because "{role.spec.name}" replica(s) failed.'
        return self.failure_message(failed=role.count(ReplicaState.FAILED), role=role.spec.name)

    def _display_name(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}" if self.uses_qualified_name() else self.metadata.name


def _count_active_as_succeeded(counts: JsonObject) -> JsonObject:
    succeeded = counts.get("active", 0) + counts.get("succeeded", 0)
    others = {name: value for name, value in counts.items() if name not in ("active", "succeeded")}
    return {**({"succeeded": succeeded} if succeeded else {}), **others}
