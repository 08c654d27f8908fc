"""The autoscaler: how many replicas each elastic job gets from the capacity of the cluster. Pure.

A job grows while there is room, and shrinks to make room:

1. While the requests of all pods exceed the ceiling, the job with the highest fulfilment shrinks by one replica. The ceiling is `max_load`
   times the allocatable resources.
2. While a waiting pod of a job finds no node, the job with the highest fulfilment shrinks, provided that this can help. A waiting pod that
   fits on no node even if all jobs shrink to their minimum is ignored, and its requests do not count.
3. A job that has shrunk without effect gets its replicas back.
4. While one more replica stays below the ceiling and fits on a node, the job with the lowest fulfilment grows. No job grows while a waiting
   pod can only be placed after other pods have left.

The fulfilment of a job is 0 at its minimum and 1 at its maximum. The same ceiling applies in both directions, and ties are broken by
requests and name. So a decision that has been carried out causes no further decision until the cluster changes. One change is the placement
of a waiting pod: the jobs that have made room for it can then grow on other nodes.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dlop.api.pod_resources import Requests
from dlop.api.record import ScaleReason
from dlop.policies.accelerators import GPU


class Amounts(NamedTuple):
    """Amounts of the resources that the autoscaler considers."""

    cpu: int = 0
    """In thousandths."""
    memory: int = 0
    """In bytes."""
    gpu: int = 0
    pods: int = 0

    def plus(self, other: Amounts, count: int = 1) -> Amounts:
        """The sum of these amounts and `count` times the others."""
        return Amounts(
            self.cpu + count * other.cpu,
            self.memory + count * other.memory,
            self.gpu + count * other.gpu,
            self.pods + count * other.pods,
        )

    def fits(self, room: Amounts) -> bool:
        """Whether these amounts fit into a room. A resource that is not requested always fits."""
        return (
            (self.cpu <= room.cpu or not self.cpu)
            and (self.memory <= room.memory or not self.memory)
            and (self.gpu <= room.gpu or not self.gpu)
            and (self.pods <= room.pods or not self.pods)
        )


_NONE = Amounts()


def to_amounts(requests: Requests, *, pods: int) -> Amounts:
    """The amounts in the requests of a number of pods. Other resources are ignored."""
    cpu, memory, gpu = (requests[name].value if name in requests else 0 for name in ("cpu", "memory", GPU))
    return Amounts(cpu=math.ceil(cpu * 1000), memory=math.ceil(memory), gpu=math.ceil(gpu), pods=pods)


NodeSelector = tuple[tuple[str, str], ...]
"""Labels that a node must have, sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCapacity:
    """A node on which pods can be scheduled."""

    name: str
    allocatable: Amounts
    used: Amounts
    """Requests of the pods on the node."""
    labels: Mapping[str, str]
    leaving: Amounts = _NONE
    """Those of `used` that belong to pods that are being deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPod:
    """A pod that its job needs and that the scheduler could not place."""

    name: str
    amounts: Amounts
    selector: NodeSelector = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The capacity of the cluster and the demand for it."""

    nodes: Sequence[NodeCapacity]
    demand: Amounts
    """Requests of all pods that run, wait or will be created."""
    waiting: Sequence[WaitingPod] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticJob:
    """A job with an elastic role."""

    uid: str
    name: str
    """Namespace and name, for a stable order."""
    minimum: int
    maximum: int
    replicas: int
    amounts: Amounts
    """Requests of one replica."""
    selector: NodeSelector = ()
    nodes: Sequence[str] = ()
    """The nodes of the replicas above the minimum, by index; empty for a replica that is not on a node."""
    may_grow: bool = True
    """False while replicas of the job are not running yet."""


@dataclass(frozen=True, slots=True)
class ScaleDecision:
    """A new number of replicas of an elastic role."""

    previous: int
    """The number that the decision is based on. The decision is void if it has changed."""
    replicas: int
    reason: ScaleReason


def decide(cluster: Cluster, jobs: Iterable[ElasticJob], *, max_load: float) -> dict[str, ScaleDecision]:
    """The decisions for jobs whose number of replicas changes, by UID."""
    return _Decision(cluster, jobs, max_load=max_load).decide()


_Shape = tuple[Amounts, NodeSelector]
"""What decides whether a pod fits on a node."""


class _Job:
    """The planned number of replicas of a job."""

    __slots__ = ("job", "rank", "replicas", "shrunk")

    def __init__(self, job: ElasticJob, rank: int) -> None:
        self.job = job
        self.rank = rank
        """The order among jobs with the same fulfilment."""
        self.replicas = job.replicas
        self.shrunk: list[ScaleReason] = []
        """Why replicas leave, the first one first."""

    @property
    def reason(self) -> ScaleReason:
        return self.shrunk[-1] if self.shrunk else ScaleReason.IDLE_CAPACITY

    @property
    def fulfilment(self) -> float:
        """From 0 at the minimum to 1 at the maximum."""
        return (self.replicas - self.job.minimum) / (self.job.maximum - self.job.minimum)


