"""The autoscaler of the TrainingJob operator (paddle-on-k8s-operator), ported from its description, with its defects.

Every 30 seconds, a loop adds a replica to each job in the order of fulfilment, and removes a replica from each job in the opposite order,
until nothing changes. The defects: a job may use 100% of memory and GPUs when it grows, but shrinks above the load limit, so that the
loop repeats; what the loop takes from a node when a job grows is not returned when it shrinks, which ends most of these loops; the node is
chosen randomly; GPUs, limits of pods and node selectors are not considered when it is chosen.

The pods of a job that has not started stand for its master and parameter servers. New replicas do get pods, although the operator limits
the completions of the Kubernetes Job. The loop is limited, because otherwise it can be infinite.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

MAX_PASSES = 1_000
_MEMORY_UNIT = 1_000_000


@dataclass(slots=True)
class UpstreamJob:
    name: str
    minimum: int
    maximum: int
    parallelism: int
    cpu: int
    """Request of a trainer, in thousandths."""
    memory: int
    """In units of 1,000,000 bytes."""
    gpu: int
    is_running: bool
    """Whether the job is in phase Running."""

    @property
    def fulfilment(self) -> float:
        return (self.parallelism - self.minimum) / (self.maximum - self.minimum)


@dataclass(slots=True)
class UpstreamCluster:
    cpu: int
    memory: int
    gpu: int
    used_cpu: int
    used_memory: int
    used_gpu: int
    idle: list[tuple[int, int]]
    """CPU and memory by node."""


def memory_units(amount: int) -> int:
    """Rounded up."""
    return -(-amount // _MEMORY_UNIT)


@dataclass
class UpstreamDecision:
    """One run of the loop."""

    cluster: UpstreamCluster
    max_load: float
    rng: Random
    passes: int = 0
    _change: dict[str, int] = field(default_factory=dict)
    _without_node: set[tuple[int, int]] = field(default_factory=set)
    """Requests that fit on no node. This is final, because nothing is returned to the nodes."""

    def decide(self, jobs: Iterable[UpstreamJob], *, has_pending: bool) -> dict[str, int]:
        """The change of each job."""
        elastic = [job for job in jobs if (job.is_running or has_pending) and job.minimum < job.maximum]
        elastic.sort(key=lambda job: (job.fulfilment, job.gpu, job.cpu, job.memory))
        self._change = {job.name: 0 for job in elastic}
        while self.passes < MAX_PASSES and self._run_pass(elastic):
            pass
        return {name: change for name, change in self._change.items() if change}

    def _run_pass(self, jobs: Sequence[UpstreamJob]) -> bool:
        """Whether something has changed."""
        self.passes += 1
        is_changed = False
        for job in jobs:
            is_changed |= self._apply(job, self._up(job))
        for job in reversed(jobs):
            is_changed |= self._apply(job, self.down(job))
        return is_changed

    def _apply(self, job: UpstreamJob, change: int) -> bool:
        self._change[job.name] += change
        self.cluster.used_cpu += change * job.cpu
        self.cluster.used_memory += change * job.memory
        self.cluster.used_gpu += change * job.gpu
        return change != 0

    def _up(self, job: UpstreamJob) -> int:
        cluster, planned = self.cluster, job.parallelism + self._change[job.name]
        if planned >= job.maximum:
            return job.maximum - planned
        if cluster.memory - cluster.used_memory <= job.memory:
            return 0
        node = self._find_node(job)
        has_cpu = int(cluster.cpu * self.max_load) - cluster.used_cpu >= job.cpu
        has_gpu = not job.gpu or cluster.gpu - cluster.used_gpu >= job.gpu
        if node is None or not has_cpu or not has_gpu:
            return 0
        cpu, memory = cluster.idle[node]
        cluster.idle[node] = (cpu - job.cpu, memory - job.memory)
        return 1

    def _find_node(self, job: UpstreamJob) -> int | None:
        """A random node with idle CPU and memory."""
        if (job.cpu, job.memory) in self._without_node:
            return None
        fitting = [index for index, (cpu, memory) in enumerate(self.cluster.idle) if cpu >= job.cpu and memory >= job.memory]
        if not fitting:
            self._without_node.add((job.cpu, job.memory))
            return None
        return self.rng.choice(fitting)

    def down(self, job: UpstreamJob) -> int:
        """The change of a job if it is its turn to shrink."""
        cluster, planned = self.cluster, job.parallelism + self._change.get(job.name, 0)
        if planned > job.maximum:
            return -1
        is_overloaded = (
            cluster.used_gpu > int(cluster.gpu * self.max_load)
            or cluster.used_cpu > int(cluster.cpu * self.max_load)
            or cluster.used_memory > int(cluster.memory * self.max_load)
        )
        return -1 if is_overloaded and planned > job.minimum else 0
