"""A job that is to hold still: its pods and services go, what it has done so far stays written down."""

from __future__ import annotations

from dataclasses import replace

from dlop.api.progress import Progress, ReplicaProgress, ReplicaState
from dlop.reconcile.context import ReconcileContext
from dlop.reconcile.deletion import deletions, overdue, passing, surplus_services
from dlop.reconcile.observe import Observation
from dlop.reconcile.plan import Delete

_KEPT = (ReplicaState.SUCCEEDED, ReplicaState.FAILED)


def hold(account: Observation) -> Progress:
    """Give up the claim to every pod, and say how far the job has come. Losses found now do not matter any more."""
    account.ledger.let_go()
    return Progress(roles=tuple(replace(role, replicas=tuple(map(_held, role.replicas))) for role in account.progress.roles))


def to_take_away(case: ReconcileContext) -> tuple[Delete, ...]:
    """All pods, the services of all replicas that there are or were, and what is only for a job that goes on."""
    asked_for = (service for service in case.snapshot.services if service.metadata.name in case.service_names)
    return deletions(case.snapshot.pods, (*asked_for, *surplus_services(case))) + overdue(case, case.snapshot.pods) + passing(case)


def _held(replica: ReplicaProgress) -> ReplicaProgress:
    return replica if replica.state in _KEPT else replace(replica, state=ReplicaState.MISSING, failure=None)
