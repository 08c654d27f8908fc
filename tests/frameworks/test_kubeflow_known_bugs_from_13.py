"""The second half of the known bugs of Kubeflow's operator, by their numbers: see `test_kubeflow_known_bugs`."""

from __future__ import annotations

import asyncio
from collections import Counter

import msgspec
import pytest

from dlop.deploy.rbac import ServiceAccountRef, cluster_wide
from dlop.frameworks.kubeflow.mpi.job import MPIJob
from dlop.frameworks.kubeflow.mxjob import MXJob
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.frameworks.kubeflow.tfjob import TFJob
from dlop.job import DLJob
from dlop.kube.errors import InvalidError
from dlop.kube.resources import HORIZONTAL_POD_AUTOSCALERS, PODS, Resource
from dlop.kube.types import JsonObject
from dlop.operator.settings import Settings
from dlop.testing.kit import OUTSIDE, OperatorKit
from dlop.testing.observed_job import ObservedJob
from dlop.testing.pod_steps import Exit
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.kubeflow_jobs import (
    BY_EVERY_KIND,
    BY_KIND,
    SMALL,
    all_run,
    created,
    env,
    job,
    let_everything_in,
    made_again,
    message_of,
    mpi_job,
    true_conditions,
)
from tests.frameworks.kubeflow_manifests import ALL_KINDS, KINDS
from tests.unit.job.jobs import make

ELECTED = OUTSIDE.model_copy(update={"leader_election": True})


@pytest.mark.parametrize("roles", [{"Master": 1, "Worker": 2}, {"Worker": 2, "Master": 1}], ids=["master first", "worker first"])
@virtual_time
async def test_bug_13_the_order_of_roles_in_a_manifest_makes_no_difference(roles: dict[str, int]) -> None:
    async with OperatorKit(KINDS) as kit:
        await kit.submit(job(PyTorchJob, roles))
        await kit.until("default/demo", phase="Running")
        assert created(kit, "pods") == ["demo-master-0", "demo-worker-0", "demo-worker-1"]


@pytest.mark.parametrize("first", ["demo-chief-0", "demo-worker-0"])
@virtual_time
async def test_bug_13_a_job_never_ends_both_ways(first: str) -> None:
    ends = {"demo-chief-0": Exit(0), "demo-worker-0": Exit(1)}
    async with OperatorKit(KINDS) as kit:
        await kit.submit(job(TFJob, {"Worker": 1, "Chief": 1}, restart="Never"))
        demo = await kit.until("default/demo", phase="Running", reached=all_run)
        await kit.operator.crash()
        for pod in sorted(ends, key=lambda name: name != first):
            await kit.kubelet.perform(f"default/{pod}", ends[pod])
        await kit.start_operator()
        await kit.until(demo, phase="Succeeded", within_seconds=60)
        assert true_conditions(demo.status) == ["Created", "Succeeded"]


@virtual_time
async def test_bug_13_a_restart_of_the_past_does_not_hide_a_failure() -> None:
    async with OperatorKit(KINDS) as kit:
        kit.script.when("demo-worker-0", times=1).run().after(5).fail(exit_code=137)
        kit.script.when("demo-worker-0").run().after(60).fail(exit_code=1)
        await kit.submit(job(TFJob, restart="ExitCode"))
        demo = await kit.until("default/demo", phase="Failed", within_seconds=600)
        assert true_conditions(demo.status) == ["Created", "Failed"]


@virtual_time
async def test_bug_13_a_job_that_has_ended_tells_since_when_it_no_longer_runs() -> None:
    async with OperatorKit(KINDS) as kit:
        kit.script.when("*").run().after(600).succeed()
        await kit.submit(job(PyTorchJob))
        demo = await kit.until("default/demo", phase="Succeeded")
        running, succeeded = demo.condition("Running") or {}, demo.condition("Succeeded") or {}
        assert (running["status"], running["reason"]) == ("False", "PyTorchJobRunning")
        assert running["lastTransitionTime"] == running["lastUpdateTime"] == succeeded["lastTransitionTime"]
        assert await kit.writes_at_rest() == []


