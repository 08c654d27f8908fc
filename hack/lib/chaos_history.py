"""The history of one job in a chaos test: changes of the job, of its pods and of its other objects, and injected faults.

All changes come from one etcd, so their revisions are comparable across resources. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import msgspec

from dlop.api.constants import ATTEMPT_LABEL, SPOT_ANNOTATION
from dlop.api.phase import Phase
from dlop.api.record import Record, parse_record
from dlop.api.scale_plan import Member
from dlop.api.tensorboard import COMPANION_LABEL
from dlop.job import DLJob
from dlop.kube.objects import CustomObject, Pod, object_decoder
from dlop.kube.types import JsonObject

ReplicaKey: TypeAlias = tuple[str, int]
"""Role and index."""

FINAL_POD_PHASES = ("Succeeded", "Failed")
_SPARE_INDEXES = 8
"""A pod that was removed by scaling still has a role and an index."""

NO_RECORD = Record()

_decode_job = object_decoder(CustomObject)
_decode_pod = object_decoder(Pod)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodChange:
    revision: int
    seconds: float
    """Since the start of the test."""
    name: str
    uid: str
    replica: ReplicaKey
    attempt: int
    created: bool = False
    deleted: bool = False
    phase: str = "Pending"
    exit_code: int | None = None
    disrupted: bool = False
    """Whether the pod is marked as evicted or preempted."""
    container_restarts: int = 0
    deletion_requested_at: float | None = None
    """Seconds since the epoch; None if nobody has deleted the pod."""
    finished_at: float | None = None
    """Seconds since the epoch, without fractions."""
    ready: bool = False
    spot: bool = False
    """Whether it is a spot pod."""
    host_ports: frozenset[int] = frozenset()
    init_containers: tuple[str, ...] = ()

    def __str__(self) -> str:
        words = ["created" if self.created else "deleted" if self.deleted else self.phase]
        words += [f"exit code {self.exit_code}"] if self.exit_code is not None else []
        words += [f"{self.container_restarts} container restarts"] if self.container_restarts else []
        words += ["disrupted"] if self.disrupted else []
        words += ["spot"] if self.spot and self.created else []
        words += [f"host ports {sorted(self.host_ports)}"] if self.host_ports and self.created else []
        words += ["terminating"] if self.deletion_requested_at is not None and not self.deleted else []
        return f"pod {self.name} ({self.uid[:8]}, attempt {self.attempt}): {', '.join(words)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChange:
    revision: int
    seconds: float
    generation: int = 1
    deleted: bool = False
    suspended: bool = False
    replicas: Mapping[str, int] = field(default_factory=dict)
    record: Record = NO_RECORD
    message: str = ""
    """Conditions and reason of the status, which name the limit that a failed job has exceeded."""
    is_repetition: bool = False
    """Whether spec and status are those of the previous change, except for the version of the pod cache."""

    @property
    def is_finished(self) -> bool:
        return self.record.phase in (Phase.SUCCEEDED, Phase.FAILED)

    def __str__(self) -> str:
        record = msgspec.to_builtins(self.record)
        shown = {name: record[name] for name in ("phase", *_SHOWN_FIELDS) if record.get(name)}
        size = ",".join(f"{role}={count}" for role, count in self.replicas.items())
        state = "deleted" if self.deleted else f"generation {self.generation}{' suspended' if self.suspended else ''}, {size}"
        return f"job: {state}, {msgspec.json.encode(shown).decode()}"


_SHOWN_FIELDS = (
    *("observedGeneration", "attempt", "roleAttempts", "restarts", "disruptions", "spotDisruptions"),
    *("completedIndexes", "failedIndexes", "startedIndexes", "hostPorts", "blocked"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildChange:
    """A change of an object that the job owns and that is not a pod."""

    revision: int
    seconds: float
    key: str
    created: bool = False
    deleted: bool = False

    def __str__(self) -> str:
        return f"{self.key}: {'created' if self.created else 'deleted' if self.deleted else 'changed'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanionChange:
    """A change of an object of the job's TensorBoard. Its pod is not a replica."""

    revision: int
    seconds: float
    key: str
    uid: str
    is_pod: bool
    created: bool = False
    deleted: bool = False

    def __str__(self) -> str:
        return f"TensorBoard, {self.key} ({self.uid[:8]}): {'created' if self.created else 'deleted' if self.deleted else 'changed'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberChange:
    """A change of a pod that the master of the job manages. The operator does not restart it, and the record has no index for it."""

    revision: int
    seconds: float
    name: str
    uid: str
    member: Member
    created: bool = False
    deleted: bool = False
    phase: str = "Pending"
    terminating: bool = False

    @property
    def is_unfinished(self) -> bool:
        return not self.deleted and self.phase not in FINAL_POD_PHASES

    @property
    def is_live(self) -> bool:
        """Whether the master counts it."""
        return self.is_unfinished and not self.terminating

    def __str__(self) -> str:
        words = ["created" if self.created else "deleted" if self.deleted else self.phase]
        words += ["terminating"] if self.terminating and not self.deleted else []
        return f"member {self.name} ({self.uid[:8]}, rank {self.member.rank}): {', '.join(words)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChange:
    """A change of a scale plan."""

    revision: int
    seconds: float
    name: str
    uid: str
    spec: str
    phase: str = ""
    message: str = ""
    created: bool = False
    deleted: bool = False

    def __str__(self) -> str:
        state = f"created, {self.spec}" if self.created else "deleted" if self.deleted else f"{self.phase} {self.message}".rstrip()
        return f"scale plan {self.name} ({self.uid[:8]}): {state}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """A fault or edit. `revision` is the last one that was known at that time."""

    revision: int
    seconds: float
    description: str
    deleted_uid: str = ""
    """The pod that is deleted on behalf of a user."""

    def __str__(self) -> str:
        return f"-- {self.description}"


Entry: TypeAlias = PodChange | JobChange | MemberChange | PlanChange | CompanionChange | ChildChange | Injection


class HistoryEntry(Protocol):
    """A line of a history."""

    @property
    def revision(self) -> int: ...

    @property
    def seconds(self) -> float: ...


def format_history(entries: Sequence[HistoryEntry], *, limit: int = 80) -> str:
    """One line per entry, at most the last `limit`."""
    skipped = [f"  ... {len(entries) - limit} earlier entries"] if len(entries) > limit else []
    return "\n".join([*skipped, *(f"  {entry.seconds:7.2f} s  {entry.revision:>7}  {entry}" for entry in entries[-limit:])])


def pod_names(kind: type[DLJob], body: JsonObject) -> dict[str, ReplicaKey]:
    """Role and index by pod name, also for some indexes that the spec does not contain."""
    job = kind(_decode_job(msgspec.json.encode(body)))
    names: dict[str, ReplicaKey] = {}
    for role in job.spec.roles:
        for index in range(role.replicas + _SPARE_INDEXES):
            # A role with at most one replica may have a name without an index.
            names.setdefault(job.naming.pod_name(job, role, index), (role.name, index))
    return names


def is_companion(body: JsonObject) -> bool:
    return COMPANION_LABEL in (body["metadata"].get("labels") or {})


def find_member(kind: type[DLJob], body: JsonObject) -> Member | None:
    """The member that a pod is; None for replicas of the spec."""
    return None if kind.members is None else kind.members.identify(body["metadata"].get("labels") or {})


def member_change(body: JsonObject, member: Member, *, revision: int, seconds: float, created: bool, deleted: bool) -> MemberChange:
    pod = _decode_pod(msgspec.json.encode(body))
    return MemberChange(
        revision=revision,
        seconds=seconds,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        member=member,
        created=created,
        deleted=deleted,
        phase=pod.status.phase,
        terminating=pod.metadata.deletion_timestamp is not None,
    )


def plan_change(body: JsonObject, *, revision: int, seconds: float, created: bool, deleted: bool) -> PlanChange:
    metadata, spec, status = body["metadata"], body["spec"], body.get("status") or {}
    sizes = [f"{role}={wanted.get('replicas')}" for role, wanted in (spec.get("replicaResourceSpecs") or {}).items()]
    pods = [f"{sign}{pod['name']}" for sign, name in (("+", "createPods"), ("-", "removePods")) for pod in spec.get(name) or ()]
    return PlanChange(
        revision=revision,
        seconds=seconds,
        name=metadata["name"],
        uid=metadata["uid"],
        spec=" ".join([*sizes, *pods]) or "empty",
        phase=status.get("phase", ""),
        message=status.get("message", ""),
        created=created,
        deleted=deleted,
    )


def job_change(
    kind: type[DLJob], body: JsonObject, *, revision: int, seconds: float, deleted: bool, previous: JsonObject | None = None
) -> JobChange:
    job, status = kind(_decode_job(msgspec.json.encode(body))), body.get("status") or {}
    texts = [f"{each.get('reason', '')} {each.get('message', '')}" for each in status.get("conditions") or ()]
    return JobChange(
        revision=revision,
        seconds=seconds,
        generation=body["metadata"].get("generation", 1),
        deleted=deleted,
        suspended=job.spec.run_policy.suspend,
        replicas={role.name: role.replicas for role in job.spec.roles},
        record=parse_record(status) or NO_RECORD,
        message=" | ".join([*texts, str(status.get("reason", ""))]),
        is_repetition=previous is not None and _essence(previous) == _essence(body),
    )


def _essence(body: JsonObject) -> JsonObject:
    """What a write is expected to change."""
    metadata, status = body["metadata"], body.get("status") or {}
    record = {name: value for name, value in (status.get("dlop") or {}).items() if name != "podsVersion"}
    kept = {name: metadata.get(name) for name in ("labels", "annotations", "finalizers", "deletionTimestamp")}
    return {"metadata": kept, "spec": body.get("spec"), "status": {**status, "dlop": record}}


def pod_change(body: JsonObject, replica: ReplicaKey, *, revision: int, seconds: float, created: bool, deleted: bool) -> PodChange:
    pod = _decode_pod(msgspec.json.encode(body))
    metadata, status = pod.metadata, pod.status
    terminated = next((container.state.terminated for container in status.container_statuses if container.state.terminated), None)
    deletion = metadata.deletion_timestamp
    return PodChange(
        revision=revision,
        seconds=seconds,
        name=metadata.name,
        uid=metadata.uid,
        replica=replica,
        attempt=int(metadata.labels[ATTEMPT_LABEL]),
        created=created,
        deleted=deleted,
        phase=status.phase,
        exit_code=terminated.exit_code if terminated else None,
        disrupted=status.reason == "Evicted" or any(each.type == "DisruptionTarget" for each in status.conditions),
        container_restarts=sum(container.restart_count for container in status.container_statuses),
        deletion_requested_at=deletion.timestamp() - (metadata.deletion_grace_period_seconds or 0) if deletion else None,
        finished_at=terminated.finished_at.timestamp() if terminated and terminated.finished_at else None,
        # Decoded pods have this condition only if it is False.
        ready=any(each["type"] == "Ready" and each["status"] == "True" for each in body["status"].get("conditions") or ()),
        spot=SPOT_ANNOTATION in metadata.annotations,
        host_ports=frozenset(_host_ports(body)),
        init_containers=tuple(container["name"] for container in body["spec"].get("initContainers") or ()),
    )


def _host_ports(body: JsonObject) -> Iterator[int]:
    for container in body["spec"]["containers"]:
        yield from (port["hostPort"] for port in container.get("ports") or () if port.get("hostPort"))
