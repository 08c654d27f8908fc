"""All bugs of Kubeflow's operator that are known, by their numbers: a test for each shows that dlop does not have it.

What concerns parts that dlop does not have yet is in `NOT_YET`, and nowhere else.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from datetime import datetime

import pytest

from dlop.frameworks.kubeflow.jaxjob import JAXJob
from dlop.frameworks.kubeflow.mxjob import MXJob
from dlop.frameworks.kubeflow.paddlejob import PaddleJob
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.frameworks.kubeflow.tfjob import TFJob
from dlop.frameworks.kubeflow.xgboostjob import XGBoostJob
from dlop.job import DLJob
from dlop.kube.client import PatchType
from dlop.kube.errors import InvalidError, JsonObject
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, PODS
from dlop.local.apiserver.faults import Match
from dlop.manifests.rbac import Account, cluster_wide
from dlop.settings import Settings
from dlop.testing.kit import OUTSIDE, OperatorKit
from dlop.testing.steps import Exit
from dlop.testing.virtual_time import virtual_time
from tests.compat.kubeflow_jobs import all_run, counted, created, env, job, made_again, message_of, true_conditions
from tests.compat.kubeflow_manifests import KINDS

NOT_YET = {
    8: "MPIJob is not there yet",
    10: "PodGroups are not there yet; that a finished job is left in peace is tested",
    11: "PodGroups, and with them priority classes and minResources, are not there yet",
    15: "MPIJob and its launcher are not there yet; that names are there before pods is tested",
    19: "autoscalers of elastic jobs are not there yet; what becomes of services is tested",
}
"""The bugs that cannot be tested, or not wholly, and why."""

BY_KIND = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.job_type.kind)
QUOTA: JsonObject = {"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "exceeded quota: small"}
CONFLICT = QUOTA | {"code": 409, "reason": "Conflict", "message": "the object has been modified"}
ELECTED = OUTSIDE.model_copy(update={"leader_election": True})


def test_every_bug_has_a_test_or_a_reason_why_not() -> None:
    tested = {int(number) for name in globals() for number in re.findall(r"^test_bug_(\d+)_", name)}
    assert tested | NOT_YET.keys() == set(range(1, 24))


@virtual_time
async def test_bug_01_the_active_deadline_is_kept_to_the_second_by_whichever_operator_is_there() -> None:
    async with OperatorKit(KINDS) as kit:
        await kit.submit(job(PyTorchJob, runPolicy={"activeDeadlineSeconds": 600}))
        await asyncio.sleep(300)
        await kit.operator.crash()
        await kit.start_operator()
        demo = await kit.until("default/demo", phase="Failed", within_seconds=302)
        assert moment(demo.status["completionTime"]) - moment(demo.status["startTime"]) == 600
        assert message_of(demo, "Failed") == "Job demo has failed because it was active longer than specified deadline"


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@virtual_time
async def test_bug_02_the_backoff_limit_counts_every_restart_also_of_pods_that_are_gone() -> None:
    async with OperatorKit(KINDS) as kit:
        kit.script.when("*-worker-0").run().after(5).fail(exit_code=137)
        await kit.submit(job(PyTorchJob, restart="ExitCode", runPolicy={"backoffLimit": 2}))
        demo = await kit.until("default/demo", phase="Failed", within_seconds=3600)
        assert created(kit, "pods").count("demo-worker-0") == 3
        assert message_of(demo, "Failed") == "Job demo has failed because it has reached the specified backoff limit"


@pytest.mark.parametrize(
    ("kind", "roles"),
    [
        pytest.param(TFJob, {"Worker": 1, "PS": 0}, id="TFJob"),
        pytest.param(XGBoostJob, {"Master": 1, "Worker": 0}, id="XGBoostJob"),
        pytest.param(PaddleJob, {"Master": 1, "Worker": 0}, id="PaddleJob"),
        pytest.param(JAXJob, {"Worker": 0}, id="JAXJob"),
    ],
)
@virtual_time
async def test_bug_03_a_role_of_no_replicas_has_no_pods_and_costs_nothing(kind: type[DLJob], roles: dict[str, int]) -> None:
    async with OperatorKit(KINDS) as kit:
        await kit.submit(job(kind, roles))
        assert await kit.writes_at_rest() == []
        assert created(kit, "pods") == [f"demo-{role.lower()}-0" for role, replicas in roles.items() if replicas]


@pytest.mark.parametrize("kind", [PyTorchJob, PaddleJob, JAXJob, XGBoostJob], ids=lambda kind: kind.job_type.kind)
@virtual_time
async def test_bug_04_a_permanent_exit_code_ends_the_job_at_once_and_its_ttl_runs(kind: type[DLJob]) -> None:
    async with OperatorKit(KINDS) as kit:
        kit.script.when("*-worker-0").run().after(5).fail(exit_code=1)
        await kit.submit(job(kind, restart="ExitCode", runPolicy={"ttlSecondsAfterFinished": 100}))
        demo = await kit.until("default/demo", phase="Failed", within_seconds=60)
        assert demo.status["completionTime"]
        await asyncio.sleep(10)
        assert "restart" not in str(demo.events).lower()
        assert (counted(kit, "failed", kind), counted(kit, "restarted", kind)) == (1, 0)
        await kit.until(demo, reached=lambda view: not view.exists, within_seconds=92)


@pytest.mark.parametrize(
    ("kind", "restart"),
    [(TFJob, "Never"), (TFJob, "Always"), (XGBoostJob, "OnFailure"), (PyTorchJob, "Never"), (PaddleJob, "Never"), (JAXJob, "Never")],
)
@virtual_time
async def test_bug_05_a_running_pod_that_somebody_deletes_is_replaced_and_the_job_goes_on(kind: type[DLJob], restart: str) -> None:
    async with OperatorKit(KINDS) as kit:
        await kit.submit(job(kind, restart=restart, runPolicy={"backoffLimit": 0}))
        demo = await kit.until("default/demo", phase="Running", reached=all_run)
        await kit.client.delete(PODS, "demo-worker-0", namespace="default")
        await kit.until(demo, phase="Running", reached=made_again(kit, {"demo-worker-0": 2}), within_seconds=600)
        assert demo.condition("Failed") is None
        assert demo.status["dlop"]["disruptions"] == {"Worker": 1}


@virtual_time
async def test_bug_06_what_was_created_and_is_not_seen_yet_is_waited_for_and_nothing_is_made_twice() -> None:
    async with OperatorKit(KINDS, operator=False) as kit:
        server = kit.new_server()
        await kit.start_operator(server)
        await asyncio.sleep(1)
        hold = server.faults.hold_watches(match=Match(plural="pods"))
        await kit.submit(job(PyTorchJob))
        await asyncio.sleep(20)
        await kit.edit("default/demo", {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}})
        await asyncio.sleep(20)
        hold.release()
        await kit.until("default/demo", phase="Running", reached=lambda view: len(view.pods) == 3 and all_run(view), within_seconds=10)
        assert sorted(created(kit, "pods")) == ["demo-master-0", "demo-worker-0", "demo-worker-1"]
        assert [str(write) for write in kit.writes if write.status == 409] == []


@BY_KIND
@virtual_time
async def test_bug_07_a_job_whose_pods_are_refused_says_so_and_goes_on_when_they_no_longer_are(kind: type[DLJob]) -> None:
    async with OperatorKit(KINDS, operator=False) as kit:
        server = kit.new_server()
        server.faults.fail_before(QUOTA, match=Match(verb="create", plural="pods"), times=1000)
        await kit.start_operator(server)
        await kit.submit(job(kind))
        demo = await kit.until("default/demo", reached=lambda view: view.condition("Blocked") is not None, within_seconds=5)
        assert "exceeded quota: small" in message_of(demo, "Blocked")
        assert true_conditions(demo.status) == ["Created", "Blocked"]
        server.faults.clear()
        await kit.until(demo, phase="Running", reached=lambda view: view.condition("Blocked") is None, within_seconds=120)


@BY_KIND
@virtual_time
async def test_bug_09_a_job_that_somebody_else_manages_is_left_alone_for_good(kind: type[DLJob]) -> None:
    async with OperatorKit(KINDS) as kit:
        demo = await kit.submit(job(kind, runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"}))
        for manager in ("kubeflow.org/training-operator", None):
            with pytest.raises(InvalidError, match="field is immutable"):
                await kit.edit(demo, {"spec": {"runPolicy": {"managedBy": manager}}})
        with pytest.raises(InvalidError, match=r"spec\.runPolicy\.managedBy"):
            await kit.submit(job(kind, name="empty", runPolicy={"managedBy": ""}))
        await asyncio.sleep(600)
        assert kit.writes == []
        await kit.submit(job(kind, name="ours", runPolicy={"managedBy": "kubeflow.org/training-operator"}))
        await kit.until("default/ours", phase="Running", within_seconds=60)


@BY_KIND
@virtual_time
async def test_bug_10_a_finished_job_is_left_in_peace(kind: type[DLJob]) -> None:
    async with OperatorKit(KINDS) as kit:
        kit.script.when("*").run().after(60).succeed()
        await kit.submit(job(kind, runPolicy={"cleanPodPolicy": "All"}))
        demo = await kit.until("default/demo", phase="Succeeded", reached=lambda view: not view.pods)
        await asyncio.sleep(30)
        told = demo.events
        await kit.edit(demo, {"metadata": {"labels": {"touched": "yes"}}})
        assert await kit.writes_at_rest() == []
        await kit.operator.crash()
        await kit.start_operator()
        assert await kit.writes_at_rest() == []
        assert demo.events == told


@virtual_time
async def test_bug_12_metrics_count_everything_once_whatever_conflicts_and_restarts_there_are() -> None:
    async with OperatorKit(KINDS, operator=False) as kit:
        server = kit.new_server()
        server.faults.fail_before(CONFLICT, match=Match(subresource="status"), times=3)
        await kit.start_operator(server)
        kit.script.when("code-*").run().after(5).fail(exit_code=1)
        kit.script.when("again-worker-0", times=2).run().after(5).fail(exit_code=137)
        kit.script.when("again-*").run().after(60).succeed()
        await kit.submit(job(PyTorchJob, name="late", runPolicy={"activeDeadlineSeconds": 60}))
        for name in ("code", "again"):
            await kit.submit(job(PyTorchJob, name=name, restart="ExitCode"))
        for name, phase in (("late", "Failed"), ("code", "Failed"), ("again", "Succeeded")):
            await kit.until(f"default/{name}", phase=phase, within_seconds=3600)
        await kit.operator.crash()
        await kit.start_operator()
        await asyncio.sleep(600)
        found = {what: counted(kit, what, PyTorchJob) for what in ("created", "succeeded", "failed", "restarted")}
        assert found == {"created": 3, "succeeded": 1, "failed": 2, "restarted": 2}


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
async def test_bug_14_an_empty_list_of_rendezvous_settings_is_as_good_as_none() -> None:
    async with OperatorKit(KINDS) as kit:
        await kit.submit(job(PyTorchJob, {"Worker": 2}, elasticPolicy={"minReplicas": 1, "maxReplicas": 2, "rdzvConf": []}))
        demo = await kit.until("default/demo", phase="Running")
        assert "PET_RDZV_CONF" not in env(demo.pods["demo-worker-0"])


@BY_KIND
@virtual_time
async def test_bug_14_a_job_without_containers_that_an_old_definition_let_in_harms_nobody(kind: type[DLJob]) -> None:
    async with OperatorKit(KINDS) as kit:
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


async def let_everything_in(kit: OperatorKit, kind: type[DLJob]) -> None:
    """Put a definition in place that checks nothing, as the first ones did."""
    name = kind.job_type.resource.qualified_name
    definition = await kit.client.get(CUSTOM_RESOURCE_DEFINITIONS, name)
    anything = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [{**version, "schema": anything} for version in definition["spec"]["versions"]]
    await kit.client.patch(CUSTOM_RESOURCE_DEFINITIONS, name, {"spec": {"versions": versions}}, patch_type=PatchType.MERGE)


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


def test_bug_17_the_operator_has_the_rights_to_its_lease_and_elects_a_leader_unless_told_otherwise() -> None:
    roles = [found for found in cluster_wide(KINDS, Account("dlop-system")) if "leader-election" in found["metadata"]["name"]]
    verbs = {verb for role in roles for rule in role.get("rules", ()) if rule["resources"] == ["leases"] for verb in rule["verbs"]}
    assert verbs >= {"create", "get", "update"}
    assert Settings().leader_election is not False


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


@BY_KIND
@virtual_time
async def test_bug_18_a_pod_whose_node_is_lost_is_removed_by_force_and_replaced(kind: type[DLJob]) -> None:
    async with OperatorKit(KINDS) as kit:
        kit.script.when("*-worker-0", times=1).run().after(5).lose_node(deleted_after_seconds=30)
        await kit.submit(job(kind))
        demo = await kit.until("default/demo", phase="Running", reached=made_again(kit, {"demo-worker-0": 2}), within_seconds=600)
        assert demo.condition("Failed") is None


@BY_KIND
@virtual_time
async def test_bug_19_a_suspended_job_leaves_no_services_also_where_the_pod_is_gone(kind: type[DLJob]) -> None:
    async with OperatorKit(KINDS) as kit:
        await kit.submit(job(kind))
        demo = await kit.until("default/demo", phase="Running", reached=all_run)
        await kit.operator.crash()
        await kit.client.delete(PODS, "demo-worker-0", namespace="default")
        await kit.edit(demo, {"spec": {"runPolicy": {"suspend": True}}})
        await asyncio.sleep(60)
        await kit.start_operator()
        await kit.until(demo, phase="Suspended", reached=lambda view: not view.pods and not view.services, within_seconds=120)


@BY_KIND
@virtual_time
async def test_bug_19_a_finished_job_leaves_no_services_also_where_the_pod_is_gone(kind: type[DLJob]) -> None:
    async with OperatorKit(KINDS) as kit:
        await kit.submit(job(kind, runPolicy={"cleanPodPolicy": "All", "activeDeadlineSeconds": 300}))
        demo = await kit.until("default/demo", phase="Running", reached=all_run)
        await kit.operator.crash()
        await kit.client.delete(PODS, "demo-worker-0", namespace="default")
        await asyncio.sleep(600)
        await kit.start_operator()
        await kit.until(demo, phase="Failed", reached=lambda view: not view.pods and not view.services, within_seconds=120)


@BY_KIND
@virtual_time
async def test_bug_20_a_job_of_fixed_ranks_can_be_restarted_as_a_whole(kind: type[DLJob]) -> None:
    async with OperatorKit(KINDS) as kit:
        kit.script.when("*-worker-0", times=1).run().after(5).fail(exit_code=137)
        await kit.submit(job(kind, restart="ExitCode", runPolicy={"restartScope": "Job"}))
        demo = await kit.until("default/demo", phase="Running", reached=all_run)
        everything = dict.fromkeys(demo.pods, 2)
        await kit.until(demo, phase="Running", reached=made_again(kit, everything), within_seconds=600)
        assert Counter(created(kit, "pods")) == everything
        assert demo.status["dlop"]["restarts"] == {"Worker": 1}


@BY_KIND
@virtual_time
async def test_bug_21_slips_of_the_finger_are_refused_at_once(kind: type[DLJob]) -> None:
    slips = {"restartPolicy": job(kind, restart="OnFailures"), "cleanPodPolicy": job(kind, runPolicy={"cleanPodPolicy": "Runing"})}
    if kind is TFJob:
        slips["successPolicy"] = job(kind, successPolicy="AllWorker")
    async with OperatorKit(KINDS) as kit:
        for field, manifest in slips.items():
            with pytest.raises(InvalidError, match=field):
                await kit.submit(manifest)


@BY_KIND
@virtual_time
async def test_bug_22_events_are_told_once_and_not_again_in_every_pass(kind: type[DLJob]) -> None:
    async with OperatorKit(KINDS) as kit:
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
