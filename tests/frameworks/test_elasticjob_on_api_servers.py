"""ElasticJobs of both platforms, on the embedded and on the real API server. The test is the master."""

from __future__ import annotations

import asyncio
import json

import pytest
from elastic_master import member_pod
from real_cluster import RealCluster

from dlop.api.constants import JOB_UID_LABEL
from dlop.api.scale_plan import Member
from dlop.frameworks.dlrover.elasticjob import ElasticJob
from dlop.frameworks.dlrover.names import INDEX_LABEL, NAME_LABEL, RANK_LABEL, RELAUNCH_LABEL, TYPE_LABEL
from dlop.kube.client import PatchType
from dlop.kube.resources import PODS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS, SERVICES
from dlop.kube.transport import Transport
from dlop.kube.types import JsonObject
from dlop.testing.pod_steps import ContainerExit
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.elastic_manifests import SCALE_PLANS, elastic_job, pod_meta, scale_plan
from tests.frameworks.sandbox import Clock, Sandbox, Scenario, open_sandbox, run_embedded, run_real

MASTER = "elasticjob-demo-dlrover-master-0"


def worker(number: int) -> str:
    return f"demo-edljob-worker-{number}"


async def start_job(sandbox: Sandbox, manifest: JsonObject) -> JsonObject:
    """Start the operator and the job, and wait until its master runs."""
    sandbox.start()
    manifest["metadata"]["namespace"] = sandbox.namespace
    job = await sandbox.submit(manifest)
    await until_pods(sandbox, {MASTER: "Running"})
    return job


async def until_pods(sandbox: Sandbox, phases: dict[str, str]) -> None:
    """Wait until exactly these pods exist, in these phases."""

    async def reached() -> bool:
        return {name: pod["status"].get("phase") for name, pod in (await sandbox.pods()).items()} == phases

    await sandbox.until(reached)


async def until_phase(sandbox: Sandbox, phase: str) -> None:
    async def reached() -> bool:
        return (await sandbox.status()).get("phase") == phase

    await sandbox.until(reached)


async def until_no_plans(sandbox: Sandbox) -> None:
    async def reached() -> bool:
        return await sandbox.names(SCALE_PLANS) == []

    await sandbox.until(reached)


async def write_plan(sandbox: Sandbox, plan: JsonObject) -> None:
    plan["metadata"]["namespace"] = sandbox.namespace
    await sandbox.client.create(SCALE_PLANS, plan, namespace=sandbox.namespace)


async def end_master(sandbox: Sandbox, exit_code: int) -> None:
    await sandbox.kubelet.perform(f"{sandbox.namespace}/{MASTER}", ContainerExit(exit_code))


async def replica_statuses(sandbox: Sandbox) -> dict[str, dict[str, int]]:
    """The number of pods by role and state in the status of the job."""
    roles = (await sandbox.status()).get("status", {}).get("replicaStatuses", {})
    return {role: {state: count for state, count in status.items() if state != "labelSelector"} for role, status in roles.items()}


async def until_counted(sandbox: Sandbox, counts: dict[str, dict[str, int]]) -> None:
    async def reached() -> bool:
        return await replica_statuses(sandbox) == counts

    await sandbox.until(reached)


async def check_end(sandbox: Sandbox, phase: str) -> None:
    """The job has ended with its master, whose pod is the only one that is left."""
    await until_phase(sandbox, phase)
    await until_pods(sandbox, {MASTER: phase})
    await until_no_plans(sandbox)
    condition = await sandbox.condition(phase)
    assert condition is not None
    assert condition["status"] == "True"
    assert condition in (await sandbox.status())["status"]["conditions"]
    await sandbox.settle()
    assert await sandbox.names(PODS) == [MASTER]


# --- the contract with the master -----------------------------------------------------------------------------------------


def own_access_job() -> JsonObject:
    """A job whose master gets a service account of its own."""
    manifest = elastic_job("demo", annotations={"pending_timeout": "60 0"})
    del manifest["spec"]["replicaSpecs"]["dlrover-master"]["template"]["spec"]["serviceAccountName"]
    return manifest


