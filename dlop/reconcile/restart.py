"""What to do when a replica is lost: fail the job, or restart the replica, its role or the whole job.

The restart matrix in `dlop/reconcile/README.md` lists all cases. This module also enforces backoffLimit and disruptionLimit.

This module also restarts a job that is scaled while it runs, if its replicas know the world size: otherwise old pods would wait for
the old number of peers and new pods for the new one. This does not count as a failure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dlop.api.constants import SIZE_ANNOTATION, TEMPLATE_HASH_ANNOTATION, Reason
from dlop.api.host_ports import SIZE_PREFIX
from dlop.api.phase import JobResult
from dlop.api.progress import Progress, ReplicaState, RoleProgress
from dlop.api.record import LastFailure, RecordBuilder, describe_failure
from dlop.api.spec import RestartPolicy, RestartScope, RunPolicy
from dlop.kube.objects import Pod
from dlop.reconcile import backoff
from dlop.reconcile.context import ReconcileContext
from dlop.reconcile.pod_state import has_started

FIRST_RETRYABLE_EXIT_CODE = 128
"""Exit codes from here on mean that a signal ended the program, or that the program asks to be restarted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostReplica:
    """A replica that has to be restarted and is not in the record yet."""

    state: ReplicaState
    """Restarting or Disrupted."""
    failure: LastFailure
    is_spot: bool = False
    """Whether the lost pod was a spot pod."""

    @property
    def role(self) -> str:
        return self.failure.role


def state_after_failure(policy: RestartPolicy, failure: LastFailure, *, is_final: bool | None) -> ReplicaState:
    """Restarting or Failed, for a replica whose program failed. `is_final` is the decision of the kind; None means no decision."""
    if is_final is not None:
        return ReplicaState.FAILED if is_final else ReplicaState.RESTARTING
    if policy is RestartPolicy.NEVER:
        return ReplicaState.FAILED
    if policy is RestartPolicy.EXIT_CODE and _is_permanent(failure.exit_code):
        return ReplicaState.FAILED
    return ReplicaState.RESTARTING


def count_lost_replicas(lost_replicas: tuple[LostReplica, ...], builder: RecordBuilder, *, scope: RestartScope) -> None:
    """Count every lost replica once; in the scopes Role and Job, count every new attempt once."""
    for lost in _one_per_attempt(lost_replicas, scope):
        if lost.state is ReplicaState.DISRUPTED:
            builder.count_disruption(lost.role, is_spot=lost.is_spot)
        else:
            builder.count_restarts(lost.role, 1)
        builder.update_last_failure(lost.failure)


def record_restarts(lost_replicas: tuple[LostReplica, ...], builder: RecordBuilder, *, scope: RestartScope, now: float) -> None:
    """Record what is restarted. The pods are deleted once this is stored, and created again when they are gone."""
    if lost_replicas:
        backoff.expire(builder.backoffs, now=now)
    for lost in _one_per_attempt(lost_replicas, scope):
        unit = backoff.restart_unit(scope, lost.role, lost.failure.index)
        backoff.record_failure(builder.backoffs, unit, state=lost.state, now=now)
        match scope:
            case RestartScope.REPLICA:
                builder.replace_pod(lost.role, lost.failure.index)
            case RestartScope.ROLE:
                builder.role_attempts[lost.role] = builder.role_attempts.get(lost.role, 0) + 1
                builder.reset_role(lost.role)
            case RestartScope.JOB:
                builder.attempt += 1
                builder.reset_all_roles()


def progress_after_restart(progress: Progress, lost_replicas: tuple[LostReplica, ...], *, scope: RestartScope) -> Progress:
    """The progress after the restart. Lost replicas keep their state; all others of the restarted roles become Missing."""
    if scope is RestartScope.REPLICA or not lost_replicas:
        return progress
    lost_roles = {lost.role for lost in lost_replicas}
    return Progress(
        roles=tuple(_reset_role(role) if scope is RestartScope.JOB or role.spec.name in lost_roles else role for role in progress.roles)
    )


