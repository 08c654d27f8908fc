"""Gang scheduling: PodGroups of all kinds, missing CRDs and permissions, rejected writes, operator crashes and stale caches."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dlop.api.gang import VOLCANO
from dlop.api.types import Options
from dlop.deploy.apply import apply
from dlop.embedded.apiserver.faults import RequestMatch
from dlop.embedded.apiserver.server import ApiServer
from dlop.embedded.apiserver.store import ObjectKey
from dlop.frameworks.batch_paddlepaddle.paddlejob import PaddleJob as BatchPaddleJob
from dlop.frameworks.fioravanzo.mxjob import MXJob as FioravanzoMXJob
from dlop.frameworks.kubeflow.mpi.job import MPIJob
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.frameworks.kubeflow.tfjob import TFJob
from dlop.frameworks.mpba.mxjob import MXJob as MpbaMXJob
from dlop.frameworks.paddlepaddle.paddlejob import PaddleJob
from dlop.job import DLJob
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NODES, PODS
from dlop.kube.types import JsonObject
from dlop.testing.kit import OperatorKit
from dlop.testing.kubelet import NODE_NAME
from dlop.testing.observed_job import ObservedJob
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.example_manifests import example
from tests.frameworks.kubeflow_jobs import BY_KIND, all_run, created, job, message_of, mpi_job
from tests.frameworks.paddle_manifests import batch_job, batch_role, sample
from tests.frameworks.pod_groups import BY_COSCHEDULER, BY_KUBE_BATCH, BY_PLUGINS, BY_VOLCANO, PLUGINS, PodGroups, pod_group_crd

FORBIDDEN: JsonObject = {
    "kind": "Status",
    "status": "Failure",
    "code": 403,
    "reason": "Forbidden",
    "message": 'podgroups.scheduling.volcano.sh is forbidden: User "dlop" cannot list resource "podgroups"',
}
UNAUTHORIZED = FORBIDDEN | {"reason": "Unauthorized", "code": 401, "message": "Unauthorized"}
BROKEN = FORBIDDEN | {"reason": "InternalError", "code": 500, "message": "conversion webhook failed"}
DENIED = FORBIDDEN | {"message": 'admission webhook "validatepodgroup.volcano.sh" denied the request: queue is closed'}


@asynccontextmanager
async def gang_kit(
    *kinds: type[DLJob], options: Options = BY_VOLCANO, operator: bool = True
) -> AsyncIterator[tuple[OperatorKit, PodGroups]]:
    """Without `operator`, the caller starts one."""
    scheduler = options.gang_scheduler_name
    async with OperatorKit(kinds, operator=False, options=options) as kit:
        await apply(kit.client, [pod_group_crd(scheduler)], report=lambda _: None)
        if operator:
            await kit.start_operator()
        yield kit, PodGroups(kit.client, scheduler)


async def start_with_errors(kit: OperatorKit, response: JsonObject, **match: str) -> ApiServer:
    server = kit.new_server()
    server.faults.fail_before(response, match=RequestMatch(plural="podgroups", **match), times=100_000)
    await kit.start_operator(server)
    return server


# --- all kinds ----------------------------------------------------------------------------------------------------------


async def check_gang(kind: type[DLJob], manifest: JsonObject, *, pods: int) -> None:
    """Check that all pods of the job are in one PodGroup."""
    name = manifest["metadata"]["name"]
    async with gang_kit(kind, options=BY_PLUGINS) as (kit, groups):
        view = await kit.submit(manifest)
        await kit.until(view, reached=lambda view: len(view.pods) == pods and all_run(view), within_seconds=600)
        assert (await groups.spec(name))["minMember"] == pods
        assert {pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] for pod in view.pods.values()} == {name}
        assert {pod["spec"]["schedulerName"] for pod in view.pods.values()} == {PLUGINS}
        assert await kit.writes_when_idle() == []


@BY_KIND
@virtual_time
async def test_jobs_of_kubeflow_get_a_pod_group(kind: type[DLJob]) -> None:
    await check_gang(kind, job(kind), pods=sum(role["replicas"] for role in job(kind)["spec"][kind.schema.field].values()))


@pytest.mark.parametrize(
    ("kind", "manifest", "pods"),
    [
        (FioravanzoMXJob, example("01-mxnet-linear"), 3),
        (MpbaMXJob, example("02-mxnet-poc"), 3),
        (PaddleJob, sample(), 4),
        (BatchPaddleJob, batch_job(intranet="Service"), 4),
    ],
)
@virtual_time
async def test_jobs_of_early_operators_get_a_pod_group(kind: type[DLJob], manifest: JsonObject, pods: int) -> None:
    await check_gang(kind, manifest, pods=pods)


@virtual_time
async def test_the_scheduling_policy_of_a_paddle_job_is_in_its_pod_group() -> None:
    async with gang_kit(BatchPaddleJob) as (kit, groups):
        requests = {"containers": [{"name": "paddle", "image": "train", "resources": {"requests": {"cpu": "500m"}}}]}
        policy = {"queue": "research", "priorityClass": "high", "minAvailable": 3}
        view = await kit.submit(batch_job("wide", worker=batch_role(4, **requests), ps=batch_role(2), schedulingPolicy=policy))
        await until_group_exists(kit, groups, "wide")
        spec = await groups.spec("wide")
        assert (spec["minMember"], spec["queue"], spec["priorityClassName"]) == (3, "research", "high")
        assert view.pods == {}
        await admit(kit, groups, "wide")
        await kit.until(view, phase="Running")
        annotations = view.pods["wide-ps-0"]["metadata"]["annotations"]
        assert (annotations["scheduling.k8s.io/group-name"], annotations["volcano.sh/task-spec"]) == ("wide", "ps")


@virtual_time
async def test_the_pod_group_of_an_elastic_job_has_its_minimum_as_members() -> None:
    options = Options(autoscaler=True, gang_scheduler_name=PLUGINS)
    async with gang_kit(PyTorchJob, options=options) as (kit, groups):
        await kit.client.patch(NODES, NODE_NAME, {"spec": {"taints": None}})
        allocatable = {"cpu": "10", "memory": "64Gi", "pods": "110"}
        await kit.client.patch(NODES, NODE_NAME, {"status": {"allocatable": allocatable}}, subresource="status")
        bounds = {"minReplicas": 2, "maxReplicas": 4}
        view = await kit.submit(job(PyTorchJob, {"Worker": 2}, elasticPolicy=bounds, runPolicy={"autoscale": True}))
        await kit.until(view, reached=lambda view: len(view.pods) == 4 and all_run(view), within_seconds=60)
        assert (await groups.spec())["minMember"] == 2
        assert await kit.writes_when_idle() == []


@virtual_time
async def test_the_pod_group_of_an_mpi_job_has_the_workers_as_members_and_the_resources_of_all_pods() -> None:
    async with gang_kit(MPIJob, options=BY_PLUGINS) as (kit, groups):
        await kit.submit(mpi_job())
        await kit.until("default/demo", phase="Running", within_seconds=600)
        spec = await groups.spec()
        assert spec["minMember"] == 2  # the launcher starts when the workers run
        assert spec["minResources"] == {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "5Gi"}


@virtual_time
async def test_the_second_of_two_jobs_with_the_same_name_is_blocked_by_the_pod_group_of_the_first() -> None:
    async with gang_kit(PyTorchJob, TFJob, options=BY_PLUGINS) as (kit, groups):
        await kit.submit(job(PyTorchJob))
        await kit.until("default/demo", phase="Running")
        first = await groups.get()
        second = await kit.submit(job(TFJob))
        await kit.until(second, reached=lambda view: view.condition("Blocked") is not None, within_seconds=10)
        assert message_of(second, "Blocked").startswith("podgroup demo: the name is already used by PyTorchJob demo")
        assert second.pods == second.services == {}
        assert await groups.get() == first


@pytest.mark.parametrize("options", [BY_VOLCANO, BY_PLUGINS])
@virtual_time
async def test_a_recreated_job_is_blocked_by_the_terminating_pod_group_of_its_predecessor(options: Options) -> None:
    async with gang_kit(PyTorchJob, options=options) as (kit, groups):
        await kit.submit(job(PyTorchJob))
        await until_group_exists(kit, groups)
        await groups.edit({"metadata": {"finalizers": ["example.org/hold"]}})
        await kit.client.delete(PyTorchJob.job_type.resource, "demo", namespace="default")
        await asyncio.sleep(10)
        view = await kit.submit(job(PyTorchJob))
        await asyncio.sleep(15)
        assert view.condition("Blocked") is None
        await kit.until(view, reached=lambda view: view.condition("Blocked") is not None, within_seconds=20)
        assert message_of(view, "Blocked") == (
            "podgroup demo of the deleted PyTorchJob demo is still terminating: finalizers example.org/hold; remove them, or wait"
        )
        assert await kit.writes_when_idle() == []
        await groups.edit({"metadata": {"finalizers": None}})
        await admit(kit, groups)
        await kit.until(view, phase="Running", reached=lambda view: all_run(view) and view.condition("Blocked") is None, within_seconds=30)


# --- change of the scheduler ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [Options(), BY_PLUGINS, BY_KUBE_BATCH, BY_COSCHEDULER], ids=lambda options: options.gang_scheduler_name)
@virtual_time
async def test_pod_groups_of_the_previous_scheduler_are_deleted_when_the_flag_changes(options: Options) -> None:
    async with gang_kit(PyTorchJob) as (kit, groups):
        await apply(kit.client, [pod_group_crd(options.gang_scheduler_name)], report=lambda _: None)
        kit.script.when("*").run().after(1000).succeed()
        runs, waits, ends = [await kit.submit(job(PyTorchJob, name=name)) for name in ("runs", "waits", "ends")]
        for name in ("runs", "ends"):
            await admit(kit, groups, name)
        await until_group_exists(kit, groups, "waits")
        await kit.until(runs, phase="Running", reached=all_run)
        await kit.operator.stop()
        await kit.edit(ends, {"spec": {"runPolicy": {"suspend": True}}})
        await kit.start_operator(options=options)
        await kit.until(waits, phase="Running", reached=all_run, within_seconds=60)
        await kit.until(ends, phase="Suspended", within_seconds=60)
        assert [name for name in ("runs", "waits", "ends") if await groups.get(name) is not None] == ["runs"]
        await kit.until(runs, phase="Succeeded")
        await asyncio.sleep(10)
        assert await groups.get("runs") is None


@pytest.mark.parametrize("previous", [BY_PLUGINS, BY_KUBE_BATCH, BY_COSCHEDULER], ids=lambda options: options.gang_scheduler_name)
@virtual_time
async def test_a_pod_group_of_the_previous_scheduler_is_deleted_when_all_its_pods_are_replaced(previous: Options) -> None:
    async with gang_kit(PyTorchJob, options=previous) as (kit, groups):
        await apply(kit.client, [pod_group_crd(VOLCANO)], report=lambda _: None)
        kit.script.when("*").run()
        view = await kit.submit(job(PyTorchJob))
        await kit.until(view, phase="Running", reached=all_run)
        await kit.operator.stop()
        await kit.start_operator(options=BY_VOLCANO)
        current = PodGroups(kit.client, VOLCANO)
        await admit(kit, current, within_seconds=60)
        for members, name in enumerate(("demo-master-0", "demo-worker-0")):
            assert await groups.get() is not None
            assert (await current.spec()).get("minMember", 0) == members  # a pod of the previous group cannot be counted
            await kit.client.delete(PODS, name, namespace="default")
            await kit.until(view, reached=functools.partial(is_scheduled_by_volcano, pod=name), within_seconds=60)
        await asyncio.sleep(10)
        assert await groups.get() is None
        assert (await current.spec())["minMember"] == 2
        assert all_run(view)


def is_scheduled_by_volcano(view: ObservedJob, *, pod: str) -> bool:
    return pod in view.pods and view.pods[pod]["spec"]["schedulerName"] == VOLCANO and all_run(view)


@pytest.mark.parametrize("verb", ["watch", "list"])
@virtual_time
async def test_without_the_flag_missing_permissions_for_pod_groups_are_not_an_error(verb: str) -> None:
    async with OperatorKit([PyTorchJob, TFJob], operator=False) as kit:
        await apply(kit.client, [pod_group_crd(VOLCANO), pod_group_crd(PLUGINS)], report=lambda _: None)
        server = kit.new_server()
        server.faults.fail_before(FORBIDDEN, match=RequestMatch(plural="podgroups", verb=verb), times=100_000)
        running = await kit.start_operator(server)
        view = await kit.submit(job(PyTorchJob))
        await kit.until(view, phase="Running", reached=all_run)
        assert not running.operator.sync_errors()


@virtual_time
async def test_without_the_flag_jobs_run_while_pod_groups_cannot_be_listed() -> None:
    async with OperatorKit([PyTorchJob], operator=False) as kit:
        server = kit.new_server()
        broken = server.faults.fail_before(BROKEN, match=RequestMatch(plural="podgroups", verb="list"), times=100_000)
        await apply(kit.client, [pod_group_crd(VOLCANO), pod_group_crd(PLUGINS)], report=lambda _: None)
        await kit.start_operator(server)
        view = await kit.submit(job(PyTorchJob))
        await kit.until(view, phase="Running", reached=all_run, within_seconds=60)
        assert broken.hits


# --- missing CRDs and permissions -------------------------------------------------------------------------------------------------


@virtual_time
async def test_jobs_are_blocked_until_the_crd_of_pod_groups_is_installed() -> None:
    async with OperatorKit([PyTorchJob, TFJob], operator=False, options=BY_VOLCANO) as kit:
        running = await kit.start_operator()
        await running.operator.wait_synced()
        for kind in (PyTorchJob, TFJob):
            view = await kit.submit(job(kind, name=kind.__name__.lower()))
            await kit.until(view, reached=lambda view: view.condition("Blocked") is not None, within_seconds=5)
            assert message_of(view, "Blocked") == (
                "the cluster does not serve podgroups.scheduling.volcano.sh, which this job needs: "
                "install the scheduler volcano, or start the operator without --gang-scheduler-name"
            )
            assert view.pods == {}
        assert await kit.writes_when_idle() == []
        await apply(kit.client, [pod_group_crd(VOLCANO)], report=lambda _: None)
        groups = PodGroups(kit.client, VOLCANO)
        for kind in (PyTorchJob, TFJob):
            name = kind.__name__.lower()
            await admit(kit, groups, name, within_seconds=200)
            await kit.until(f"default/{name}", phase="Running", reached=lambda view: view.condition("Blocked") is None, within_seconds=60)


async def admit(kit: OperatorKit, groups: PodGroups, name: str = "demo", *, within_seconds: float = 5.0) -> None:
    """Wait for the PodGroup and admit it as Volcano does."""
    await until_group_exists(kit, groups, name, within_seconds=within_seconds)
    await groups.set_phase("Inqueue", name)


async def until_group_exists(kit: OperatorKit, groups: PodGroups, name: str = "demo", *, within_seconds: float = 5.0) -> None:
    key = ObjectKey(groups.resource.qualified_name, "default", name)
    await kit.until(f"default/{name}", reached=lambda _: kit.cluster.store.get(key) is not None, within_seconds=within_seconds)


@virtual_time
async def test_jobs_are_blocked_until_the_operator_has_permissions_for_pod_groups() -> None:
    async with gang_kit(PyTorchJob, operator=False) as (kit, groups):
        server = await start_with_errors(kit, FORBIDDEN)
        view = await kit.submit(job(PyTorchJob))
        await kit.until(view, reached=lambda view: view.condition("Blocked") is not None, within_seconds=5)
        assert "podgroups.scheduling.volcano.sh" in message_of(view, "Blocked")
        hint = (
            "add `--with gang:default`, or `--with gang` for all namespaces, to the `dlop deploy` line that was used, "
            "or `kubectl apply -f manifests/kubeflow/permissions.yaml`"
        )
        assert message_of(view, "Blocked").endswith(hint)
        server.faults.clear()
        await admit(kit, groups, within_seconds=200)
        await kit.until(view, phase="Running", within_seconds=60)


@virtual_time
async def test_jobs_run_without_permissions_for_priority_classes() -> None:
    async with OperatorKit([PyTorchJob], operator=False, options=BY_VOLCANO) as kit:
        server = kit.new_server()
        server.faults.fail_before(FORBIDDEN, match=RequestMatch(plural="priorityclasses"), times=100_000)
        await kit.start_operator(server)
        view = await kit.submit(job(PyTorchJob))
        await kit.until(view, reached=lambda view: view.condition("Blocked") is not None, within_seconds=5)
        await apply(kit.client, [pod_group_crd(VOLCANO)], report=lambda _: None)
        await admit(kit, PodGroups(kit.client, VOLCANO), within_seconds=200)
        await kit.until(view, phase="Running", within_seconds=60)
        assert await kit.writes_when_idle() == []


@virtual_time
async def test_rejected_credentials_do_not_hide_missing_permissions_for_priority_classes() -> None:
    async with gang_kit(PyTorchJob, operator=False) as (kit, groups):
        server = kit.new_server()
        server.faults.fail_before(UNAUTHORIZED, match=RequestMatch(plural="priorityclasses"), times=2)
        server.faults.fail_before(FORBIDDEN, match=RequestMatch(plural="priorityclasses"), times=100_000)
        await kit.start_operator(server)
        view = await kit.submit(job(PyTorchJob))
        # Less than the timeout for caches, for which an informer without permissions would wait.
        async with asyncio.timeout(20):
            await admit(kit, groups, within_seconds=60)
            await kit.until(view, phase="Running", within_seconds=60)


@virtual_time
async def test_a_rejected_pod_group_blocks_the_job_before_any_child_is_created() -> None:
    async with gang_kit(PyTorchJob, operator=False) as (kit, groups):
        server = await start_with_errors(kit, DENIED, verb="create")
        view = await kit.submit(job(PyTorchJob))
        await kit.until(view, reached=lambda view: "queue is closed" in message_of(view, "Blocked"), within_seconds=5)
        assert view.pods == view.services == {}
        server.faults.clear()
        await admit(kit, groups, within_seconds=200)
        await kit.until(view, phase="Running", within_seconds=60)


@virtual_time
async def test_a_rejected_patch_of_the_pod_group_is_retried_with_back_off() -> None:
    async with gang_kit(PyTorchJob, operator=False) as (kit, groups):
        server = await start_with_errors(kit, DENIED, verb="patch")
        kit.script.when("*").run().after(2000).succeed()
        view = await kit.submit(job(PyTorchJob))
        await admit(kit, groups)
        await kit.until(view, phase="Running")
        await kit.edit(view, {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}})
        await kit.until(view, reached=lambda view: "could not be updated" in message_of(view, "Blocked"), within_seconds=5)
        before = len(group_patches(kit))
        await asyncio.sleep(600)
        assert len(group_patches(kit)) - before < 15
        server.faults.clear()
        await kit.until(view, reached=lambda view: view.condition("Blocked") is None and len(view.pods) == 3, within_seconds=200)
        assert (await groups.spec())["minMember"] == 3
        await kit.until(view, phase="Succeeded")


@virtual_time
async def test_a_rejected_patch_that_is_no_longer_needed_does_not_block_the_job() -> None:
    async with gang_kit(PyTorchJob, operator=False) as (kit, groups):
        await start_with_errors(kit, DENIED, verb="patch")
        view = await kit.submit(job(PyTorchJob))
        await admit(kit, groups)
        await kit.until(view, phase="Running")
        await groups.edit({"spec": {"minMember": 7}})
        await kit.until(view, reached=lambda view: view.condition("Blocked") is not None, within_seconds=5)
        assert (view.condition("Blocked") or {})["reason"] == "FailedUpdate"
        await groups.edit({"spec": {"minMember": 2}})
        await kit.until(view, phase="Running", reached=lambda view: view.condition("Blocked") is None, within_seconds=5)
        assert await kit.writes_when_idle() == []


def group_patches(kit: OperatorKit) -> list[str]:
    return [str(write) for write in kit.writes if write.request.method == "PATCH" and "podgroups" in write.request.path]


@virtual_time
async def test_deleting_the_crd_of_pod_groups_blocks_the_job_and_keeps_running_pods() -> None:
    async with gang_kit(PyTorchJob) as (kit, groups):
        view = await kit.submit(job(PyTorchJob))
        await admit(kit, groups)
        await kit.until(view, phase="Running", reached=all_run)
        before = {name: pod["metadata"]["uid"] for name, pod in view.pods.items()}
        await kit.client.delete(CUSTOM_RESOURCE_DEFINITIONS, groups.resource.qualified_name)
        await kit.until(view, reached=lambda view: view.condition("Blocked") is not None, within_seconds=60)
        assert message_of(view, "Blocked").startswith("podgroup demo: could not be created")
        assert {name: pod["metadata"]["uid"] for name, pod in view.pods.items()} == before
        await apply(kit.client, [pod_group_crd(VOLCANO)], report=lambda _: None)
        await kit.until(view, reached=lambda view: view.condition("Blocked") is None, within_seconds=400)
        assert (await groups.spec())["minMember"] == 2


@virtual_time
async def test_missing_permissions_are_reported_after_the_crd_is_installed() -> None:
    async with OperatorKit([PyTorchJob], operator=False, options=BY_VOLCANO) as kit:
        server = kit.new_server()
        await kit.start_operator(server)
        view = await kit.submit(job(PyTorchJob))
        await kit.until(view, reached=lambda view: "does not serve" in message_of(view, "Blocked"), within_seconds=5)
        server.faults.fail_before(FORBIDDEN, match=RequestMatch(plural="podgroups"), times=100_000)
        await apply(kit.client, [pod_group_crd(VOLCANO)], report=lambda _: None)
        await kit.until(view, reached=lambda view: "add `--with gang:default`" in message_of(view, "Blocked"), within_seconds=200)


@pytest.mark.parametrize("phase", ["Pending", "Inqueue"])
@virtual_time
async def test_a_crd_that_prunes_a_field_of_the_pod_group_causes_no_hot_loop(phase: str) -> None:
    pruning = pod_group_crd(VOLCANO)
    del pruning["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["minResources"]
    async with OperatorKit([PyTorchJob], operator=False, options=BY_VOLCANO) as kit:
        await apply(kit.client, [pruning], report=lambda _: None)
        await kit.start_operator()
        view = await kit.submit(job(PyTorchJob, runPolicy={"schedulingPolicy": {"minResources": {"cpu": "2"}}}))
        groups = PodGroups(kit.client, VOLCANO)
        await until_group_exists(kit, groups)
        await groups.set_phase(phase)
        assert await kit.writes_when_idle() == []
        assert len(view.pods) == (2 if phase == "Inqueue" else 0)
        assert len(group_patches(kit)) < 10


# --- crashes and stale caches --------------------------------------------------------------------------------------------


@virtual_time
async def test_a_new_operator_continues_with_a_pod_group_that_awaits_admission() -> None:
    async with gang_kit(PyTorchJob) as (kit, groups):
        view = await kit.submit(job(PyTorchJob))
        await until_group_exists(kit, groups)
        await kit.operator.crash()
        await groups.set_phase("Inqueue")
        await kit.start_operator()
        await kit.until(view, phase="Running", reached=all_run, within_seconds=30)
        assert created(kit, "podgroups") == ["demo"]
        assert len(created(kit, "pods")) == 2


@virtual_time
async def test_a_pod_group_that_the_cache_does_not_show_yet_is_not_created_twice() -> None:
    async with gang_kit(PyTorchJob, operator=False) as (kit, groups):
        server = kit.new_server()
        await kit.start_operator(server)
        await asyncio.sleep(1)
        hold = server.faults.hold_watches(match=RequestMatch(plural="podgroups"))
        view = await kit.submit(job(PyTorchJob))
        await asyncio.sleep(5)
        await groups.set_phase("Inqueue")
        await kit.edit(view, {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}})
        await asyncio.sleep(20)
        assert created(kit, "podgroups") == ["demo"]
        assert view.pods == {}
        hold.release()
        await kit.until(view, phase="Running", reached=lambda view: len(view.pods) == 3 and all_run(view), within_seconds=10)
        assert (await groups.spec())["minMember"] == 3
        assert [str(write) for write in kit.writes if write.status == 409] == []


@virtual_time
async def test_a_replacement_pod_waits_for_admission_while_the_others_run() -> None:
    async with gang_kit(PyTorchJob) as (kit, groups):
        view = await kit.submit(job(PyTorchJob))
        await admit(kit, groups)
        await kit.until(view, phase="Running", reached=all_run)
        await groups.set_phase("Pending")
        await kit.client.delete(PODS, "demo-worker-0", namespace="default")
        await kit.until(view, reached=lambda view: list(view.pods) == ["demo-master-0"], within_seconds=60)
        await asyncio.sleep(5)
        assert list(view.pods) == ["demo-master-0"]
        await groups.set_phase("Inqueue")
        await kit.until(view, phase="Running", reached=lambda view: len(view.pods) == 2 and all_run(view), within_seconds=30)


@virtual_time
async def test_a_job_with_all_its_pods_is_not_blocked_while_its_new_pod_group_awaits_admission() -> None:
    async with gang_kit(PyTorchJob) as (kit, groups):
        view = await kit.submit(job(PyTorchJob))
        await admit(kit, groups)
        await kit.until(view, phase="Running", reached=all_run)
        await kit.client.delete(groups.resource, "demo", namespace="default")
        await kit.until(view, reached=lambda _: created(kit, "podgroups") == ["demo", "demo"], within_seconds=5)
        await groups.set_phase("Pending")
        await asyncio.sleep(120)
        assert view.condition("Blocked") is None
        await kit.client.delete(PODS, "demo-worker-0", namespace="default")
        await kit.until(view, reached=lambda view: "has not admitted it" in message_of(view, "Blocked"), within_seconds=120)


@virtual_time
async def test_the_start_deadline_of_a_running_job_starts_when_it_loses_a_pod_and_not_its_pod_group() -> None:
    async with gang_kit(PyTorchJob, options=BY_PLUGINS) as (kit, groups):
        view = await kit.submit(job(PyTorchJob, runPolicy={"startDeadlineSeconds": 60}))
        await kit.until(view, phase="Running", reached=all_run)
        await kit.client.delete(CUSTOM_RESOURCE_DEFINITIONS, groups.resource.qualified_name)
        await kit.until(view, reached=lambda view: view.condition("Blocked") is not None, within_seconds=60)
        await asyncio.sleep(600)
        assert (view.phase, all_run(view)) == ("Running", True)
        await kit.client.delete(PODS, "demo-worker-0", namespace="default")
        await asyncio.sleep(50)
        assert (view.phase, list(view.pods)) == ("Running", ["demo-master-0"])
        await kit.until(view, phase="Failed", within_seconds=60)
