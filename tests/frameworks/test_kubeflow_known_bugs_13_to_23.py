"""Known bugs of Kubeflow's operator by number, second part: see `test_kubeflow_known_bugs_01_to_12`."""

from __future__ import annotations

import asyncio
from collections import Counter

import msgspec
import pytest

from dlop.deploy.rbac import ServiceAccountRef, cluster_rbac
from dlop.frameworks.kubeflow.mpi.job import MPIJob
from dlop.frameworks.kubeflow.mxjob import MXJob
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.frameworks.kubeflow.tfjob import TFJob
from dlop.job import DLJob
from dlop.kube.errors import InvalidError
from dlop.kube.resources import HORIZONTAL_POD_AUTOSCALERS, PODS, Resource
from dlop.kube.types import JsonObject
from dlop.operator.settings import Settings
from dlop.testing.kit import STANDALONE, OperatorKit
from dlop.testing.observed_job import ObservedJob
from dlop.testing.pod_steps import ContainerExit
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.kubeflow_jobs import (
    BY_EVERY_KIND,
    BY_KIND,
    SMALL,
    all_run,
    created,
    env,
    install_permissive_crd,
    job,
    message_of,
    mpi_job,
    recreated,
    true_conditions,
)
from tests.frameworks.kubeflow_manifests import ALL_KINDS, KINDS
from tests.unit.job.jobs import make

LEADER_ELECTION = STANDALONE.model_copy(update={"leader_election": True})


@pytest.mark.parametrize("roles", [{"Master": 1, "Worker": 2}, {"Worker": 2, "Master": 1}], ids=["master first", "worker first"])
@virtual_time
async def test_bug_13_the_order_of_roles_in_a_manifest_does_not_matter(roles: dict[str, int]) -> None:
    async with OperatorKit(KINDS) as kit:
        await kit.submit(job(PyTorchJob, roles))
        await kit.until("default/demo", phase="Running")
        assert created(kit, "pods") == ["demo-master-0", "demo-worker-0", "demo-worker-1"]


@pytest.mark.parametrize("first", ["demo-chief-0", "demo-worker-0"])
@virtual_time
async def test_bug_13_a_job_does_not_both_succeed_and_fail(first: str) -> None:
    exits = {"demo-chief-0": ContainerExit(0), "demo-worker-0": ContainerExit(1)}
    async with OperatorKit(KINDS) as kit:
        await kit.submit(job(TFJob, {"Worker": 1, "Chief": 1}, restart="Never"))
        demo = await kit.until("default/demo", phase="Running", reached=all_run)
        await kit.operator.crash()
        for pod in sorted(exits, key=lambda name: name != first):
            await kit.kubelet.perform(f"default/{pod}", exits[pod])
        await kit.start_operator()
        await kit.until(demo, phase="Succeeded", within_seconds=60)
        assert true_conditions(demo.status) == ["Created", "Succeeded"]


@virtual_time
async def test_bug_13_an_earlier_restart_does_not_hide_a_failure() -> None:
    async with OperatorKit(KINDS) as kit:
        kit.script.when("demo-worker-0", times=1).run().after(5).fail(exit_code=137)
        kit.script.when("demo-worker-0").run().after(60).fail(exit_code=1)
        await kit.submit(job(TFJob, restart="ExitCode"))
        demo = await kit.until("default/demo", phase="Failed", within_seconds=600)
        assert true_conditions(demo.status) == ["Created", "Failed"]


@virtual_time
async def test_bug_13_the_running_condition_of_a_finished_job_has_the_time_of_its_end() -> None:
    async with OperatorKit(KINDS) as kit:
        kit.script.when("*").run().after(600).succeed()
        await kit.submit(job(PyTorchJob))
        demo = await kit.until("default/demo", phase="Succeeded")
        running, succeeded = demo.condition("Running") or {}, demo.condition("Succeeded") or {}
        assert (running["status"], running["reason"]) == ("False", "PyTorchJobRunning")
        assert running["lastTransitionTime"] == running["lastUpdateTime"] == succeeded["lastTransitionTime"]
        assert await kit.writes_when_idle() == []


@virtual_time
async def test_bug_14_an_empty_list_of_rendezvous_settings_is_ignored() -> None:
    async with OperatorKit(KINDS) as kit:
        await kit.submit(job(PyTorchJob, {"Worker": 2}, elasticPolicy={"minReplicas": 1, "maxReplicas": 2, "rdzvConf": []}))
        demo = await kit.until("default/demo", phase="Running")
        assert "PET_RDZV_CONF" not in env(demo.pods["demo-worker-0"])


