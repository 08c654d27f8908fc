"""How things stand once a plan has been carried out, told in the same write and not in one more."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from dlop.api.progress import Progress, ReplicaProgress, ReplicaState, RoleProgress
from dlop.reconcile.context import Case
from dlop.reconcile.observe import Account
from dlop.reconcile.plan import Creation, Deletion


def when_created(case: Case, progress: Progress, pods: Collection[Creation]) -> Progress:
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


def nothing_is_left(case: Case, account: Account, progress: Progress, gone: Collection[Deletion]) -> bool:
    """Whether there is nothing more to do, now that every replica has its pod, until something happens to one of them."""
    unfinished = gone or account.losses or case.surplus or case.outdated or case.stored.record.written_off
    hindered = case.taken or case.snapshot.refusals
    return not unfinished and not hindered and not any(role.count(ReplicaState.MISSING) for role in progress.roles)
