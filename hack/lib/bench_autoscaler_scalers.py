"""The autoscalers that are compared on a simulated day."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from random import Random

from bench_autoscaler_day import Day, PodState, SimJob, SimPod
from bench_autoscaler_measures import Decisions
from bench_autoscaler_upstream import UpstreamCluster, UpstreamDecision, UpstreamJob, memory_units

from dlop.reconcile.autoscaler import Amounts, Cluster, ElasticJob, NodeCapacity, WaitingPod, decide

MAX_LOAD = 0.97


class DlopScaler:
    """Decides two seconds after a change, like the operator."""

    debounce_seconds = 2.0
    period_seconds = 0.0

    def __init__(self) -> None:
        self.decisions = Decisions()

    def decide(self, day: Day) -> Mapping[str, int]:
        cluster, jobs = _observe(day)
        started_at = time.process_time()
        decisions = decide(cluster, jobs, max_load=MAX_LOAD)
        self.decisions.cpu_seconds += time.process_time() - started_at
        self.decisions.passes.append(1)
        return {name: decision.replicas for name, decision in decisions.items()}

    def leaving(self, job: SimJob, number: int) -> Sequence[SimPod]:
        """Those with the highest index."""
        return job.pods[-number:]


def _observe(day: Day) -> tuple[Cluster, list[ElasticJob]]:
    nodes = [
        NodeCapacity(name=name, allocatable=day.allocatable[name], used=used, leaving=day.leaving[name], labels={})
        for name, used in day.used.items()
    ]
    demand = Amounts()
    for job in day.jobs.values():
        demand = demand.plus(job.spec.amounts, job.replicas)
    waiting = [
        WaitingPod(name=f"{pod.job.spec.name}-{pod.job.pods.index(pod)}", amounts=pod.amounts)
        for pod in day.pending()
        if not pod.job.spec.is_background and pod.job.pods.index(pod) < pod.job.spec.minimum
    ]
    jobs = [_elastic_job(job) for job in day.jobs.values() if job.spec.is_elastic]
    return Cluster(nodes=nodes, demand=demand, waiting=waiting), jobs


def _elastic_job(job: SimJob) -> ElasticJob:
    return ElasticJob(
        uid=job.spec.name,
        name=job.spec.name,
        minimum=job.spec.minimum,
        maximum=job.spec.maximum,
        replicas=job.replicas,
        amounts=job.spec.amounts,
        nodes=[pod.node for pod in job.pods[job.spec.minimum :]],
        may_grow=job.all_running,
    )


class UpstreamScaler:
    """The TrainingJob operator."""

    debounce_seconds = None
    period_seconds = 30.0

    def __init__(self, *, seed: int) -> None:
        self.decisions = Decisions()
        self._rng = Random(seed)

    def decide(self, day: Day) -> Mapping[str, int]:
        elastic = [job for job in day.jobs.values() if job.spec.is_elastic]
        jobs = [_upstream_job(job) for job in elastic]
        has_pending = any(all(pod.state is PodState.PENDING for pod in job.pods) for job in elastic)
        decision = UpstreamDecision(_upstream_cluster(day), MAX_LOAD, self._rng)
        started_at = time.process_time()
        changes = decision.decide(jobs, has_pending=has_pending)
        self.decisions.cpu_seconds += time.process_time() - started_at
        self.decisions.passes.append(decision.passes)
        return {name: day.jobs[name].replicas + change for name, change in changes.items()}

    def leaving(self, job: SimJob, number: int) -> Sequence[SimPod]:
        """Those that the controller of Kubernetes Jobs deletes first: pods that do not run, and then the newest ones."""
        return sorted(job.pods, key=lambda pod: (pod.state.value, -pod.running_since, -pod.number))[:number]


def _upstream_job(job: SimJob) -> UpstreamJob:
    spec, amounts = job.spec, job.spec.amounts
    return UpstreamJob(
        name=spec.name,
        minimum=spec.minimum,
        maximum=spec.maximum,
        parallelism=job.replicas,
        cpu=amounts.cpu,
        memory=memory_units(amounts.memory),
        gpu=amounts.gpu,
        is_running=job.all_running,
    )


def _upstream_cluster(day: Day) -> UpstreamCluster:
    """All pods count as used, also those without a node."""
    used = [*day.used.values(), *(pod.amounts for pod in day.pending())]
    allocatable = day.allocatable.values()
    return UpstreamCluster(
        cpu=sum(amounts.cpu for amounts in allocatable),
        memory=sum(memory_units(amounts.memory) for amounts in allocatable),
        gpu=sum(amounts.gpu for amounts in allocatable),
        used_cpu=sum(amounts.cpu for amounts in used),
        used_memory=sum(memory_units(amounts.memory) for amounts in used),
        used_gpu=sum(amounts.gpu for amounts in used),
        idle=[
            (day.allocatable[name].cpu - amounts.cpu, memory_units(day.allocatable[name].memory) - memory_units(amounts.memory))
            for name, amounts in day.used.items()
        ],
    )


class NoScaler:
    """Jobs keep their minimum."""

    debounce_seconds = None
    period_seconds = 3600.0

    def __init__(self) -> None:
        self.decisions = Decisions()

    def decide(self, day: Day) -> Mapping[str, int]:
        return {}

    def leaving(self, job: SimJob, number: int) -> Sequence[SimPod]:
        return ()