@BY_EVERY_KIND
@virtual_time
async def test_bug_14_a_stored_job_without_containers_fails_and_does_not_affect_others(kind: type[DLJob]) -> None:
    async with OperatorKit(ALL_KINDS) as kit:
        await install_permissive_crd(kit, kind)
        bare = job(kind, name="bare")
        for role in bare["spec"][kind.schema.field].values():
            role["template"]["spec"]["containers"] = []
        await kit.submit(bare)
        await kit.submit(job(kind))
        invalid = await kit.until("default/bare", phase="Invalid", within_seconds=60)
        await kit.until("default/demo", phase="Running", within_seconds=60)
        assert invalid.pods == {}
        assert "containers" in message_of(invalid, "Failed")


@BY_KIND
@virtual_time
async def test_bug_15_services_exist_before_pods_and_publish_not_ready_addresses(kind: type[DLJob]) -> None:
    async with OperatorKit(KINDS) as kit:
        kit.script.when("*").until_released()
        await kit.submit(job(kind))
        demo = await kit.until("default/demo", reached=lambda view: 1 < len(view.services) == len(view.pods))
        created_types = [write.request.path.rpartition("/")[2] for write in kit.writes if write.request.method == "POST"]
        assert [plural for plural in created_types if plural != "events"] == ["services"] * len(demo.services) + ["pods"] * len(demo.pods)
        assert sorted(demo.services) == sorted(demo.pods)
        assert all(service["spec"]["publishNotReadyAddresses"] is True for service in demo.services.values())
        assert not any(pod["spec"].get("initContainers") for pod in demo.pods.values())


@virtual_time
async def test_bug_15_the_launcher_is_created_when_all_workers_run() -> None:
    async with OperatorKit([MPIJob]) as kit:
        kit.script.when("demo-worker-1").until_released().run()
        await kit.submit(mpi_job())
        demo = await kit.until("default/demo", reached=lambda view: view.pod_phases.get("demo-worker-0") == "Running")
        await asyncio.sleep(600)
        assert sorted(demo.pods) == ["demo-worker-0", "demo-worker-1"]
        kit.kubelet.release("default/demo-worker-1")
        await kit.until(demo, phase="Running", reached=lambda view: len(view.pods) == 3 and all_run(view), within_seconds=60)


@BY_KIND
@virtual_time
async def test_bug_16_a_job_with_the_longest_possible_name_runs(kind: type[DLJob]) -> None:
    name = "n" * 63
    async with OperatorKit(KINDS) as kit:
        await kit.submit(job(kind, name=name))
        demo = await kit.until(f"default/{name}", phase="Running", reached=all_run, within_seconds=60)
        assert sorted(demo.services) == sorted(demo.pods)
        assert all(len(service) <= 63 for service in demo.services)
        assert demo.condition("Blocked") is None


@virtual_time
async def test_bug_17_only_the_leader_works_and_another_operator_takes_over_when_it_dies() -> None:
    async with OperatorKit(KINDS, operator=False) as kit:
        first, second = [await kit.start_operator(settings=LEADER_ELECTION) for _ in range(2)]
        await kit.submit(job(PyTorchJob))
        await kit.until("default/demo", phase="Running", within_seconds=60)
        leader, other = (first, second) if first.transport.writes else (second, first)
        assert other.transport.writes == []
        await leader.crash()
        await kit.submit(job(PyTorchJob, name="next"))
        await kit.until("default/next", phase="Running", within_seconds=60)


def test_bug_17_the_operator_has_permissions_for_its_lease() -> None:
    roles = [body for body in cluster_rbac(KINDS, ServiceAccountRef("dlop-system")) if "leader-election" in body["metadata"]["name"]]
    verbs = {verb for role in roles for rule in role.get("rules", ()) if rule["resources"] == ["leases"] for verb in rule["verbs"]}
    assert verbs >= {"create", "get", "update"}


@pytest.mark.parametrize("in_cluster", [True, False])
def test_bug_17_leader_election_is_the_default_in_a_cluster(in_cluster: bool) -> None:
    assert Settings().elects_leader(in_cluster=in_cluster) is in_cluster
    assert Settings(leader_election=True).elects_leader(in_cluster=in_cluster) is True
    assert Settings(leader_election=False).elects_leader(in_cluster=in_cluster) is False