@virtual_time
async def test_bug_14_an_empty_list_of_rendezvous_settings_is_as_good_as_none() -> None:
    async with OperatorKit(KINDS) as kit:
        await kit.submit(job(PyTorchJob, {"Worker": 2}, elasticPolicy={"minReplicas": 1, "maxReplicas": 2, "rdzvConf": []}))
        demo = await kit.until("default/demo", phase="Running")
        assert "PET_RDZV_CONF" not in env(demo.pods["demo-worker-0"])


@BY_EVERY_KIND
@virtual_time
async def test_bug_14_a_job_without_containers_that_an_old_definition_let_in_harms_nobody(kind: type[DLJob]) -> None:
    async with OperatorKit(ALL_KINDS) as kit:
        await let_everything_in(kit, kind)
        bare = job(kind, name="bare")
        for role in bare["spec"][kind.replica_specs_field].values():
            role["template"]["spec"]["containers"] = []
        await kit.submit(bare)
        await kit.submit(job(kind))
        found = await kit.until("default/bare", phase="Invalid", within_seconds=60)
        await kit.until("default/demo", phase="Running", within_seconds=60)
        assert found.pods == {}
        assert "containers" in message_of(found, "Failed")


@BY_KIND
@virtual_time
async def test_bug_15_names_are_there_before_the_pods_and_whether_or_not_they_are_ready(kind: type[DLJob]) -> None:
    async with OperatorKit(KINDS) as kit:
        kit.script.when("*").until_told()
        await kit.submit(job(kind))
        demo = await kit.until("default/demo", reached=lambda view: 1 < len(view.services) == len(view.pods))
        made = [write.request.path.rpartition("/")[2] for write in kit.writes if write.request.method == "POST"]
        assert [what for what in made if what != "events"] == ["services"] * len(demo.services) + ["pods"] * len(demo.pods)
        assert sorted(demo.services) == sorted(demo.pods)
        assert all(service["spec"]["publishNotReadyAddresses"] is True for service in demo.services.values())
        assert not any(pod["spec"].get("initContainers") for pod in demo.pods.values())


@virtual_time
async def test_bug_15_the_launcher_is_not_there_before_all_its_workers_run() -> None:
    async with OperatorKit([MPIJob]) as kit:
        kit.script.when("demo-worker-1").until_told().run()
        await kit.submit(mpi_job())
        demo = await kit.until("default/demo", reached=lambda view: view.pod_phases.get("demo-worker-0") == "Running")
        await asyncio.sleep(600)
        assert sorted(demo.pods) == ["demo-worker-0", "demo-worker-1"]
        kit.kubelet.tell("default/demo-worker-1")
        await kit.until(demo, phase="Running", reached=lambda view: len(view.pods) == 3 and all_run(view), within_seconds=60)


@BY_KIND
@virtual_time
async def test_bug_16_a_job_with_the_longest_name_there_may_be_runs(kind: type[DLJob]) -> None:
    name = "n" * 63
    async with OperatorKit(KINDS) as kit:
        await kit.submit(job(kind, name=name))
        demo = await kit.until(f"default/{name}", phase="Running", reached=all_run, within_seconds=60)
        assert sorted(demo.services) == sorted(demo.pods)
        assert all(len(service) <= 63 for service in demo.services)
        assert demo.condition("Blocked") is None


@virtual_time
async def test_bug_17_of_several_operators_one_works_and_when_it_dies_the_next_one_does() -> None:
    async with OperatorKit(KINDS, operator=False) as kit:
        first, second = [await kit.start_operator(settings=ELECTED) for _ in range(2)]
        await kit.submit(job(PyTorchJob))
        await kit.until("default/demo", phase="Running", within_seconds=60)
        leader, other = (first, second) if first.wire.writes else (second, first)
        assert other.wire.writes == []
        await leader.crash()
        await kit.submit(job(PyTorchJob, name="next"))
        await kit.until("default/next", phase="Running", within_seconds=60)


def test_bug_17_the_operator_has_the_rights_to_its_lease() -> None:
    roles = [found for found in cluster_wide(KINDS, ServiceAccountRef("dlop-system")) if "leader-election" in found["metadata"]["name"]]
    verbs = {verb for role in roles for rule in role.get("rules", ()) if rule["resources"] == ["leases"] for verb in rule["verbs"]}
    assert verbs >= {"create", "get", "update"}