async def the_master_finds_what_it_relies_on(transport: Transport, clock: Clock) -> None:
    async with open_sandbox(transport, ElasticJob, clock=clock) as sandbox:
        job = await start_job(sandbox, own_access_job())
        assert all(spec["template"]["spec"]["containers"] for spec in job["spec"]["replicaSpecs"].values())
        pod, service = (await sandbox.pods())[MASTER], (await sandbox.all(SERVICES))[MASTER[:-2]]
        labels, container = pod["metadata"]["labels"], pod["spec"]["containers"][0]
        assert (labels[NAME_LABEL], labels[TYPE_LABEL]) == ("demo", "dlrover-master")
        assert container["command"][-2:] == ["--pending_timeout", "60 0"]
        assert container["command"][3:5] == ["--platform", "k8s"]
        assert [variable["valueFrom"]["fieldRef"]["fieldPath"] for variable in container["env"]] == ["status.podIP"]
        assert [port["port"] for port in service["spec"]["ports"]] == [50001]
        assert service["spec"]["selector"].items() <= labels.items()
        account = pod["spec"]["serviceAccountName"]
        names = [await sandbox.names(resource) for resource in (SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS)]
        assert [account in listed for listed in names] == [True, True, True]


async def the_operator_keeps_the_service_that_the_master_patches(transport: Transport, clock: Clock) -> None:
    async with open_sandbox(transport, ElasticJob, clock=clock) as sandbox:
        await start_job(sandbox, elastic_job("demo"))
        before = (await sandbox.all(SERVICES))[MASTER[:-2]]
        ports = [{"name": "grpc", "port": 50001, "targetPort": 50001}]
        patch = {"metadata": {"annotations": {"app": "dlrover"}}, "spec": {"ports": ports}}
        await sandbox.client.patch(SERVICES, MASTER[:-2], patch, patch_type=PatchType.STRATEGIC, namespace=sandbox.namespace)
        await sandbox.edit({"spec": {"resourceLimits": {"cpu": "9"}}})
        await sandbox.settle()
        after = (await sandbox.all(SERVICES))[MASTER[:-2]]
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert after["metadata"]["annotations"]["app"] == "dlrover"


async def the_operator_adopts_the_service_that_the_master_has_created(transport: Transport, clock: Clock) -> None:
    async with open_sandbox(transport, ElasticJob, clock=clock) as sandbox:
        manifest = elastic_job("demo")
        manifest["metadata"]["namespace"] = sandbox.namespace
        job = await sandbox.submit(manifest)
        owner = {name: job[name] for name in ("apiVersion", "kind")} | {name: job["metadata"][name] for name in ("name", "uid")}
        labels = {"app": "dlrover", NAME_LABEL: "demo"}
        metadata = {"name": MASTER[:-2], "namespace": sandbox.namespace, "labels": labels, "ownerReferences": [owner]}
        selector = {NAME_LABEL: "demo", TYPE_LABEL: "dlrover-master"}
        spec = {"ports": [{"name": "grpc", "port": 50001}], "selector": selector}
        body = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
        created = await sandbox.client.create(SERVICES, body, namespace=sandbox.namespace)
        sandbox.start()
        await until_pods(sandbox, {MASTER: "Running"})
        adopted = (await sandbox.all(SERVICES))[MASTER[:-2]]
        assert (adopted["metadata"]["uid"], adopted["spec"]["selector"]) == (created["metadata"]["uid"], selector)
        assert [(each["uid"], each["controller"]) for each in adopted["metadata"]["ownerReferences"]] == [(job["metadata"]["uid"], True)]
        assert await sandbox.condition("Blocked") is None


async def the_pods_of_a_plan_have_what_the_master_and_the_agents_read(transport: Transport, clock: Clock) -> None:
    async with open_sandbox(transport, ElasticJob, clock=clock) as sandbox:
        job = await start_job(sandbox, elastic_job("demo"))
        await write_plan(sandbox, scale_plan("demo", 0, replicas={"dlrover-master": 1, "worker": 2}, owner=job))
        await until_pods(sandbox, {MASTER: "Running", worker(0): "Running", worker(1): "Running"})
        pod = (await sandbox.pods())[worker(1)]
        labels, container = pod["metadata"]["labels"], pod["spec"]["containers"][0]
        assert [int(labels[label]) for label in (INDEX_LABEL, RANK_LABEL, RELAUNCH_LABEL)] == [1, 1, 0]
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
        env = {variable["name"]: variable.get("value") for variable in container["env"]}
        assert (
            env.items()
            >= {
                "DLROVER_MASTER_ADDR": "elasticjob-demo-dlrover-master:50001",
                "JOB_UID": job["metadata"]["uid"],
                "ELASTIC_JOB_NAME": "demo",
                "NODE_TYPE": "worker",
                "NODE_ID": "1",
                "NODE_RANK": "1",
                "NODE_NUM": "2",
                "WORLD_SIZE": "2",
                "RANK": "1",
                "MONITOR_ENABLED": "true",
            }.items()
        )
        assert {"POD_NAME", "POD_IP", "NODE_IP"} <= env.keys()
        for name, child in {**await sandbox.pods(), **await sandbox.all(SERVICES)}.items():
            assert [owner["uid"] for owner in child["metadata"]["ownerReferences"]] == [job["metadata"]["uid"]], name


