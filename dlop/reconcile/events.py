"""What is told to the people who look at the job: once for each cause, in the pass that finds it, and nothing at rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dlop.api.constants import Reason
from dlop.api.gang import POD_GROUPS
from dlop.api.phase import Outcome, Phase
from dlop.api.progress import ReplicaState
from dlop.api.record import LastFailure, describe_failure
from dlop.kube.resources import PODS
from dlop.reconcile.context import ReconcileContext
from dlop.reconcile.creation import Creations
from dlop.reconcile.observe import Observation
from dlop.reconcile.plan import Delete, Event, EventType
from dlop.reconcile.spec_warnings import remarks_on

_PHASES = {
    Phase.SUSPENDED: (EventType.NORMAL, "the job is suspended"),
    Phase.SUCCEEDED: (EventType.NORMAL, "the job has succeeded"),
    Phase.FAILED: (EventType.WARNING, "the job has failed"),
    Phase.INVALID: (EventType.WARNING, "the spec makes no sense"),
}


def of_phase(before: Phase | None, outcome: Outcome) -> Iterator[Event]:
    """A change of phase that somebody may be waiting for."""
    if outcome.phase in _PHASES and (outcome.phase is not before or outcome.phase is Phase.INVALID):
        kind, text = _PHASES[outcome.phase]
        yield Event(kind, outcome.reason, outcome.message or text)
    if before is Phase.SUSPENDED and outcome.phase is not Phase.SUSPENDED:
        yield Event(EventType.NORMAL, Reason.RESUMED, "the job is resumed")


def of_losses(account: Observation) -> Iterator[Event]:
    """Replicas that have failed or were taken away."""
    failed = [loss.failure for loss in account.losses if loss.state is ReplicaState.RESTARTING]
    disrupted = [loss.failure for loss in account.losses if loss.state is ReplicaState.DISRUPTED]
    yield from _batch(EventType.WARNING, Reason.RESTARTING, [*failed, *account.restarted], "restarted")
    yield from _batch(EventType.WARNING, Reason.DISRUPTED, disrupted, "replaced")


def of_block(case: ReconcileContext, outcome: Outcome) -> Iterator[Event]:
    """Something new is in the way."""
    blocked = outcome.record.blocked
    if blocked is not None and blocked != case.stored.record.blocked:
        yield Event(EventType.WARNING, blocked.reason, blocked.message)


def of_creations(creations: Creations) -> Iterator[Event]:
    """What is created, in one sentence. It is told when it has come true, for creates may be refused or put off."""
    numbers = [_number(things, name) for things, name in ((creations.pods, "pod"), (creations.services, "service")) if things]
    if numbers:
        reason = Reason.CREATED_PODS if creations.pods else Reason.CREATED_SERVICES
        yield Event(EventType.NORMAL, reason, f"Created {' and '.join(numbers)}")


def of_deletions(deletions: Sequence[Delete]) -> Iterator[Event]:
    """What is deleted, in one sentence, and what had to be removed by force."""
    pods = [deletion for deletion in deletions if deletion.resource == PODS]
    forced = [deletion.name for deletion in pods if deletion.grace_seconds == 0]
    if len(pods) > len(forced):
        yield Event(EventType.NORMAL, Reason.DELETED_PODS, f"Deleted {_number(pods[len(forced) :], 'pod')}")
    if forced:
        message = f"Removed {_number(forced, 'pod')} by force, because the node does not answer: {_first(forced)}"
        yield Event(EventType.WARNING, Reason.NODE_LOST, message)
    yield from of_groups(deletions)


def of_groups(deletions: Sequence[Delete]) -> Iterator[Event]:
    """That the pods of a job are not placed together any more, because there are none."""
    for deletion in deletions:
        if deletion.resource in POD_GROUPS:
            yield Event(EventType.NORMAL, Reason.DELETED_POD_GROUP, f"Deleted podgroup {deletion.name}")


def of_edits(replaced: Sequence[Delete]) -> Iterator[Event]:
    """Pods that give way to others because the spec was edited."""
    if replaced:
        message = f"Replaced {_number(replaced, 'pod')} that had not started: the job's spec has changed"
        yield Event(EventType.NORMAL, Reason.REPLACED_PODS, message)


def of_remarks(case: ReconcileContext) -> Iterator[Event]:
    """What there is to say about a spec that is new."""
    if case.is_edited:
        yield from (Event(EventType.WARNING, remark.reason, str(remark)) for remark in remarks_on(case.job))


def _batch(kind: EventType, reason: str, failures: Sequence[LastFailure], verb: str) -> Iterator[Event]:
    if failures:
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        yield Event(kind, reason, f"{describe_failure(failures[0])}{more}; {verb}")


def _number(things: Sequence[object], name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