@pytest.mark.parametrize("in_cluster", [True, False])
def test_bug_17_a_leader_is_elected_in_a_cluster_unless_it_is_told_otherwise(in_cluster: bool) -> None:
    assert Settings().elects_leader(in_cluster=in_cluster) is in_cluster
    assert Settings(leader_election=True).elects_leader(in_cluster=in_cluster) is True
    assert Settings(leader_election=False).elects_leader(in_cluster=in_cluster) is False


@virtual_time
async def test_bug_18_a_succeeded_pod_that_is_collected_is_not_run_again() -> None:
    async with OperatorKit(KINDS) as kit:
        kit.script.when("*-worker-0").run().after(5).succeed()
        kit.script.when("*").run().after(3600).succeed()
        await kit.submit(job(PyTorchJob, {"Master": 1, "Worker": 2}))
        done = await kit.until("default/demo", reached=lambda view: view.status.get("dlop", {}).get("completed") == {"Worker": "0"})
        await kit.client.delete(PODS, "demo-worker-0", namespace="default")
        await kit.until(done, phase="Succeeded")
        assert Counter(created(kit, "pods"))["demo-worker-0"] == 1


@BY_EVERY_KIND
@virtual_time
async def test_bug_18_a_pod_whose_node_is_lost_is_removed_by_force_and_replaced(kind: type[DLJob]) -> None:
    async with OperatorKit(ALL_KINDS) as kit:
        kit.script.when("*-worker-0", times=1).run().after(5).lose_node(deleted_after_seconds=30)
        await kit.submit(job(kind))
        demo = await kit.until("default/demo", phase="Running", reached=made_again(kit, {"demo-worker-0": 2}), within_seconds=600)
        assert demo.condition("Failed") is None


@BY_EVERY_KIND
@virtual_time
async def test_bug_19_a_suspended_job_leaves_no_services_also_where_the_pod_is_gone(kind: type[DLJob]) -> None:
    async with OperatorKit(ALL_KINDS) as kit:
        await kit.submit(job(kind))
        demo = await kit.until("default/demo", phase="Running", reached=all_run)
        await kit.operator.crash()
        await kit.client.delete(PODS, "demo-worker-0", namespace="default")
        await kit.edit(demo, {"spec": {"runPolicy": {"suspend": True}}})
        await asyncio.sleep(60)
        await kit.start_operator()
        await kit.until(demo, phase="Suspended", reached=lambda view: not view.pods and not view.services, within_seconds=120)


@BY_EVERY_KIND
@virtual_time
async def test_bug_19_a_finished_job_leaves_no_services_also_where_the_pod_is_gone(kind: type[DLJob]) -> None:
    async with OperatorKit(ALL_KINDS) as kit:
        await kit.submit(job(kind, runPolicy={"cleanPodPolicy": "All", "activeDeadlineSeconds": 300}))
        demo = await kit.until("default/demo", phase="Running", reached=all_run)
        await kit.operator.crash()
        await kit.client.delete(PODS, "demo-worker-0", namespace="default")
        await asyncio.sleep(600)
        await kit.start_operator()
        await kit.until(demo, phase="Failed", reached=lambda view: not view.pods and not view.services, within_seconds=120)


@virtual_time
async def test_bug_19_the_autoscaler_of_a_job_goes_when_the_job_is_done() -> None:
    async with OperatorKit(KINDS) as kit:
        kit.script.when("*").run().after(60).succeed()
        metric = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
        await kit.submit(job(PyTorchJob, {"Worker": 2}, elasticPolicy={"minReplicas": 1, "maxReplicas": 4, "metrics": [metric]}))
        demo = await kit.until("default/demo", phase="Running")
        assert await names(kit, HORIZONTAL_POD_AUTOSCALERS) == ["demo"]
        await kit.until(demo, phase="Succeeded")
        await asyncio.sleep(60)
        assert await names(kit, HORIZONTAL_POD_AUTOSCALERS) == []


