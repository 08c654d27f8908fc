"""Elastic jobs grow into the idle capacity of the cluster and shrink for the pods of other jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dlop import Phase
from dlop.api.types import Options
from dlop.embedded.apiserver.faults import RequestMatch
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.frameworks.paddlepaddle.trainingjob import TrainingJob
from dlop.frameworks.registry import Registry
from dlop.jobs.lookup import find_job, parse_job_reference
from dlop.jobs.queries import get_job_view
from dlop.kube.resources import NODES, PODS
from dlop.kube.types import JsonObject
from dlop.operator.settings import Settings, SettingsError
from dlop.reconcile.elastic import MAX_SCALE_RECORDS
from dlop.testing.kit import OperatorKit
from dlop.testing.kubelet import NODE_NAME
from dlop.testing.observed_job import ObservedJob
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.paddle_manifests import training_job

FORBIDDEN: JsonObject = {"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "forbidden"}
UNAVAILABLE: JsonObject = {"kind": "Status", "status": "Failure", "code": 503, "reason": "ServiceUnavailable", "message": "unavailable"}


def pytorch_job(name: str, *, workers: int, minimum: int = 0, maximum: int = 0, cpu: str = "1", **run_policy: Any) -> JsonObject:
    """An elastic job if there is a maximum."""
    container = {"name": "pytorch", "image": "train", "resources": {"requests": {"cpu": cpu}}}
    spec: JsonObject = {
        "runPolicy": run_policy,
        "pytorchReplicaSpecs": {"Worker": {"replicas": workers, "template": {"spec": {"containers": [container]}}}},
    }
    if maximum:
        spec["elasticPolicy"] = {"minReplicas": minimum, "maxReplicas": maximum}
        run_policy["autoscale"] = True
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name}, "spec": spec}


ELASTIC = pytorch_job("elastic", workers=2, minimum=2, maximum=6)


async def set_cpus(kit: OperatorKit, cpus: int) -> None:
    allocatable = {"cpu": str(cpus), "memory": "64Gi", "pods": "110"}
    await kit.client.patch(NODES, NODE_NAME, {"status": {"allocatable": allocatable}}, subresource="status")


@asynccontextmanager
async def cluster(*, cpus: int, enabled: bool = True) -> AsyncIterator[OperatorKit]:
    """One node. The autoscaler uses 97% of it."""
    async with OperatorKit(frameworks=[PyTorchJob, TrainingJob], options=Options(autoscaler=enabled), operator=False) as kit:
        # The API server adds a taint until the node is ready.
        await kit.client.patch(NODES, NODE_NAME, {"spec": {"taints": None}})
        await set_cpus(kit, cpus)
        yield kit


def uids(view: ObservedJob) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in view.pods.items()}


async def until_running(kit: OperatorKit, view: ObservedJob, *, workers: int) -> None:
    await kit.until(view, reached=lambda view: list(view.pod_phases.values()) == ["Running"] * workers, within_seconds=300)


@virtual_time
async def test_a_job_grows_into_idle_capacity_and_its_pods_keep_running() -> None:
    async with cluster(cpus=10) as kit:
        await kit.start_operator()
        view = await kit.submit(ELASTIC)
        await until_running(kit, view, workers=2)
        first = uids(view)
        await until_running(kit, view, workers=6)
        assert first.items() <= uids(view).items()
        record = view.status["dlop"]
        assert record["elasticReplicas"] == {"Worker": 6}
        assert [(each["role"], each["change"], each["reason"]) for each in record["scaleRecords"]] == [("Worker", 4, "IdleCapacity")]
        assert ("Scaled", "Scaled Worker from 2 to 6: the cluster has idle capacity") in view.events
        assert view.body["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 2
        assert view.phase is Phase.RUNNING
        assert await kit.writes_when_idle() == []


@virtual_time
async def test_a_job_grows_only_up_to_the_load_limit() -> None:
    async with cluster(cpus=5) as kit:
        await kit.start_operator()
        view = await kit.submit(ELASTIC)
        await until_running(kit, view, workers=4)
        assert await kit.writes_when_idle() == []
        assert len(view.pods) == 4


@virtual_time
async def test_a_job_shrinks_for_the_waiting_pods_of_another_job_and_its_last_pods_leave() -> None:
    async with cluster(cpus=10) as kit:
        kit.script.when("rigid-*").unschedulable().until_released().run().after(600).succeed()
        await kit.start_operator()
        view = await kit.submit(ELASTIC)
        await until_running(kit, view, workers=6)
        before = uids(view)
        rigid = await kit.submit(pytorch_job("rigid", workers=7))
        await until_running(kit, view, workers=2)
        assert uids(view) == {name: uid for name, uid in before.items() if name in ("elastic-worker-0", "elastic-worker-1")}
        assert ("Scaled", "Scaled Worker from 6 to 2: the requests of all pods exceed the load limit of the cluster") in view.events
        assert view.status["dlop"].get("disruptions", {}) == {}
        for name in rigid.pods:
            kit.kubelet.release(f"default/{name}")
        await kit.until(rigid, phase="Succeeded")
        await until_running(kit, view, workers=6)


@virtual_time
async def test_a_job_does_not_shrink_for_a_pod_of_another_user_that_is_too_large_for_every_node() -> None:
    async with cluster(cpus=10) as kit:
        await kit.start_operator()
        view = await kit.submit(ELASTIC)
        await until_running(kit, view, workers=6)
        kit.script.when("large").unschedulable().until_released()
        container = {"name": "main", "image": "serve", "resources": {"requests": {"cpu": "64"}}}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "large"}, "spec": {"containers": [container]}}
        await kit.client.create(PODS, pod, namespace="default")
        await kit.writes_when_idle(seconds=300)
        assert len(view.pods) == 6


@virtual_time
async def test_a_job_does_not_shrink_for_pods_that_the_api_server_rejects() -> None:
    async with cluster(cpus=10) as kit:
        server = kit.new_server()
        await kit.start_operator(server)
        view = await kit.submit(ELASTIC)
        await until_running(kit, view, workers=6)
        await kit.writes_when_idle()
        creates = RequestMatch(verb="create", plural="pods")
        server.faults.fail_before({**FORBIDDEN, "message": "exceeded quota: cpu"}, match=creates, times=1_000)
        rejected = await kit.submit(pytorch_job("rejected", workers=2, minimum=2, maximum=4, cpu="100"))
        await kit.until(rejected, reached=lambda view: view.condition("Blocked") is not None)
        await kit.writes_when_idle(seconds=300)
        assert len(view.status["dlop"]["scaleRecords"]) == 1
        assert len(view.pods) == 6


@virtual_time
async def test_replicas_that_the_autoscaler_adds_and_removes_are_counted_and_each_change_is_in_the_history_once() -> None:
    async with cluster(cpus=10) as kit:
        operator = await kit.start_operator()
        view = await kit.submit(ELASTIC)
        await until_running(kit, view, workers=6)
        await set_cpus(kit, 4)
        await until_running(kit, view, workers=3)
        await kit.writes_when_idle()
        labels = {"kind": "pytorchjobs.kubeflow.org", "namespace": "default"}
        registry = operator.operator.metrics.registry
        counts = [registry.get_sample_value(f"dlop_jobs_scaled_{direction}_total", labels) for direction in ("up", "down")]
        assert counts == [4, 3]
        reference = parse_job_reference("pytorchjob/elastic", Registry([PyTorchJob]))
        described = await get_job_view(kit.client, await find_job(kit.client, reference, namespace="default"))
        assert [entry.message for entry in described.history if entry.reason == "Scaled"] == [
            "Scaled Worker from 2 to 6: the cluster has idle capacity",
            "Scaled Worker from 6 to 3: the requests of all pods exceed the load limit of the cluster",
        ]


@virtual_time
async def test_a_lost_node_shrinks_the_job() -> None:
    async with cluster(cpus=10) as kit:
        await kit.start_operator()
        view = await kit.submit(ELASTIC)
        await until_running(kit, view, workers=6)
        await set_cpus(kit, 4)
        await until_running(kit, view, workers=3)
        assert await kit.writes_when_idle() == []


@virtual_time
async def test_a_decision_survives_an_operator_that_is_killed_before_it_creates_the_pods() -> None:
    async with cluster(cpus=10) as kit:
        first = await kit.start_operator()
        view = await kit.submit(ELASTIC)
        await until_running(kit, view, workers=2)
        await kit.until(view, reached=lambda view: bool(view.status["dlop"].get("scaleRecords")))
        await first.crash()
        assert len(view.pods) == 2
        await kit.start_operator()
        await until_running(kit, view, workers=6)
        assert await kit.writes_when_idle() == []
        assert [each["change"] for each in view.status["dlop"]["scaleRecords"]] == [4]


@virtual_time
async def test_an_optional_pod_that_cannot_be_scheduled_neither_blocks_nor_fails_the_job() -> None:
    async with cluster(cpus=10) as kit:
        kit.script.when("elastic-worker-5").unschedulable().until_released().run()
        await kit.start_operator()
        view = await kit.submit(pytorch_job("elastic", workers=2, minimum=2, maximum=6, startDeadlineSeconds=60))
        await kit.until(view, reached=lambda view: "elastic-worker-5" in view.pods)
        assert await kit.writes_when_idle() == []
        assert (view.phase, view.condition("Blocked")) == (Phase.RUNNING, None)
        assert len(view.pods) == 6


@virtual_time
async def test_a_fault_tolerant_job_grows_although_a_trainer_has_failed() -> None:
    async with cluster(cpus=5) as kit:
        kit.script.when("train-trainer-1").run().after(30).fail()
        await kit.start_operator()
        roles = {name: {"min-instance": 2, "max-instance": 2, "resources": {"requests": {"cpu": "1"}}} for name in ("pserver", "trainer")}
        roles["trainer"]["max-instance"] = 4
        view = await kit.submit(training_job("train", fault_tolerant=True, **roles))
        await kit.until(view, reached=lambda view: view.pod_phases.get("train-trainer-1") == "Failed")
        await set_cpus(kit, 20)
        await kit.until(view, reached=lambda view: view.pod_phases.get("train-trainer-3") == "Running", within_seconds=60)
        assert view.pod_phases["train-trainer-1"] == "Failed"
        assert await kit.writes_when_idle() == []


@virtual_time
async def test_a_job_that_has_started_to_finish_is_not_scaled() -> None:
    async with cluster(cpus=3) as kit:
        kit.script.when("elastic-worker-0").run().after(30).succeed()
        kit.script.when("elastic-worker-*").run().after(3000).succeed()
        await kit.start_operator()
        view = await kit.submit({**ELASTIC, "spec": {**ELASTIC["spec"], "pytorchReplicaSpecs": _with_master()}})
        await kit.until(view, reached=lambda view: view.pod_phases.get("elastic-worker-0") == "Succeeded")
        await set_cpus(kit, 20)
        assert await kit.writes_when_idle(settle_seconds=30, seconds=600) == []
        assert "scaleRecords" not in view.status["dlop"]


def _with_master() -> JsonObject:
    worker = ELASTIC["spec"]["pytorchReplicaSpecs"]["Worker"]
    return {"Master": {**worker, "replicas": 1}, "Worker": worker}


@virtual_time
async def test_a_suspended_job_keeps_its_number_of_replicas() -> None:
    async with cluster(cpus=10) as kit:
        await kit.start_operator()
        view = await kit.submit(ELASTIC)
        await until_running(kit, view, workers=6)
        await kit.edit(view, {"spec": {"runPolicy": {"suspend": True}}})
        await kit.until(view, phase="Suspended", reached=lambda view: not view.pods)
        await kit.edit(view, {"spec": {"runPolicy": {"suspend": False}}})
        await until_running(kit, view, workers=6)
        assert len(view.status["dlop"]["scaleRecords"]) == 1


@virtual_time
async def test_a_decision_that_a_later_one_reverses_is_never_carried_out() -> None:
    async with cluster(cpus=2) as kit:
        server = kit.new_server()
        await kit.start_operator(server)
        view = await kit.submit(ELASTIC)
        await until_running(kit, view, workers=2)
        await kit.writes_when_idle()
        fault = server.faults.fail_before(UNAVAILABLE, match=RequestMatch(plural="pytorchjobs", subresource="status"), times=1_000)
        await set_cpus(kit, 10)
        await asyncio.wait_for(fault.triggered.wait(), timeout=60)
        await set_cpus(kit, 2)
        await asyncio.sleep(60)
        fault.times = fault.hits
        await kit.writes_when_idle(seconds=300)
        assert "scaleRecords" not in view.status["dlop"]
        assert len(view.pods) == 2


@virtual_time
async def test_a_suspended_job_forgets_the_last_decision() -> None:
    async with cluster(cpus=2) as kit:
        server = kit.new_server()
        await kit.start_operator(server)
        view = await kit.submit(ELASTIC)
        await until_running(kit, view, workers=2)
        await kit.writes_when_idle()
        fault = server.faults.fail_before(UNAVAILABLE, match=RequestMatch(plural="pytorchjobs", subresource="status"), times=1_000)
        await set_cpus(kit, 10)
        await asyncio.wait_for(fault.triggered.wait(), timeout=60)
        await kit.edit(view, {"spec": {"runPolicy": {"suspend": True}}})
        await asyncio.sleep(60)
        fault.times = fault.hits
        await kit.until(view, phase="Suspended", reached=lambda view: not view.pods, within_seconds=300)
        await set_cpus(kit, 2)
        await kit.edit(view, {"spec": {"runPolicy": {"suspend": False}}})
        await until_running(kit, view, workers=2)
        await kit.writes_when_idle(seconds=300)
        assert "scaleRecords" not in view.status["dlop"]


@virtual_time
async def test_a_lower_maximum_applies_at_once() -> None:
    async with cluster(cpus=10) as kit:
        await kit.start_operator()
        view = await kit.submit(ELASTIC)
        await until_running(kit, view, workers=6)
        await kit.edit(view, {"spec": {"elasticPolicy": {"maxReplicas": 3}}})
        await until_running(kit, view, workers=3)


@virtual_time
async def test_jobs_without_the_field_are_not_scaled() -> None:
    async with cluster(cpus=10) as kit:
        await kit.start_operator()
        body = pytorch_job("elastic", workers=2, minimum=2, maximum=6)
        body["spec"]["runPolicy"] = {}
        view = await kit.submit(body)
        await until_running(kit, view, workers=2)
        assert await kit.writes_when_idle() == []
        assert len(view.pods) == 2


@virtual_time
async def test_without_the_autoscaler_a_warning_says_how_to_enable_it() -> None:
    async with cluster(cpus=10, enabled=False) as kit:
        await kit.start_operator()
        view = await kit.submit(ELASTIC)
        await until_running(kit, view, workers=2)
        assert await kit.writes_when_idle() == []
        assert len(view.pods) == 2
        message = "has no effect while the autoscaler is off, so the job keeps 2 replicas of Worker; "
        hint = "an operator for all namespaces runs it with --autoscaler"
        assert ("AutoscalerOff", f"spec.elasticPolicy.maxReplicas: {message}{hint}") in view.events


@virtual_time
async def test_jobs_keep_their_minimum_while_the_operator_cannot_read_nodes() -> None:
    async with cluster(cpus=10) as kit:
        server = kit.new_server()
        server.faults.fail_before(FORBIDDEN, match=RequestMatch(plural="nodes"), times=100_000)
        await kit.start_operator(server)
        view = await kit.submit(ELASTIC)
        await until_running(kit, view, workers=2)
        await kit.writes_when_idle(seconds=300)
        assert len(view.pods) == 2


@virtual_time
async def test_the_status_lists_the_last_changes_only() -> None:
    async with cluster(cpus=10) as kit:
        await kit.start_operator()
        view = await kit.submit(ELASTIC)
        for number in range(MAX_SCALE_RECORDS + 3):
            await set_cpus(kit, 10 if number % 2 == 0 else 3)
            await until_running(kit, view, workers=6 if number % 2 == 0 else 2)
        assert len(view.status["dlop"]["scaleRecords"]) == MAX_SCALE_RECORDS


def test_the_autoscaler_cannot_be_combined_with_namespaces() -> None:
    flags = {"autoscaler": "true", "namespaces": "team"}
    with pytest.raises(SettingsError, match="--autoscaler needs the pods of all namespaces"):
        Settings.load(flags, {})


@virtual_time
async def test_metrics_of_the_elastic_policy_and_the_autoscaler_exclude_each_other() -> None:
    async with cluster(cpus=10) as kit:
        await kit.start_operator()
        body = pytorch_job("elastic", workers=2, minimum=2, maximum=6)
        body["spec"]["elasticPolicy"]["metrics"] = []
        view = await kit.submit(body)
        await kit.until(view, phase="Invalid")
        condition = view.condition("Failed")
        assert condition is not None
        assert condition["message"].startswith("spec.elasticPolicy.metrics: must not be set together with runPolicy.autoscale")