class _Nodes:
    """The idle amounts of all nodes."""

    def __init__(self, nodes: Iterable[NodeCapacity]) -> None:
        self._nodes = sorted(nodes, key=lambda node: node.name)
        self._index = {node.name: index for index, node in enumerate(self._nodes)}
        self._free = [node.allocatable.plus(node.used, -1) for node in self._nodes]
        """What is idle now."""
        self._idle = [free.plus(node.leaving) for free, node in zip(self._free, self._nodes, strict=True)]
        """What is idle when the pods that are being deleted have left."""
        self._attainable = list(self._idle)
        """What is idle if all jobs shrink to their minimum."""
        self._first: dict[_Shape, int] = {}
        """The first node with room for a pod. The nodes before it have none."""
        self._unattainable: set[_Shape] = set()
        """What fits on no node even if all jobs shrink to their minimum."""
        self.awaits_leaving = False
        """Whether a pod was placed on a node where other pods must leave first."""

    def place(self, amounts: Amounts, selector: NodeSelector) -> bool:
        """Use the first node with room for a pod. Returns False if there is none."""
        index = next(self._with_room(self._idle, amounts, selector, self._first.get((amounts, selector), 0)), len(self._nodes))
        self._first[amounts, selector] = index
        if index == len(self._nodes):
            return False
        self.awaits_leaving |= not amounts.fits(self._free[index])
        for rooms in (self._free, self._idle, self._attainable):
            rooms[index] = rooms[index].plus(amounts, -1)
        return True

    def could_place(self, amounts: Amounts, selector: NodeSelector) -> bool:
        """Whether a pod would fit on a node if all jobs shrank to their minimum."""
        if (amounts, selector) in self._unattainable:
            return False
        if any(True for _ in self._with_room(self._attainable, amounts, selector)):
            return True
        self._unattainable.add((amounts, selector))
        return False

    def add_optional(self, name: str, amounts: Amounts) -> None:
        """Count a replica on a node that its job can release. A node that is not listed is ignored."""
        if name in self._index:
            index = self._index[name]
            self._attainable[index] = self._attainable[index].plus(amounts)

    def release(self, name: str, amounts: Amounts) -> None:
        """Return the amounts of a replica that leaves a node. A node that is not listed is ignored."""
        if name in self._index:
            index = self._index[name]
            self._idle[index] = self._idle[index].plus(amounts)
            for shape, first in self._first.items():
                self._first[shape] = min(first, index)

    def restore(self, name: str, amounts: Amounts) -> bool:
        """Undo the release of a replica. Returns False if its room is used."""
        if name in self._index:
            index = self._index[name]
            if not amounts.fits(self._idle[index]):
                return False
            self._idle[index] = self._idle[index].plus(amounts, -1)
        return True

    def _with_room(self, rooms: Sequence[Amounts], amounts: Amounts, selector: NodeSelector, start: int = 0) -> Iterator[int]:
        for index in range(start, len(self._nodes)):
            if amounts.fits(rooms[index]) and _is_selected(self._nodes[index], selector):
                yield index


def _is_selected(node: NodeCapacity, selector: NodeSelector) -> bool:
    return all(node.labels.get(name) == value for name, value in selector)