async def names(kit: OperatorKit, resource: Resource) -> list[str]:
    return [found["metadata"]["name"] for found in (await kit.client.list(resource, namespace="default"))["items"]]


@BY_EVERY_KIND
@virtual_time
async def test_bug_20_a_job_of_fixed_ranks_can_be_restarted_as_a_whole(kind: type[DLJob]) -> None:
    async with OperatorKit(ALL_KINDS) as kit:
        kit.script.when("*-worker-0", times=1).run().after(5).fail(exit_code=137)
        await kit.submit(job(kind, restart="ExitCode", runPolicy={"restartScope": "Job"}))
        demo = await kit.until("default/demo", phase="Running", reached=all_run)
        everything = dict.fromkeys(demo.pods, 2)
        await kit.until(demo, phase="Running", reached=made_again(kit, everything), within_seconds=600)
        assert Counter(created(kit, "pods")) == everything
        assert demo.status["dlop"]["restarts"] == {"Worker": 1}


@BY_EVERY_KIND
@virtual_time
async def test_bug_21_slips_of_the_finger_are_refused_at_once(kind: type[DLJob]) -> None:
    slips = {"restartPolicy": job(kind, restart="OnFailures"), "cleanPodPolicy": job(kind, runPolicy={"cleanPodPolicy": "Runing"})}
    if kind is TFJob:
        slips["successPolicy"] = job(kind, successPolicy="AllWorker")
    async with OperatorKit(ALL_KINDS) as kit:
        for field, manifest in slips.items():
            with pytest.raises(InvalidError, match=field):
                await kit.submit(manifest)


@pytest.mark.parametrize("runs", [False, True], ids=["before it runs", "while it is suspended"])
@virtual_time
async def test_bug_21_the_replicas_of_a_scaled_job_of_fixed_size_are_all_told_the_same(runs: bool) -> None:
    async with OperatorKit(KINDS) as kit:
        kit.script.when("*").after(60).run()
        demo = await kit.submit(job(TFJob, {"Worker": 2}))
        await kit.until(demo, reached=all_run if runs else lambda view: len(view.pods) == 2)
        await kit.edit(demo, {"spec": {"runPolicy": {"suspend": runs}}})
        await kit.until(demo, reached=lambda view: not view.pods if runs else True)
        await kit.edit(demo, {"spec": {"runPolicy": {"suspend": False}, "tfReplicaSpecs": {"Worker": {"replicas": 3}}}})
        await kit.until(demo, phase="Running", reached=lambda view: len(view.pods) == 3 and all_run(view), within_seconds=600)
        clusters = [msgspec.json.decode(env(pod)["TF_CONFIG"])["cluster"] for pod in demo.pods.values()]
        assert clusters == [{"worker": [f"demo-worker-{index}.default.svc:2222" for index in range(3)]}] * 3


def uids(view: ObservedJob) -> dict[str, str]:
    """The pods of a job, told apart also where they have the same name."""
    return {name: pod["metadata"]["uid"] for name, pod in view.pods.items()}


@pytest.mark.parametrize("replicas", [1, 3])
@BY_KIND
@virtual_time
async def test_bug_21_a_job_of_fixed_size_that_is_scaled_while_it_runs_begins_anew_and_all_its_replicas_are_told_the_same(
    kind: type[DLJob], replicas: int
) -> None:
    async with OperatorKit(KINDS) as kit:
        others = {role: 1 for role in SMALL[kind] if role != "Worker"}
        demo = await kit.submit(job(kind, {**others, "Worker": 2}, runPolicy={"backoffLimit": 0}))
        await kit.until(demo, phase="Running", reached=all_run)
        before = set(uids(demo).values())
        await kit.edit(demo, {"spec": {kind.replica_specs_field: {"Worker": {"replicas": replicas}}}})
        await kit.until(demo, phase="Running", reached=lambda view: len(view.pods) == len(others) + replicas and all_run(view))
        assert before.isdisjoint(uids(demo).values())
        fresh = make(kind, demo.body["spec"], name="demo", namespace="default")
        assert {name: env(pod) for name, pod in demo.pods.items()} == {each.name: env(each.pod()) for each in fresh.all_replicas()}
        assert (demo.status["dlop"].get("restarts"), demo.status["dlop"].get("disruptions")) == (None, None)
        assert [reason for reason, _ in demo.events].count("Resized") == 1
        assert await kit.writes_at_rest() == []