async def the_account_of_the_master_may_manage_pods_and_no_secrets(transport: Transport, clock: Clock) -> None:
    async with open_sandbox(transport, ElasticJob, clock=clock) as sandbox:
        await start_job(sandbox, own_access_job())
        user = f"system:serviceaccount:{sandbox.namespace}:{(await sandbox.pods())[MASTER]['spec']['serviceAccountName']}"

        async def is_allowed(group: str, resource: str, verb: str) -> bool:
            attributes = {"namespace": sandbox.namespace, "group": group, "resource": resource, "verb": verb}
            review = {"kind": "SubjectAccessReview", "spec": {"user": user, "resourceAttributes": attributes}}
            body = {"apiVersion": "authorization.k8s.io/v1", **review}
            response = await sandbox.client.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body=body)
            return bool(json.loads(response.body)["status"]["allowed"])

        group = ElasticJob.job_type.group
        needed = [("", "pods", verb) for verb in ("get", "list", "watch", "create", "patch", "delete")]
        needed += [("", "services", verb) for verb in ("get", "create", "patch")]
        needed += [(group, "elasticjobs", "get"), (group, "elasticjobs", "watch"), (group, "scaleplans", "create")]
        assert [await is_allowed(*permission) for permission in needed] == [True] * len(needed)
        refused = [("", "secrets", "get"), ("", "pods/exec", "create"), (group, "elasticjobs", "delete"), ("", "configmaps", "list")]
        assert [await is_allowed(*permission) for permission in refused] == [False] * len(refused)


# --- platform k8s ---------------------------------------------------------------------------------------------------------


async def plans_are_executed_until_the_master_succeeds(transport: Transport, clock: Clock) -> None:
    async with open_sandbox(transport, ElasticJob, clock=clock) as sandbox:
        job = await start_job(sandbox, elastic_job("demo"))
        await write_plan(sandbox, scale_plan("demo", 0, replicas={"worker": 2}, owner=job))
        await until_pods(sandbox, {MASTER: "Running", worker(0): "Running", worker(1): "Running"})
        await until_no_plans(sandbox)
        await sandbox.kubelet.perform(f"{sandbox.namespace}/{worker(1)}", ContainerExit(137))
        relaunch = scale_plan("demo", 1, create=[pod_meta("worker", 2, 1, job="demo")], remove=[worker(1)], owner=job)
        await write_plan(sandbox, relaunch)
        await until_pods(sandbox, {MASTER: "Running", worker(0): "Running", worker(2): "Running"})
        labels = (await sandbox.pods())[worker(2)]["metadata"]["labels"]
        assert (labels[RANK_LABEL], labels[RELAUNCH_LABEL]) == ("1", "1")
        selector = (await sandbox.all(SERVICES))[worker(1)]["spec"]["selector"]
        assert selector.items() <= labels.items()
        await until_counted(sandbox, {"dlrover-master": {"active": 1}, "worker": {"active": 2}})
        await end_master(sandbox, 0)
        await check_end(sandbox, "Succeeded")


async def a_failed_master_fails_the_job_and_its_plans_are_deleted(transport: Transport, clock: Clock) -> None:
    async with open_sandbox(transport, ElasticJob, clock=clock) as sandbox:
        job = await start_job(sandbox, elastic_job("demo", strategy="ParameterServerStrategy", ps=1))
        await write_plan(sandbox, scale_plan("demo", 0, replicas={"ps": 1, "worker": 1}, hosts=["demo-edljob-ps-0:2222"], owner=job))
        await until_pods(sandbox, {MASTER: "Running", "demo-edljob-ps-0": "Running", worker(0): "Running"})
        env = {variable["name"]: variable.get("value") for variable in (await sandbox.pods())[worker(0)]["spec"]["containers"][0]["env"]}
        config = json.loads(env["TF_CONFIG"])
        assert (config["cluster"]["ps"], config["task"]) == (["demo-edljob-ps-0:2222"], {"type": "worker", "index": 0})
        await sandbox.edit({"spec": {"suspend": True}})
        await until_phase(sandbox, "Suspended")
        await write_plan(sandbox, scale_plan("demo", 1, replicas={"worker": 2}, owner=job))
        await end_master(sandbox, 1)
        await check_end(sandbox, "Failed")