class _Decision:
    def __init__(self, cluster: Cluster, jobs: Iterable[ElasticJob], *, max_load: float) -> None:
        elastic = [job for job in jobs if job.minimum < job.maximum]
        elastic.sort(key=lambda job: (job.amounts.gpu, job.amounts.cpu, job.amounts.memory, job.name, job.uid))
        self._jobs = [_Job(job, rank) for rank, job in enumerate(elastic)]
        self._shrunk: list[_Job] = []
        """The job of each replica that leaves because of overload or waiting pods, in the order of the decisions."""
        self._demand = cluster.demand
        self._waiting = sorted(cluster.waiting, key=lambda pod: (pod.amounts, pod.name), reverse=True)
        self._nodes = _Nodes(cluster.nodes)
        for job in self._jobs:
            for name in _optional_nodes(job):
                self._nodes.add_optional(name, job.job.amounts)
        total = Amounts()
        for node in cluster.nodes:
            total = total.plus(node.allocatable)
        self._ceiling = Amounts(*(int(amount * max_load) for amount in total))

    def decide(self) -> dict[str, ScaleDecision]:
        self._shrink_to_maximum()
        self._ignore_pods_that_never_fit()
        self._shrink_below_ceiling()
        self._make_room_for_waiting_pods()
        self._restore_replicas()
        # The scheduler could place new replicas where a waiting pod is about to get its room.
        if not self._nodes.awaits_leaving:
            self._reserve_for_unplaced_replicas()
            self._grow()
        changed = (job for job in self._jobs if job.replicas != job.job.replicas)
        return {job.job.uid: ScaleDecision(job.job.replicas, job.replicas, job.reason) for job in changed}

    def _shrink_to_maximum(self) -> None:
        for job in self._jobs:
            while job.replicas > job.job.maximum:
                self._shrink(job, ScaleReason.OVERLOAD)
        self._shrunk.clear()

    def _ignore_pods_that_never_fit(self) -> None:
        fitting = []
        for pod in self._waiting:
            if self._nodes.could_place(pod.amounts, pod.selector):
                fitting.append(pod)
            else:
                self._demand = self._demand.plus(pod.amounts, -1)
        self._waiting = fitting

    def _shrink_below_ceiling(self) -> None:
        candidates = self._by_fulfilment(self._jobs)
        while candidates and (overloaded := self._overloaded_resources()):
            job = candidates[0][2]
            # A resource that is no longer overloaded does not become overloaded again, so the job need not be considered again.
            if job.replicas <= job.job.minimum or not any(job.job.amounts[resource] for resource in overloaded):
                heapq.heappop(candidates)
                continue
            self._shrink(job, ScaleReason.OVERLOAD)
            heapq.heapreplace(candidates, _shrink_entry(job))

    def _overloaded_resources(self) -> list[int]:
        return [resource for resource, amount in enumerate(self._demand) if amount > self._ceiling[resource]]

    def _reserve_for_unplaced_replicas(self) -> None:
        for job in self._jobs:
            for node in _optional_nodes(job):
                if not node:
                    self._nodes.place(job.job.amounts, job.job.selector)

    def _make_room_for_waiting_pods(self) -> None:
        candidates = self._by_fulfilment(job for job in self._jobs if job.replicas > job.job.minimum)
        for pod in self._waiting:
            is_placed = self._nodes.place(pod.amounts, pod.selector)
            can_help = not is_placed and self._nodes.could_place(pod.amounts, pod.selector)
            while can_help and candidates and not is_placed:
                job = candidates[0][2]
                self._shrink(job, ScaleReason.WAITING_PODS)
                if job.replicas > job.job.minimum:
                    heapq.heapreplace(candidates, _shrink_entry(job))
                else:
                    heapq.heappop(candidates)
                is_placed = self._nodes.place(pod.amounts, pod.selector)
            if not is_placed:
                self._demand = self._demand.plus(pod.amounts, -1)

    def _restore_replicas(self) -> None:
        """Return replicas to jobs that have shrunk without effect: another job has made room, too, or the room is on other nodes."""
        for job in reversed(self._shrunk):
            demand = self._demand.plus(job.job.amounts)
            if _is_below(demand, self._ceiling, job.job.amounts) and self._nodes.restore(_next_node(job), job.job.amounts):
                self._demand = demand
                job.replicas += 1
                job.shrunk.pop()

    def _grow(self) -> None:
        candidates = [(job.fulfilment, job.rank, job) for job in self._jobs if _may_grow(job)]
        heapq.heapify(candidates)
        while candidates:
            job = candidates[0][2]
            demand = self._demand.plus(job.job.amounts)
            # What does not fit now does not fit later either, because the demand only increases.
            if not _is_below(demand, self._ceiling, job.job.amounts) or not self._nodes.place(job.job.amounts, job.job.selector):
                heapq.heappop(candidates)
                continue
            self._demand = demand
            job.replicas += 1
            if job.replicas < job.job.maximum:
                heapq.heapreplace(candidates, (job.fulfilment, job.rank, job))
            else:
                heapq.heappop(candidates)

    def _shrink(self, job: _Job, reason: ScaleReason) -> None:
        """Remove the replica with the highest index."""
        job.replicas -= 1
        job.shrunk.append(reason)
        self._shrunk.append(job)
        self._demand = self._demand.plus(job.job.amounts, -1)
        self._nodes.release(_next_node(job), job.job.amounts)

    def _by_fulfilment(self, jobs: Iterable[_Job]) -> list[tuple[float, int, _Job]]:
        """A heap of jobs, the one with the highest fulfilment first."""
        entries = [_shrink_entry(job) for job in jobs]
        heapq.heapify(entries)
        return entries


def _shrink_entry(job: _Job) -> tuple[float, int, _Job]:
    return -job.fulfilment, -job.rank, job


def _may_grow(job: _Job) -> bool:
    """A job that shrinks for a waiting pod must not return on another node: only the number counts, so that nothing would change."""
    return job.job.may_grow and not job.shrunk and job.replicas < job.job.maximum


def _optional_nodes(job: _Job) -> Iterator[str]:
    """The nodes of the planned replicas above the minimum."""
    for index in range(job.replicas - job.job.minimum):
        yield job.job.nodes[index] if index < len(job.job.nodes) else ""


def _next_node(job: _Job) -> str:
    """The node of the replica after the planned ones; empty if it is not on a node."""
    index = job.replicas - job.job.minimum
    return job.job.nodes[index] if 0 <= index < len(job.job.nodes) else ""


def _is_below(demand: Amounts, ceiling: Amounts, requested: Amounts) -> bool:
    return all(amount <= limit or not own for amount, limit, own in zip(demand, ceiling, requested, strict=True))
