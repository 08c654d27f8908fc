"""ElasticJobs in the operator: the life of the master, phases and status, the effects of plans, suspension, and cleanup."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from dlop.api.scale_plan import Member, MembersRecord, group_members
from dlop.embedded.apiserver.faults import RequestMatch
from dlop.frameworks.dlrover.elasticjob import ElasticJob
from dlop.frameworks.dlrover.names import RANK_LABEL, RELAUNCH_LABEL
from dlop.kube.client import PatchType
from dlop.kube.errors import NotFoundError
from dlop.kube.resources import CONFIG_MAPS, NAMESPACES, PODS, ROLES, SERVICES, Resource
from dlop.kube.types import JsonObject
from dlop.reconcile.snapshot import Snapshot
from dlop.testing.kit import OperatorKit
from dlop.testing.observed_job import ObservedJob
from dlop.testing.pod_steps import ContainerExit
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.elastic_manifests import SCALE_PLANS, elastic_job, pod_meta, scale_plan, template
from tests.unit.job.jobs import environment, make

SERVICE = "elasticjob-elastic-dlrover-master"
QUOTA: JsonObject = {"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "exceeded quota: pods"}


def master(number: int = 0) -> str:
    return f"{SERVICE}-{number}"


def worker(number: int) -> str:
    return f"elastic-edljob-worker-{number}"


def workers(*numbers: int) -> dict[str, str]:
    return {worker(number): "Running" for number in numbers}


async def until_pods(kit: OperatorKit, view: ObservedJob, phases: dict[str, str]) -> None:
    await kit.until(view, reached=lambda view: view.pod_phases == phases, within_seconds=120)


async def until_status(kit: OperatorKit, view: ObservedJob, phase: str) -> None:
    await kit.until(view, reached=lambda view: view.status.get("phase") == phase, within_seconds=120)


async def start(kit: OperatorKit, manifest: JsonObject | None = None) -> ObservedJob:
    view = await kit.submit(manifest or elastic_job())
    await until_pods(kit, view, {f"elasticjob-{view.name}-dlrover-master-0": "Running"})
    return view


async def write(kit: OperatorKit, plan: JsonObject, *, namespace: str = "default") -> None:
    plan["metadata"]["namespace"] = namespace
    await kit.client.create(SCALE_PLANS, plan, namespace=namespace)


async def plans(kit: OperatorKit, *, namespace: str = "default") -> dict[str, JsonObject]:
    listed = await kit.client.list(SCALE_PLANS, namespace=namespace)
    return {plan["metadata"]["name"]: plan.get("status", {}) for plan in listed["items"]}


def counts(view: ObservedJob) -> dict[str, dict[str, int]]:
    """Number of pods by role and state."""
    roles: dict[str, dict[str, Any]] = view.status["status"]["replicaStatuses"]
    return {role: {state: count for state, count in values.items() if state != "labelSelector"} for role, values in roles.items()}


def true_conditions(conditions: Iterable[JsonObject]) -> list[str]:
    return [condition["type"] for condition in conditions if condition["status"] == "True"]


# --- phases and status ------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_job_is_pending_then_running_then_scaling_then_succeeded() -> None:
    async with OperatorKit(frameworks=[ElasticJob], operator=False) as kit:
        kit.script.when(master()).after(20).run().after(100).succeed()
        seen: list[str] = []
        view = await kit.submit(elastic_job())
        kit.cluster.store.listeners.append(lambda _: seen.append(view.status.get("phase", "")))
        await kit.start_operator()
        await until_status(kit, view, "Running")
        await write(kit, scale_plan(replicas={"worker": 1}, owner=view.body))
        await kit.until(view, phase="Succeeded")
        phases = [phase for number, phase in enumerate(seen) if phase and phase != (seen[number - 1] if number else "")]
        assert phases == ["Pending", "Running", "Scaling", "Running", "Succeeded"]


@virtual_time
async def test_a_job_whose_master_cannot_be_created_is_created() -> None:
    async with OperatorKit(frameworks=[ElasticJob], operator=False) as kit:
        server = kit.new_server()
        server.faults.fail_before(QUOTA, match=RequestMatch(plural="pods", verb="create"), times=1_000_000)
        await kit.start_operator(server)
        view = await kit.submit(elastic_job())
        await until_status(kit, view, "Created")
        assert "exceeded quota" in (view.condition("Blocked") or {})["message"]
        assert counts(view) == {"dlrover-master": {"initial": 1}}


@virtual_time
async def test_the_nested_status_has_conditions_times_and_the_counts_of_all_roles() -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        kit.script.when(worker(1)).run().after(10).succeed()
        kit.script.when(worker(2)).run().after(10).fail(exit_code=137)
        kit.script.when("*-evaluator-0").unschedulable()
        kit.script.when(master()).run().after(200).succeed()
        view = await start(kit, elastic_job(strategy="ParameterServerStrategy", ps=1))
        await write(kit, scale_plan(replicas={"ps": 1, "worker": 3, "evaluator": 1}, owner=view.body))
        await kit.until(view, reached=lambda view: "failed" in counts(view).get("worker", {}), within_seconds=60)
        assert counts(view) == {
            "dlrover-master": {"active": 1},
            "ps": {"active": 1},
            "worker": {"active": 1, "failed": 1, "succeeded": 1},
            "evaluator": {"pending": 1},
        }
        selector = view.status["status"]["replicaStatuses"]["ps"]["labelSelector"]
        assert selector == "elasticjob.dlrover/name=elastic,elasticjob.dlrover/replica-type=ps"
        assert true_conditions(view.status["status"]["conditions"]) == ["Created", "Running"]
        await kit.until(view, phase="Succeeded")
        nested = view.status["status"]
        assert nested["conditions"] == view.status["conditions"]
        assert true_conditions(nested["conditions"]) == ["Created", "Succeeded"]
        assert nested["startTime"] < nested["completionTime"]
        assert counts(view)["dlrover-master"] == {"succeeded": 1}


@virtual_time
async def test_a_job_that_dlrovers_operator_has_finished_is_not_started_again() -> None:
    async with OperatorKit(frameworks=[ElasticJob], operator=False) as kit:
        view = await kit.submit(elastic_job())
        stored = {"phase": "Succeeded", "status": {"conditions": [], "replicaStatuses": {}}}
        resource = ElasticJob.job_type.resource
        await kit.client.patch(resource, "elastic", {"status": stored}, namespace="default", subresource="status")
        await kit.start_operator()
        assert await kit.writes_when_idle() == []
        assert view.pods == {}


# --- the end of the master --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("exit_code", "phase"), [(0, "Succeeded"), (1, "Failed")])
@virtual_time
async def test_the_job_ends_with_its_master_and_the_pods_that_run_are_deleted(exit_code: int, phase: str) -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        kit.script.when(master()).run().after(100).then(ContainerExit(exit_code))
        kit.script.when(worker(0)).run().after(10).succeed()
        kit.script.when(worker(1)).run().after(10).fail()
        kit.script.when("*-ps-1").unschedulable()
        view = await start(kit, elastic_job(strategy="ParameterServerStrategy", ps=2))
        await write(kit, scale_plan(replicas={"ps": 2, "worker": 3}, owner=view.body))
        await kit.until(view, phase=phase)
        await kit.writes_when_idle()
        assert view.pod_phases == {master(): phase, worker(0): "Succeeded", worker(1): "Failed"}
        assert view.status["phase"] == phase


@virtual_time
async def test_a_master_that_is_killed_is_replaced_by_the_next_one_behind_the_same_service() -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        kit.script.when(master()).run().after(30).fail(exit_code=137)
        view = await start(kit)
        await write(kit, scale_plan(replicas={"worker": 2}, owner=view.body))
        await until_pods(kit, view, {master(): "Running", **workers(0, 1)})
        before = {name: view.pods[name]["metadata"]["uid"] for name in (worker(0), worker(1))}
        service = view.services[SERVICE]["metadata"]["uid"]
        await until_pods(kit, view, {master(1): "Running", **workers(0, 1)})
        assert {name: view.pods[name]["metadata"]["uid"] for name in before} == before
        assert view.services[SERVICE]["metadata"]["uid"] == service
        labels = view.pods[master(1)]["metadata"]["labels"]
        assert labels["elasticjob.dlrover/replica-index"] == "1"
        assert view.services[SERVICE]["spec"]["selector"].items() <= labels.items()
        await until_status(kit, view, "Running")
        # A new master counts its plans from 0 again.
        await write(kit, scale_plan(replicas={"worker": 3}, owner=view.body))
        await until_pods(kit, view, {master(1): "Running", **workers(0, 1, 2)})


@pytest.mark.parametrize(("restart_count", "restarts"), [(None, 3), (0, 0), (1, 1)])
@virtual_time
async def test_the_restart_count_limits_the_number_of_masters(restart_count: int | None, restarts: int) -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        kit.script.when(f"{SERVICE}-*").run().after(5).fail(exit_code=137)
        fields = {} if restart_count is None else {"restartCount": restart_count}
        view = await kit.submit(elastic_job(replicaSpecs={"dlrover-master": {"template": template(), **fields}}))
        await kit.until(view, phase="Failed")
        assert list(view.pods) == [master(restarts)]


@virtual_time
async def test_evicted_and_deleted_masters_are_replaced_and_not_counted() -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        kit.script.when(master()).run().after(20).evict()
        manifest = elastic_job(replicaSpecs={"dlrover-master": {"restartCount": 0, "template": template()}})
        view = await start(kit, manifest)
        await until_pods(kit, view, {master(1): "Running"})
        await kit.client.delete(PODS, master(1), namespace="default")
        await until_pods(kit, view, {master(2): "Running"})
        assert "restarts" not in view.status["dlop"]


@virtual_time
async def test_a_service_that_the_master_has_patched_is_kept() -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        view = await start(kit)
        uid = view.services[SERVICE]["metadata"]["uid"]
        labels = {"app": "dlrover", "elasticjob.dlrover/name": "elastic"}
        selector = {"elasticjob.dlrover/name": "elastic", "elasticjob.dlrover/replica-type": "dlrover-master"}
        ports = [{"name": "grpc", "port": 50001, "targetPort": 50001}]
        body = {"metadata": {"labels": labels, "annotations": labels}, "spec": {"ports": ports, "selector": selector}}
        await kit.client.patch(SERVICES, SERVICE, body, namespace="default", patch_type=PatchType.STRATEGIC)
        await kit.edit(view, {"spec": {"optimizeMode": "single-job"}})
        assert await kit.writes_when_idle() == []
        service = view.services[SERVICE]["metadata"]
        assert (service["uid"], service["annotations"]) == (uid, labels)


@virtual_time
async def test_services_that_the_master_creates_are_kept() -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        view = await start(kit, elastic_job(platform="pyk8s"))
        owner = {name: view.body[name] for name in ("apiVersion", "kind")} | {name: view.body["metadata"][name] for name in ("name", "uid")}
        labels = {"app": "dlrover", "elasticjob.dlrover/name": "elastic"}
        metadata = {"name": worker(0), "namespace": "default", "labels": labels, "annotations": labels, "ownerReferences": [owner]}
        selector = {**labels, "elasticjob.dlrover/replica-type": "worker", "elasticjob.dlrover/rank-index": "0"}
        body = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 3333}], "selector": selector}}
        created = await kit.client.create(SERVICES, body, namespace="default")
        await kit.edit(view, {"spec": {"optimizeMode": "single-job"}})
        await kit.writes_when_idle()
        assert view.services[worker(0)]["metadata"]["uid"] == created["metadata"]["uid"]


@virtual_time
async def test_a_plan_that_arrives_twice_has_its_effect_once() -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        view = await start(kit)
        pods = {master(): "Running", **workers(0, 1, 5)}
        for number in (0, 1, 0):  # with another number, and once more after the first one was deleted
            plan = scale_plan(number=number, create=[pod_meta("worker", each, each) for each in (0, 1, 5)], remove=[], owner=view.body)
            await write(kit, plan)
            await until_pods(kit, view, pods)
            await kit.writes_when_idle()
            assert await plans(kit) == {}
        assert [record["plan"] for record in view.status["dlop"]["scaleRecords"]] == ["elastic-scaleplan-0"]


# --- plans ------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_an_empty_plan_succeeds_without_any_change() -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        view = await start(kit)
        await write(kit, scale_plan(replicas={"dlrover-master": 1}, owner=view.body))
        await kit.writes_when_idle()
        assert (list(view.pods), await plans(kit)) == ([master()], {})
        assert "scaleRecords" not in view.status["dlop"]
        assert view.status["phase"] == "Running"


@virtual_time
async def test_the_pods_of_a_plan_know_its_parameter_servers_and_how_many_pods_it_asks_for() -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        view = await start(kit, elastic_job(strategy="ParameterServerStrategy", ps=0, workers=0))
        servers = ["elastic-edljob-ps-0.default.svc:2222"]
        await write(kit, scale_plan(replicas={"ps": 1, "worker": 2}, hosts=servers, owner=view.body))
        await until_pods(kit, view, {master(): "Running", "elastic-edljob-ps-0": "Running", **workers(0, 1)})
        trainers = [f"{worker(rank)}.default.svc:3333" for rank in range(2)]
        for name, task, number in (("elastic-edljob-ps-0", "ps", "1"), (worker(1), "worker", "2")):
            variables = environment(view.pods[name]["spec"]["containers"][0])
            config = json.loads(variables["TF_CONFIG"])
            assert config["cluster"] == {"ps": servers, "worker": trainers}
            assert (config["task"]["type"], variables["NODE_NUM"]) == (task, number)


@virtual_time
async def test_each_replacement_of_a_rank_has_the_next_id_and_relaunch_count_and_the_same_service() -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        view = await start(kit)
        await write(kit, scale_plan(replicas={"worker": 2}, owner=view.body))
        await until_pods(kit, view, {master(): "Running", **workers(0, 1)})
        for number in (2, 3, 4):
            previous = 1 if number == 2 else number - 1
            await kit.client.delete(PODS, worker(previous), namespace="default")
            await until_pods(kit, view, {master(): "Running", **workers(0)})
            await write(kit, scale_plan(number=number, create=[pod_meta("worker", number, 1)], owner=view.body))
            await until_pods(kit, view, {master(): "Running", **workers(0, number)})
            labels = view.pods[worker(number)]["metadata"]["labels"]
            assert (labels[RANK_LABEL], labels[RELAUNCH_LABEL]) == ("1", str(number - 1))
            assert view.services[worker(1)]["spec"]["selector"].items() <= labels.items()
        assert sorted(view.services) == [worker(0), worker(1), SERVICE]


@virtual_time
async def test_a_plan_that_is_executed_while_the_master_fails_creates_its_pods() -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        view = await start(kit)
        await write(kit, scale_plan(replicas={"worker": 2}, owner=view.body))
        await kit.until(view, reached=lambda view: "members" in view.status["dlop"], within_seconds=60)
        await kit.operator.crash()
        await kit.kubelet.perform(f"default/{master()}", ContainerExit(137))
        assert set(view.pods) == {master()}
        await kit.start_operator()
        await until_pods(kit, view, {master(1): "Running", **workers(0, 1)})


@virtual_time
async def test_a_plan_that_fails_says_why_and_blocks_neither_the_next_one_nor_other_jobs() -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        view = await start(kit)
        other = await start(kit, elastic_job("other"))
        await write(kit, scale_plan(number=0, replicas={"servers": 2}, owner=view.body))
        await write(kit, scale_plan(number=1, replicas={"worker": 1}, owner=view.body))
        await write(kit, scale_plan("other", replicas={"worker": 1}, owner=other.body))
        await until_pods(kit, view, {master(): "Running", **workers(0)})
        await until_pods(kit, other, {"elasticjob-other-dlrover-master-0": "Running", "other-edljob-worker-0": "Running"})
        await kit.writes_when_idle()
        ((name, status),) = (await plans(kit)).items()
        message = "spec.replicaResourceSpecs.servers: must be one of ps, chief, worker, evaluator, got 'servers'"
        assert (name, status["phase"], status["message"]) == ("elastic-scaleplan-0", "Failed", message)
        assert status["createTime"] <= status["finishTime"]
        assert ("ScalePlanFailed", f"scale plan elastic-scaleplan-0 failed: {message}") in view.events
        assert not [reason for reason, _ in other.events if reason == "ScalePlanFailed"]


@virtual_time
async def test_pods_that_the_api_server_rejects_fail_the_plan_and_not_the_next_one() -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        view = await start(kit)
        bad = pod_meta("worker", 7, 0, resources={"not a resource!": "1"})
        await write(kit, scale_plan(number=0, create=[bad], owner=view.body))
        await write(kit, scale_plan(number=1, replicas={"worker": 1}, owner=view.body))
        await until_pods(kit, view, {master(): "Running", **workers(0)})
        await kit.writes_when_idle()
        ((name, status),) = (await plans(kit)).items()
        assert (name, status["phase"]) == ("elastic-scaleplan-0", "Failed")
        assert "1 pod could not be created" in status["message"]


@virtual_time
async def test_pods_that_a_quota_rejects_are_created_when_it_allows_them() -> None:
    async with OperatorKit(frameworks=[ElasticJob], operator=False) as kit:
        server = kit.new_server()
        await kit.start_operator(server)
        view = await start(kit)
        server.faults.fail_before(QUOTA, match=RequestMatch(plural="pods", verb="create"), times=1_000_000)
        await write(kit, scale_plan(number=0, replicas={"worker": 2}, owner=view.body))
        await kit.until(view, reached=lambda view: view.condition("Blocked") is not None, within_seconds=60)
        assert (view.condition("Blocked") or {})["message"].endswith("could not be created: exceeded quota: pods")
        assert (await plans(kit))["elastic-scaleplan-0"]["phase"] == "Scaling"
        # The next plan is not blocked. It takes over what is missing.
        await write(kit, scale_plan(number=1, create=[pod_meta("worker", 2, 2)], owner=view.body))
        await kit.until(view, reached=lambda view: view.status["dlop"]["members"]["plan"] == "elastic-scaleplan-1", within_seconds=60)
        status = (await plans(kit))["elastic-scaleplan-0"]
        message = "2 pods could not be created: exceeded quota: pods; they are created with the next scale plan"
        assert (status["phase"], status["message"]) == ("Failed", message)
        server.faults.clear()
        await until_pods(kit, view, {master(): "Running", **workers(0, 1, 2)})


@virtual_time
async def test_pods_that_a_quota_rejects_are_still_created_if_the_plans_after_theirs_fail() -> None:
    async with OperatorKit(frameworks=[ElasticJob], operator=False) as kit:
        server = kit.new_server()
        await kit.start_operator(server)
        view = await start(kit)
        server.faults.fail_before(QUOTA, match=RequestMatch(plural="pods", verb="create"), times=1_000_000)
        await write(kit, scale_plan(number=0, replicas={"worker": 2}, owner=view.body))
        await kit.until(view, reached=lambda view: view.condition("Blocked") is not None, within_seconds=60)
        await write(kit, scale_plan(number=1, replicas={"servers": 1}, owner=view.body))
        await kit.until(view, reached=lambda view: "ScalePlanFailed" in dict(view.events), within_seconds=60)
        assert {name: status["phase"] for name, status in (await plans(kit)).items()} == {
            "elastic-scaleplan-0": "Scaling",
            "elastic-scaleplan-1": "Failed",
        }
        server.faults.clear()
        await until_pods(kit, view, {master(): "Running", **workers(0, 1)})


@virtual_time
async def test_pods_that_a_quota_rejects_are_not_created_if_the_next_plan_does_not_want_them() -> None:
    async with OperatorKit(frameworks=[ElasticJob], operator=False) as kit:
        server = kit.new_server()
        await kit.start_operator(server)
        view = await start(kit)
        server.faults.fail_before(QUOTA, match=RequestMatch(plural="pods", verb="create"), times=1_000_000)
        await write(kit, scale_plan(number=0, replicas={"worker": 2}, owner=view.body))
        await kit.until(view, reached=lambda view: view.condition("Blocked") is not None, within_seconds=60)
        await write(kit, scale_plan(number=1, replicas={"worker": 0}, owner=view.body))
        await kit.until(view, reached=lambda view: view.status["dlop"]["members"]["plan"] == "elastic-scaleplan-1", within_seconds=60)
        server.faults.clear()
        await kit.writes_when_idle()
        assert set(view.pods) == {master()}
        assert {name: status["phase"] for name, status in (await plans(kit)).items()} == {"elastic-scaleplan-0": "Failed"}


@pytest.mark.parametrize("resource", [PODS, SERVICES], ids=lambda resource: resource.plural)
@virtual_time
async def test_a_name_that_an_object_of_someone_else_has_fails_the_plan_and_not_the_next_one(resource: Resource) -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        view = await start(kit)
        spec = {"containers": [{"name": "x", "image": "x"}]} if resource == PODS else {"ports": [{"port": 1}]}
        foreign = {"apiVersion": "v1", "kind": resource.kind, "metadata": {"name": worker(0)}, "spec": spec}
        await kit.client.create(resource, foreign, namespace="default")
        await write(kit, scale_plan(number=0, create=[pod_meta("worker", 0, 0)], owner=view.body))
        await write(kit, scale_plan(number=1, create=[pod_meta("worker", 1, 1)], owner=view.body))
        await kit.until(view, reached=lambda view: worker(1) in view.pods, within_seconds=120)
        assert worker(0) in (await plans(kit))["elastic-scaleplan-0"]["message"]


@virtual_time
async def test_a_plan_waits_for_the_end_of_a_pod_of_a_deleted_job_with_the_same_name() -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        with_finalizer = {"metadata": {"finalizers": ["example.org/wait"]}, **template()}
        view = await start(kit, elastic_job(replicaSpecs={"worker": {"template": with_finalizer}}))
        await write(kit, scale_plan(replicas={"worker": 1}, owner=view.body))
        await until_pods(kit, view, {master(): "Running", **workers(0)})
        await kit.client.delete(ElasticJob.job_type.resource, "elastic", namespace="default")
        await kit.until(view, reached=lambda view: not view.exists, within_seconds=60)
        view = await start(kit)
        await write(kit, scale_plan(replicas={"worker": 1}, owner=view.body))
        await until_status(kit, view, "Scaling")
        assert await kit.writes_when_idle() == []
        await kit.client.patch(PODS, worker(0), {"metadata": {"finalizers": None}}, namespace="default", patch_type=PatchType.MERGE)
        await until_pods(kit, view, {master(): "Running", **workers(0)})


@virtual_time
async def test_a_pod_that_is_deleted_while_its_plan_waits_for_others_is_not_created_again() -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        kit.script.when(worker(0)).run().after(10).succeed()
        earlier = {"apiVersion": "elastic.iml.github.io/v1alpha1", "kind": "ElasticJob", "name": "elastic", "uid": "x", "controller": True}
        metadata = {"name": worker(1), "finalizers": ["example.org/wait"], "ownerReferences": [earlier]}
        await kit.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, **template()}, namespace="default")
        view = await start(kit)
        await write(kit, scale_plan(replicas={"worker": 2}, owner=view.body))
        await kit.until(view, reached=lambda view: view.pod_phases.get(worker(0)) == "Succeeded", within_seconds=60)
        await kit.client.delete(PODS, worker(0), namespace="default")
        await kit.client.patch(PODS, worker(1), {"metadata": {"finalizers": None}}, namespace="default", patch_type=PatchType.MERGE)
        await until_pods(kit, view, {master(): "Running", **workers(1)})
        assert await kit.writes_when_idle() == []
        assert worker(0) not in view.pods


@virtual_time
async def test_a_pod_that_is_deleted_while_its_plan_waits_for_a_quota_is_not_created_again() -> None:
    async with OperatorKit(frameworks=[ElasticJob], operator=False) as kit:
        server = kit.new_server()
        await kit.start_operator(server)
        view = await start(kit)

        is_exhausted = False

        def exhaust_quota(_: object) -> None:
            nonlocal is_exhausted
            if worker(0) in view.pods and not is_exhausted:
                is_exhausted = True
                server.faults.fail_before(QUOTA, match=RequestMatch(plural="pods", verb="create"), times=1_000_000)

        kit.cluster.store.listeners.append(exhaust_quota)
        await write(kit, scale_plan(replicas={"worker": 2}, owner=view.body))
        await until_pods(kit, view, {master(): "Running", **workers(0)})
        await kit.until(view, reached=lambda view: view.condition("Blocked") is not None, within_seconds=60)
        await kit.client.delete(PODS, worker(0), namespace="default")
        await until_pods(kit, view, {master(): "Running"})
        server.faults.clear()
        await until_pods(kit, view, {master(): "Running", **workers(1)})
        assert await kit.writes_when_idle() == []
        assert worker(0) not in view.pods


@virtual_time
async def test_a_plan_of_an_earlier_job_of_the_same_name_is_deleted_and_not_executed() -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        view = await start(kit)
        earlier = view.body
        await kit.client.delete(ElasticJob.job_type.resource, "elastic", namespace="default")
        await kit.until(view, reached=lambda view: not view.exists, within_seconds=60)
        view = await start(kit)
        await write(kit, scale_plan(replicas={"worker": 1}, owner=earlier))
        await kit.writes_when_idle()
        assert (list(view.pods), await plans(kit)) == ([master()], {})


@virtual_time
async def test_a_plan_that_is_being_deleted_is_not_executed() -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        view = await start(kit, elastic_job(suspend=True))
        plan = scale_plan(replicas={"worker": 1}, owner=view.body)
        plan["metadata"]["finalizers"] = ["example.org/wait"]
        await write(kit, plan)
        await kit.client.delete(SCALE_PLANS, "elastic-scaleplan-0", namespace="default")
        await write(kit, scale_plan(number=1, replicas={"worker": 2}, owner=view.body))
        await kit.edit(view, {"spec": {"suspend": False}})
        await until_pods(kit, view, {master(): "Running", **workers(0, 1)})
        assert await plans(kit) == {"elastic-scaleplan-0": {}}
        assert [record["plan"] for record in view.status["dlop"]["scaleRecords"]] == ["elastic-scaleplan-1"]


@virtual_time
async def test_a_plan_that_an_object_other_than_a_job_owns_is_executed() -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        view = await start(kit)
        owner = await kit.client.create(
            CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}}, namespace="default"
        )
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
        for name in ("elastic", "late"):
            plan = scale_plan(name, replicas={"worker": 1}, kind="manual")
            plan["metadata"]["ownerReferences"] = [reference]
            await write(kit, plan)
        await until_pods(kit, view, {master(): "Running", **workers(0)})
        await kit.writes_when_idle()
        assert {name: status["phase"] for name, status in (await plans(kit)).items()} == {"late-scaleplan-0": "Pending"}


@virtual_time
async def test_finished_plans_of_a_deleted_job_are_deleted() -> None:
    async with OperatorKit(frameworks=[ElasticJob], operator=False) as kit:
        deleted = {"apiVersion": "elastic.iml.github.io/v1alpha1", "metadata": {"name": "elastic", "uid": "deleted"}}
        # The garbage collector does not know the kind of the owner reference, which is in lower case.
        await write(kit, scale_plan(number=0, replicas={"servers": 1}, owner=deleted))
        await write(kit, scale_plan(number=1, replicas={"worker": 1}, kind="manual"))
        for number, phase in enumerate(("Failed", "Succeeded")):
            status = {"status": {"phase": phase}}
            await kit.client.patch(SCALE_PLANS, f"elastic-scaleplan-{number}", status, namespace="default", subresource="status")
        await kit.start_operator()
        await kit.writes_when_idle()
        assert await plans(kit) == {}


@virtual_time
async def test_a_plan_for_a_job_that_does_not_exist_waits_for_it_and_says_so() -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        view = await start(kit)
        await write(kit, scale_plan("late", replicas={"worker": 1}))
        assert await kit.writes_when_idle() == []
        status = (await plans(kit))["late-scaleplan-0"]
        assert (status["phase"], status["message"]) == (
            "Pending",
            "spec.ownerJob: ElasticJob 'late' does not exist in namespace default; create it, or delete this plan",
        )
        assert list(view.pods) == [master()]
        late = await kit.submit(elastic_job("late"))
        await kit.until(late, reached=lambda view: "late-edljob-worker-0" in view.pods, within_seconds=60)


@virtual_time
async def test_a_plan_of_another_namespace_does_not_scale_the_job() -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        view = await start(kit)
        await kit.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}})
        await write(kit, scale_plan(replicas={"worker": 1}), namespace="elsewhere")
        await kit.writes_when_idle()
        assert list(view.pods) == [master()]
        assert "does not exist in namespace elsewhere" in (await plans(kit, namespace="elsewhere"))["elastic-scaleplan-0"]["message"]


@virtual_time
async def test_pods_beyond_the_limits_of_the_job_are_not_created_and_an_event_says_so() -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        view = await start(kit, elastic_job(resourceLimits={"cpu": "2", "memory": "8Gi"}))
        await write(kit, scale_plan(replicas={"worker": 3}, owner=view.body))
        await until_pods(kit, view, {master(): "Running", **workers(0, 1)})
        await kit.writes_when_idle()
        message = "1 worker pod is not created, because spec.resourceLimits allows 2 of cpu for all pods of the job"
        assert ("ResourceLimitExceeded", f"scale plan elastic-scaleplan-0: {message}") in view.events
        assert (sorted(view.pods), await plans(kit)) == (sorted([master(), worker(0), worker(1)]), {})


@virtual_time
async def test_the_record_says_what_was_scaled_by_which_plan_and_by_whom() -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        view = await start(kit)
        await write(kit, scale_plan(replicas={"worker": 3}, owner=view.body))
        await until_pods(kit, view, {master(): "Running", **workers(0, 1, 2)})
        by_user = scale_plan(replicas={"worker": 1}, kind="manual")
        by_user["metadata"]["name"] = "fewer"
        await write(kit, by_user)
        await until_pods(kit, view, {master(): "Running", **workers(0)})
        await write(kit, scale_plan(number=1, create=[pod_meta("worker", 9, 0)], remove=[worker(0)], owner=view.body))
        await until_pods(kit, view, {master(): "Running", **workers(9)})
        records = view.status["dlop"]["scaleRecords"]
        assert [(record["plan"], record["role"], record.get("change"), record["replicas"]) for record in records] == [
            ("elastic-scaleplan-0", "worker", 3, 3),
            ("fewer", "worker", -2, 1),
            ("elastic-scaleplan-1", "worker", None, 1),
        ]
        assert [message for reason, message in view.events if reason == "Scaled"] == [
            "Scaled worker from 0 to 3 with scale plan elastic-scaleplan-0: the master of the job asked for it",
            "Scaled worker from 3 to 1 with scale plan fewer: a user asked for it",
            "Replaced 1 of 1 worker pods with scale plan elastic-scaleplan-1: the master of the job asked for it",
        ]


@virtual_time
async def test_a_pod_that_is_not_a_member_is_neither_adopted_nor_deleted() -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        view = await start(kit, elastic_job(platform="pyk8s"))
        labels = {"elasticjob.dlrover/name": "elastic", "elasticjob.dlrover/replica-type": "debugger"}
        owner = {
            "apiVersion": "elastic.iml.github.io/v1alpha1",
            "kind": "ElasticJob",
            "name": "elastic",
            "uid": view.body["metadata"]["uid"],
        }
        metadata = {"name": "debugger", "labels": labels, "ownerReferences": [owner]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "x", "image": "x"}]}}
        await kit.client.create(PODS, body, namespace="default")
        assert await kit.writes_when_idle() == []
        assert (await kit.client.get(PODS, "debugger", namespace="default"))["metadata"]["ownerReferences"] == [owner]


# --- suspension -------------------------------------------------------------------------------------------------------


@virtual_time
async def test_plans_of_a_paused_job_wait_and_its_pods_stay() -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        view = await start(kit)
        await write(kit, scale_plan(number=0, replicas={"worker": 1}, owner=view.body))
        await until_pods(kit, view, {master(): "Running", **workers(0)})
        await kit.edit(view, {"spec": {"suspend": True}})
        await until_status(kit, view, "Suspended")
        await write(kit, scale_plan(number=1, replicas={"worker": 2}, owner=view.body))
        assert await kit.writes_when_idle() == []
        assert (view.pod_phases, await plans(kit)) == ({master(): "Running", **workers(0)}, {"elastic-scaleplan-1": {}})
        await kit.edit(view, {"spec": {"suspend": False}})
        await until_pods(kit, view, {master(): "Running", **workers(0, 1)})
        await until_status(kit, view, "Running")


def test_a_status_with_a_record_of_members_is_not_written_twice() -> None:
    spec = elastic_job(runPolicy={"suspend": True})["spec"]
    record = MembersRecord(plan="p", creates=group_members([Member(role="worker", id=0, rank=0)]), removes=("x",), hosts=("a:1",))
    stored = {"dlop": {"members": msgspec.to_builtins(record)}}
    status = make(ElasticJob, spec, status=stored).reconcile(Snapshot(), 1000.0).status
    assert status is not None
    assert make(ElasticJob, spec, status=status).reconcile(Snapshot(), 1000.0).status is None


@virtual_time
async def test_a_job_that_is_created_paused_has_a_master() -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        kit.script.when(master()).run().after(300).succeed()
        view = await start(kit, elastic_job(suspend=True))
        assert view.status["phase"] == "Suspended"
        await kit.until(view, phase="Succeeded")
        assert view.status["phase"] == "Succeeded"


@virtual_time
async def test_suspending_with_the_run_policy_deletes_all_pods_and_a_new_master_follows() -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        view = await start(kit)
        await write(kit, scale_plan(replicas={"worker": 2}, owner=view.body))
        await until_pods(kit, view, {master(): "Running", **workers(0, 1)})
        await kit.edit(view, {"spec": {"runPolicy": {"suspend": True}}})
        await kit.until(view, phase="Suspended", reached=lambda view: not view.pods, within_seconds=120)
        assert view.status["phase"] == "Suspended"
        await write(kit, scale_plan(number=1, replicas={"worker": 1}, kind="manual"))
        assert await kit.writes_when_idle() == []
        await kit.edit(view, {"spec": {"runPolicy": {"suspend": False}}})
        await kit.until(view, reached=lambda view: worker(0) in view.pods, within_seconds=120)
        await until_status(kit, view, "Running")
        assert len(view.pods) == 2
        assert view.services[SERVICE]["spec"]["selector"].items() <= next(
            pod["metadata"]["labels"].items() for name, pod in view.pods.items() if name.startswith(SERVICE)
        )


# --- permissions ------------------------------------------------------------------------------------------------------


@virtual_time
async def test_without_permissions_only_jobs_that_need_a_service_account_are_blocked() -> None:
    async with OperatorKit(frameworks=[ElasticJob], operator=False) as kit:
        server = kit.new_server()
        for plural in ("serviceaccounts", "roles", "rolebindings"):
            message = f'{plural} is forbidden: User "dlop" cannot list resource "{plural}"'
            body = {"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": message}
            server.faults.fail_before(body, match=RequestMatch(plural=plural, verb="list"), times=1_000_000)
        await kit.start_operator(server)
        manifest = elastic_job("needy")
        del manifest["spec"]["replicaSpecs"]["dlrover-master"]
        needy = await kit.submit(manifest)
        await start(kit)
        await kit.until(needy, reached=lambda view: view.condition("Blocked") is not None, within_seconds=30)
        blocked = needy.condition("Blocked") or {}
        assert blocked["reason"] == "Forbidden"
        assert "serviceaccounts, roles.rbac.authorization.k8s.io, rolebindings.rbac.authorization.k8s.io" in blocked["message"]
        assert "--with elasticjob" in blocked["message"]
        assert needy.pods == {}
        server.faults.clear()
        await kit.until(needy, phase="Running", within_seconds=180)
        assert (await kit.client.get(ROLES, "elasticjob-needy-dlrover-master", namespace="default"))["rules"]


@virtual_time
async def test_without_access_to_scale_plans_only_jobs_of_platform_k8s_are_blocked() -> None:
    async with OperatorKit(frameworks=[ElasticJob], operator=False) as kit:
        server = kit.new_server()
        body = {"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "scaleplans is forbidden"}
        server.faults.fail_before(body, match=RequestMatch(plural="scaleplans", verb="list"), times=1_000_000)
        await kit.start_operator(server)
        blocked = await kit.submit(elastic_job("blocked"))
        await start(kit, elastic_job(platform="pyk8s"))
        await kit.until(blocked, reached=lambda view: view.condition("Blocked") is not None, within_seconds=30)
        assert "scaleplans.elastic.iml.github.io" in (blocked.condition("Blocked") or {})["message"]
        assert blocked.pods == {}


@virtual_time
async def test_the_objects_of_a_deleted_job_are_deleted() -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        manifest = elastic_job()
        del manifest["spec"]["replicaSpecs"]["dlrover-master"]
        view = await start(kit, manifest)
        body = view.body
        await write(kit, scale_plan(number=0, replicas={"worker": 1}, owner=body))
        await until_pods(kit, view, {master(): "Running", **workers(0)})
        await kit.edit(view, {"spec": {"suspend": True}})
        await write(kit, scale_plan(number=1, replicas={"worker": 2}, owner=body))
        await kit.client.delete(ElasticJob.job_type.resource, "elastic", namespace="default")
        await kit.writes_when_idle()
        assert (await plans(kit), (await kit.client.list(PODS, namespace="default"))["items"]) == ({}, [])
        with pytest.raises(NotFoundError):
            await kit.client.get(ROLES, SERVICE, namespace="default")


@virtual_time
async def test_plans_of_a_finished_job_are_deleted_and_those_of_users_fail() -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        view = await start(kit)
        await kit.kubelet.perform(f"default/{master()}", ContainerExit(0))
        await kit.until(view, phase="Succeeded")
        await write(kit, scale_plan(number=1, replicas={"worker": 1}, owner=view.body))
        await write(kit, scale_plan(number=2, replicas={"worker": 1}, kind="manual"))
        assert await kit.writes_when_idle() == []
        (status,) = (await plans(kit)).values()
        assert (status["phase"], status["message"]) == ("Failed", "the job has finished")
        assert set(view.pods) == {master()}


@virtual_time
async def test_the_next_master_has_a_new_name_whatever_the_restart_scope_of_the_manifest() -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        view = await start(kit, elastic_job(runPolicy={"restartScope": "Replica"}))
        await kit.kubelet.perform(f"default/{master()}", ContainerExit(137))
        await until_pods(kit, view, {master(1): "Running"})


@virtual_time
async def test_a_plan_of_the_master_before_a_suspension_is_not_executed_after_the_resumption() -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        view = await start(kit)
        await write(kit, scale_plan(replicas={"worker": 1}, owner=view.body))
        await until_pods(kit, view, {master(): "Running", **workers(0)})
        await kit.operator.crash()
        await write(kit, scale_plan(number=1, create=[pod_meta("worker", 1, 0)], remove=[worker(0)], owner=view.body))
        await kit.edit(view, {"spec": {"runPolicy": {"suspend": True}}})
        await kit.start_operator()
        await kit.until(view, reached=lambda view: not view.pods, within_seconds=120)
        await kit.edit(view, {"spec": {"runPolicy": {"suspend": False}}})
        await until_pods(kit, view, {master(): "Running"})
        assert await kit.writes_when_idle() == []
        assert set(view.pods) == {master()}
        assert await plans(kit) == {}


@pytest.mark.parametrize(("policy", "kept"), [("All", set()), ("None", {SERVICE, worker(0)})])
@virtual_time
async def test_the_services_of_deleted_pods_are_deleted_at_the_end(policy: str, kept: set[str]) -> None:
    async with OperatorKit(frameworks=[ElasticJob]) as kit:
        view = await start(kit, elastic_job(runPolicy={"cleanPodPolicy": policy}))
        await write(kit, scale_plan(replicas={"worker": 1}, owner=view.body))
        await until_pods(kit, view, {master(): "Running", **workers(0)})
        await kit.kubelet.perform(f"default/{master()}", ContainerExit(0))
        await kit.until(view, phase="Succeeded")
        assert await kit.writes_when_idle() == []
        assert set(view.services) == kept
