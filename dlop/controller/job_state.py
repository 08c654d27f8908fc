"""In-process state of jobs between passes. None of it is durable; a new process recomputes it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from dlop.controller.kinds import JobKey
from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject
from dlop.reconcile.autoscaler import ScaleDecision
from dlop.reconcile.invalid_spec import RETRY_OVERSIZED_STATUS_SECONDS
from dlop.reconcile.snapshot import RejectedWrite

_INITIAL_BACKOFF_SECONDS = 1.0
_MAX_BACKOFF_SECONDS = 120.0

ObjectKey = tuple[Resource, str, str]
"""Resource, namespace and name of an object."""


@dataclass(slots=True)
class RejectionBackoff:
    """Exponential back-off of rejected creates."""

    count: int = 0
    retry_at: float = 0.0
    """Loop time before which nothing is created."""

    def next_delay(self, *, now: float) -> float:
        """Count a rejection. Returns the delay in seconds until the next attempt."""
        delay = min(_MAX_BACKOFF_SECONDS, math.ldexp(_INITIAL_BACKOFF_SECONDS, min(self.count, 10)))
        self.count += 1
        self.retry_at = now + delay
        return delay

    def remaining_seconds(self, *, now: float) -> float | None:
        """None if creates may be sent."""
        return self.retry_at - now if now < self.retry_at else None


@dataclass(slots=True)
class JobState:
    key: JobKey
    rejected_writes: dict[tuple[Resource, str], RejectedWrite] = field(default_factory=dict)
    """Creates and patches that the API server rejected last time."""
    name_conflicts: dict[tuple[Resource, str], Mapping[str, str]] = field(default_factory=dict)
    """Names that objects of another owner hold, with the labels that identify an orphan of this job."""
    shared: set[tuple[Resource, str]] = field(default_factory=set)
    """Objects of another owner that the job uses."""
    rejected_generation: int = 0
    """Generation of the spec that was rejected."""
    rejected_status: str = ""
    """Why the API server rejected the status of the job as too large; empty if it did not."""
    retry_status_at: float = 0.0
    """Loop time before which the status is not written again, except for the reason of the rejection."""
    backoff: RejectionBackoff = field(default_factory=RejectionBackoff)
    """Of all creates except companions."""
    companion_backoff: RejectionBackoff = field(default_factory=RejectionBackoff)
    companion_error: str = ""
    """Why a companion was rejected last time, so that it is reported once."""
    dirty: bool = False
    """Something changed that no pass has seen yet. A pass is due as soon as all expectations are satisfied."""
    expected_echoes: list[JsonObject] = field(default_factory=list)
    """Statuses that were written and whose watch events need no pass, in the order of the writes."""
    known_deletes: set[str] = field(default_factory=set)
    """UIDs of objects that passes handle as deleted although the caches still show them. Their watch events need no pass."""
    scale_decision: ScaleDecision | None = None
    """The last decision of the autoscaler."""
    last_counted_status: JsonObject | None = None
    """Status before a write with an unknown outcome. Metrics must still count every change since then."""
    last_urgent_change: float = -math.inf
    """Loop time of the last change that needed action."""
    pods: int = 0
    """Number of pods after the last pass, including the ones it created. Approximates the cost of a pass."""
    running: int = 0
    """Pods known to be running."""
    succeeded: int = 0
    """Pods known to have succeeded."""
    lost_new_pods: bool = False
    """Pods that had not started are gone. If the job was deleted and the cache does not show it, the garbage collector deletes them."""
    is_settled: bool = False
    """Whether the last pass has left nothing to do until something changes. Otherwise pods may wait for others."""
    first_pod_ran: bool = False
    awaits_all_running: bool = False
    """The first pod was seen running, and the last one was not yet."""

    @contextmanager
    def expect_echo(self, status: JsonObject) -> Iterator[None]:
        """Expect the watch event of the status that is written in this context, unless the write fails."""
        self.expected_echoes.append(status)
        try:
            yield
        except Exception:
            if status in self.expected_echoes:  # another change of the job may have removed it
                self.expected_echoes.remove(status)
            raise

    def begin_pass(self, *, generation: int) -> None:
        """Clear `dirty`, clear rejections of another generation, and clear a rejected status that is due for another attempt."""
        self.dirty = False
        if self.rejected_generation != generation:
            self.clear_rejections()
            self.rejected_status = ""
        if self.rejected_status and asyncio.get_running_loop().time() >= self.retry_status_at:
            self.rejected_status = ""

    def update_pod_counts(self, phases: Collection[str], *, created: int, settles: bool) -> None:
        """Set the counts from the phases of the observed pods and the number of pods that the pass creates.

        `settles` is that of the plan.
        """
        self.is_settled = settles
        self.pods = len(phases) + created
        self.running = sum(phase == "Running" for phase in phases)
        self.succeeded = sum(phase == "Succeeded" for phase in phases)

    def count_transition(self, phase: str) -> bool:
        """Count a pod that has entered this phase. Returns whether it is the last pod to do so."""
        if phase == "Running":
            self.running += 1
            return self.running == self.pods
        if phase == "Succeeded":
            self.succeeded += 1
            return self.succeeded == self.pods
        return False

    def add_rejection(self, rejection: RejectedWrite, *, generation: int) -> None:
        """Record a rejected write. Also clears `shared`, because a missing shared object may be the cause."""
        self.rejected_writes[rejection.resource, rejection.name] = rejection
        self.shared.clear()
        self.rejected_generation = generation

    def reject_status(self, message: str, *, generation: int) -> None:
        """Record that the API server rejected the status of the job."""
        self.rejected_status = message
        self.rejected_generation = generation
        self.retry_status_at = asyncio.get_running_loop().time() + RETRY_OVERSIZED_STATUS_SECONDS

    def clear_rejections(self) -> None:
        self.rejected_writes.clear()
        self.backoff = RejectionBackoff()


class JobStates:
    """States by job uid, for the jobs that have any, and an index of the names that jobs wait for."""

    def __init__(self) -> None:
        self._jobs: dict[str, JobState] = {}
        # Several jobs may wait for one name. All but the first to get it continue to wait.
        self._waiting: dict[ObjectKey, dict[str, JobKey]] = {}

    def get(self, uid: str) -> JobState | None:
        return self._jobs.get(uid)

    def get_or_create(self, uid: str, key: JobKey) -> JobState:
        state = self._jobs.get(uid)
        if state is None:
            state = self._jobs[uid] = JobState(key)
        return state

    def add_conflict(self, uid: str, key: JobKey, resource: Resource, name: str, labels: Mapping[str, str]) -> None:
        """Record that an object of another owner holds a name that the job needs."""
        self.get_or_create(uid, key).name_conflicts[resource, name] = labels
        self._waiting.setdefault((resource, key.namespace, name), {})[uid] = key

    def clear_conflict(self, uid: str, resource: Resource, name: str) -> None:
        state = self._jobs.get(uid)
        if state is not None and state.name_conflicts.pop((resource, name), None) is not None:
            self._remove_waiting(uid, (resource, state.key.namespace, name))

    def keys_waiting_for(self, resource: Resource, namespace: str, name: str) -> tuple[JobKey, ...]:
        """The jobs that wait for this name."""
        waiting = self._waiting.get((resource, namespace, name)) if self._waiting else None
        return () if waiting is None else tuple(waiting.values())

    def forget(self, uid: str) -> None:
        state = self._jobs.pop(uid, None)
        if state is not None:
            for resource, name in state.name_conflicts:
                self._remove_waiting(uid, (resource, state.key.namespace, name))

    def clear(self) -> None:
        """Drop the states of all jobs."""
        self._jobs.clear()
        self._waiting.clear()

    def _remove_waiting(self, uid: str, object_key: ObjectKey) -> None:
        waiting = self._waiting.get(object_key, {})
        waiting.pop(uid, None)
        if not waiting:
            self._waiting.pop(object_key, None)

    def __len__(self) -> int:
        return len(self._jobs)
