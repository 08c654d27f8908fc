"""A job as a person wants to see it: one value, made of the job, its pods and what was told about them. Pure.

All moments are texts as Kubernetes writes them, empty when they are not known; a view becomes JSON as it stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from dlop.api.constants import JOB_UID_LABEL
from dlop.api.phase import Phase
from dlop.api.progress import ReplicaState
from dlop.api.record import Blocked, LastFailure, Record
from dlop.api.spec import JobSpec, RoleSpec, SpecError
from dlop.job import DLJob
from dlop.jobs.history import Happening, KubeEvent, history_of
from dlop.jobs.lookup import JobHandle
from dlop.jobs.pending_reasons import waits_of
from dlop.jobs.replicas import GONE, ReplicaView, replica_views
from dlop.kube.objects import Pod
from dlop.kube.timestamps import format_time

NOT_SEEN = "Unseen"
"""The phase of a job that no operator has looked at."""


class RoleView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How far one role has come."""

    name: str
    wanted: int
    pending: int
    running: int
    succeeded: int
    failed: int
    restarts: int
    disruptions: int


class JobView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All that there is to be seen of one job."""

    kind: str
    api_version: str
    reference: str
    """`plural.group/name`, which fits no other job of its namespace."""
    namespace: str
    name: str
    uid: str
    phase: str
    """A `Phase`, or `Unseen`."""
    message: str
    """What the status says of the phase, as a sentence."""
    is_leaving: bool
    created_at: str
    started_at: str
    finished_at: str
    attempt: int
    restarts: int
    disruptions: int
    roles: tuple[RoleView, ...]
    replicas: tuple[ReplicaView, ...]
    waits_for: tuple[str, ...]
    """Why it does not go on, a sentence each; empty when nothing is in the way."""
    blocked: Blocked | None
    last_failure: LastFailure | None
    history: tuple[Happening, ...]

    @property
    def has_succeeded(self) -> bool:
        """Whether it has come to a good end."""
        return self.phase == Phase.SUCCEEDED

    @property
    def is_over(self) -> bool:
        """Whether nothing more is run, unless the spec is mended."""
        return self.phase in (Phase.SUCCEEDED, Phase.FAILED, Phase.INVALID)

    @property
    def failed_replica(self) -> ReplicaView | None:
        """The replica whose failure was noted last, if it is still one of the job's."""
        failure = self.last_failure
        if failure is None:
            return None
        return next((each for each in self.replicas if (each.role, each.index) == (failure.role, failure.index)), None)


def view_of(found: JobHandle, pods: Iterable[Pod], events: Iterable[KubeEvent] = ()) -> JobView:
    """The view of a job, given the pods of its namespace and what was told there; those of others are left out."""
    job, record = found.job(), found.record()
    own = [pod for pod in pods if _belongs(pod, found.uid)]
    spec, problems = _spec_of(job)
    phase = found.phase()
    replicas = replica_views(job, spec, own, record=record, is_over=phase is not None and phase.is_end)
    names = {each.pod for each in replicas} | {pod.metadata.name for pod in own}
    message = problems if phase is Phase.INVALID and problems else _message(job)
    return JobView(
        kind=found.kind.job_type.kind,
        api_version=found.kind.job_type.api_version,
        reference=found.reference,
        namespace=found.namespace,
        name=found.name,
        uid=found.uid,
        phase=phase or NOT_SEEN,
        message=message,
        is_leaving=found.metadata.deletion_timestamp is not None,
        created_at=_moment(found),
        started_at=record.started_at or _text(job.stored_status.get("startTime")),
        finished_at=record.finished_at or _text(job.stored_status.get("completionTime")),
        attempt=record.attempt,
        restarts=sum(record.restarts.values()),
        disruptions=sum(record.disruptions.values()),
        roles=tuple(_roles(spec, replicas, record)),
        replicas=replicas,
        waits_for=tuple(waits_of(found, replicas, problems=problems)),
        blocked=record.blocked,
        last_failure=record.last_failure,
        history=history_of(found, events, pods=frozenset(names)),
    )


def _spec_of(job: DLJob) -> tuple[JobSpec, str]:
    """What the job asks for, or why that makes no sense."""
    try:
        return job.spec, ""
    except SpecError as error:
        return JobSpec(roles=()), str(error)


def _belongs(pod: Pod, uid: str) -> bool:
    owner = pod.metadata.controller
    return pod.metadata.labels.get(JOB_UID_LABEL) == uid if owner is None else owner.uid == uid


def _roles(spec: JobSpec, replicas: tuple[ReplicaView, ...], record: Record) -> Iterator[RoleView]:
    counts = Counter((each.role, each.state) for each in replicas)
    for role in spec.roles:
        yield _role(role, {state: count for (name, state), count in counts.items() if name == role.name}, record)


def _role(role: RoleSpec, counts: dict[str, int], record: Record) -> RoleView:
    running, succeeded, failed = (counts.get(state, 0) for state in (ReplicaState.RUNNING, ReplicaState.SUCCEEDED, ReplicaState.FAILED))
    return RoleView(
        name=role.name,
        wanted=role.replicas,
        pending=max(0, role.replicas - running - succeeded - failed - counts.get(GONE, 0)),
        running=running,
        succeeded=succeeded,
        failed=failed,
        restarts=record.restarts.get(role.name, 0),
        disruptions=record.disruptions.get(role.name, 0),
    )


def _message(job: DLJob) -> str:
    """The sentence of the condition that was said last, or of the kinds that have none, their reason."""
    status = job.stored_status
    conditions = status.get("conditions")
    said = [each for each in conditions if isinstance(each, dict)] if isinstance(conditions, list) else []
    true = [each for each in said if each.get("status") == "True" and each.get("type") != "Blocked"]
    return _text(true[-1].get("message")) if true else _text(status.get("reason"))


def _moment(found: JobHandle) -> str:
    moment = found.metadata.creation_timestamp
    return "" if moment is None else format_time(moment.timestamp())


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
