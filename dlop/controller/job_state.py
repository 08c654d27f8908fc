"""What the operator remembers of a job between passes and can do without: it is found out again after a restart."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from dlop.controller.kinds import JobKey
from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject
from dlop.reconcile.snapshot import RejectedWrite

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 120.0

Place = tuple[Resource, str, str]
"""Where an object is: resource, namespace, name."""


@dataclass(slots=True)
class JobState:
    """One job."""

    key: JobKey
    refusals: dict[tuple[Resource, str], RejectedWrite] = field(default_factory=dict)
    """Creates that the server refused last time."""
    taken: dict[tuple[Resource, str], Mapping[str, str]] = field(default_factory=dict)
    """Names that somebody else's object has, with the labels by which an orphan of this job would be known."""
    lent: set[tuple[Resource, str]] = field(default_factory=set)
    """Objects of somebody else that it uses."""
    generation: int = 0
    """Of the spec that was refused."""
    refused_times: int = 0
    try_again_at: float = 0.0
    """The moment, on the loop's clock, before which nothing is created."""
    has_news: bool = False
    """Something has happened that no pass has looked at yet: one is due as soon as all that is under way has shown."""
    said: JsonObject | None = None
    """The status that is being written, when seeing it stored calls for nothing."""
    uncounted: JsonObject | None = None
    """The status before a write of which nobody knows whether it happened: what has changed since is still to be counted."""
    pods: int = 0
    """How many pods it had when it was looked at last, or got then: what a pass costs."""
    running: int = 0
    """How many of them are known to run."""
    succeeded: int = 0
    """How many of them are known to have succeeded."""
    has_run: bool = False
    """Its first pod was seen to begin to run."""
    awaits_all_running: bool = False
    """Its first pod was seen to run, and the last one was not yet."""

    def begin_pass(self, *, generation: int) -> None:
        """All news is looked at now. What was refused of another spec says nothing of this one."""
        self.has_news = False
        if self.generation != generation:
            self.forget_refusals()

    def take_stock(self, phases: Collection[str], *, created: int) -> None:
        """A pass has found pods in these phases, and asks for so many more."""
        self.pods = len(phases) + created
        self.running = sum(phase == "Running" for phase in phases)
        self.succeeded = sum(phase == "Succeeded" for phase in phases)

    def has_turned(self, phase: str) -> bool:
        """A pod is in this phase now. Whether it is the last one to get there: the job as a whole may have taken a turn."""
        if phase == "Running":
            self.running += 1
            return self.running == self.pods
        if phase == "Succeeded":
            self.succeeded += 1
            return self.succeeded == self.pods
        return False

    def refuse(self, refusal: RejectedWrite, *, generation: int) -> None:
        """The server does not take an object. Perhaps one that it needs, and that was somebody else's, is gone."""
        self.refusals[refusal.resource, refusal.name] = refusal
        self.lent.clear()
        self.generation = generation

    def put_off(self, *, now: float) -> float:
        """Create nothing for a while, longer each time. Says for how many seconds."""
        pause = min(_LONGEST_PAUSE_SECONDS, math.ldexp(_FIRST_PAUSE_SECONDS, min(self.refused_times, 10)))
        self.refused_times += 1
        self.try_again_at = now + pause
        return pause

    def forget_refusals(self) -> None:
        """The server takes objects again, or another spec is asked for."""
        self.refusals.clear()
        self.refused_times = 0
        self.try_again_at = 0.0


class JobStates:
    """All jobs that there is something to remember of."""

    def __init__(self) -> None:
        self._jobs: dict[str, JobState] = {}
        # Several jobs may need one name: whoever is not the first to get it waits on.
        self._waiting: dict[Place, dict[str, JobKey]] = {}

    def find(self, uid: str) -> JobState | None:
        """What is remembered of a job, if anything."""
        return self._jobs.get(uid)

    def of(self, uid: str, key: JobKey) -> JobState:
        """What is remembered of a job, from now on if nothing was."""
        found = self._jobs.get(uid)
        if found is None:
            found = self._jobs[uid] = JobState(key)
        return found

    def take_note(self, uid: str, key: JobKey, resource: Resource, name: str, labels: Mapping[str, str]) -> None:
        """A name that the job needs is taken."""
        self.of(uid, key).taken[resource, name] = labels
        self._waiting.setdefault((resource, key.namespace, name), {})[uid] = key

    def is_free(self, uid: str, resource: Resource, name: str) -> None:
        """A name is no longer taken."""
        memory = self._jobs.get(uid)
        if memory is not None and memory.taken.pop((resource, name), None) is not None:
            self._wait_no_more(uid, (resource, memory.key.namespace, name))

    def who_waits_for(self, resource: Resource, namespace: str, name: str) -> tuple[JobKey, ...]:
        """The jobs that need this name, if any do."""
        waiting = self._waiting.get((resource, namespace, name)) if self._waiting else None
        return () if waiting is None else tuple(waiting.values())

    def forget(self, uid: str) -> None:
        """The job is gone."""
        memory = self._jobs.pop(uid, None)
        if memory is not None:
            for resource, name in memory.taken:
                self._wait_no_more(uid, (resource, memory.key.namespace, name))

    def _wait_no_more(self, uid: str, place: Place) -> None:
        waiting = self._waiting.get(place, {})
        waiting.pop(uid, None)
        if not waiting:
            self._waiting.pop(place, None)

    def __len__(self) -> int:
        return len(self._jobs)