@virtual_time
async def test_bug_18_a_succeeded_pod_is_not_run_again_when_it_is_deleted() -> None:
    async with OperatorKit(KINDS) as kit:
        kit.script.when("*-worker-0").run().after(5).succeed()
        kit.script.when("*").run().after(3600).succeed()
        await kit.submit(job(PyTorchJob, {"Master": 1, "Worker": 2}))
        done = await kit.until("default/demo", reached=lambda view: view.status.get("dlop", {}).get("completedIndexes") == {"Worker": "0"})
        await kit.client.delete(PODS, "demo-worker-0", namespace="default")
        await kit.until(done, phase="Succeeded")
        assert Counter(created(kit, "pods"))["demo-worker-0"] == 1


@BY_EVERY_KIND
@virtual_time
async def test_bug_18_a_pod_on_a_lost_node_is_force_deleted_and_replaced(kind: type[DLJob]) -> None:
    async with OperatorKit(ALL_KINDS) as kit:
        kit.script.when("*-worker-0", times=1).run().after(5).lose_node(deleted_after_seconds=30)
        await kit.submit(job(kind))
        demo = await kit.until("default/demo", phase="Running", reached=recreated(kit, {"demo-worker-0": 2}), within_seconds=600)
        assert demo.condition("Failed") is None


@BY_EVERY_KIND
@virtual_time
async def test_bug_19_suspension_deletes_services_of_missing_pods(kind: type[DLJob]) -> None:
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
async def test_bug_19_cleanup_deletes_services_of_missing_pods(kind: type[DLJob]) -> None:
    async with OperatorKit(ALL_KINDS) as kit:
        await kit.submit(job(kind, runPolicy={"cleanPodPolicy": "All", "activeDeadlineSeconds": 300}))
        demo = await kit.until("default/demo", phase="Running", reached=all_run)
        await kit.operator.crash()
        await kit.client.delete(PODS, "demo-worker-0", namespace="default")
        await asyncio.sleep(600)
        await kit.start_operator()
        await kit.until(demo, phase="Failed", reached=lambda view: not view.pods and not view.services, within_seconds=120)


@virtual_time
async def test_bug_19_the_autoscaler_of_a_finished_job_is_deleted() -> None:
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
    return [body["metadata"]["name"] for body in (await kit.client.list(resource, namespace="default"))["items"]]


@BY_EVERY_KIND
@virtual_time
async def test_bug_20_a_job_with_fixed_ranks_can_be_restarted_as_a_whole(kind: type[DLJob]) -> None:
    async with OperatorKit(ALL_KINDS) as kit:
        kit.script.when("*-worker-0", times=1).run().after(5).fail(exit_code=137)
        await kit.submit(job(kind, restart="ExitCode", runPolicy={"restartScope": "Job"}))
        demo = await kit.until("default/demo", phase="Running", reached=all_run)
        everything = dict.fromkeys(demo.pods, 2)
        await kit.until(demo, phase="Running", reached=recreated(kit, everything), within_seconds=600)
        assert Counter(created(kit, "pods")) == everything
        assert demo.status["dlop"]["restarts"] == {"Worker": 1}


@BY_EVERY_KIND
@virtual_time
async def test_bug_21_misspelt_values_are_rejected(kind: type[DLJob]) -> None:
    typos = {"restartPolicy": job(kind, restart="OnFailures"), "cleanPodPolicy": job(kind, runPolicy={"cleanPodPolicy": "Runing"})}
    if kind is TFJob:
        typos["successPolicy"] = job(kind, successPolicy="AllWorker")
    async with OperatorKit(ALL_KINDS) as kit:
        for field, manifest in typos.items():
            with pytest.raises(InvalidError, match=field):
                await kit.submit(manifest)


@pytest.mark.parametrize("runs", [False, True], ids=["before it runs", "while it is suspended"])
@virtual_time
async def test_bug_21_all_replicas_get_the_new_size_when_a_job_of_fixed_size_is_scaled_while_it_does_not_run(runs: bool) -> None:
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
    return {name: pod["metadata"]["uid"] for name, pod in view.pods.items()}


