"""Events of a pass. Each cause is reported once, in the pass that detects it; an idle job has no events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dlop.api.constants import Reason
from dlop.api.gang import POD_GROUPS
from dlop.api.phase import Outcome, Phase
from dlop.api.progress import ReplicaState
from dlop.api.record import LastFailure, Record, describe_failure
from dlop.api.spot_replicas import disruptions_of, has_fallen_back
from dlop.kube.resources import PODS
from dlop.reconcile.context import ReconcileContext
from dlop.reconcile.creation import Creates
from dlop.reconcile.observe import Observation
from dlop.reconcile.plan import Delete, Event, EventType
from dlop.reconcile.spec_warnings import spec_warnings

_PHASES = {
    Phase.SUSPENDED: (EventType.NORMAL, "the job is suspended"),
    Phase.SUCCEEDED: (EventType.NORMAL, "the job has succeeded"),
    Phase.FAILED: (EventType.WARNING, "the job has failed"),
    Phase.INVALID: (EventType.WARNING, "the spec is invalid"),
}


def phase_events(previous: Phase | None, outcome: Outcome) -> Iterator[Event]:
    """Phase changes to Suspended, Succeeded, Failed or Invalid, and the resumption of a job."""
    if outcome.phase in _PHASES and (outcome.phase is not previous or outcome.phase is Phase.INVALID):
        event_type, text = _PHASES[outcome.phase]
        yield Event(event_type, outcome.reason, outcome.message or text)
    if previous is Phase.SUSPENDED and outcome.phase is not Phase.SUSPENDED:
        yield Event(EventType.NORMAL, Reason.RESUMED, "the job is resumed")


def lost_replica_events(observation: Observation) -> Iterator[Event]:
    """Replicas that failed or were disrupted."""
    failed = [lost.failure for lost in observation.lost_replicas if lost.state is ReplicaState.RESTARTING]
    disrupted = [lost.failure for lost in observation.lost_replicas if lost.state is ReplicaState.DISRUPTED]
    yield from _batch(EventType.WARNING, Reason.RESTARTING, [*failed, *observation.restarted_in_place], "restarted")
    yield from _batch(EventType.WARNING, Reason.DISRUPTED, disrupted, "replaced")


def spot_fallback_events(context: ReconcileContext, record: Record) -> Iterator[Event]:
    """Roles whose spot replicas are created on demand from this pass on. `record` is the new record."""
    for role in context.spec.roles:
        spot = role.spot
        if spot is None or not has_fallen_back(spot, disruptions_of(role, record)):
            continue
        if not has_fallen_back(spot, disruptions_of(role, context.stored.record)):
            message = f"{role.name}: {disruptions_of(role, record)} disruptions of spot replicas, and {spot.path}.maxDisruptions is"
            yield Event(EventType.WARNING, Reason.SPOT_FALLBACK, f"{message} {spot.max_disruptions}; new pods are created on demand")


def blocked_events(context: ReconcileContext, outcome: Outcome) -> Iterator[Event]:
    """A new reason why the job cannot progress."""
    blocked = outcome.record.blocked
    if blocked is not None and blocked != context.stored.record.blocked:
        yield Event(EventType.WARNING, blocked.reason, blocked.message)


def scale_events(context: ReconcileContext) -> Iterator[Event]:
    """Decisions of the autoscaler or a scale plan that take effect in this pass."""
    for scaling in context.scaling:
        yield Event(EventType.NORMAL, Reason.SCALED, str(scaling))


def create_events(creates: Creates) -> Iterator[Event]:
    """One event for all creates. The controller publishes it after they succeed, because creates may be rejected or delayed."""
    counts = [_count(objects, noun) for objects, noun in ((creates.pods, "pod"), (creates.services, "service")) if objects]
    if counts:
        reason = Reason.CREATED_PODS if creates.pods else Reason.CREATED_SERVICES
        yield Event(EventType.NORMAL, reason, f"Created {' and '.join(counts)}")


def delete_events(deletes: Sequence[Delete]) -> Iterator[Event]:
    """One event for all deleted pods, one for each cause of force-deleted pods, and one for each PodGroup."""
    pods = [delete for delete in deletes if delete.resource == PODS and not delete.is_retry]
    forced: dict[str, list[str]] = {}
    for delete in pods:
        if delete.grace_seconds == 0:
            forced.setdefault(delete.cause, []).append(delete.name)
    if deleted := [delete for delete in pods if delete.grace_seconds != 0]:
        yield Event(EventType.NORMAL, Reason.DELETED_PODS, f"Deleted {_count(deleted, 'pod')}")
    for cause, names in forced.items():
        message = f"Force-deleted {_count(names, 'pod')} ({_first(names)}): {cause}"
        yield Event(EventType.WARNING, Reason.FORCE_DELETED_PODS, message)
    yield from pod_group_events(deletes)


def pod_group_events(deletes: Sequence[Delete]) -> Iterator[Event]:
    """Deleted PodGroups."""
    for delete in deletes:
        if delete.resource in POD_GROUPS:
            yield Event(EventType.NORMAL, Reason.DELETED_POD_GROUP, f"Deleted podgroup {delete.name}")


def pending_spot_events(deletes: Sequence[Delete]) -> Iterator[Event]:
    """Spot pods that are replaced by pods on demand."""
    if deletes:
        message = f"Replaced {_count(deletes, 'spot pod')} that had not started, because spot replicas are created on demand now"
        yield Event(EventType.NORMAL, Reason.REPLACED_PODS, message)


def drift_events(deletes: Sequence[Delete]) -> Iterator[Event]:
    """Pods that are replaced because the spec has changed."""
    if deletes:
        message = f"Replaced {_count(deletes, 'pod')} that had not started, because the job's spec has changed"
        yield Event(EventType.NORMAL, Reason.REPLACED_PODS, message)


def spec_warning_events(context: ReconcileContext) -> Iterator[Event]:
    """Warnings about a new spec."""
    if context.spec_changed:
        warnings = spec_warnings(context.job, unreadable_for_queue=context.unreadable_for_queue)
        yield from (Event(EventType.WARNING, warning.reason, str(warning)) for warning in warnings)


def _batch(event_type: EventType, reason: str, failures: Sequence[LastFailure], verb: str) -> Iterator[Event]:
    if failures:
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        yield Event(event_type, reason, f"{describe_failure(failures[0])}{more}; {verb}")


def _count(objects: Sequence[object], noun: str) -> str:
    return f"{len(objects)} {noun}{'' if len(objects) == 1 else 's'}"


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