async def a_new_master_can_use_the_names_of_the_plans_of_the_last_one(transport: Transport, clock: Clock) -> None:
    async with open_sandbox(transport, ElasticJob, clock=clock) as sandbox:
        job = await start_job(sandbox, elastic_job("demo"))
        await write_plan(sandbox, scale_plan("demo", 0, replicas={"worker": 1}, owner=job))
        await until_pods(sandbox, {MASTER: "Running", worker(0): "Running"})
        await write_plan(sandbox, scale_plan("demo", 1, replicas={"servers": 1}, owner=job))
        await write_plan(sandbox, scale_plan("demo", 2, owner=job))  # an empty one

        async def only_the_failed_plan_is_left() -> bool:
            return await sandbox.names(SCALE_PLANS) == ["demo-scaleplan-1"]

        await sandbox.until(only_the_failed_plan_is_left)
        await end_master(sandbox, 137)
        await until_pods(sandbox, {MASTER[:-1] + "1": "Running", worker(0): "Running"})
        await until_no_plans(sandbox)
        for number in (0, 1):
            await write_plan(sandbox, scale_plan("demo", number, replicas={"worker": number + 2}, owner=job))
        await until_pods(sandbox, {MASTER[:-1] + "1": "Running", **dict.fromkeys(map(worker, range(3)), "Running")})
        await until_no_plans(sandbox)
        assert [record["change"] for record in (await sandbox.status())["dlop"]["scaleRecords"]] == [1, 1, 1]


async def the_plans_of_a_deleted_job_are_deleted(transport: Transport, clock: Clock) -> None:
    async with open_sandbox(transport, ElasticJob, clock=clock) as sandbox:
        job = await start_job(sandbox, elastic_job("demo", suspend=True))
        await write_plan(sandbox, scale_plan("demo", 0, replicas={"worker": 1}, owner=job))
        await sandbox.client.delete(sandbox.resource, "demo", namespace=sandbox.namespace)
        await until_no_plans(sandbox)
        await sandbox.settle()
        assert worker(0) not in await sandbox.names(PODS)


async def plans_that_arrive_out_of_order_are_executed_in_the_order_of_their_numbers(transport: Transport, clock: Clock) -> None:
    async with open_sandbox(transport, ElasticJob, clock=clock) as sandbox:
        job = await start_job(sandbox, elastic_job("demo", suspend=True))
        # In any other order, plan 9 removes nothing, or plan 10 adds another number of workers.
        await write_plan(sandbox, scale_plan("demo", 10, replicas={"worker": 3}, owner=job))
        await write_plan(sandbox, scale_plan("demo", 9, remove=[worker(0)], owner=job))
        await write_plan(sandbox, scale_plan("demo", 8, replicas={"worker": 2}, owner=job))
        await sandbox.settle()
        assert [plan.get("status", {}) for plan in (await sandbox.all(SCALE_PLANS)).values()] == [{}, {}, {}]
        assert await sandbox.names(PODS) == [MASTER]
        await sandbox.edit({"spec": {"suspend": False}})
        await until_pods(sandbox, {MASTER: "Running", **dict.fromkeys(map(worker, (1, 2, 3)), "Running")})
        await until_no_plans(sandbox)
        records = (await sandbox.status())["dlop"]["scaleRecords"]
        changes = [(record["plan"].rpartition("-")[2], record["change"], record["replicas"]) for record in records]
        assert changes == [("8", 2, 2), ("9", -1, 1), ("10", 2, 3)]
        await end_master(sandbox, 0)
        await check_end(sandbox, "Succeeded")


async def a_plan_waits_for_its_job_and_scales_none_of_another_namespace(transport: Transport, clock: Clock) -> None:
    async with open_sandbox(transport, ElasticJob, clock=clock) as sandbox, open_sandbox(transport, ElasticJob, clock=clock) as other:
        await start_job(other, elastic_job("demo"))
        sandbox.start()
        await write_plan(sandbox, scale_plan("demo", 0, replicas={"worker": 1}))

        async def reported() -> bool:
            status = (await sandbox.all(SCALE_PLANS))["demo-scaleplan-0"].get("status", {})
            return f"'demo' does not exist in namespace {sandbox.namespace}" in status.get("message", "")

        await sandbox.until(reached=reported)
        assert await other.names(PODS) == [MASTER]
        manifest = elastic_job("demo")
        manifest["metadata"]["namespace"] = sandbox.namespace
        await sandbox.submit(manifest)
        await until_pods(sandbox, {MASTER: "Running", worker(0): "Running"})
        assert await other.names(PODS) == [MASTER]


