"""Runs the autoscaler when the cluster or an elastic job has changed, and passes its decisions to the reconcile passes of the jobs.

Passes report what their jobs need. A decision takes effect in the next pass of its job, which stores it in the status.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import structlog

from dlop.controller.cluster_capacity import ClusterCapacity
from dlop.controller.informer_set import InformerSet
from dlop.controller.job_state import JobStates
from dlop.controller.kinds import JobKey
from dlop.kube.resources import NODES
from dlop.kube.workqueue import WorkQueue
from dlop.reconcile.autoscaler import Amounts, Cluster, ElasticJob, NodeCapacity, WaitingPod, decide
from dlop.reconcile.elastic import ElasticRole, JobDemand

log = structlog.get_logger(__name__)

_DEBOUNCE_SECONDS = 2.0
"""From the first change to the decision. Changes of the cluster come in groups, for example when a job starts."""


@dataclass(frozen=True, slots=True)
class _Entry:
    key: JobKey
    demand: JobDemand


class Autoscaler:
    """Decides about the elastic jobs of all kinds."""

    def __init__(self, *, queue: WorkQueue[JobKey], job_states: JobStates, max_load: float) -> None:
        """`max_load` is the fraction of the allocatable resources up to which jobs grow."""
        self._queue = queue
        self._job_states = job_states
        self._max_load = max_load
        self._changed = asyncio.Event()
        self._entries: dict[str, _Entry] = {}
        self._has_warned = False
        """Whether the log says that nodes cannot be read."""
        self.capacity = ClusterCapacity(on_change=self._changed.set)

    def update(self, key: JobKey, uid: str, demand: JobDemand | None) -> None:
        """Store what a job needs, as its last pass has computed it; None if the autoscaler need not know."""
        old = self._entries.get(uid)
        if (None if old is None else old.demand) == demand:
            return
        if demand is None:
            del self._entries[uid]
        else:
            self._entries[uid] = _Entry(key, demand)
        if demand is None or demand.elastic is None:
            self._withdraw(uid)
        self._changed.set()

    def forget(self, uid: str) -> None:
        """Forget a deleted job."""
        if self._entries.pop(uid, None) is not None:
            self._changed.set()

    def clear(self) -> None:
        """Forget all jobs, whose passes will report them again."""
        self._entries.clear()

    async def run(self, informers: InformerSet) -> None:
        """Decide after each change until cancelled."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(_DEBOUNCE_SECONDS)
            self._changed.clear()
            if not any(entry.demand.elastic for entry in self._entries.values()):
                continue
            if not informers.is_synced(NODES):
                self._warn_once()
                continue
            self._has_warned = False
            await self._decide(informers)

    def _warn_once(self) -> None:
        if not self._has_warned:
            log.warning("autoscaler disabled: not allowed to read nodes; add `--with nodes` to the `dlop deploy` line that was used")
        self._has_warned = True

    async def _decide(self, informers: InformerSet) -> None:
        cluster, jobs = self._observe(informers)
        # In a thread, because a decision about a thousand jobs takes longer than the event loop should wait.
        decisions = await asyncio.to_thread(decide, cluster, jobs, max_load=self._max_load)
        for job in jobs:
            entry, decision = self._entries.get(job.uid), decisions.get(job.uid)
            if entry is None or entry.demand.elastic is None or decision is None:
                self._withdraw(job.uid)
            else:
                self._job_states.get_or_create(job.uid, entry.key).scale_decision = decision
                self._queue.add(entry.key)

    def _withdraw(self, uid: str) -> None:
        """Drop the last decision about a job, which no pass may have carried out yet."""
        state = self._job_states.get(uid)
        if state is not None:
            state.scale_decision = None

    def _observe(self, informers: InformerSet) -> tuple[Cluster, list[ElasticJob]]:
        nodes = tuple(self.capacity.nodes())
        cluster = Cluster(nodes=nodes, demand=self._total_demand(nodes), waiting=tuple(self._waiting_pods(informers)))
        elastic = ((uid, entry.key, entry.demand.elastic) for uid, entry in self._entries.items())
        return cluster, [_elastic_job(uid, key, role, informers) for uid, key, role in elastic if role is not None]

    def _total_demand(self, nodes: Iterable[NodeCapacity]) -> Amounts:
        """Requests of all pods. For the jobs that are known here, of the pods that they need and not of those that exist."""
        total = self.capacity.unscheduled()
        for node in nodes:
            total = total.plus(node.used)
        for uid, entry in self._entries.items():
            total = total.plus(entry.demand.total).plus(self.capacity.used_by_job(uid), -1)
        return total

    def _waiting_pods(self, informers: InformerSet) -> Iterator[WaitingPod]:
        """Pods that could not be scheduled when their jobs were reconciled, and that are still not scheduled."""
        for entry in self._entries.values():
            for waiting in entry.demand.waiting:
                pod = informers.pods.get(waiting.name, namespace=entry.key.namespace)
                if pod is not None and not pod.spec.node_name:
                    yield waiting


def _elastic_job(uid: str, key: JobKey, role: ElasticRole, informers: InformerSet) -> ElasticJob:
    pods = (informers.pods.get(name, namespace=key.namespace) for name in role.optional_pods)
    return ElasticJob(
        uid=uid,
        name=f"{key.namespace}/{key.name}",
        minimum=role.minimum,
        maximum=role.maximum,
        replicas=role.replicas,
        amounts=role.amounts,
        selector=role.selector,
        # A pod that has failed does not use its node anymore.
        nodes=tuple("" if pod is None or pod.status.phase == "Failed" else pod.spec.node_name for pod in pods),
        may_grow=role.may_grow,
    )
