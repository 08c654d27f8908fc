"""Lifecycle: when the roles of a job start, and when the job runs, succeeds and fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from dlop.api.phase import JobResult
from dlop.api.progress import Progress, ReplicaProgress, ReplicaState, RoleProgress
from dlop.api.record import LastFailure
from dlop.api.spec import CleanPodPolicy, RestartPolicy, RestartScope, RoleSpec
from dlop.api.start_order import find_start_wait

if TYPE_CHECKING:
    from dlop.job import DLJob

Job = TypeVar("Job", bound="DLJob")


class Lifecycle(Generic[Job]):
    """The job fails with the first failed replica, and succeeds when all required roles have succeeded."""

    def may_start(self, job: Job, role: RoleSpec, progress: Progress) -> bool:
        """Whether the pods of a role may be created now. By default, `start_after` of the role decides."""
        return find_start_wait(role, progress) is None

    def pod_restart_policy(self, job: Job, role: RoleSpec, index: int) -> RestartPolicy:
        """The `restartPolicy` of the pod. It is Never if the operator decides about restarts instead of the kubelet."""
        if role.restart_policy is RestartPolicy.EXIT_CODE or job.spec.run_policy.restart_scope is not RestartScope.REPLICA:
            return RestartPolicy.NEVER
        return role.restart_policy

    def is_final_failure(self, job: Job, role: RoleSpec, index: int, failure: LastFailure) -> bool | None:
        """Whether a failure is final, so that the replica is not restarted; None applies the restart policy of the role."""
        return None

    def clean_pod_policy(self, job: Job, *, succeeded: bool) -> CleanPodPolicy:
        """Which pods of the finished job are deleted."""
        return job.spec.run_policy.clean_pod_policy

    def fixed_roles(self, job: Job) -> tuple[str, ...]:
        """Roles whose size is part of every replica's environment; scaling one restarts the job. Never an elastic role."""
        return ()

    def required_roles(self, job: Job) -> tuple[str, ...]:
        """The roles that must succeed for the job to succeed: those with `required_for_success`, or all if the job has none of them."""
        present = tuple(role.name for role in job.spec.roles)
        required = {role.name for role in job.replica_types if role.required_for_success}
        return tuple(name for name in present if name in required) or present

    def is_running(self, job: Job, progress: Progress) -> bool:
        """Whether the job is running; by default, as soon as one replica of the required roles is."""
        roles = (progress.role(name) for name in self.required_roles(job))
        return any(role is not None and role.count(ReplicaState.RUNNING) > 0 for role in roles)

    def evaluate(self, job: Job, progress: Progress) -> JobResult | None:
        """The result of the job; None if it has not finished."""
        failed = next((role for role in progress.roles if role.count(ReplicaState.FAILED)), None)
        if failed is not None:
            return JobResult(succeeded=False, failed_replica=_first_failed(failed))
        return JobResult(succeeded=True) if self.has_succeeded(job, progress) else None

    def has_succeeded(self, job: Job, progress: Progress) -> bool:
        """Whether the job has succeeded, unless a failed replica has failed it; by default, if all required roles have."""
        roles = (progress.role(name) for name in self.required_roles(job))
        return all(role is None or role.all(ReplicaState.SUCCEEDED) for role in roles)


class LeaderRole(Lifecycle[Job]):
    """One role leads the job: it determines whether the job is running and whether it has succeeded.

    Success takes precedence over a replica of another role that fails at the same time.
    """

    def __init__(self, *roles: str) -> None:
        """`roles` can lead a job. The first of them that the job has does."""
        self.roles = roles

    def leader(self, job: Job) -> str | None:
        """The role that leads the job; None if the job has none of them. Then the same roles are required as in `Lifecycle`."""
        return next((name for name in self.roles if job.spec.role(name) is not None), None)

    def required_roles(self, job: Job) -> tuple[str, ...]:
        leader = self.leader(job)
        return super().required_roles(job) if leader is None else (leader,)

    def evaluate(self, job: Job, progress: Progress) -> JobResult | None:
        if self.has_succeeded(job, progress):
            return JobResult(succeeded=True)
        failed = next((role for role in progress.roles if self.has_failed(job, role)), None)
        return None if failed is None else JobResult(succeeded=False, failed_replica=_first_failed(failed))

    def has_failed(self, job: Job, role: RoleProgress) -> bool:
        """Whether the failures of a role fail the job. Replicas that will be restarted do not count as failed."""
        return role.count(ReplicaState.FAILED) > 0


def _first_failed(role: RoleProgress) -> ReplicaProgress | None:
    return next((replica for replica in role.replicas if replica.state is ReplicaState.FAILED), None)
