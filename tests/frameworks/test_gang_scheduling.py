"""Gang scheduling for whoever runs the operator: every kind has it, and what it lacks is told and waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dlop.api.gang import VOLCANO
from dlop.api.types import Options
from dlop.deploy.apply import apply
from dlop.embedded.apiserver.faults import Match
from dlop.embedded.apiserver.server import ApiServer
from dlop.embedded.apiserver.store import Key
from dlop.frameworks.fioravanzo.mxjob import MXJob as FioravanzoMXJob
from dlop.frameworks.kubeflow.mpi.job import MPIJob
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.frameworks.kubeflow.tfjob import TFJob
from dlop.frameworks.mpba.mxjob import MXJob as MpbaMXJob
from dlop.job import DLJob
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, PODS
from dlop.kube.types import JsonObject
from dlop.testing.kit import OperatorKit
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.kubeflow_jobs import BY_KIND, all_run, created, job, message_of, mpi_job
from tests.frameworks.manifests import example
from tests.frameworks.pod_groups import BY_PLUGINS, BY_VOLCANO, PLUGINS, Groups, definition

FORBIDDEN: JsonObject = {
    "kind": "Status",
    "status": "Failure",
    "code": 403,
    "reason": "Forbidden",
    "message": 'podgroups.scheduling.volcano.sh is forbidden: User "dlop" cannot list resource "podgroups"',
}
BROKEN = FORBIDDEN | {"reason": "InternalError", "code": 500, "message": "conversion webhook failed"}
DENIED = FORBIDDEN | {"message": 'admission webhook "validatepodgroup.volcano.sh" denied the request: queue is closed'}


@asynccontextmanager
async def gang_kit(*kinds: type[DLJob], options: Options = BY_VOLCANO, operator: bool = True) -> AsyncIterator[tuple[OperatorKit, Groups]]:
    """Without `operator`, start one."""
    scheduler = options.gang_scheduler_name
    async with OperatorKit(kinds, operator=False, options=options) as kit:
        await apply(kit.client, [definition(scheduler)], say=lambda _: None)
        if operator:
            await kit.start_operator()
        yield kit, Groups(kit.client, scheduler)


async def refusing_server(kit: OperatorKit, answer: JsonObject, **match: str) -> ApiServer:
    server = kit.new_server()
    server.faults.fail_before(answer, match=Match(plural="podgroups", **match), times=100_000)
    await kit.start_operator(server)
    return server


# --- every kind ----------------------------------------------------------------------------------------------------------


async def demand_gang(kind: type[DLJob], manifest: JsonObject, *, pods: int) -> None:
    """All pods of the job are in one group, from the beginning."""
    name = manifest["metadata"]["name"]
    async with gang_kit(kind, options=BY_PLUGINS) as (kit, groups):
        view = await kit.submit(manifest)
        await kit.until(view, reached=lambda view: len(view.pods) == pods and all_run(view), within_seconds=600)
        assert (await groups.spec(name))["minMember"] == pods
        assert {pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] for pod in view.pods.values()} == {name}
        assert {pod["spec"]["schedulerName"] for pod in view.pods.values()} == {PLUGINS}
        assert await kit.writes_at_rest() == []


@BY_KIND
@virtual_time
async def test_every_kind_of_kubeflow_has_a_gang(kind: type[DLJob]) -> None:
    await demand_gang(kind, job(kind), pods=sum(each["replicas"] for each in job(kind)["spec"][kind.replica_specs_field].values()))


@pytest.mark.parametrize(
    ("kind", "manifest", "pods"),
    [(FioravanzoMXJob, "01-mxnet-linear", 3), (MpbaMXJob, "02-mxnet-poc", 3)],
)
@virtual_time
async def test_so_have_the_kinds_of_the_first_operators(kind: type[DLJob], manifest: str, pods: int) -> None:
    await demand_gang(kind, example(manifest), pods=pods)


@virtual_time
async def test_an_mpi_job_has_one_that_does_not_wait_for_the_launcher_for_which_there_is_room_all_the_same() -> None:
    async with gang_kit(MPIJob, options=BY_PLUGINS) as (kit, groups):
        await kit.submit(mpi_job())
        await kit.until("default/demo", phase="Running", within_seconds=600)
        found = await groups.spec()
        assert found["minMember"] == 2  # the launcher comes when the workers run
        assert found["minResources"] == {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "5Gi"}


@virtual_time
async def test_two_jobs_of_one_name_are_two_gangs_and_the_second_says_why_it_has_to_wait() -> None:
    async with gang_kit(PyTorchJob, TFJob, options=BY_PLUGINS) as (kit, groups):
        await kit.submit(job(PyTorchJob))
        await kit.until("default/demo", phase="Running")
        first = await groups.get()
        second = await kit.submit(job(TFJob))
        await kit.until(second, reached=lambda view: view.condition("Blocked") is not None, within_seconds=10)
        assert message_of(second, "Blocked").startswith("podgroup demo: the name is taken by PyTorchJob demo")
        assert second.pods == second.services == {}
        assert await groups.get() == first


@pytest.mark.parametrize("options", [BY_VOLCANO, BY_PLUGINS])
@virtual_time
async def test_a_job_made_anew_says_what_holds_the_group_of_the_last_one_and_goes_on_when_it_is_gone(options: Options) -> None:
    async with gang_kit(PyTorchJob, options=options) as (kit, groups):
        await kit.submit(job(PyTorchJob))
        await until_grouped(kit, groups)
        await groups.edit({"metadata": {"finalizers": ["example.org/hold"]}})
        await kit.client.delete(PyTorchJob.job_type.resource, "demo", namespace="default")
        await asyncio.sleep(10)
        view = await kit.submit(job(PyTorchJob))
        await asyncio.sleep(15)
        assert view.condition("Blocked") is None
        await kit.until(view, reached=lambda view: view.condition("Blocked") is not None, within_seconds=20)
        assert message_of(view, "Blocked") == (
            "podgroup demo of the deleted PyTorchJob demo is still being deleted: finalizers example.org/hold; remove them, or wait"
        )
        assert await kit.writes_at_rest() == []
        await groups.edit({"metadata": {"finalizers": None}})
        await let_in(kit, groups)
        await kit.until(view, phase="Running", reached=lambda view: all_run(view) and view.condition("Blocked") is None, within_seconds=30)


# --- another scheduler, or none ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [Options(), BY_PLUGINS])
@virtual_time
async def test_an_operator_that_is_told_of_another_scheduler_or_none_removes_the_groups_of_the_last_one(options: Options) -> None:
    async with gang_kit(PyTorchJob) as (kit, groups):
        await apply(kit.client, [definition(PLUGINS)], say=lambda _: None)
        kit.script.when("*").run().after(1000).succeed()
        runs, waits, ends = [await kit.submit(job(PyTorchJob, name=name)) for name in ("runs", "waits", "ends")]
        for name in ("runs", "ends"):
            await let_in(kit, groups, name)
        await until_grouped(kit, groups, "waits")
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


@pytest.mark.parametrize("verb", ["watch", "list"])
@virtual_time
async def test_where_there_are_no_groups_or_no_right_to_them_none_are_watched_and_nobody_complains(verb: str) -> None:
    async with OperatorKit([PyTorchJob, TFJob], operator=False) as kit:
        await apply(kit.client, [definition(VOLCANO), definition(PLUGINS)], say=lambda _: None)
        server = kit.new_server()
        server.faults.fail_before(FORBIDDEN, match=Match(plural="podgroups", verb=verb), times=100_000)
        running = await kit.start_operator(server)
        view = await kit.submit(job(PyTorchJob))
        await kit.until(view, phase="Running", reached=all_run)
        assert not running.operator.complaints()


@virtual_time
async def test_jobs_run_while_the_server_cannot_say_whether_there_are_groups_of_an_earlier_scheduler() -> None:
    async with OperatorKit([PyTorchJob], operator=False) as kit:
        server = kit.new_server()
        broken = server.faults.fail_before(BROKEN, match=Match(plural="podgroups", verb="list"), times=100_000)
        await apply(kit.client, [definition(VOLCANO), definition(PLUGINS)], say=lambda _: None)
        await kit.start_operator(server)
        view = await kit.submit(job(PyTorchJob))
        await kit.until(view, phase="Running", reached=all_run, within_seconds=60)
        assert broken.hits


# --- what may be missing -------------------------------------------------------------------------------------------------


@virtual_time
async def test_without_the_definition_of_groups_jobs_say_so_and_go_on_when_it_comes() -> None:
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
        assert await kit.writes_at_rest() == []
        await apply(kit.client, [definition(VOLCANO)], say=lambda _: None)
        groups = Groups(kit.client, VOLCANO)
        for kind in (PyTorchJob, TFJob):
            name = kind.__name__.lower()
            await let_in(kit, groups, name, within_seconds=200)
            await kit.until(f"default/{name}", phase="Running", reached=lambda view: view.condition("Blocked") is None, within_seconds=60)


async def let_in(kit: OperatorKit, groups: Groups, name: str = "demo", *, within_seconds: float = 5.0) -> None:
    """As soon as there is a group, volcano lets it in."""
    await until_grouped(kit, groups, name, within_seconds=within_seconds)
    await groups.say("Inqueue", name)


async def until_grouped(kit: OperatorKit, groups: Groups, name: str = "demo", *, within_seconds: float = 5.0) -> None:
    key = Key(groups.resource.qualified_name, "default", name)
    await kit.until(f"default/{name}", reached=lambda _: kit.cluster.store.get(key) is not None, within_seconds=within_seconds)


@virtual_time
async def test_without_the_right_to_groups_jobs_say_which_rights_are_missing_and_go_on_when_they_come() -> None:
    async with gang_kit(PyTorchJob, operator=False) as (kit, groups):
        server = await refusing_server(kit, FORBIDDEN)
        view = await kit.submit(job(PyTorchJob))
        await kit.until(view, reached=lambda view: view.condition("Blocked") is not None, within_seconds=5)
        assert "podgroups.scheduling.volcano.sh" in message_of(view, "Blocked")
        way_out = "add `--with gang` to the `dlop deploy` line that was used, or `kubectl apply -f manifests/kubeflow/rights.yaml`"
        assert message_of(view, "Blocked").endswith(way_out)
        server.faults.clear()
        await let_in(kit, groups, within_seconds=200)
        await kit.until(view, phase="Running", within_seconds=60)


@virtual_time
async def test_without_the_right_to_priority_classes_all_roles_are_equal_and_nothing_else_is_amiss() -> None:
    async with OperatorKit([PyTorchJob], operator=False, options=BY_VOLCANO) as kit:
        server = kit.new_server()
        server.faults.fail_before(FORBIDDEN, match=Match(plural="priorityclasses"), times=100_000)
        await kit.start_operator(server)
        view = await kit.submit(job(PyTorchJob))
        await kit.until(view, reached=lambda view: view.condition("Blocked") is not None, within_seconds=5)
        await apply(kit.client, [definition(VOLCANO)], say=lambda _: None)
        await let_in(kit, Groups(kit.client, VOLCANO), within_seconds=200)
        await kit.until(view, phase="Running", within_seconds=60)
        assert await kit.writes_at_rest() == []


@virtual_time
async def test_a_group_that_is_refused_is_told_and_nothing_is_made_before_it_is_there() -> None:
    async with gang_kit(PyTorchJob, operator=False) as (kit, groups):
        server = await refusing_server(kit, DENIED, verb="create")
        view = await kit.submit(job(PyTorchJob))
        await kit.until(view, reached=lambda view: "queue is closed" in message_of(view, "Blocked"), within_seconds=5)
        assert view.pods == view.services == {}
        server.faults.clear()
        await let_in(kit, groups, within_seconds=200)
        await kit.until(view, phase="Running", within_seconds=60)


@virtual_time
async def test_a_change_of_the_group_that_is_refused_is_told_and_the_job_is_looked_after_all_the_same() -> None:
    async with gang_kit(PyTorchJob, operator=False) as (kit, groups):
        server = await refusing_server(kit, DENIED, verb="patch")
        kit.script.when("*").run().after(2000).succeed()
        view = await kit.submit(job(PyTorchJob))
        await let_in(kit, groups)
        await kit.until(view, phase="Running")
        await kit.edit(view, {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}})
        await kit.until(view, reached=lambda view: "it could not be changed" in message_of(view, "Blocked"), within_seconds=5)
        asked = len(server_patches(kit))
        await asyncio.sleep(600)
        assert len(server_patches(kit)) - asked < 15
        server.faults.clear()
        await kit.until(view, reached=lambda view: view.condition("Blocked") is None and len(view.pods) == 3, within_seconds=200)
        assert (await groups.spec())["minMember"] == 3
        await kit.until(view, phase="Succeeded")


@virtual_time
async def test_a_change_that_was_refused_and_is_not_needed_any_more_is_forgotten() -> None:
    async with gang_kit(PyTorchJob, operator=False) as (kit, groups):
        await refusing_server(kit, DENIED, verb="patch")
        view = await kit.submit(job(PyTorchJob))
        await let_in(kit, groups)
        await kit.until(view, phase="Running")
        await groups.edit({"spec": {"minMember": 7}})
        await kit.until(view, reached=lambda view: view.condition("Blocked") is not None, within_seconds=5)
        assert (view.condition("Blocked") or {})["reason"] == "FailedUpdate"
        await groups.edit({"spec": {"minMember": 2}})
        await kit.until(view, phase="Running", reached=lambda view: view.condition("Blocked") is None, within_seconds=5)
        assert await kit.writes_at_rest() == []


def server_patches(kit: OperatorKit) -> list[str]:
    return [str(write) for write in kit.writes if write.request.method == "PATCH" and "podgroups" in write.request.path]


@virtual_time
async def test_a_definition_of_groups_that_goes_away_is_told_and_running_pods_are_left_alone() -> None:
    async with gang_kit(PyTorchJob) as (kit, groups):
        view = await kit.submit(job(PyTorchJob))
        await let_in(kit, groups)
        await kit.until(view, phase="Running", reached=all_run)
        before = {name: pod["metadata"]["uid"] for name, pod in view.pods.items()}
        await kit.client.delete(CUSTOM_RESOURCE_DEFINITIONS, groups.resource.qualified_name)
        await kit.until(view, reached=lambda view: view.condition("Blocked") is not None, within_seconds=60)
        assert message_of(view, "Blocked").startswith("podgroup demo: it could not be created")
        assert {name: pod["metadata"]["uid"] for name, pod in view.pods.items()} == before
        await apply(kit.client, [definition(VOLCANO)], say=lambda _: None)
        await kit.until(view, reached=lambda view: view.condition("Blocked") is None, within_seconds=400)
        assert (await groups.spec())["minMember"] == 2


@virtual_time
async def test_rights_that_are_missing_are_told_also_where_the_definition_was_missing_before() -> None:
    async with OperatorKit([PyTorchJob], operator=False, options=BY_VOLCANO) as kit:
        server = kit.new_server()
        await kit.start_operator(server)
        view = await kit.submit(job(PyTorchJob))
        await kit.until(view, reached=lambda view: "does not serve" in message_of(view, "Blocked"), within_seconds=5)
        server.faults.fail_before(FORBIDDEN, match=Match(plural="podgroups"), times=100_000)
        await apply(kit.client, [definition(VOLCANO)], say=lambda _: None)
        await kit.until(view, reached=lambda view: "add `--with gang` to" in message_of(view, "Blocked"), within_seconds=200)


@pytest.mark.parametrize("phase", ["Pending", "Inqueue"])
@virtual_time
async def test_a_definition_that_drops_a_field_of_the_group_makes_no_hot_loop(phase: str) -> None:
    dropping = definition(VOLCANO)
    del dropping["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["minResources"]
    async with OperatorKit([PyTorchJob], operator=False, options=BY_VOLCANO) as kit:
        await apply(kit.client, [dropping], say=lambda _: None)
        await kit.start_operator()
        view = await kit.submit(job(PyTorchJob, runPolicy={"schedulingPolicy": {"minResources": {"cpu": "2"}}}))
        groups = Groups(kit.client, VOLCANO)
        await until_grouped(kit, groups)
        await groups.say(phase)
        assert await kit.writes_at_rest() == []
        assert len(view.pods) == (2 if phase == "Inqueue" else 0)
        assert len(server_patches(kit)) < 10


# --- crashes and stale caches --------------------------------------------------------------------------------------------


@virtual_time
async def test_an_operator_that_dies_while_a_group_waits_leaves_nothing_undone_and_nothing_is_done_twice() -> None:
    async with gang_kit(PyTorchJob) as (kit, groups):
        view = await kit.submit(job(PyTorchJob))
        await until_grouped(kit, groups)
        await kit.operator.crash()
        await groups.say("Inqueue")
        await kit.start_operator()
        await kit.until(view, phase="Running", reached=all_run, within_seconds=30)
        assert created(kit, "podgroups") == ["demo"]
        assert len(created(kit, "pods")) == 2


@virtual_time
async def test_a_group_that_the_cache_does_not_show_yet_is_not_made_twice_and_nothing_comes_before_it_is_let_in() -> None:
    async with gang_kit(PyTorchJob, operator=False) as (kit, groups):
        server = kit.new_server()
        await kit.start_operator(server)
        await asyncio.sleep(1)
        hold = server.faults.hold_watches(match=Match(plural="podgroups"))
        view = await kit.submit(job(PyTorchJob))
        await asyncio.sleep(5)
        await groups.say("Inqueue")
        await kit.edit(view, {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}})
        await asyncio.sleep(20)
        assert created(kit, "podgroups") == ["demo"]
        assert view.pods == {}
        hold.release()
        await kit.until(view, phase="Running", reached=lambda view: len(view.pods) == 3 and all_run(view), within_seconds=10)
        assert (await groups.spec())["minMember"] == 3
        assert [str(write) for write in kit.writes if write.status == 409] == []


@virtual_time
async def test_a_pod_that_is_lost_waits_for_volcano_like_any_other_and_the_others_go_on() -> None:
    async with gang_kit(PyTorchJob) as (kit, groups):
        view = await kit.submit(job(PyTorchJob))
        await let_in(kit, groups)
        await kit.until(view, phase="Running", reached=all_run)
        await groups.say("Pending")
        await kit.client.delete(PODS, "demo-worker-0", namespace="default")
        await kit.until(view, reached=lambda view: list(view.pods) == ["demo-master-0"], within_seconds=60)
        await asyncio.sleep(5)
        assert list(view.pods) == ["demo-master-0"]
        await groups.say("Inqueue")
        await kit.until(view, phase="Running", reached=lambda view: len(view.pods) == 2 and all_run(view), within_seconds=30)


@virtual_time
async def test_nothing_is_in_the_way_of_a_job_whose_pods_are_all_there_while_a_new_group_of_it_waits() -> None:
    async with gang_kit(PyTorchJob) as (kit, groups):
        view = await kit.submit(job(PyTorchJob))
        await let_in(kit, groups)
        await kit.until(view, phase="Running", reached=all_run)
        await kit.client.delete(groups.resource, "demo", namespace="default")
        await kit.until(view, reached=lambda _: created(kit, "podgroups") == ["demo", "demo"], within_seconds=5)
        await groups.say("Pending")
        await asyncio.sleep(120)
        assert view.condition("Blocked") is None
        await kit.client.delete(PODS, "demo-worker-0", namespace="default")
        await kit.until(view, reached=lambda view: "has not let it in" in message_of(view, "Blocked"), within_seconds=120)


@virtual_time
async def test_a_job_that_runs_is_not_ended_for_want_of_a_group_and_one_that_has_lost_a_pod_has_its_full_time() -> None:
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