@pytest.mark.parametrize("replicas", [1, 3])
@BY_KIND
@virtual_time
async def test_bug_21_scaling_a_running_job_of_fixed_size_restarts_it_with_the_new_size(kind: type[DLJob], replicas: int) -> None:
    async with OperatorKit(KINDS) as kit:
        others = {role: 1 for role in SMALL[kind] if role != "Worker"}
        demo = await kit.submit(job(kind, {**others, "Worker": 2}, runPolicy={"backoffLimit": 0}))
        await kit.until(demo, phase="Running", reached=all_run)
        before = set(uids(demo).values())
        await kit.edit(demo, {"spec": {kind.schema.field: {"Worker": {"replicas": replicas}}}})
        await kit.until(demo, phase="Running", reached=lambda view: len(view.pods) == len(others) + replicas and all_run(view))
        assert before.isdisjoint(uids(demo).values())
        fresh = make(kind, demo.body["spec"], name="demo", namespace="default")
        assert {name: env(pod) for name, pod in demo.pods.items()} == {replica.name: env(replica.pod()) for replica in fresh.all_replicas()}
        assert (demo.status["dlop"].get("restarts"), demo.status["dlop"].get("disruptions")) == (None, None)
        assert [reason for reason, _ in demo.events].count("Resized") == 1
        assert await kit.writes_when_idle() == []


@pytest.mark.parametrize(
    "elastic",
    [
        pytest.param(job(PyTorchJob, {"Worker": 2}, elasticPolicy={"minReplicas": 1, "maxReplicas": 3}), id="PyTorchJob"),
        pytest.param(job(TFJob, {"PS": 1, "Worker": 2}, enableDynamicWorker=True), id="TFJob"),
        pytest.param(mpi_job(), id="MPIJob"),
    ],
)
@virtual_time
async def test_bug_21_scaling_an_elastic_job_keeps_its_running_workers(elastic: JsonObject) -> None:
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
async def test_bug_22_events_are_not_repeated_in_every_pass(kind: type[DLJob]) -> None:
    async with OperatorKit(ALL_KINDS) as kit:
        kit.script.when("*-worker-0", times=2).run().after(5).fail(exit_code=137)
        await kit.submit(job(kind, restart="ExitCode"))
        demo = await kit.until("default/demo", phase="Running", reached=recreated(kit, {"demo-worker-0": 3}), within_seconds=600)
        await asyncio.sleep(60)
        events = demo.events
        for touch in range(50):
            await kit.edit(demo, {"metadata": {"labels": {"touched": str(touch)}}})
            await asyncio.sleep(5)
        assert demo.events == events
        await kit.edit(demo, {"spec": {"runPolicy": {"suspend": True}}})
        await kit.until(demo, phase="Suspended", reached=lambda view: not view.pods)
        assert await kit.writes_when_idle() == []
        assert Counter(reason for reason, _ in demo.events)["Suspended"] == 1


@BY_EVERY_KIND
@virtual_time
async def test_bug_22_a_pod_that_cannot_start_has_one_event(kind: type[DLJob]) -> None:
    async with OperatorKit(ALL_KINDS) as kit:
        kit.script.when("*-worker-0").image_pull_error()
        demo = await kit.submit(job(kind))
        await kit.until(demo, reached=lambda view: view.condition("Blocked") is not None)
        for touch in range(50):
            await kit.edit(demo, {"metadata": {"labels": {"touched": str(touch)}}})
            await asyncio.sleep(5)
        assert Counter(reason for reason, _ in demo.events)["ImagePullBackOff"] == 1


@virtual_time
async def test_bug_23_a_tuning_job_succeeds_when_its_tuner_does() -> None:
    async with OperatorKit(KINDS) as kit:
        kit.script.when("demo-tuner-0").run().after(60).succeed()
        await kit.submit(job(MXJob, {"TunerTracker": 1, "TunerServer": 2, "Tuner": 1}, jobMode="MXTune"))
        demo = await kit.until("default/demo", phase="Succeeded", within_seconds=120)
        assert true_conditions(demo.status) == ["Created", "Succeeded"]


@virtual_time
async def test_bug_23_an_invalid_spec_has_an_event_with_its_own_reason() -> None:
    async with OperatorKit(KINDS) as kit:
        await install_permissive_crd(kit, MXJob)
        await kit.submit(job(MXJob, {"Scheduler": 2, "Worker": 1}))
        demo = await kit.until("default/demo", phase="Invalid", within_seconds=60)
        await asyncio.sleep(30)
        assert [reason for reason, _ in demo.events] == ["InvalidSpec"]
