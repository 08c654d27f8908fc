"""A simulated day of a cluster with elastic jobs, on a simulated clock.

A pod that is placed on a node runs after a fixed time, and keeps its node for a fixed time after it was deleted. The scheduler places
pods in the order of their creation on the node with the largest free share of CPU and memory. A job makes progress while at least its
minimum of replicas runs, in proportion to the number of replicas.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from itertools import count
from typing import Protocol

from bench_autoscaler_load import DAY_SECONDS, JobSpec, Load
from bench_autoscaler_measures import Actions, Integrals, fairness
from bench_report import MeasureError

from dlop.reconcile.autoscaler import Amounts

_START_SECONDS = 30.0
_TERMINATION_SECONDS = 5.0
_LONGEST_SECONDS = 4 * DAY_SECONDS
_WORK_ERROR = 1e-3
_NEVER = (math.inf, 0, lambda: None)


class PodState(Enum):
    PENDING = auto()
    STARTING = auto()
    RUNNING = auto()
    TERMINATING = auto()
    GONE = auto()


@dataclass(eq=False, slots=True)
class SimPod:
    job: SimJob
    number: int
    """In the order of creation."""
    is_required: bool
    """Whether it is one of the minimum."""
    node: str = ""
    state: PodState = PodState.PENDING
    running_since: float = 0.0

    @property
    def amounts(self) -> Amounts:
        return self.job.spec.amounts


@dataclass(eq=False, slots=True)
class SimJob:
    spec: JobSpec
    replicas: int
    remaining: float
    """Work in seconds of one replica."""
    pods: list[SimPod] = field(default_factory=list)
    """By index."""
    running: int = 0
    changes: int = 0
    """Of the number of running replicas."""
    updated_at: float = 0.0
    """When `remaining` was computed."""
    started_at: float | None = None
    """When the minimum was running for the first time."""
    ended_at: float | None = None

    @property
    def speed(self) -> int:
        """Seconds of one replica per second."""
        return self.running if self.running >= self.spec.minimum else 0

    @property
    def all_running(self) -> bool:
        return self.running == self.replicas

    @property
    def fulfilment(self) -> float:
        return (self.running - self.spec.minimum) / (self.spec.maximum - self.spec.minimum)


@dataclass(frozen=True, slots=True)
class Progress:
    """The jobs that make progress."""

    used: Amounts
    fairness: float | None
    """None without elastic jobs."""

    @staticmethod
    def of(jobs: Iterable[SimJob]) -> Progress:
        used, fulfilments = Amounts(), []
        for job in jobs:
            if job.speed:
                used = used.plus(job.spec.amounts, job.running)
                if job.spec.is_elastic:
                    fulfilments.append(job.fulfilment)
        return Progress(used, fairness(fulfilments) if fulfilments else None)


class Scaler(Protocol):
    """An autoscaler."""

    @property
    def debounce_seconds(self) -> float | None:
        """From a change to the decision; None if it decides periodically."""

    @property
    def period_seconds(self) -> float: ...

    def decide(self, day: Day) -> Mapping[str, int]:
        """The new number of replicas of jobs, by name."""

    def leaving(self, job: SimJob, number: int) -> Sequence[SimPod]:
        """The pods that leave if a job shrinks by this number."""


class Day:
    """The state of the cluster."""

    def __init__(self, load: Load, scaler: Scaler) -> None:
        self.now = 0.0
        self.allocatable = load.nodes
        self.used = dict.fromkeys(load.nodes, Amounts())
        """By node, including terminating pods."""
        self.leaving = dict.fromkeys(load.nodes, Amounts())
        """Of these, what terminating pods use."""
        self.jobs: dict[str, SimJob] = {}
        """Jobs that have arrived and not ended."""
        self.ended: list[SimJob] = []
        self.actions = Actions()
        total = Amounts()
        for amounts in load.nodes.values():
            total = total.plus(amounts)
        self.integrals = Integrals(total)
        self._scaler = scaler
        self._pending: dict[int, SimPod] = {}
        self._numbers = count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._steady_state = 0
        """The number of the current one, see `Actions.count`."""
        self._arriving = len(load.jobs)
        self._decision_is_due = False
        self._has_room = True
        """Whether something has left a node or was created since the scheduler ran."""
        self._progress: Progress | None = None
        """None if it has changed."""
        for spec in load.jobs:
            self._at(spec.arrival, partial(self._arrive, spec))
        if scaler.debounce_seconds is None:
            self._at(scaler.period_seconds, self._decide_periodically)

    def run(self) -> None:
        """Simulate until all jobs have ended. Utilisation and fairness are those of the first day."""
        while self._arriving or self.jobs:
            time, _, event = heapq.heappop(self._events) if self._events else _NEVER
            if time > _LONGEST_SECONDS:
                raise MeasureError(f"{len(self.jobs)} jobs have not ended after {_LONGEST_SECONDS / DAY_SECONDS:g} days")
            self._advance(time)
            event()
            self._schedule()

    def pending(self) -> Iterator[SimPod]:
        """Pods that the scheduler could not place."""
        yield from self._pending.values()

    # --- time ---

    def _at(self, time: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._numbers), event))

    def _advance(self, time: float) -> None:
        seconds = min(time, DAY_SECONDS) - self.now
        if seconds > 0:
            if self._progress is None:
                self._progress = Progress.of(self.jobs.values())
            self.integrals.add(seconds, used=self._progress.used, fairness=self._progress.fairness)
        self.now = time

    def _changed(self) -> None:
        if self._scaler.debounce_seconds is not None and not self._decision_is_due:
            self._decision_is_due = True
            self._at(self.now + self._scaler.debounce_seconds, self._decide)

    # --- jobs ---

    def _arrive(self, spec: JobSpec) -> None:
        self._arriving -= 1
        self._steady_state += 1
        job = SimJob(spec, spec.minimum, spec.work, updated_at=self.now)
        self.jobs[spec.name] = job
        self._create_pods(job)

    def _create_pods(self, job: SimJob) -> None:
        while len(job.pods) < job.replicas:
            pod = SimPod(job, next(self._numbers), is_required=len(job.pods) < job.spec.minimum)
            job.pods.append(pod)
            self._pending[pod.number] = pod
            self._has_room = True
        self._changed()

    def _set_running(self, job: SimJob, running: int) -> None:
        """Update the progress of a job, and when it ends."""
        job.remaining -= (self.now - job.updated_at) * job.speed
        job.updated_at, job.running = self.now, running
        job.changes += 1
        self._progress = None
        if job.speed:
            if job.started_at is None:
                job.started_at = self.now
            self._at(self.now + max(job.remaining, 0.0) / job.speed, partial(self._end, job, changes=job.changes))

    def _end(self, job: SimJob, *, changes: int) -> None:
        """Does nothing if the number of running replicas has changed since this was scheduled."""
        if job.changes != changes:
            return
        job.ended_at = self.now
        self._progress = None
        del self.jobs[job.spec.name]
        self.ended.append(job)
        self._steady_state += 1
        if not -_WORK_ERROR < job.remaining - (self.now - job.updated_at) * job.speed < _WORK_ERROR:
            raise MeasureError(f"{job.spec.name} has ended with {job.remaining:g} seconds of work")
        for pod in job.pods:
            self._leave(pod)
            self._remove_from_node(pod)

    # --- pods ---

    def _schedule(self) -> None:
        if not self._has_room:
            return
        self._has_room = False
        impossible: set[Amounts] = set()
        for pod in list(self._pending.values()):
            if pod.amounts in impossible:
                continue
            node = max((name for name in self.used if self._fits(name, pod.amounts)), key=self._free_share, default="")
            if not node:
                impossible.add(pod.amounts)
                continue
            del self._pending[pod.number]
            pod.node, pod.state = node, PodState.STARTING
            self.used[node] = self.used[node].plus(pod.amounts)
            self._steady_state += pod.is_required
            self._at(self.now + _START_SECONDS, partial(self._start, pod))
            self._changed()

    def _fits(self, node: str, amounts: Amounts) -> bool:
        used, allocatable = self.used[node], self.allocatable[node]
        return (
            used.cpu + amounts.cpu <= allocatable.cpu
            and used.memory + amounts.memory <= allocatable.memory
            and used.gpu + amounts.gpu <= allocatable.gpu
            and used.pods < allocatable.pods
        )

    def _free_share(self, node: str) -> float:
        used, allocatable = self.used[node], self.allocatable[node]
        return -used.cpu / allocatable.cpu - used.memory / allocatable.memory

    def _start(self, pod: SimPod) -> None:
        if pod.state is PodState.STARTING:
            pod.state, pod.running_since = PodState.RUNNING, self.now
            self._set_running(pod.job, pod.job.running + 1)
            self._changed()

    def _leave(self, pod: SimPod) -> None:
        """The pod does not run anymore, but keeps its node."""
        self._pending.pop(pod.number, None)
        pod.state = PodState.TERMINATING
        if pod.node:
            self.leaving[pod.node] = self.leaving[pod.node].plus(pod.amounts)

    def _remove_from_node(self, pod: SimPod) -> None:
        pod.state = PodState.GONE
        if pod.node:
            self.used[pod.node] = self.used[pod.node].plus(pod.amounts, -1)
            self.leaving[pod.node] = self.leaving[pod.node].plus(pod.amounts, -1)
            self._has_room = True
        self._changed()

    # --- decisions ---

    def _decide_periodically(self) -> None:
        self._at(self.now + self._scaler.period_seconds, self._decide_periodically)
        self._decide()

    def _decide(self) -> None:
        self._decision_is_due = False
        for name, replicas in self._scaler.decide(self).items():
            job = self.jobs[name]
            self.actions.count(name, replicas - job.replicas, steady_state=self._steady_state)
            self._scale(job, replicas)

    def _scale(self, job: SimJob, replicas: int) -> None:
        for pod in self._scaler.leaving(job, job.replicas - replicas) if replicas < job.replicas else ():
            self.actions.in_vain += pod.state is not PodState.RUNNING
            running = job.running - (pod.state is PodState.RUNNING)
            self._leave(pod)
            job.pods.remove(pod)
            self._set_running(job, running)
            self._at(self.now + _TERMINATION_SECONDS if pod.node else self.now, partial(self._remove_from_node, pod))
        job.replicas = replicas
        self._create_pods(job)
