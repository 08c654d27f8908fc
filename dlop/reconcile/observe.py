"""What has happened to the replicas since the last record: each thing is found out once, and written into the ledger.

A record that is behind the pods: they are of attempts that it does not know of.

It may be an old copy of a record that is stored, in a cache that lags. Or there is no other: somebody has put back an older
status, or wiped it out. Which of them it is cannot be seen. So the latest attempt is written down and nothing else is done:
what is no copy of the stored status cannot be written over it, and a pass that can go on is one that has seen the write.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from dlop.api.constants import Reason
from dlop.api.progress import Progress, ReplicaProgress, ReplicaState, RoleProgress
from dlop.api.record import LastFailure, Record, plain
from dlop.api.spec import RestartScope
from dlop.kube.objects import Pod
from dlop.kube.timestamps import format_time
from dlop.kube.types import JsonObject
from dlop.reconcile.context import ReconcileContext, ReplicaId
from dlop.reconcile.pod_state import PodState, classify_pod, failure_of, own_failure_of, restarts_of
from dlop.reconcile.record_builder import RecordBuilder
from dlop.reconcile.restart import LostReplica, after_failure


@dataclass(frozen=True, slots=True)
class Observation:
    """What a pass has found."""

    ledger: RecordBuilder
    progress: Progress
    losses: tuple[LostReplica, ...]
    """Replicas that have to be started again, and are not in the record yet."""
    restarted: tuple[LastFailure, ...]
    """Replicas whose containers the node has restarted since the last record."""


def observe(case: ReconcileContext) -> Observation:
    """Look at every replica that the job asks for."""
    return _Observer(case).account()


class _Observer:
    """Goes through the replicas once. The ledger is the only thing outside of it that it changes."""

    def __init__(self, case: ReconcileContext) -> None:
        self._case = case
        self._ledger = case.record_builder()
        if case.is_edited:
            self._ledger.retries.clear()
        self._losses: list[LostReplica] = []
        self._restarted: list[LastFailure] = []

    def account(self) -> Observation:
        replicas: dict[str, list[ReplicaProgress]] = {role.name: [] for role in self._case.spec.roles}
        for name, replica in self._case.names.items():
            replicas[replica.role.name].append(self._replica(replica, name))
        roles = tuple(RoleProgress(spec=role, replicas=tuple(replicas[role.name])) for role in self._case.spec.roles)
        return Observation(self._ledger, Progress(roles=roles), tuple(self._losses), tuple(self._restarted))

    def _replica(self, replica: ReplicaId, name: str) -> ReplicaProgress:
        """A replica that has come to its end stays there, whatever has become of its pod."""
        pod = self._current(name)
        if pod is not None:
            self._count_restarts(replica, pod)
        if replica.index in self._ledger.completed[replica.role.name]:
            return _progress(replica, ReplicaState.SUCCEEDED, pod)
        if replica.index in self._ledger.failed[replica.role.name]:
            return self._failed(replica, pod)
        return self._without_pod(replica, name) if pod is None else self._with_pod(replica, pod)

    def _current(self, name: str) -> Pod | None:
        """The pod of a replica, if it belongs to the attempt that counts."""
        return None if name in self._case.outdated_names else self._case.pods.get(name)

    def _without_pod(self, replica: ReplicaId, name: str) -> ReplicaProgress:
        if not self._is_claimed(replica):
            return _progress(replica, ReplicaState.MISSING)
        failure = LastFailure(
            pod=name,
            role=replica.role.name,
            index=replica.index,
            reason=Reason.DISRUPTED,
            message="the pod is gone",
            time=format_time(self._case.now),
        )
        return self._lost(replica, ReplicaState.DISRUPTED, None, failure)

    def _with_pod(self, replica: ReplicaId, pod: Pod) -> ReplicaProgress:
        match classify_pod(pod, replica.role):
            case PodState.WAITS:
                return _progress(replica, ReplicaState.PENDING, pod)
            case PodState.RUNS:
                self._ledger.started[replica.role.name].add(replica.index)
                return _progress(replica, ReplicaState.RUNNING, pod)
            case PodState.SUCCEEDED:
                self._ledger.started[replica.role.name].discard(replica.index)
                self._ledger.completed[replica.role.name].add(replica.index)
                return _progress(replica, ReplicaState.SUCCEEDED, pod)
            case PodState.LEAVES:
                return self._leaving(replica, pod)
            case PodState.TAKEN_AWAY:
                return self._lost(replica, ReplicaState.DISRUPTED, pod, self._failure(replica, pod))
            case PodState.FAILED:
                return self._after_failure(replica, pod)

    def _leaving(self, replica: ReplicaId, pod: Pod) -> ReplicaProgress:
        """The claim to a pod is given up before it is deleted. A claimed pod that leaves is deleted by somebody else."""
        if not self._is_claimed(replica) and not self._is_written_off(pod):
            return _progress(replica, ReplicaState.MISSING, pod)
        return self._lost(replica, ReplicaState.DISRUPTED, pod, self._failure(replica, pod))

    def _after_failure(self, replica: ReplicaId, pod: Pod) -> ReplicaProgress:
        """The main container alone decides what is done; whatever tells most is what is told."""
        failure = self._failure(replica, pod)
        own = own_failure_of(pod, replica.role, replica.index, now=self._case.now)
        is_final = self._case.job.is_final_failure(replica.role, replica.index, own)
        if after_failure(replica.role.restart_policy, own, is_final=is_final) is ReplicaState.RESTARTING:
            return self._lost(replica, ReplicaState.RESTARTING, pod, failure)
        self._ledger.started[replica.role.name].discard(replica.index)
        self._ledger.failed[replica.role.name].add(replica.index)
        self._ledger.note(failure)
        return _progress(replica, ReplicaState.FAILED, pod, failure)

    def _lost(self, replica: ReplicaId, state: ReplicaState, pod: Pod | None, failure: LastFailure) -> ReplicaProgress:
        if pod is None or not self._is_written_off(pod):
            self._losses.append(LostReplica(state=state, failure=failure, uid=pod.metadata.uid if pod else ""))
        return _progress(replica, state, pod, failure)

    def _failed(self, replica: ReplicaId, pod: Pod | None) -> ReplicaProgress:
        return _progress(replica, ReplicaState.FAILED, pod, self._failure(replica, pod) if pod else None)

    def _count_restarts(self, replica: ReplicaId, pod: Pod) -> None:
        """What the node has restarted by itself counts as well."""
        uid, restarts = pod.metadata.uid, restarts_of(pod)
        new = restarts - self._ledger.counted.get(uid, 0)
        if new > 0:
            self._ledger.counted[uid] = restarts
            self._ledger.count_restarts(replica.role.name, new)
            self._restarted.append(self._failure(replica, pod))
            self._ledger.note(self._restarted[-1])

    def _failure(self, replica: ReplicaId, pod: Pod) -> LastFailure:
        return failure_of(pod, replica.role, replica.index, now=self._case.now)

    def _is_claimed(self, replica: ReplicaId) -> bool:
        return replica.index in self._ledger.started[replica.role.name]

    def _is_written_off(self, pod: Pod) -> bool:
        return pod.metadata.uid in self._ledger.written_off


def _progress(replica: ReplicaId, state: ReplicaState, pod: Pod | None = None, failure: LastFailure | None = None) -> ReplicaProgress:
    return ReplicaProgress(role=replica.role.name, index=replica.index, state=state, pod=pod, failure=failure)


def with_latest_attempt(case: ReconcileContext) -> JsonObject:
    """The stored status, with the latest attempt that there are pods of in its record."""
    return {**case.job.stored_status, "dlop": plain(_caught_up(case))}


def _caught_up(case: ReconcileContext) -> Record:
    """What was done in earlier attempts no longer counts. What another operator has written of the job goes into the record."""
    ledger, stored = case.record_builder(), case.stored
    if case.policy.restart_scope is RestartScope.JOB:
        ledger.attempt += max(case.missed_attempts.values())
        ledger.forget_all()
    else:
        for role, attempts in case.missed_attempts.items():
            ledger.role_attempts[role] = ledger.role_attempts.get(role, 0) + attempts
            ledger.forget(role)
    return msgspec.structs.replace(
        ledger.close(living=(pod.metadata.uid for pod in case.snapshot.pods)),
        phase=stored.phase.value if stored.phase else "",
        started_at="" if stored.started_at is None else format_time(stored.started_at),
    )
