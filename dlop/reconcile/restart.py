"""What to do when a replica is lost: nothing more, start it again, or start its role or the whole job again.

The full truth table, with every cell run by a test, is in `dlop/reconcile/README.md`.

How often a job may be restarted or disrupted before it has failed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dlop.api.constants import Reason
from dlop.api.phase import JobResult
from dlop.api.progress import Progress, ReplicaState, RoleProgress
from dlop.api.record import LastFailure, describe_failure
from dlop.api.spec import RestartPolicy, RestartScope, RunPolicy
from dlop.reconcile import backoff
from dlop.reconcile.record_builder import RecordBuilder

FIRST_RETRYABLE_EXIT_CODE = 128
"""From here on a program was ended by a signal, or says that another try is worth it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostReplica:
    """A replica that has to be started again, found in this pass for the first time."""

    state: ReplicaState
    """Restarting or Disrupted."""
    failure: LastFailure
    uid: str
    """Of the pod; empty when it is gone already."""

    @property
    def role(self) -> str:
        """Whose replica it was."""
        return self.failure.role


def after_failure(policy: RestartPolicy, failure: LastFailure, *, is_final: bool | None) -> ReplicaState:
    """Whether a replica whose program failed is started again. What the kind says goes first."""
    if is_final is not None:
        return ReplicaState.FAILED if is_final else ReplicaState.RESTARTING
    if policy is RestartPolicy.NEVER:
        return ReplicaState.FAILED
    if policy is RestartPolicy.EXIT_CODE and _is_final(failure.exit_code):
        return ReplicaState.FAILED
    return ReplicaState.RESTARTING


def count(losses: tuple[LostReplica, ...], ledger: RecordBuilder, *, scope: RestartScope) -> None:
    """Count every loss once; where the scope is wider, once for each new attempt."""
    for loss in _counted(losses, scope):
        if loss.state is ReplicaState.DISRUPTED:
            ledger.count_disruption(loss.role)
        else:
            ledger.count_restarts(loss.role, 1)
        ledger.note(loss.failure)


def start_again(losses: tuple[LostReplica, ...], ledger: RecordBuilder, *, scope: RestartScope, now: float) -> None:
    """Give up what is to be started again: the pods are deleted when this has been stored, and created when they are gone."""
    if losses:
        backoff.forgive(ledger.retries, now=now)
    for loss in _counted(losses, scope):
        unit = backoff.unit_of(scope, loss.role, loss.failure.index)
        backoff.put_off(ledger.retries, unit, state=loss.state, now=now)
        match scope:
            case RestartScope.REPLICA:
                ledger.started[loss.role].discard(loss.failure.index)
                ledger.written_off |= {loss.uid} - {""}
            case RestartScope.ROLE:
                ledger.role_attempts[loss.role] = ledger.role_attempts.get(loss.role, 0) + 1
                ledger.forget(loss.role)
            case RestartScope.JOB:
                ledger.attempt += 1
                ledger.forget_all()


def started_again(progress: Progress, losses: tuple[LostReplica, ...], *, scope: RestartScope) -> Progress:
    """How far the job has come after that. Of what is started again, only the lost replicas are still told apart."""
    if scope is RestartScope.REPLICA or not losses:
        return progress
    roles = {loss.role for loss in losses}
    return Progress(
        roles=tuple(_from_the_start(role) if scope is RestartScope.JOB or role.spec.name in roles else role for role in progress.roles)
    )


def from_the_start(progress: Progress) -> Progress:
    """How far the job has come once all of it is started again."""
    return Progress(roles=tuple(_from_the_start(role) for role in progress.roles))


def _from_the_start(role: RoleProgress) -> RoleProgress:
    lost = (ReplicaState.RESTARTING, ReplicaState.DISRUPTED)
    replicas = (each if each.state in lost else replace(each, state=ReplicaState.MISSING, failure=None) for each in role.replicas)
    return replace(role, replicas=tuple(replicas))


def _is_final(exit_code: int | None) -> bool:
    return exit_code is not None and exit_code < FIRST_RETRYABLE_EXIT_CODE


def _counted(losses: tuple[LostReplica, ...], scope: RestartScope) -> tuple[LostReplica, ...]:
    """One loss for each new attempt. A disruption explains the failures around it: peers of a lost replica often fail too."""
    if scope is RestartScope.REPLICA:
        return losses
    ordered = sorted(losses, key=lambda loss: loss.state is not ReplicaState.DISRUPTED)
    first = {loss.role if scope is RestartScope.ROLE else "": loss for loss in reversed(ordered)}
    return tuple(first.values())


def exceeded(policy: RunPolicy, ledger: RecordBuilder) -> JobResult | None:
    """The end of a job that was restarted or disrupted more often than it may be."""
    restarts = sum(ledger.restarts.values())
    if policy.backoff_limit is not None and restarts > policy.backoff_limit:
        message = f"the backoff limit of {policy.backoff_limit} is exceeded{_last(ledger)}"
        return JobResult(succeeded=False, reason=Reason.BACKOFF_LIMIT_EXCEEDED, message=message)
    disruptions = sum(ledger.disruptions.values())
    if policy.disruption_limit is not None and disruptions > policy.disruption_limit:
        message = f"the disruption limit of {policy.disruption_limit} is exceeded{_last(ledger)}"
        return JobResult(succeeded=False, reason=Reason.DISRUPTION_LIMIT_EXCEEDED, message=message)
    return None


def _last(ledger: RecordBuilder) -> str:
    return f": {describe_failure(ledger.last_failure)}" if ledger.last_failure else ""
