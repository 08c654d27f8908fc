"""What has to be created now: what the kind needs besides, then services, then pods.

A create that was refused is asked for again in every pass; when it is tried again is for the one who carries out the plan.

How things stand once a plan has been carried out, told in the same write and not in one more.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from dataclasses import dataclass, replace

from dlop.api.child_objects import Create
from dlop.api.progress import Progress, ReplicaProgress, ReplicaState, RoleProgress
from dlop.kube.resources import PODS, SERVICES
from dlop.reconcile.backoff import unit_of
from dlop.reconcile.children import as_of_now
from dlop.reconcile.context import ReconcileContext
from dlop.reconcile.gang.admission import is_held
from dlop.reconcile.gang.podgroup import group_to_create
from dlop.reconcile.observe import Observation
from dlop.reconcile.plan import Delete


@dataclass(frozen=True, slots=True)
class Creations:
    """The three steps. Where a name of one step is taken by somebody else, the steps after it wait."""

    others: tuple[Create, ...] = ()
    services: tuple[Create, ...] = ()
    pods: tuple[Create, ...] = ()


def to_create(case: ReconcileContext, progress: Progress, *, resting: Container[str] = ()) -> Creations:
    """Everything that is missing and may be there by now. The pods of what rests come later."""
    if case.unreadable:
        return Creations()
    free = [creation for creation in case.other_objects if _is_free(case, creation)]
    others = group_to_create(case, progress) + as_of_now(case, progress, free)
    if is_held(case) or any(resource not in (PODS, SERVICES) for resource, _ in case.taken):
        return Creations(others=others)
    services = _services(case)
    if any(resource == SERVICES for resource, _ in case.taken):
        return Creations(others=others, services=services)
    return Creations(others=others, services=services, pods=_pods(case, progress, resting))


def _is_free(case: ReconcileContext, creation: Create) -> bool:
    place = (creation.resource, creation.name)
    return not case.is_there(*place) and place not in case.taken and place not in case.snapshot.lent


def _services(case: ReconcileContext) -> tuple[Create, ...]:
    missing = (replica for name, replica in case.service_names.items() if name not in case.services and (SERVICES, name) not in case.taken)
    bodies = (case.job.make_service(replica.role, replica.index) for replica in missing)
    return tuple(Create(SERVICES, body) for body in bodies if body is not None)


def _pods(case: ReconcileContext, progress: Progress, resting: Container[str]) -> tuple[Create, ...]:
    """A role starts when its turn has come and nothing of an earlier attempt is left."""
    found: list[Create] = []
    for role in progress.roles:
        missing = [replica for replica in role.replicas if _is_missing(replica) and not _rests(case, replica, resting)]
        if missing and not case.has_outdated(role.spec) and case.job.may_start(role.spec, progress):
            attempt = case.attempts[role.spec.name]
            bodies = (case.job.make_pod(role.spec, replica.index, attempt=attempt) for replica in missing)
            found += [pod for pod in (Create(PODS, body) for body in bodies) if _is_free(case, pod)]
    return tuple(found)


def _rests(case: ReconcileContext, replica: ReplicaProgress, resting: Container[str]) -> bool:
    return bool(resting) and unit_of(case.policy.restart_scope, replica.role, replica.index) in resting


def _is_missing(replica: ReplicaProgress) -> bool:
    return replica.state is ReplicaState.MISSING and replica.pod is None


def when_created(case: ReconcileContext, progress: Progress, pods: Collection[Create]) -> Progress:
    """A replica whose pod is created waits for it to run. While creates are refused, nobody knows what will come of them."""
    if not pods or case.snapshot.refusals:
        return progress
    created = {(case.names[pod.name].role.name, case.names[pod.name].index) for pod in pods}

    def told(replica: ReplicaProgress) -> ReplicaProgress:
        is_new = (replica.role, replica.index) in created
        return replace(replica, state=ReplicaState.PENDING) if is_new else replica

    def of_role(role: RoleProgress) -> RoleProgress:
        return replace(role, replicas=tuple(told(replica) for replica in role.replicas))

    return Progress(roles=tuple(of_role(role) for role in progress.roles))


def nothing_is_left(case: ReconcileContext, account: Observation, progress: Progress, gone: Collection[Delete]) -> bool:
    """Whether there is nothing more to do, now that every replica has its pod, until something happens to one of them."""
    unfinished = gone or account.losses or case.surplus or case.outdated or case.stored.record.written_off
    hindered = case.taken or case.snapshot.refusals
    return not unfinished and not hindered and not any(role.count(ReplicaState.MISSING) for role in progress.roles)