def reset_progress(progress: Progress) -> Progress:
    """The progress after a restart of the whole job."""
    return Progress(roles=tuple(_reset_role(role) for role in progress.roles))


def _reset_role(role: RoleProgress) -> RoleProgress:
    lost_states = (ReplicaState.RESTARTING, ReplicaState.DISRUPTED)
    replicas = (
        replica if replica.state in lost_states else replace(replica, state=ReplicaState.MISSING, failure=None) for replica in role.replicas
    )
    return replace(role, replicas=tuple(replicas))


def _is_permanent(exit_code: int | None) -> bool:
    return exit_code is not None and exit_code < FIRST_RETRYABLE_EXIT_CODE


def _one_per_attempt(lost_replicas: tuple[LostReplica, ...], scope: RestartScope) -> tuple[LostReplica, ...]:
    """One lost replica for each new attempt.

    A disruption takes precedence, because peers of a disrupted replica often fail, too; and among disruptions, those that count against
    the disruption limit.
    """
    if scope is RestartScope.REPLICA:
        return lost_replicas
    ordered = sorted(lost_replicas, key=lambda lost: (lost.state is not ReplicaState.DISRUPTED, lost.is_spot))
    first = {lost.role if scope is RestartScope.ROLE else "": lost for lost in reversed(ordered)}
    return tuple(first.values())


def exceeded_limit(policy: RunPolicy, builder: RecordBuilder) -> JobResult | None:
    """The failure of a job that exceeds its backoff or disruption limit; None if it does not."""
    restarts = sum(builder.restarts.values())
    if policy.backoff_limit is not None and restarts > policy.backoff_limit:
        message = f"the backoff limit of {policy.backoff_limit} is exceeded{_last_failure(builder)}"
        return JobResult(succeeded=False, reason=Reason.BACKOFF_LIMIT_EXCEEDED, message=message)
    disruptions = sum(builder.disruptions.values())
    if policy.disruption_limit is not None and disruptions > policy.disruption_limit:
        message = f"the disruption limit of {policy.disruption_limit} is exceeded{_last_failure(builder)}"
        return JobResult(succeeded=False, reason=Reason.DISRUPTION_LIMIT_EXCEEDED, message=message)
    return None


def _last_failure(builder: RecordBuilder) -> str:
    return f": {describe_failure(builder.last_failure)}" if builder.last_failure else ""


_CONTINUING = (ReplicaState.PENDING, ReplicaState.RUNNING, ReplicaState.SUCCEEDED)


def previous_size(context: ReconcileContext, progress: Progress) -> str | None:
    """The outdated size in started pods; None if there is none. Pods that have not started are replaced by drift detection."""
    if not context.may_have_drifted:
        return None
    known = (_known_size(pod) for pod in _started_pods(progress))
    return next((size for size in known if size is not None and _is_outdated(size, context.job.size)), None)


def _is_outdated(known: str, size: str) -> bool:
    """Whether the peers of a pod have other sizes or ports now. A size is empty without fixed roles and without the host network."""
    return known != size and (bool(known and size) or SIZE_PREFIX in known + size)


def restart_for_resize(builder: RecordBuilder) -> None:
    """Start a new attempt of the job. The pods are deleted once this is stored, and created again when they are gone."""
    builder.attempt += 1 + max(builder.role_attempts.values(), default=0)
    builder.role_attempts.clear()
    builder.backoffs.clear()
    builder.reset_all_roles()


def _started_pods(progress: Progress) -> Iterator[Pod]:
    """Pods whose main container has started, even if another container of the pod is still waiting."""
    for role in progress.roles:
        for replica in role.replicas:
            if replica.pod is not None and replica.state in _CONTINUING and has_started(replica.pod, role.spec):
                yield replica.pod


def _known_size(pod: Pod) -> str | None:
    """None if another operator created the pod. The size in its environment is unknown then."""
    annotations = pod.metadata.annotations
    return annotations.get(SIZE_ANNOTATION, "" if TEMPLATE_HASH_ANNOTATION in annotations else None)
