"""The state of a job as one value, built from the job, its pods and their events. Pure.

Times are RFC 3339 strings, empty if unknown. The JSON output of the commands is the encoded view.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import msgspec

from dlop.api.constants import JOB_UID_LABEL
from dlop.api.phase import Phase
from dlop.api.progress import Progress, ReplicaProgress, ReplicaState, RoleProgress
from dlop.api.record import Blocked, LastFailure, Record
from dlop.api.spec import JobSpec, RoleSpec, SpecError
from dlop.api.spot_replicas import disruptions_of, has_fallen_back
from dlop.api.start_order import StartWait, find_start_wait
from dlop.job import DLJob
from dlop.jobs.history import HistoryEntry, KubeEvent, build_history
from dlop.jobs.lookup import JobHandle
from dlop.jobs.pending_reasons import pending_reasons
from dlop.jobs.replicas import GONE, TERMINATING, ReplicaView, replica_views
from dlop.kube.objects import Pod
from dlop.kube.timestamps import format_time

NOT_RECONCILED = "NotReconciled"
"""The phase of a job that no operator has reconciled."""
_REPLICA_STATES = frozenset(ReplicaState)
_LOST_STATES = (ReplicaState.FAILED, ReplicaState.DISRUPTED, TERMINATING, GONE)


class RoleView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    desired: int
    minimum: int
    """Equals `desired` unless the role is elastic."""
    maximum: int
    pending: int
    running: int
    succeeded: int
    failed: int
    restarts: int
    disruptions: int
    """Without those of spot replicas."""
    spot_replicas: int = 0
    spot_disruptions: int = 0
    is_on_demand: bool = False
    """Whether the spot replicas are created on demand, because they were disrupted too often."""


class JobView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    kind: str
    api_version: str
    reference: str
    """`plural.group/name`, unique in the namespace."""
    namespace: str
    name: str
    uid: str
    phase: str
    """A `Phase` or `NotReconciled`."""
    message: str
    """From the status conditions."""
    is_terminating: bool
    created_at: str
    started_at: str
    finished_at: str
    attempt: int
    restarts: int
    disruptions: int
    roles: tuple[RoleView, ...]
    replicas: tuple[ReplicaView, ...]
    pending_reasons: tuple[str, ...]
    """Why the job does not make progress, most important first; empty if it does."""
    pending_reason: str
    """The first of these as a reason and one clause."""
    blocked: Blocked | None
    last_failure: LastFailure | None
    history: tuple[HistoryEntry, ...]
    code: tuple[str, ...] = ()
    """The git repositories that are cloned into the pods, with their directories."""

    @property
    def has_succeeded(self) -> bool:
        return self.phase == Phase.SUCCEEDED

    @property
    def is_finished(self) -> bool:
        """Whether no more pods are started. An invalid job restarts when its spec changes."""
        return self.phase in (Phase.SUCCEEDED, Phase.FAILED, Phase.INVALID)

    @property
    def failed_replica(self) -> ReplicaView | None:
        """The replica of the last failure; None if the job has none or no longer has the replica."""
        failure = self.last_failure
        if failure is None:
            return None
        return next((replica for replica in self.replicas if (replica.role, replica.index) == (failure.role, failure.index)), None)


def build_view(job: JobHandle, pods: Iterable[Pod], events: Iterable[KubeEvent] = ()) -> JobView:
    """The view of a job. Pods and events of other jobs are ignored."""
    dl_job, record = job.dl_job(), job.record()
    own_pods = {pod.metadata.uid: pod for pod in pods if _is_owned(pod, job.uid)}
    spec, spec_errors = _parse_spec(dl_job)
    phase = job.phase()
    replicas = replica_views(dl_job, spec, own_pods.values(), record=record, is_finished=phase is not None and phase.is_finished)
    pod_names = {replica.pod for replica in replicas} | {pod.metadata.name for pod in own_pods.values()}
    message = spec_errors if phase is Phase.INVALID and spec_errors else _condition_message(dl_job)
    reasons = list(pending_reasons(job, replicas, spec_errors=spec_errors, start_waits=_start_waits(spec, replicas, own_pods)))
    return JobView(
        kind=job.kind.job_type.kind,
        api_version=job.kind.job_type.api_version,
        reference=job.reference,
        namespace=job.namespace,
        name=job.name,
        uid=job.uid,
        phase=phase or NOT_RECONCILED,
        message=message,
        is_terminating=job.metadata.deletion_timestamp is not None,
        created_at=_creation_time(job),
        started_at=record.started_at or _string_or_empty(dl_job.stored_status.get("startTime")),
        finished_at=record.finished_at or _string_or_empty(dl_job.stored_status.get("completionTime")),
        attempt=record.attempt,
        restarts=sum(record.restarts.values()),
        disruptions=sum(record.disruptions.values()),
        roles=tuple(_role_views(_sized_roles(dl_job, spec, replicas), replicas, record)),
        replicas=replicas,
        pending_reasons=tuple(map(str, reasons)),
        pending_reason=reasons[0].summary if reasons else "",
        blocked=record.blocked,
        last_failure=record.last_failure,
        history=build_history(job, events, pods=frozenset(pod_names)),
        code=tuple(f"{source} in {source.destination}" for source in spec.run_policy.code_sync),
    )


def _parse_spec(job: DLJob) -> tuple[JobSpec, str]:
    """The spec, or an empty one and its errors."""
    try:
        return job.spec, ""
    except SpecError as error:
        return JobSpec(roles=()), str(error)


def _is_owned(pod: Pod, uid: str) -> bool:
    owner = pod.metadata.controller
    return pod.metadata.labels.get(JOB_UID_LABEL) == uid if owner is None else owner.uid == uid


def _start_waits(spec: JobSpec, replicas: Iterable[ReplicaView], pods: Mapping[str, Pod]) -> Iterator[StartWait]:
    """The roles without pods that wait for other roles."""
    if not any(role.start_after for role in spec.roles):
        return
    replicas_by_role = {role.name: role.replicas for role in spec.roles}
    by_role: dict[str, list[ReplicaProgress]] = {role.name: [] for role in spec.roles}
    for replica in replicas:
        if replica.index >= replicas_by_role.get(replica.role, 0):
            continue  # a surplus pod
        state = ReplicaState(replica.state) if replica.state in _REPLICA_STATES else ReplicaState.MISSING
        replica_progress = ReplicaProgress(role=replica.role, index=replica.index, state=state, pod=pods.get(replica.pod_uid))
        by_role[replica.role].append(replica_progress)
    progress = Progress(roles=tuple(RoleProgress(spec=role, replicas=tuple(by_role[role.name])) for role in spec.roles))
    for role in progress.roles:
        wait = find_start_wait(role.spec, progress) if role.count(ReplicaState.MISSING) else None
        if wait is not None:
            yield wait


def _sized_roles(job: DLJob, spec: JobSpec, replicas: Iterable[ReplicaView]) -> Iterator[RoleSpec]:
    """The roles with their number of replicas. A role that the master of the job manages has as many as it has pods, or is left out."""
    counts = Counter(replica.role for replica in replicas if replica.state not in _LOST_STATES)
    for role in spec.roles:
        if job.members is None or role.name not in job.members.roles:
            yield role
        elif counts[role.name]:
            yield replace(role, replicas=counts[role.name])


def _role_views(roles: Iterable[RoleSpec], replicas: tuple[ReplicaView, ...], record: Record) -> Iterator[RoleView]:
    counts = Counter((replica.role, replica.state) for replica in replicas)
    for role in roles:
        yield _role_view(role, {state: count for (name, state), count in counts.items() if name == role.name}, record)


def _role_view(role: RoleSpec, counts: dict[str, int], record: Record) -> RoleView:
    spot, spot_disruptions = role.spot, disruptions_of(role, record)
    running, succeeded, failed = (counts.get(state, 0) for state in (ReplicaState.RUNNING, ReplicaState.SUCCEEDED, ReplicaState.FAILED))
    return RoleView(
        name=role.name,
        desired=role.replicas,
        minimum=role.minimum,
        maximum=role.replicas if role.elastic is None else role.elastic.maximum,
        pending=max(0, role.replicas - running - succeeded - failed - counts.get(GONE, 0)),
        running=running,
        succeeded=succeeded,
        failed=failed,
        restarts=record.restarts.get(role.name, 0),
        disruptions=record.disruptions.get(role.name, 0),
        spot_replicas=0 if spot is None else min(spot.count, role.replicas),
        spot_disruptions=spot_disruptions,
        is_on_demand=spot is not None and has_fallen_back(spot, spot_disruptions),
    )


def _condition_message(job: DLJob) -> str:
    """The message of the latest true condition. Kinds without conditions have a reason instead."""
    status = job.stored_status
    conditions = status.get("conditions")
    entries = [each for each in conditions if isinstance(each, dict)] if isinstance(conditions, list) else []
    true = [each for each in entries if each.get("status") == "True" and each.get("type") != "Blocked"]
    return _string_or_empty(true[-1].get("message")) if true else _string_or_empty(status.get("reason"))


def _creation_time(job: JobHandle) -> str:
    created = job.metadata.creation_timestamp
    return "" if created is None else format_time(created.timestamp())


def _string_or_empty(value: object) -> str:
    return value if isinstance(value, str) else ""
