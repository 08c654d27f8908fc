"""What the kinds of kubeflow.org/v1 share: names, labels, defaults, and a status in the words of Kubeflow's operator.

Whoever reads these objects by program (its Python client, Kueue, Katib) finds them as ever: the same labels on pods, the same
conditions with the same reasons and messages, the same `replicaStatuses`.
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
from dlop.frameworks.kubeflow.legacy_values import in_todays_words
from dlop.frameworks.kubeflow.schema import TRAINING_OPERATOR
from dlop.kube.types import JsonObject

_OPERATOR_NAME, _JOB_NAME, _REPLICA_TYPE, _REPLICA_INDEX, _JOB_ROLE = (
    f"training.kubeflow.org/{name}" for name in ("operator-name", "job-name", "replica-type", "replica-index", "job-role")
)
_LIMITS = (Reason.BACKOFF_LIMIT_EXCEEDED, Reason.DEADLINE_EXCEEDED)


class KubeflowJob(DLJob, ABC):
    """A job of kubeflow.org/v1."""

    leading_roles: ClassVar[tuple[str, ...]]
    """Roles that can lead a job. The first of them that a job has decides whether it runs and when it is done."""

    clean_pod_policy = CleanPodPolicy.NONE
    manager_names = (TRAINING_OPERATOR, MANAGER)
    informs_all_containers = True
    environment_wins = True
    name_pattern = "^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$"

    def understood(self, spec: Any) -> Any:
        """What Kubeflow's operator took, as it took it."""
        return in_todays_words(spec, replica_specs=self.replica_specs_field)

    # Names and labels.

    def role_labels(self, role: RoleSpec) -> Mapping[str, str]:
        """The operator, the job and the role."""
        return {
            _OPERATOR_NAME: f"{self.job_type.kind.lower()}-controller",
            _JOB_NAME: label_value(self.metadata.name),
            _REPLICA_TYPE: role.name.lower(),
        }

    def labels(self, role: RoleSpec, index: int) -> Mapping[str, str]:
        """Those of the role, and the index."""
        return {**self.role_labels(role), _REPLICA_INDEX: str(index)}

    def pod_labels(self, role: RoleSpec, index: int) -> Mapping[str, str]:
        """A mark for the pod whose log is that of the job."""
        return {_JOB_ROLE: "master"} if self.is_master(role, index) else {}

    def is_master(self, role: RoleSpec, index: int) -> bool:
        """Whether a replica is the one that clients ask for the log of the job."""
        return role.name == self.leading_role and index == 0

    def host(self, role: str, index: int = 0) -> str:
        """The bare name of a replica's service, whatever the domain of the cluster."""
        found = self.spec.role(role)
        return "" if found is None else self.service_name(found, index) or ""

    def port_of(self, role: str) -> int:
        """What the replicas of a role listen on. For a role that the job does not have, what they would."""
        found = self.spec.role(role)
        return (self.port(found) if found is not None else None) or self.container_properties.port or 0

    @cached_property
    def total_replicas(self) -> int:
        """All replicas that the job asks for."""
        return sum(role.replicas for role in self.spec.roles)

    # The way of the job.

    def fixed_roles(self) -> tuple[str, ...]:
        """All of them, save workers that may come and go."""
        return tuple(role.name for role in self.spec.roles if role.name != "Worker" or not self.has_elastic_workers())

    def has_elastic_workers(self) -> bool:
        """Whether workers may come and go while the job runs."""
        return False

    @cached_property
    def leading_role(self) -> str | None:
        """The role that leads this job; None when it has no such role."""
        return next((name for name in self.leading_roles if self.spec.role(name) is not None), None)

    def deciding_roles(self) -> tuple[str, ...]:
        """The leading role alone."""
        leading = self.leading_role
        return super().deciding_roles() if leading is None else (leading,)

    def is_done(self, progress: Progress) -> bool:
        """Whether the job has succeeded: when the leading role has, whatever becomes of the others."""
        roles = (progress.role(name) for name in self.deciding_roles())
        return all(role is None or role.all(ReplicaState.SUCCEEDED) for role in roles)

    def is_lost(self, role: RoleProgress) -> bool:
        """Whether the failures of a role are the end of the job: any that its restart policy does not mend."""
        return role.count(ReplicaState.FAILED) > 0

    def judge(self, progress: Progress) -> JobResult | None:
        """A job that is done is done, also when a replica fails at the same moment."""
        if self.is_done(progress):
            return JobResult(succeeded=True, reason=Reason.SUCCEEDED, message=self.success_message())
        lost = next((role for role in progress.roles if self.is_lost(role)), None)
        if lost is None:
            return None
        return JobResult(succeeded=False, reason=Reason.FAILED, message=self._loss(lost))

    # The words of the status.

    def running_message(self) -> str:
        """That the job runs."""
        return f"{self.job_type.kind} {self._called()} is running."

    def success_message(self) -> str:
        """That the job has succeeded."""
        completed = "successfully completed" if self.names_namespace() else "is successfully completed"
        return f"{self.job_type.kind} {self._called()} {completed}."

    def failure_message(self, *, failed: int, role: str) -> str:
        """That the job has failed."""
        return f"{self.job_type.kind} {self.metadata.name} is failed because {failed} {role} replica(s) failed."

    def names_namespace(self) -> bool:
        """Whether messages call the job by its namespace too: of jobs that are led by their workers."""
        return self.leading_role == "Worker"

    def write_status(self, outcome: Outcome) -> JsonObject:
        """Conditions and counts as Kubeflow's operator tells them. What still runs when the job is done has succeeded with it."""
        reason = outcome.phase.value if outcome.reason in _LIMITS else outcome.reason
        status = super().write_status(replace(outcome, reason=reason, message=self._message(outcome)))
        counts = status.pop("replicaStatuses")
        if outcome.started_at is None:
            return status
        found = {role: self._counts(each, outcome.phase) for role, each in counts.items()}
        return {**status, "replicaStatuses": self._counts_at_limit(found) if outcome.reason in _LIMITS else found}

    def _counts_at_limit(self, counts: JsonObject) -> JsonObject:
        """Whoever asks why a job was ended at a limit finds the counts from before."""
        stored = self.stored_status.get("replicaStatuses")
        return stored if isinstance(stored, dict) and stored.keys() == counts.keys() else counts

    def _counts(self, found: JsonObject, phase: Phase) -> JsonObject:
        """The selector is there for those who scale."""
        counts = _succeeded(found) if phase is Phase.SUCCEEDED else found
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

    def _loss(self, role: RoleProgress) -> str:
        if role.spec.restart_policy is RestartPolicy.EXIT_CODE:
            return f'job "{self.metadata.name}" is failing because "{role.spec.name}" replica(s) failed.'
        return self.failure_message(failed=role.count(ReplicaState.FAILED), role=role.spec.name)

    def _called(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}" if self.names_namespace() else self.metadata.name


def _succeeded(counts: JsonObject) -> JsonObject:
    done = counts.get("active", 0) + counts.get("succeeded", 0)
    others = {name: value for name, value in counts.items() if name not in ("active", "succeeded")}
    return {**({"succeeded": done} if done else {}), **others}
