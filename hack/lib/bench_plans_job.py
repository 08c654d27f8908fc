"""One ElasticJob on platform k8s, its ScalePlans and its workers, observed by watches. The benchmark acts as the master and the kubelet."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import count

import msgspec
from bench_operator_jobs import JobBody, MeasuredKind
from bench_operator_load import TIMEOUT_SECONDS, BenchTarget, Kubelet, Watcher, for_each
from bench_report import MeasureError

from dlop.frameworks.dlrover.elasticjob import ElasticJob
from dlop.frameworks.dlrover.names import MASTER, WORKER, member_name
from dlop.frameworks.dlrover.scale_plan import SCALE_PLAN
from dlop.kube.client import PatchType
from dlop.kube.objects import CustomObject, Pod, object_decoder
from dlop.kube.resources import PODS
from dlop.kube.watch import WatchEvent, WatchEventType

JOB = "job"
OPERATOR_FLAGS = ("--elasticjob-platform", "k8s")
RESOURCES = {"cpu": "8", "memory": "64Gi"}
# Far below the speed of any machine, so that a timeout means that no more plans are executed.
_MINIMUM_PLANS_PER_SECOND = 3
_WORKER_PREFIX = member_name(JOB, WORKER, 0)[:-1]
_read_pod, _read_plan = object_decoder(Pod), object_decoder(CustomObject)


class ElasticKind(MeasuredKind):
    """ElasticJobs without ScalePlans have no workers."""

    def _replica_specs(self, pods: int) -> JobBody:
        master = {"template": {"spec": {"serviceAccountName": "default", "containers": [{"name": "main", "image": "dlrover"}]}}}
        specs = {WORKER: self._replica_spec(WORKER, pods), MASTER: master}
        return {"distributionStrategy": "AllreduceStrategy", "suspend": False, self.job.schema.field: specs}


ELASTIC = ElasticKind(ElasticJob)


class ElasticRun:
    """Creates the job and its plans, and counts workers and executed plans."""

    def __init__(self, target: BenchTarget, namespace: str) -> None:
        self.workers: dict[str, Pod] = {}
        """Existing workers by the names of their pods."""
        self.created: set[str] = set()
        """UIDs of all workers that were created."""
        self.executed = 0
        """Number of plans that were executed and deleted."""
        self.watcher = Watcher(target.client, namespace, {PODS: self._on_pod_event, SCALE_PLAN.resource: self._on_plan_event})
        self._target = target
        self._namespace = namespace
        self._has_master = False
        self._failure = ""
        self._numbers = count()

    async def start(self, *, workers: int) -> None:
        """Create the job, and its workers by a first plan."""
        await self._target.create_jobs([self._target.kind.body(JOB, namespace=self._namespace, pods=workers)])
        await self._until(lambda: self._has_master)
        await self.create_plans([scaling_plan(workers)])
        await self.wait_executed(1)
        await self._until(lambda: len(self.workers) == workers)

    async def create_plans(self, specs: Iterable[JobBody]) -> None:
        """Create plans with the next numbers, in this order."""
        path = SCALE_PLAN.resource.path(namespace=self._namespace)

        async def create(body: JobBody) -> None:
            await self._target.client.call("POST", path, body=body)

        await for_each([self._plan(spec) for spec in specs], create)

    async def set_suspended(self, *, suspended: bool) -> None:
        """While the job is suspended, plans wait."""
        path = self._target.kind.resource.path(namespace=self._namespace, name=JOB)
        await self._target.client.call("PATCH", path, body={"spec": {"suspend": suspended}}, content_type=PatchType.MERGE)

    async def set_running(self) -> None:
        kubelet = Kubelet(self._target.client)
        await for_each(list(self.workers.values()), kubelet.set_running)

    async def set_failed(self, pods: Sequence[Pod], *, exit_code: int) -> None:
        kubelet = Kubelet(self._target.client)

        async def fail(pod: Pod) -> None:
            await kubelet.set_finished(pod, exit_code=exit_code)

        await for_each(pods, fail)

    async def wait_executed(self, plans: int) -> float:
        """Wait until this number of plans were executed, and return the time."""
        return await self._until(lambda: self.executed >= plans, timeout_seconds=plans / _MINIMUM_PLANS_PER_SECOND)

    async def wait_created(self, uids: int) -> float:
        """Wait until this number of workers were created since the start of the job, and return the time."""
        return await self._until(lambda: len(self.created) >= uids)

    async def _until(self, reached: Callable[[], bool], *, timeout_seconds: float = 0.0) -> float:
        await self.watcher.until(
            lambda: reached() or bool(self._failure),
            what=lambda: f"{self.executed} executed plans, {len(self.workers)} workers",
            timeout_seconds=max(TIMEOUT_SECONDS, timeout_seconds),
        )
        if self._failure:
            raise MeasureError(f"a scale plan failed: {self._failure}")
        return time.perf_counter()

    def _plan(self, spec: JobBody) -> JobBody:
        """A plan as the master of DLRover writes it."""
        return {
            "apiVersion": SCALE_PLAN.api_version,
            "kind": SCALE_PLAN.kind,
            "metadata": {"name": f"{JOB}-scaleplan-{next(self._numbers)}", "namespace": self._namespace, "labels": {"scale-type": "auto"}},
            "spec": {"ownerJob": JOB, "replicaResourceSpecs": {}, "createPods": [], "removePods": [], "psHosts": [], **spec},
        }

    def _on_pod_event(self, event: WatchEvent) -> None:
        pod = _read_pod(event.object)
        if not pod.metadata.name.startswith(_WORKER_PREFIX):
            self._has_master = True
        elif event.type is WatchEventType.DELETED:
            self.workers.pop(pod.metadata.name, None)
        else:
            self.workers[pod.metadata.name] = pod
            self.created.add(pod.metadata.uid)

    def _on_plan_event(self, event: WatchEvent) -> None:
        if event.type is WatchEventType.DELETED:
            self.executed += 1
            return
        status = msgspec.json.decode(_read_plan(event.object).status)
        if isinstance(status, dict) and status.get("phase") == "Failed":
            self._failure = str(status.get("message"))


def scaling_plan(workers: int) -> JobBody:
    """A plan that sets the number of workers."""
    return {"replicaResourceSpecs": {WORKER: {"replicas": workers, "resource": RESOURCES}}}


def replacement_plan(pods: Sequence[tuple[int, int]], *, first_id: int) -> JobBody:
    """A plan that replaces workers, given by ID and rank. Each replacement gets the next ID and the same rank."""
    creates = [
        {
            "name": member_name(JOB, WORKER, first_id + offset),
            "id": first_id + offset,
            "type": WORKER,
            "rankIndex": rank,
            "service": f"{member_name(JOB, WORKER, rank)}:3333",
            "resource": RESOURCES,
        }
        for offset, (_, rank) in enumerate(pods)
    ]
    return {"createPods": creates, "removePods": [{"name": member_name(JOB, WORKER, number)} for number, _ in pods]}
