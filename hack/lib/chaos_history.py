"""The history of one job in a chaos test: changes of the job, of its pods and of its other objects, and injected faults.

All changes come from one etcd, so their revisions are comparable across resources. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from dlop.api.constants import ATTEMPT_LABEL
from dlop.api.phase import Phase
from dlop.api.record import Record, parse_record
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

    def __str__(self) -> str:
        words = ["created" if self.created else "deleted" if self.deleted else self.phase]
        words += [f"exit code {self.exit_code}"] if self.exit_code is not None else []
        words += [f"{self.container_restarts} container restarts"] if self.container_restarts else []
        words += ["disrupted"] if self.disrupted else []
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
    *("observedGeneration", "attempt", "roleAttempts", "restarts", "disruptions"),
    *("completedIndexes", "failedIndexes", "startedIndexes", "blocked"),
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
class Injection:
    """A fault or edit. `revision` is the last one that was known at that time."""

    revision: int
    seconds: float
    description: str
    deleted_uid: str = ""
    """The pod that is deleted on behalf of a user."""

    def __str__(self) -> str:
        return f"-- {self.description}"


Entry: TypeAlias = PodChange | JobChange | ChildChange | Injection


def format_history(entries: list[Entry], *, limit: int = 80) -> str:
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


def job_change(kind: type[DLJob], body: JsonObject, *, revision: int, seconds: float, deleted: bool) -> JobChange:
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
    )


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
    )