async def manual_plans_scale_workers_and_not_parameter_servers(transport: Transport, clock: Clock) -> None:
    async with open_sandbox(transport, ElasticJob, clock=clock) as sandbox:
        job = await start_job(sandbox, elastic_job("demo", strategy="ParameterServerStrategy", ps=1))
        await write_plan(sandbox, scale_plan("demo", 0, replicas={"ps": 1, "worker": 1}, owner=job))
        expected = {MASTER: "Running", "demo-edljob-ps-0": "Running", worker(0): "Running"}
        await until_pods(sandbox, expected)
        servers, workers = (scale_plan("demo", replicas={role: 3}, kind="manual") for role in ("ps", "worker"))
        servers["metadata"]["name"], workers["metadata"]["name"] = "more-servers", "more-workers"
        await write_plan(sandbox, servers)
        await write_plan(sandbox, workers)
        await until_pods(sandbox, {**expected, **dict.fromkeys(map(worker, range(3)), "Running")})

        async def only_the_failed_plan_is_left() -> bool:
            return await sandbox.names(SCALE_PLANS) == ["more-servers"]

        await sandbox.until(only_the_failed_plan_is_left)
        status = (await sandbox.all(SCALE_PLANS))["more-servers"]["status"]
        assert status["phase"] == "Failed"
        assert status["message"] == (
            "spec.replicaResourceSpecs.ps: cannot be scaled by a manual plan; "
            "only the master can change other pods, because it must move their parameters first"
        )
        await sandbox.client.delete(SCALE_PLANS, "more-servers", namespace=sandbox.namespace)
        await end_master(sandbox, 0)
        await check_end(sandbox, "Succeeded")


# --- platform pyk8s -------------------------------------------------------------------------------------------------------


async def create_pods(sandbox: Sandbox, *pods: JsonObject) -> None:
    for pod in pods:
        await sandbox.client.create(PODS, pod, namespace=sandbox.namespace)


async def pods_of_the_master_are_adopted_counted_and_deleted_when_it_succeeds(transport: Transport, clock: Clock) -> None:
    await adopt_count_and_delete(transport, clock, exit_code=0, phase="Succeeded")


async def pods_of_the_master_are_adopted_counted_and_deleted_when_it_fails(transport: Transport, clock: Clock) -> None:
    await adopt_count_and_delete(transport, clock, exit_code=1, phase="Failed")


async def adopt_count_and_delete(transport: Transport, clock: Clock, *, exit_code: int, phase: str) -> None:
    async with open_sandbox(transport, ElasticJob, clock=clock) as sandbox:
        job = await start_job(sandbox, elastic_job("demo", platform="pyk8s", strategy="ParameterServerStrategy", ps=1))
        workers = (member_pod(job, Member(role="worker", id=number, rank=number)) for number in range(2))
        await create_pods(sandbox, *workers, member_pod(job, Member(role="ps", id=0, rank=0)))
        members = {worker(0): "Running", worker(1): "Running", "demo-edljob-ps-0": "Running"}
        await until_pods(sandbox, {MASTER: "Running", **members})
        await until_counted(sandbox, {"dlrover-master": {"active": 1}, "ps": {"active": 1}, "worker": {"active": 2}})
        for name in members:
            metadata = (await sandbox.pods())[name]["metadata"]
            assert [(owner["uid"], owner["controller"]) for owner in metadata["ownerReferences"]] == [(job["metadata"]["uid"], True)]
            assert metadata["labels"][JOB_UID_LABEL] == job["metadata"]["uid"]

        await sandbox.kubelet.perform(f"{sandbox.namespace}/{worker(1)}", ContainerExit(137))
        await until_counted(sandbox, {"dlrover-master": {"active": 1}, "ps": {"active": 1}, "worker": {"active": 1, "failed": 1}})
        await sandbox.settle()
        assert worker(2) not in await sandbox.pods()  # only the master replaces it
        await sandbox.client.delete(PODS, worker(1), namespace=sandbox.namespace)
        await create_pods(sandbox, member_pod(job, Member(role="worker", id=2, rank=1, relaunch_count=1)))
        await until_counted(sandbox, {"dlrover-master": {"active": 1}, "ps": {"active": 1}, "worker": {"active": 2}})
        await end_master(sandbox, exit_code)
        await check_end(sandbox, phase)


