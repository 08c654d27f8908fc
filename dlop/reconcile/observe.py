"""Observes the pods of a job: the state of each replica, and failures that are not in the record yet. Each is counted once.

If the pods belong to a later attempt than the record, the record is stale: the cache lags behind, or an older status was
restored or the status was cleared. These cases cannot be distinguished. The pass therefore writes only the latest attempt into
the status. If the cache is stale, the write fails with a conflict; otherwise the next pass continues from it.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from dlop.api.constants import SPOT_ANNOTATION, Reason
from dlop.api.progress import Progress, ReplicaProgress, ReplicaState, RoleProgress
from dlop.api.record import LastFailure, Record, RecordBuilder, record_to_json
from dlop.api.spec import RestartScope
from dlop.kube.objects import Pod
from dlop.kube.timestamps import format_time
from dlop.kube.types import JsonObject
from dlop.reconcile.code_sync import explain_failed_clone
from dlop.reconcile.context import ReconcileContext, ReplicaId
from dlop.reconcile.pod_state import PodState, classify_pod, container_restarts, main_container_failure, pod_failure, pod_replacement
from dlop.reconcile.restart import LostReplica, state_after_failure

_UNFINISHED = (PodState.PENDING, PodState.RUNNING, PodState.TERMINATING)


@dataclass(frozen=True, slots=True)
class Observation:
    builder: RecordBuilder
    progress: Progress
    lost_replicas: tuple[LostReplica, ...]
    """Replicas that have to be restarted and are not in the record yet."""
    restarted_in_place: tuple[LastFailure, ...]
    """Replicas whose containers the kubelet has restarted since the last record."""
    redundant_pods: tuple[Pod, ...]
    """Pods that have not finished, of replicas that have. They are deleted, and nothing that happens to them is counted."""


def observe(context: ReconcileContext) -> Observation:
    """Observe all desired replicas."""
    return _Observer(context).observe()


class _Observer:
    def __init__(self, context: ReconcileContext) -> None:
        self._context = context
        self._builder = context.record_builder()
        self._accounted_uids = context.accounted_uids | _replace_renamed_pods(context, self._builder)
        if context.spec_changed:
            self._builder.backoffs.clear()
        self._lost: list[LostReplica] = []
        self._restarted: list[LastFailure] = []
        self._redundant: list[Pod] = []

    def observe(self) -> Observation:
        replicas: dict[str, list[ReplicaProgress]] = {role.name: [] for role in self._context.spec.roles}
        for name, replica in self._context.desired_pods.items():
            replicas[replica.role.name].append(self._replica(replica, name))
        roles = tuple(RoleProgress(spec=role, replicas=tuple(replicas[role.name])) for role in self._context.spec.roles)
        return Observation(self._builder, Progress(roles=roles), tuple(self._lost), tuple(self._restarted), tuple(self._redundant))

    def _replica(self, replica: ReplicaId, name: str) -> ReplicaProgress:
        """A finished replica stays finished, whatever happens to its pod."""
        role, index = replica.role.name, replica.index
        pod = _current_pod(self._context, name)
        is_completed, is_failed = index in self._builder.completed_indexes[role], index in self._builder.failed_indexes[role]
        if pod is None:
            self._builder.counted_restarts[role].pop(index, None)
        elif (is_completed or is_failed) and classify_pod(pod, replica.role) in _UNFINISHED:
            # The result came from another pod. For example, a rename that was reverted has created this one.
            self._add_redundant(pod)
            pod = None
        elif not self._is_accounted(pod):
            self._builder.raise_replacements(role, index, pod_replacement(pod))
            self._count_restarts(replica, pod)
        if is_completed:
            return _progress(replica, ReplicaState.SUCCEEDED, pod)
        if is_failed:
            return _progress(replica, ReplicaState.FAILED, pod, self._failure(replica, pod) if pod else None)
        return self._without_pod(replica, name) if pod is None else self._with_pod(replica, pod)

    def _add_redundant(self, pod: Pod) -> None:
        if pod.metadata.deletion_timestamp is None and not self._is_accounted(pod):
            self._redundant.append(pod)

    def _without_pod(self, replica: ReplicaId, name: str) -> ReplicaProgress:
        if not self._is_claimed(replica):
            return _progress(replica, ReplicaState.MISSING)
        failure = LastFailure(
            pod=name,
            role=replica.role.name,
            index=replica.index,
            reason=Reason.DISRUPTED,
            message="the pod was deleted",
            time=format_time(self._context.now),
        )
        return self._lost_replica(replica, ReplicaState.DISRUPTED, None, failure)

    def _with_pod(self, replica: ReplicaId, pod: Pod) -> ReplicaProgress:
        match classify_pod(pod, replica.role):
            case PodState.PENDING:
                return _progress(replica, ReplicaState.PENDING, pod)
            case PodState.RUNNING if self._is_accounted(pod):
                return _progress(replica, ReplicaState.MISSING, pod)
            case PodState.RUNNING:
                self._builder.started_indexes[replica.role.name].add(replica.index)
                return _progress(replica, ReplicaState.RUNNING, pod)
            case PodState.SUCCEEDED:
                self._builder.started_indexes[replica.role.name].discard(replica.index)
                self._builder.completed_indexes[replica.role.name].add(replica.index)
                return _progress(replica, ReplicaState.SUCCEEDED, pod)
            case PodState.TERMINATING:
                return self._terminating(replica, pod)
            case PodState.DISRUPTED:
                return self._lost_replica(replica, ReplicaState.DISRUPTED, pod, self._failure(replica, pod))
            case PodState.FAILED:
                return self._failed(replica, pod)

    def _terminating(self, replica: ReplicaId, pod: Pod) -> ReplicaProgress:
        """The operator releases its claim before it deletes a pod. A claimed pod that is terminating was deleted by another client."""
        if not self._is_claimed(replica) and not self._is_accounted(pod):
            return _progress(replica, ReplicaState.MISSING, pod)
        return self._lost_replica(replica, ReplicaState.DISRUPTED, pod, self._failure(replica, pod))

    def _failed(self, replica: ReplicaId, pod: Pod) -> ReplicaProgress:
        """The main container decides about the restart. The reported failure is the most informative one."""
        failure = self._failure(replica, pod)
        main_failure = main_container_failure(pod, replica.role, replica.index, now=self._context.now)
        job = self._context.job
        is_final = job.lifecycle.is_final_failure(job, replica.role, replica.index, main_failure)
        if state_after_failure(replica.role.restart_policy, main_failure, is_final=is_final) is ReplicaState.RESTARTING:
            return self._lost_replica(replica, ReplicaState.RESTARTING, pod, failure)
        self._builder.started_indexes[replica.role.name].discard(replica.index)
        self._builder.failed_indexes[replica.role.name].add(replica.index)
        self._builder.update_last_failure(failure)
        return _progress(replica, ReplicaState.FAILED, pod, failure)

    def _lost_replica(self, replica: ReplicaId, state: ReplicaState, pod: Pod | None, failure: LastFailure) -> ReplicaProgress:
        if pod is None or not self._is_accounted(pod):
            self._lost.append(LostReplica(state=state, failure=failure, is_spot=self._was_spot(replica, pod)))
        return _progress(replica, state, pod, failure)

    def _was_spot(self, replica: ReplicaId, pod: Pod | None) -> bool:
        """Whether a lost pod was a spot pod. Of a pod that is gone, the spec and the record say what it should have been."""
        if replica.role.spot is None:
            return False  # the common case
        return self._context.job.is_spot(replica.role, replica.index) if pod is None else SPOT_ANNOTATION in pod.metadata.annotations

    def _count_restarts(self, replica: ReplicaId, pod: Pod) -> None:
        """Count container restarts by the kubelet."""
        restarts, counted = container_restarts(pod), self._builder.counted_restarts[replica.role.name]
        new = restarts - counted.get(replica.index, 0)
        if new > 0:
            counted[replica.index] = restarts
            self._builder.count_restarts(replica.role.name, new)
            self._restarted.append(self._failure(replica, pod))
            self._builder.update_last_failure(self._restarted[-1])

    def _failure(self, replica: ReplicaId, pod: Pod) -> LastFailure:
        failure = pod_failure(pod, replica.role, replica.index, now=self._context.now)
        sources = self._context.policy.code_sync
        return explain_failed_clone(failure, pod, sources) if sources else failure

    def _is_claimed(self, replica: ReplicaId) -> bool:
        return replica.index in self._builder.started_indexes[replica.role.name]

    def _is_accounted(self, pod: Pod) -> bool:
        """Whether the pod is replaced, and its loss is in the record or must not be counted."""
        return bool(self._accounted_uids) and pod.metadata.uid in self._accounted_uids


def _current_pod(context: ReconcileContext, name: str) -> Pod | None:
    """The pod of a replica, if it belongs to the current attempt."""
    return None if name in context.stale_pod_names else context.pods.get(name)


def _replace_renamed_pods(context: ReconcileContext, builder: RecordBuilder) -> frozenset[str]:
    """Account for the pods with counted container restarts that a change of the spec has renamed.

    Returns the UIDs of existing pods that have the same replacement number, although they have the new names. They are replaced, too.
    Pods that belong to their replicas under the old names are kept.
    """
    if not builder.renamed_roles:
        return frozenset()  # the common case
    names = {(replica.role.name, replica.index): name for name, replica in context.desired_pods.items()}
    uids: set[str] = set()
    for role in builder.renamed_roles:
        for index in tuple(builder.counted_restarts[role]):
            name = names.get((role, index), "")
            pod = _current_pod(context, name)
            if pod is None or pod.metadata.name == name:
                builder.replace_pod(role, index)
                uids |= {pod.metadata.uid} if pod is not None else set()
    return frozenset(uids)


def _progress(replica: ReplicaId, state: ReplicaState, pod: Pod | None = None, failure: LastFailure | None = None) -> ReplicaProgress:
    return ReplicaProgress(role=replica.role.name, index=replica.index, state=state, pod=pod, failure=failure)


def with_latest_attempt(context: ReconcileContext) -> JsonObject:
    """The stored status, with the record advanced to the latest attempt of the pods."""
    return {**context.job.stored_status, "dlop": record_to_json(_advance_record(context))}


def _advance_record(context: ReconcileContext) -> Record:
    """Discards the results of earlier attempts. Takes over phase and start time from a status that another operator wrote."""
    builder, stored = context.record_builder(), context.stored
    _replace_renamed_pods(context, builder)
    if context.policy.restart_scope is RestartScope.JOB:
        builder.attempt += max(context.unrecorded_attempts.values())
        builder.reset_all_roles()
    else:
        for role, attempts in context.unrecorded_attempts.items():
            builder.role_attempts[role] = builder.role_attempts.get(role, 0) + attempts
            builder.reset_role(role)
    return msgspec.structs.replace(
        builder.build(),
        pods_version=context.snapshot.pods_version,
        phase=stored.phase.value if stored.phase else "",
        started_at="" if stored.started_at is None else format_time(stored.started_at),
    )