@pytest.mark.parametrize(
    "elastic",
    [
        pytest.param(job(PyTorchJob, {"Worker": 2}, elasticPolicy={"minReplicas": 1, "maxReplicas": 3}), id="PyTorchJob"),
        pytest.param(job(TFJob, {"PS": 1, "Worker": 2}, enableDynamicWorker=True), id="TFJob"),
        pytest.param(mpi_job(), id="MPIJob"),
    ],
)
@virtual_time
async def test_bug_21_a_job_whose_workers_may_come_and_go_keeps_those_that_run_when_it_is_scaled(elastic: JsonObject) -> None:
    async with OperatorKit([*KINDS, MPIJob]) as kit:
        demo = await kit.submit(elastic)
        await kit.until(demo, phase="Running", reached=all_run)
        before = uids(demo)
        field = next(name for name in elastic["spec"] if name.endswith("ReplicaSpecs"))
        await kit.edit(demo, {"spec": {field: {"Worker": {"replicas": 3}}}})
        await kit.until(demo, phase="Running", reached=lambda view: len(view.pods) == len(before) + 1 and all_run(view))
        assert before.items() <= uids(demo).items()


@BY_EVERY_KIND
@virtual_time
async def test_bug_22_events_are_told_once_and_not_again_in_every_pass(kind: type[DLJob]) -> None:
    async with OperatorKit(ALL_KINDS) as kit:
        kit.script.when("*-worker-0", times=2).run().after(5).fail(exit_code=137)
        await kit.submit(job(kind, restart="ExitCode"))
        demo = await kit.until("default/demo", phase="Running", reached=made_again(kit, {"demo-worker-0": 3}), within_seconds=600)
        await asyncio.sleep(60)
        told = demo.events
        for touch in range(50):
            await kit.edit(demo, {"metadata": {"labels": {"touched": str(touch)}}})
            await asyncio.sleep(5)
        assert demo.events == told
        await kit.edit(demo, {"spec": {"runPolicy": {"suspend": True}}})
        await kit.until(demo, phase="Suspended", reached=lambda view: not view.pods)
        assert await kit.writes_at_rest() == []
        assert Counter(reason for reason, _ in demo.events)["Suspended"] == 1


@BY_EVERY_KIND
@virtual_time
async def test_bug_22_a_pod_that_cannot_start_is_told_of_once(kind: type[DLJob]) -> None:
    async with OperatorKit(ALL_KINDS) as kit:
        kit.script.when("*-worker-0").image_pull_error()
        demo = await kit.submit(job(kind))
        await kit.until(demo, reached=lambda view: view.condition("Blocked") is not None)
        for touch in range(50):
            await kit.edit(demo, {"metadata": {"labels": {"touched": str(touch)}}})
            await asyncio.sleep(5)
        assert Counter(reason for reason, _ in demo.events)["ImagePullBackOff"] == 1


@virtual_time
async def test_bug_23_a_tuning_job_is_done_when_its_tuner_is() -> None:
    async with OperatorKit(KINDS) as kit:
        kit.script.when("demo-tuner-0").run().after(60).succeed()
        await kit.submit(job(MXJob, {"TunerTracker": 1, "TunerServer": 2, "Tuner": 1}, jobMode="MXTune"))
        demo = await kit.until("default/demo", phase="Succeeded", within_seconds=120)
        assert true_conditions(demo.status) == ["Created", "Succeeded"]


@virtual_time
async def test_bug_23_what_is_wrong_with_a_job_is_told_under_a_name_of_its_own() -> None:
    async with OperatorKit(KINDS) as kit:
        await let_everything_in(kit, MXJob)
        await kit.submit(job(MXJob, {"Scheduler": 2, "Worker": 1}))
        demo = await kit.until("default/demo", phase="Invalid", within_seconds=60)
        await asyncio.sleep(30)
        assert [reason for reason, _ in demo.events] == ["InvalidSpec"]