async def a_pod_with_the_labels_of_the_job_and_another_owner_is_left_alone(transport: Transport, clock: Clock) -> None:
    async with open_sandbox(transport, ElasticJob, clock=clock) as sandbox:
        job = await start_job(sandbox, elastic_job("demo", platform="pyk8s"))
        other_body = elastic_job("other", platform="pyk8s", runPolicy={"suspend": True})
        other_body["metadata"]["namespace"] = sandbox.namespace
        other = await sandbox.submit(other_body)
        foreign = member_pod(job, Member(role="worker", id=7, rank=7))
        [owner] = foreign["metadata"]["ownerReferences"]
        owner |= {"name": "other", "uid": other["metadata"]["uid"]}
        await create_pods(sandbox, foreign, member_pod(job, Member(role="worker", id=0, rank=0)))
        await until_pods(sandbox, {MASTER: "Running", worker(0): "Running", worker(7): "Running"})
        await until_counted(sandbox, {"dlrover-master": {"active": 1}, "worker": {"active": 1}})
        await end_master(sandbox, 0)
        await until_phase(sandbox, "Succeeded")
        await until_pods(sandbox, {MASTER: "Succeeded", worker(7): "Running"})
        await sandbox.settle()
        metadata = (await sandbox.pods())[worker(7)]["metadata"]
        assert metadata["ownerReferences"] == [owner]
        assert JOB_UID_LABEL not in metadata["labels"]


async def a_new_master_takes_over_the_pods_of_the_one_that_was_killed(transport: Transport, clock: Clock) -> None:
    async with open_sandbox(transport, ElasticJob, clock=clock) as sandbox:
        job = await start_job(sandbox, elastic_job("demo", platform="pyk8s"))
        await create_pods(sandbox, member_pod(job, Member(role="worker", id=0, rank=0)))
        await until_pods(sandbox, {MASTER: "Running", worker(0): "Running"})
        uid = (await sandbox.pod_uids())[worker(0)]
        await end_master(sandbox, 137)
        second = MASTER[:-1] + "1"
        await until_pods(sandbox, {second: "Running", worker(0): "Running"})
        assert (await sandbox.pod_uids())[worker(0)] == uid
        pod, service = (await sandbox.pods())[second], (await sandbox.all(SERVICES))[MASTER[:-2]]
        assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
        assert {NAME_LABEL, TYPE_LABEL} <= service["spec"]["selector"].keys()
        await sandbox.kubelet.perform(f"{sandbox.namespace}/{second}", ContainerExit(0))
        await until_phase(sandbox, "Succeeded")
        await until_pods(sandbox, {second: "Succeeded"})


SCENARIOS = (
    the_master_finds_what_it_relies_on,
    the_operator_keeps_the_service_that_the_master_patches,
    the_operator_adopts_the_service_that_the_master_has_created,
    the_pods_of_a_plan_have_what_the_master_and_the_agents_read,
    plans_are_executed_until_the_master_succeeds,
    a_failed_master_fails_the_job_and_its_plans_are_deleted,
    a_new_master_can_use_the_names_of_the_plans_of_the_last_one,
    the_plans_of_a_deleted_job_are_deleted,
    plans_that_arrive_out_of_order_are_executed_in_the_order_of_their_numbers,
    a_plan_waits_for_its_job_and_scales_none_of_another_namespace,
    manual_plans_scale_workers_and_not_parameter_servers,
    pods_of_the_master_are_adopted_counted_and_deleted_when_it_succeeds,
    pods_of_the_master_are_adopted_counted_and_deleted_when_it_fails,
    a_pod_with_the_labels_of_the_job_and_another_owner_is_left_alone,
    a_new_master_takes_over_the_pods_of_the_one_that_was_killed,
)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
@virtual_time
async def test_elastic_jobs_on_the_embedded_server(scenario: Scenario) -> None:
    await run_embedded(scenario)


async def test_elastic_jobs_on_the_real_server(real_cluster: RealCluster) -> None:
    async with asyncio.TaskGroup() as group:
        # The embedded server has no access reviews.
        for scenario in (*SCENARIOS, the_account_of_the_master_may_manage_pods_and_no_secrets):
            group.create_task(run_real(scenario, real_cluster), name=scenario.__name__)
