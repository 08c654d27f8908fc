"""Queues of Kueue under faults of other parts: the status of Workloads, the spec of the job, finalizers, host ports, and pods that end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from dlop.deploy.apply import apply
from dlop.embedded.apiserver.faults import RequestMatch
from dlop.kube.client import PatchType
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, PODS, WORKLOADS
from dlop.kube.types import JsonObject
from dlop.operator.settings import Settings
from dlop.testing.kit import STANDALONE, OperatorKit
from dlop.testing.observed_job import ObservedJob
from dlop.testing.pod_steps import ContainerExit
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.kueue_workloads import KUEUE_CRDS, WorkloadKueue
from tests.sim.invariants import InvariantChecker
from tests.sim.operator_env import settle
from tests.sim.pair_job import PairJob, pair
from tests.sim.scenarios import all_running

UNAVAILABLE: JsonObject = {"kind": "Status", "status": "Failure", "code": 503, "reason": "ServiceUnavailable", "message": "no webhook"}
QUEUE = {"queue": "research"}


@asynccontextmanager
async def cluster(*, settings: Settings = STANDALONE, operator: bool = True) -> AsyncIterator[tuple[OperatorKit, WorkloadKueue]]:
    async with OperatorKit([PairJob], operator=False) as kit:
        await apply(kit.client, KUEUE_CRDS, report=lambda _: None)
        kueue = WorkloadKueue(kit.client, "default")
        await kueue.create_flavors("spot")
        kit.script.when("*").run()
        if operator:
            await kit.start_operator(settings=settings)
        yield kit, kueue


async def until_queued(kit: OperatorKit, kueue: WorkloadKueue, view: ObservedJob) -> None:
    await kit.until(view, phase="Suspended", reached=lambda job: not job.pods)
    await settle(60)
    assert await kueue.workload() is not None


async def until_admitted(kit: OperatorKit, kueue: WorkloadKueue, **policy: Any) -> ObservedJob:
    """A job with three pods that run."""
    view = await kit.submit(pair(schedulingPolicy=QUEUE, **policy))
    await until_queued(kit, kueue, view)
    await kueue.admit("spot")
    await kit.until(view, phase="Running", reached=lambda job: all_running(job, 3))
    await settle(60)
    return view


@virtual_time
async def test_the_status_of_a_job_is_written_although_kueue_accepts_no_reports() -> None:
    async with cluster(operator=False) as (kit, kueue):
        server = kit.new_server()
        await kit.start_operator(server)
        fault = server.faults.fail_before(UNAVAILABLE, match=RequestMatch(plural="workloads", subresource="status"), times=100_000)
        view = await until_admitted(kit, kueue)
        await kit.kubelet.perform("default/pair-worker-0", ContainerExit(0))
        await settle(60)
        assert view.status["dlop"]["completedIndexes"] == {"Worker": "0"}
        assert "PodsReady" not in await kueue.conditions()
        fault.times = fault.hits
        await settle(1200)
        assert (await kueue.conditions())["PodsReady"] == ("True", "Started")


@virtual_time
async def test_a_job_is_reported_as_running_although_one_of_its_pods_cannot_be_created() -> None:
    async with cluster() as (kit, kueue):
        container = {"name": "main", "image": "serve"}
        foreign = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pair-worker-1"}, "spec": {"containers": [container]}}
        await kit.client.create(PODS, foreign, namespace="default")
        view = await kit.submit(pair(schedulingPolicy=QUEUE))
        await until_queued(kit, kueue, view)
        await kueue.admit("spot")
        await kit.until(view, phase="Running", reached=lambda job: "NameConflict" in str(job.condition("Blocked")))
        await settle(60)
        assert (await kueue.conditions())["PodsReady"] == ("True", "Started")


@virtual_time
async def test_an_evicted_job_whose_spec_is_invalid_returns_its_quota() -> None:
    async with cluster() as (kit, kueue):
        view = await until_admitted(kit, kueue)
        await accept_any_spec(kit)
        await kit.edit(view, {"spec": {"replicaSpecs": {"Worker": {"restartPolicy": "Sometimes"}}}})
        await kit.until(view, reached=lambda job: "InvalidSpec" in str(job.condition("Blocked")))
        await kueue.evict()
        await kit.until(view, reached=lambda job: not job.pods)
        await settle(60)
        assert not await kueue.holds_quota()
        assert "InvalidSpec" in str(view.condition("Blocked"))

        await kit.edit(view, {"spec": {"replicaSpecs": {"Worker": {"restartPolicy": "ExitCode"}}}})
        await until_queued(kit, kueue, view)
        await kueue.admit("spot")
        await kit.until(view, phase="Running", reached=lambda job: all_running(job, 3))
        assert "disruptions" not in view.status["dlop"]


async def accept_any_spec(kit: OperatorKit) -> None:
    """Remove the schema of the spec, so that the operator reads what the API server would reject."""
    name = PairJob.job_type.resource.qualified_name
    crd = await kit.client.get(CUSTOM_RESOURCE_DEFINITIONS, name)
    for version in crd["spec"]["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        schema.pop("x-kubernetes-validations", None)
        schema["properties"]["spec"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version.pop("additionalPrinterColumns", None)
        version.get("subresources", {}).pop("scale", None)
    await kit.client.patch(CUSTOM_RESOURCE_DEFINITIONS, name, {"spec": crd["spec"]}, patch_type=PatchType.MERGE)


@virtual_time
async def test_a_job_that_has_succeeded_when_it_is_evicted_finishes() -> None:
    async with cluster() as (kit, kueue):
        view = await until_admitted(kit, kueue)
        await kit.operator.crash()
        for name in ("pair-server-0", "pair-worker-0", "pair-worker-1"):
            await kit.kubelet.perform(f"default/{name}", ContainerExit(0))
        await kueue.evict("Deactivated")
        await kit.start_operator()
        await kit.until(view, phase="Succeeded")
        await settle(60)
        assert (await kueue.conditions())["Finished"] == ("True", "Succeeded")


@virtual_time
async def test_a_workload_that_finalizers_keep_returns_its_quota() -> None:
    async with cluster() as (kit, kueue):
        view = await until_admitted(kit, kueue)
        workload = await kueue.workload()
        assert workload is not None
        name, finalizers = workload["metadata"]["name"], {"metadata": {"finalizers": ["example.org/audit"]}}
        await kit.client.patch(WORKLOADS, name, finalizers, namespace="default", patch_type=PatchType.MERGE)
        await kueue.delete()
        await kit.until(view, phase="Suspended", reached=lambda job: not job.pods)
        await settle(60)
        assert not await kueue.holds_quota()
        assert "example.org/audit" in (view.condition("Suspended") or {})["message"]
        await kit.client.patch(WORKLOADS, name, {"metadata": {"finalizers": []}}, namespace="default", patch_type=PatchType.MERGE)
        await until_queued(kit, kueue, view)
        await kueue.admit("spot")
        await kit.until(view, phase="Running", reached=lambda job: all_running(job, 3))


@virtual_time
async def test_a_job_that_waits_in_a_queue_has_no_host_ports() -> None:
    settings = STANDALONE.model_copy(update={"host_port_range": "36000-36002"})
    async with cluster(settings=settings) as (kit, kueue):
        queued = await kit.submit(pair(schedulingPolicy=QUEUE, hostNetwork=True))
        await until_queued(kit, kueue, queued)
        other = pair(hostNetwork=True)
        other["metadata"]["name"] = "other"
        running = await kit.submit(other)
        await kit.until(running, phase="Running")
        await kueue.admit("spot")
        await kit.until(queued, reached=lambda job: "NoHostPorts" in str(job.condition("Blocked")))


@virtual_time
async def test_a_running_job_stays_in_its_queue_when_its_status_is_lost() -> None:
    async with cluster() as (kit, kueue):
        view = await until_admitted(kit, kueue)
        pods = {name: pod["metadata"]["uid"] for name, pod in view.pods.items()}
        await kit.client.patch(
            PairJob.job_type.resource, "pair", {"status": None}, namespace="default", patch_type=PatchType.MERGE, subresource="status"
        )
        await kit.until(view, phase="Running")
        await settle(60)
        assert {name: pod["metadata"]["uid"] for name, pod in view.pods.items()} == pods
        assert await kueue.holds_quota()
        assert view.status["dlop"]["queue"] == "research"


@virtual_time
async def test_a_job_that_is_resumed_while_its_pods_terminate_never_runs_without_quota() -> None:
    async with cluster() as (kit, kueue):
        view = await until_admitted(kit, kueue)
        checker = InvariantChecker(kit.cluster.store, PairJob)
        finalizers = {"metadata": {"finalizers": ["example.org/slow"]}}
        await kit.client.patch(PODS, "pair-worker-0", finalizers, namespace="default", patch_type=PatchType.MERGE)
        await kit.edit(view, {"spec": {"runPolicy": {"suspend": True}}})
        await kit.until(view, phase="Suspended", reached=lambda job: list(job.pods) == ["pair-worker-0"])
        await kit.edit(view, {"spec": {"runPolicy": {"suspend": False}}})
        await settle(60)
        assert await kueue.holds_quota()
        await kit.client.patch(PODS, "pair-worker-0", {"metadata": {"finalizers": []}}, namespace="default", patch_type=PatchType.MERGE)
        await kit.until(view, phase="Running", reached=lambda job: all_running(job, 3))
        assert {pod["spec"]["nodeSelector"]["flavor"] for pod in view.pods.values()} == {"spot"}
        assert checker.violations == []


@virtual_time
async def test_a_job_without_replicas_needs_no_quota() -> None:
    async with cluster() as (kit, kueue):
        view = await until_admitted(kit, kueue)
        await kit.edit(view, {"spec": {"replicaSpecs": {"Server": {"replicas": 0}, "Worker": {"replicas": 0}}}})
        await kit.until(view, reached=lambda job: "NoReplicas" in str(job.condition("Blocked")))
        await settle(60)
        assert view.pods == {}
        assert await kueue.workload() is None
        await kit.edit(view, {"spec": {"replicaSpecs": {"Server": {"replicas": 1}, "Worker": {"replicas": 1}}}})
        await until_queued(kit, kueue, view)


@virtual_time
async def test_a_job_that_is_resumed_in_a_cluster_without_kueue_runs_without_its_queue() -> None:
    async with OperatorKit([PairJob]) as kit:
        kit.script.when("*").run()
        view = await kit.submit(pair(schedulingPolicy=QUEUE, suspend=True))
        await kit.until(view, phase="Suspended")
        await kit.edit(view, {"spec": {"runPolicy": {"suspend": False}}})
        await kit.until(view, phase="Running", reached=lambda job: all_running(job, 3))
        assert len([reason for reason, _ in view.events if reason == "QueueIgnored"]) == 1


@virtual_time
async def test_a_job_waits_for_kueue_if_it_was_in_a_queue_of_it() -> None:
    async with cluster() as (kit, kueue):
        view = await kit.submit(pair(schedulingPolicy=QUEUE))
        await until_queued(kit, kueue, view)
        await kit.client.delete(CUSTOM_RESOURCE_DEFINITIONS, WORKLOADS.qualified_name)
        await kit.operator.crash()
        await kit.start_operator()
        await kit.until(view, reached=lambda job: (job.condition("Blocked") or {}).get("reason") == "CRDNotInstalled")
        assert "install Kueue 0.15 or newer" in (view.condition("Blocked") or {})["message"]
        assert view.pods == {}


@virtual_time
async def test_a_queue_whose_name_is_invalid_blocks_only_its_job() -> None:
    async with cluster() as (kit, kueue):
        view = await kit.submit(pair(schedulingPolicy={"queue": "Not A Queue"}))
        await kit.until(view, phase="Suspended", reached=lambda job: job.condition("Blocked") is not None)
        blocked = view.condition("Blocked") or {}
        assert blocked["reason"] == "FailedCreate"
        assert "spec.queueName" in blocked["message"]
        assert view.pods == {}
        other = pair()
        other["metadata"]["name"] = "other"
        await kit.until(await kit.submit(other), phase="Running")
        assert await kueue.workloads() == []


@virtual_time
async def test_a_new_priority_applies_to_a_job_that_waits() -> None:
    async with cluster() as (kit, kueue):
        view = await kit.submit(pair(schedulingPolicy={**QUEUE, "priority": 1}))
        await until_queued(kit, kueue, view)
        await accept_any_spec(kit)
        await kit.edit(view, {"spec": {"runPolicy": {"schedulingPolicy": {"priority": 9}}}})
        await settle(60)
        workload = await kueue.workload()
        assert workload is not None
        assert workload["spec"]["priority"] == 9
        assert workload["metadata"]["generation"] == 2


@virtual_time
async def test_a_lost_pod_is_replaced_where_kueue_has_admitted_the_job() -> None:
    async with cluster() as (kit, kueue):
        view = await until_admitted(kit, kueue)
        await kit.client.delete(PODS, "pair-worker-1", namespace="default")
        await asyncio.sleep(1)
        await kit.until(view, phase="Running", reached=lambda job: all_running(job, 3))
        assert view.pods["pair-worker-1"]["spec"]["nodeSelector"] == {"flavor": "spot"}
        assert await kueue.holds_quota()
