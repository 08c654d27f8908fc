"""The autoscaler: how many replicas each elastic job gets from the capacity of the cluster. Pure.

A job grows while there is room, and shrinks to make room:

1. While the requests of all pods exceed the ceiling, the job with the highest fulfilment shrinks by one replica. The ceiling is `max_load`
   times the allocatable resources.
2. While a waiting pod of a job finds no node, the job with the highest fulfilment shrinks, provided that this can help.
3. While one more replica stays below the ceiling and fits on a node, the job with the lowest fulfilment grows.

The fulfilment of a job is 0 at its minimum and 1 at its maximum. The same ceiling applies in both directions, and ties are broken by
requests and name. So a decision that has been carried out causes no further decision until the cluster changes.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from dlop.api.pod_resources import Requests
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
        return Amounts(*(own + count * each for own, each in zip(self, other, strict=True)))

    def fits(self, room: Amounts) -> bool:
        """Whether these amounts fit into a room. A resource that is not requested always fits."""
        return all(own <= each or not own for own, each in zip(self, room, strict=True))


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

    @property
    def fulfilment(self) -> float:
        """From 0 at the minimum to 1 at the maximum."""
        return _fulfilment(self.replicas, self.minimum, self.maximum)


class ScaleReason(StrEnum):
    """Why the autoscaler changes the number of replicas."""

    IDLE_CAPACITY = "IdleCapacity"
    OVERLOAD = "Overload"
    WAITING_PODS = "WaitingPods"


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


def _fulfilment(replicas: int, minimum: int, maximum: int) -> float:
    return (replicas - minimum) / (maximum - minimum)


class _Job:
    """The planned number of replicas of a job."""

    __slots__ = ("job", "rank", "reason", "replicas")

    def __init__(self, job: ElasticJob, rank: int) -> None:
        self.job = job
        self.rank = rank
        """The order among jobs with the same fulfilment."""
        self.replicas = job.replicas
        self.reason = ScaleReason.OVERLOAD

    @property
    def fulfilment(self) -> float:
        return _fulfilment(self.replicas, self.job.minimum, self.job.maximum)


class _Nodes:
    """The idle amounts of all nodes."""

    def __init__(self, nodes: Iterable[NodeCapacity]) -> None:
        self._nodes = sorted(nodes, key=lambda node: node.name)
        self.idle = {node.name: node.allocatable.plus(node.used, -1) for node in self._nodes}
        self._first: dict[tuple[Amounts, NodeSelector], int] = {}
        """The first node with room for these amounts. The nodes before it have none until a replica leaves."""

    def place(self, amounts: Amounts, selector: NodeSelector) -> bool:
        """Use the first node with room for a pod. Returns False if there is none."""
        key = (amounts, selector)
        for index in range(self._first.get(key, 0), len(self._nodes)):
            node = self._nodes[index]
            if amounts.fits(self.idle[node.name]) and _is_selected(node, selector):
                self._first[key] = index
                self.idle[node.name] = self.idle[node.name].plus(amounts, -1)
                return True
        self._first[key] = len(self._nodes)
        return False

    def release(self, name: str, amounts: Amounts) -> None:
        """Return the amounts of a replica that leaves a node. A node that is not listed is ignored."""
        if name in self.idle:
            self.idle[name] = self.idle[name].plus(amounts)
            self._first.clear()

    def could_place(self, pod: WaitingPod, released: Mapping[str, Amounts]) -> bool:
        """Whether a pod would fit on a node if these amounts were released."""
        return any(
            pod.amounts.fits(self.idle[node.name].plus(released.get(node.name, Amounts())))
            for node in self._nodes
            if _is_selected(node, pod.selector)
        )


def _is_selected(node: NodeCapacity, selector: NodeSelector) -> bool:
    return all(node.labels.get(name) == value for name, value in selector)


class _Decision:
    def __init__(self, cluster: Cluster, jobs: Iterable[ElasticJob], *, max_load: float) -> None:
        elastic = [job for job in jobs if job.minimum < job.maximum]
        elastic.sort(key=lambda job: (job.amounts.gpu, job.amounts.cpu, job.amounts.memory, job.name))
        self._jobs = [_Job(job, rank) for rank, job in enumerate(elastic)]
        self._demand = cluster.demand
        self._waiting = cluster.waiting
        self._nodes = _Nodes(cluster.nodes)
        total = Amounts()
        for node in cluster.nodes:
            total = total.plus(node.allocatable)
        self._ceiling = Amounts(*(int(amount * max_load) for amount in total))

    def decide(self) -> dict[str, ScaleDecision]:
        self._shrink_to_maximum()
        self._shrink_below_ceiling()
        self._make_room_for_waiting_pods()
        self._reserve_for_unplaced_replicas()
        self._grow()
        changed = (job for job in self._jobs if job.replicas != job.job.replicas)
        return {job.job.uid: ScaleDecision(job.job.replicas, job.replicas, job.reason) for job in changed}

    def _shrink_to_maximum(self) -> None:
        for job in self._jobs:
            while job.replicas > job.job.maximum:
                self._shrink(job, ScaleReason.OVERLOAD)

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
        for pod in sorted(self._waiting, key=lambda pod: (pod.amounts, pod.name), reverse=True):
            if self._nodes.place(pod.amounts, pod.selector) or not self._nodes.could_place(pod, self._releasable()):
                continue
            candidates = self._by_fulfilment(job for job in self._jobs if job.replicas > job.job.minimum)
            while candidates and not self._nodes.place(pod.amounts, pod.selector):
                job = candidates[0][2]
                self._shrink(job, ScaleReason.WAITING_PODS)
                if job.replicas > job.job.minimum:
                    heapq.heapreplace(candidates, _shrink_entry(job))
                else:
                    heapq.heappop(candidates)

    def _releasable(self) -> dict[str, Amounts]:
        """By node, the requests of the replicas above the minimum."""
        released: dict[str, Amounts] = {}
        for job in self._jobs:
            for node in _optional_nodes(job):
                released[node] = released.get(node, Amounts()).plus(job.job.amounts)
        return released

    def _grow(self) -> None:
        candidates = [(job.fulfilment, job.rank, job) for job in self._jobs if job.job.may_grow and job.replicas < job.job.maximum]
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
            job.reason = ScaleReason.IDLE_CAPACITY
            if job.replicas < job.job.maximum:
                heapq.heapreplace(candidates, (job.fulfilment, job.rank, job))
            else:
                heapq.heappop(candidates)

    def _shrink(self, job: _Job, reason: ScaleReason) -> None:
        """Remove the replica with the highest index."""
        job.replicas -= 1
        job.reason = reason
        self._demand = self._demand.plus(job.job.amounts, -1)
        optional = job.replicas - job.job.minimum
        if 0 <= optional < len(job.job.nodes):
            self._nodes.release(job.job.nodes[optional], job.job.amounts)

    def _by_fulfilment(self, jobs: Iterable[_Job]) -> list[tuple[float, int, _Job]]:
        """A heap of jobs, the one with the highest fulfilment first."""
        entries = [_shrink_entry(job) for job in jobs]
        heapq.heapify(entries)
        return entries


def _shrink_entry(job: _Job) -> tuple[float, int, _Job]:
    return -job.fulfilment, -job.rank, job


def _optional_nodes(job: _Job) -> Iterator[str]:
    """The nodes of the planned replicas above the minimum."""
    for index in range(job.replicas - job.job.minimum):
        yield job.job.nodes[index] if index < len(job.job.nodes) else ""


def _is_below(demand: Amounts, ceiling: Amounts, requested: Amounts) -> bool:
    return all(amount <= limit or not own for amount, limit, own in zip(demand, ceiling, requested, strict=True))
