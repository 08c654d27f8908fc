"""MPIJob of kubeflow.org/v1 where the recordings say nothing: restarts, scaling, GPUs, accounts, and what the operator before has left."""

from __future__ import annotations

from typing import Any

import pytest

from dlop import DLJob, Options, SpecError
from dlop.api.constants import ATTEMPT_LABEL, JOB_UID_LABEL
from dlop.embedded.apiserver.faults import Match
from dlop.frameworks.kubeflow.mpi.job import MPIJob
from dlop.kube.client import PatchType
from dlop.kube.resources import CONFIG_MAPS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from dlop.kube.types import JsonObject
from dlop.testing.kit import OperatorKit
from dlop.testing.observed_job import ObservedJob
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.kubeflow_jobs import all_run
from tests.unit.job.jobs import make

MAIN: JsonObject = {"name": "main", "image": "example.org/train:1"}


def role(replicas: int, *, restart: str | None = None, container: JsonObject = MAIN, **pod: Any) -> JsonObject:
    policy = {} if restart is None else {"restartPolicy": restart}
    return {"replicas": replicas, "template": {"spec": {"containers": [container], **pod}}, **policy}


def spec(launcher: JsonObject | None = None, *, workers: int = 2, restart: str | None = None, **more: Any) -> JsonObject:
    roles = {"Launcher": launcher or role(1, restart=restart), "Worker": role(workers, restart=restart)}
    return {"mpiReplicaSpecs": roles, **more}


def manifest(*, name: str = "demo", **given: Any) -> JsonObject:
    return {"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "metadata": {"name": name}, "spec": spec(**given)}


def files(job: DLJob) -> dict[str, str]:
    return next(each.body["data"] for each in job.other_objects() if each.resource == CONFIG_MAPS)


def pod(job: DLJob, name: str) -> JsonObject:
    found = job.spec.role(name)
    assert found is not None
    made: JsonObject = job.make_pod(found, 0, attempt=0)["spec"]
    return made


def test_a_worker_without_a_command_waits_for_one() -> None:
    container = pod(make(MPIJob, spec(), name="demo"), "Worker")["containers"][0]
    assert (container["command"], container["args"]) == (["sleep"], ["365d"])


def test_a_launcher_with_a_gpu_is_a_host_too() -> None:
    gpu = {**MAIN, "resources": {"limits": {"nvidia.com/gpu": 1}}}
    found = make(MPIJob, spec(role(1, container=gpu), workers=1, slotsPerWorker=4), name="demo")
    assert files(found)["hostfile"] == "demo-launcher slots=4\ndemo-worker-0 slots=4\n"
    assert files(found)["discover_hosts.sh"] == "#!/bin/sh\necho demo-launcher:4\n"
    assert not any(each["name"].startswith("NVIDIA") for each in pod(found, "Launcher")["containers"][0]["env"])


def test_a_launcher_is_told_how_open_mpi_and_intel_mpi_reach_the_workers_and_sees_no_gpu() -> None:
    env = {each["name"]: each["value"] for each in pod(make(MPIJob, spec()), "Launcher")["containers"][0]["env"]}
    assert env == {
        "OMPI_MCA_plm_rsh_agent": "/etc/mpi/kubexec.sh",
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        "NVIDIA_VISIBLE_DEVICES": "",
        "NVIDIA_DRIVER_CAPABILITIES": "",
        "I_MPI_HYDRA_BOOTSTRAP": "rsh",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": "/etc/mpi/kubexec.sh",
    }


def test_what_the_user_says_to_intel_mpi_stands() -> None:
    container = {**MAIN, "env": [{"name": "I_MPI_HYDRA_BOOTSTRAP", "value": "ssh"}]}
    env = pod(make(MPIJob, spec(role(1, container=container))), "Launcher")["containers"][0]["env"]
    assert [each["value"] for each in env if each["name"] == "I_MPI_HYDRA_BOOTSTRAP"] == ["ssh"]


def test_an_account_of_the_user_is_taken_and_gets_the_rights() -> None:
    found = make(MPIJob, spec(role(1, serviceAccountName="mine")), name="demo")
    bodies = {each.resource.kind: each.body for each in found.other_objects()}
    assert bodies["ServiceAccount"]["metadata"]["name"] == "mine"
    assert bodies["RoleBinding"]["subjects"][0]["name"] == "mine"
    assert pod(found, "Launcher")["serviceAccountName"] == "mine"


def test_without_workers_there_is_no_right_to_run_commands_anywhere() -> None:
    rules = next(each.body["rules"] for each in make(MPIJob, spec(workers=0)).other_objects() if each.resource == ROLES)
    assert [rule["resources"] for rule in rules] == [["pods"]]


def test_kubectl_comes_from_the_image_that_the_operator_was_told() -> None:
    found = make(MPIJob, spec(), options=Options(kubectl_delivery_image="example.org/kubectl:7"))
    assert [each["image"] for each in pod(found, "Launcher")["initContainers"]] == ["example.org/kubectl:7"]


def test_the_newer_policy_for_pods_goes_before_the_older_one() -> None:
    both = spec(cleanPodPolicy="All", runPolicy={"cleanPodPolicy": "Running"})
    assert make(MPIJob, both).spec.run_policy.clean_pod_policy == "Running"
    assert make(MPIJob, spec(cleanPodPolicy="All")).spec.run_policy.clean_pod_policy == "All"


def test_nothing_but_a_name_gets_into_the_script() -> None:
    with pytest.raises(SpecError, match="mainContainer"):
        _ = make(MPIJob, spec(mainContainer="main; rm -rf /")).spec


@virtual_time
async def test_bug_15_is_not_there_a_launcher_waits_until_all_its_workers_run() -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        kit.script.when("*-worker-1").after(60).run()
        kit.script.when("*-worker-0").run()
        kit.script.when("*-launcher").run().after(10).succeed()
        job = await kit.submit(manifest())
        await kit.until(job, reached=lambda view: view.pod_phases.get("demo-worker-0") == "Running")
        assert "demo-launcher" not in job.pods
        await kit.until(job, phase="Succeeded")


@virtual_time
async def test_bug_8_is_not_there_a_launcher_that_fails_is_started_again_if_its_policy_says_so() -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        kit.script.when("*-launcher", times=1).run().after(10).fail(exit_code=137)
        kit.script.when("*-launcher").run().after(10).succeed()
        kit.script.when("*").run()
        job = await kit.submit(manifest(restart="ExitCode"))
        await kit.until(job, phase="Succeeded")
        assert job.status["dlop"]["restarts"] == {"Launcher": 1}


@virtual_time
async def test_bug_8_is_not_there_a_worker_that_fails_is_replaced_if_its_policy_says_so() -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        kit.script.when("*-worker-0", times=1).run().after(30).fail(exit_code=137)
        kit.script.when("*-launcher").run().after(60).succeed()
        kit.script.when("*").run()
        job = await kit.submit(manifest(restart="ExitCode"))
        await kit.until(job, phase="Succeeded")
        assert job.status["dlop"]["restarts"] == {"Worker": 1}


@pytest.mark.parametrize(
    ("scope", "again"),
    [
        ("Replica", ["demo-worker-0"]),
        ("Role", ["demo-worker-0", "demo-worker-1"]),
        ("Job", ["demo-launcher", "demo-worker-0", "demo-worker-1"]),
    ],
)
@virtual_time
async def test_what_is_started_again_is_what_the_restart_scope_says(scope: str, again: list[str]) -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        kit.script.when("demo-worker-0", times=1).run().after(30).fail(exit_code=137)
        kit.script.when("*").run()
        job = await kit.submit(manifest(restart="ExitCode", runPolicy={"restartScope": scope}))
        await kit.until(job, phase="Running", reached=lambda view: len(view.pods) == 3 and all_run(view))
        before = {name: pod["metadata"]["uid"] for name, pod in job.pods.items()}
        await kit.until(
            job, phase="Running", reached=lambda view: "restarts" in view.status["dlop"] and len(view.pods) == 3 and all_run(view)
        )
        assert [name for name, pod in sorted(job.pods.items()) if pod["metadata"]["uid"] != before[name]] == again


def is_of_attempt(view: ObservedJob, name: str, attempt: int) -> bool:
    return name in view.pods and view.pods[name]["metadata"]["labels"][ATTEMPT_LABEL] == str(attempt)


@virtual_time
async def test_a_launcher_that_is_started_again_waits_for_its_workers_again() -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        kit.script.when("demo-launcher", times=1).run().after(30).fail(exit_code=137)
        kit.script.when("demo-worker-1", times=1).run()
        kit.script.when("demo-worker-1").after(300).run()
        kit.script.when("*").run()
        job = await kit.submit(manifest(restart="ExitCode", runPolicy={"restartScope": "Job"}))
        await kit.until(job, reached=lambda view: is_of_attempt(view, "demo-worker-0", 1) and view.pod_phases["demo-worker-0"] == "Running")
        assert (sorted(job.pods), job.pod_phases["demo-worker-1"]) == (["demo-worker-0", "demo-worker-1"], "Pending")
        await kit.until(job, phase="Running", reached=lambda view: len(view.pods) == 3 and all_run(view), within_seconds=600)


@virtual_time
async def test_a_worker_that_is_evicted_is_replaced_and_the_job_goes_on() -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        kit.script.when("demo-worker-0", times=1).run().after(30).evict()
        kit.script.when("*").run()
        job = await kit.submit(manifest())
        await kit.until(
            job, phase="Running", reached=lambda view: view.status["dlop"].get("disruptions") == {"Worker": 1} and all_run(view)
        )
        assert job.condition("Failed") is None


@virtual_time
async def test_a_suspended_job_has_no_pods_and_keeps_the_rest() -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        kit.script.when("*").run()
        job = await kit.submit(manifest())
        await kit.until(job, phase="Running", reached=lambda view: len(view.pods) == 3 and all_run(view))
        kept = list(make(MPIJob, job.body["spec"], name="demo", namespace="default").other_objects())
        before = [(await kit.client.get(each.resource, each.name, namespace="default"))["metadata"]["uid"] for each in kept]
        await kit.edit(job, {"spec": {"runPolicy": {"suspend": True}}})
        await kit.until(job, phase="Suspended", reached=lambda view: not view.pods)
        assert job.status["replicaStatuses"] == {"Launcher": {}, "Worker": {}}
        await kit.edit(job, {"spec": {"runPolicy": {"suspend": False}}})
        await kit.until(job, phase="Running", reached=lambda view: len(view.pods) == 3 and all_run(view))
        assert [(await kit.client.get(each.resource, each.name, namespace="default"))["metadata"]["uid"] for each in kept] == before


@virtual_time
async def test_a_launcher_without_workers_starts_at_once() -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        kit.script.when("*").run().after(10).succeed()
        alone = manifest()
        del alone["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"]
        job = await kit.submit(alone)
        await kit.until(job, phase="Succeeded")
        assert sorted(job.pods) == ["demo-launcher"]


@pytest.mark.parametrize("name", ["2-tries", "a.b", "x" * 60, "y" * 63])
@virtual_time
async def test_a_job_of_any_name_runs(name: str) -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        kit.script.when("*-launcher").run().after(10).succeed()
        kit.script.when("*").run()
        job = await kit.submit(manifest(name=name))
        await kit.until(job, phase="Succeeded")
        if len(name) < 50:
            assert sorted(job.pods) == [f"{name}-launcher", f"{name}-worker-0", f"{name}-worker-1"]


@virtual_time
async def test_an_object_of_somebody_else_with_a_name_that_is_needed_is_told_and_left_alone() -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        kit.script.when("*").run()
        foreign = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "demo-config"}, "data": {"mine": "yes"}}
        await kit.client.create(CONFIG_MAPS, foreign, namespace="default")
        job = await kit.submit(manifest())
        await kit.until(job, reached=lambda view: view.condition("Blocked") is not None)
        assert (job.condition("Blocked") or {})["message"].startswith("configmap demo-config: ")
        assert (await kit.client.get(CONFIG_MAPS, "demo-config", namespace="default"))["data"] == {"mine": "yes"}
        await kit.client.delete(CONFIG_MAPS, "demo-config", namespace="default")
        await kit.until(job, phase="Running", reached=lambda view: len(view.pods) == 3 and all_run(view), within_seconds=300)


async def account(kit: OperatorKit, name: str) -> JsonObject:
    return await kit.client.get(SERVICE_ACCOUNTS, name, namespace="default")


async def own_account(kit: OperatorKit, name: str, **metadata: Any) -> JsonObject:
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, **metadata}}
    return await kit.client.create(SERVICE_ACCOUNTS, body, namespace="default")


def tries(kit: OperatorKit, plural: str) -> int:
    """How often operators have asked for an object of this type."""
    return sum(write.request.method == "POST" and write.request.path.endswith(f"/{plural}") for write in kit.writes)


@pytest.mark.parametrize("name", ["demo-launcher", "mine"])
@virtual_time
async def test_an_account_that_is_there_already_is_used_and_left_as_it_is(name: str) -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        before = await own_account(kit, name)
        named: dict[str, Any] = {} if name == "demo-launcher" else {"serviceAccountName": name}
        job = await kit.submit(manifest(launcher=role(1, **named)))
        await kit.until(job, phase="Running", reached=lambda view: len(view.pods) == 3 and all_run(view), within_seconds=10)
        assert job.pods["demo-launcher"]["spec"]["serviceAccountName"] == name
        assert job.condition("Blocked") is None
        assert tries(kit, "serviceaccounts") == 1
        await kit.operator.crash()
        await kit.start_operator()
        await kit.writes_at_rest()
        await kit.client.delete(MPIJob.job_type.resource, "demo", namespace="default")
        await kit.until(job, reached=lambda view: not view.exists and not view.pods)
        assert await account(kit, name) == before


@virtual_time
async def test_an_account_that_the_launcher_names_and_nobody_has_made_is_made_for_the_first_job_that_asks() -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        named = role(1, serviceAccountName="mine")
        jobs = [await kit.submit(manifest(name=name, launcher=named)) for name in ("first", "second")]
        for job in jobs:
            await kit.until(job, phase="Running", within_seconds=10)
        owners = [owner["name"] for owner in (await account(kit, "mine"))["metadata"]["ownerReferences"]]
        assert owners in (["first"], ["second"])
        assert await kit.writes_at_rest() == []


@virtual_time
async def test_the_account_of_a_former_job_of_the_same_name_is_waited_for_until_it_has_gone_with_it() -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        # A version that is not served: the garbage collector cannot tell whether the owner is gone, and takes its time.
        former = {"apiVersion": "kubeflow.org/v1beta1", "kind": "MPIJob", "name": "demo", "uid": "former", "controller": True}
        await own_account(kit, "demo-launcher", ownerReferences=[former])
        job = await kit.submit(manifest())
        await kit.until(job, reached=lambda view: view.condition("Blocked") is not None)
        assert job.pods == {}
        await kit.client.delete(SERVICE_ACCOUNTS, "demo-launcher", namespace="default")
        await kit.until(job, phase="Running", within_seconds=300)
        owner = (await account(kit, "demo-launcher"))["metadata"]["ownerReferences"][0]
        assert owner["uid"] == job.body["metadata"]["uid"]


@virtual_time
async def test_an_account_of_somebody_else_that_is_gone_when_it_is_needed_again_is_made() -> None:
    refused = 'error looking up service account default/mine: serviceaccount "mine" not found'
    async with OperatorKit(frameworks=[MPIJob], operator=False) as kit:
        server = kit.new_server()
        await kit.start_operator(server)
        await own_account(kit, "mine")
        job = await kit.submit(manifest(launcher=role(1, serviceAccountName="mine")))
        await kit.until(job, phase="Running", within_seconds=10)
        await kit.edit(job, {"spec": {"runPolicy": {"suspend": True}}})
        await kit.until(job, phase="Suspended", reached=lambda view: not view.pods)
        await kit.client.delete(SERVICE_ACCOUNTS, "mine", namespace="default")
        status = {"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": refused}
        server.faults.fail_before(status, match=Match(verb="create", plural="pods"), times=2)
        await kit.edit(job, {"spec": {"runPolicy": {"suspend": False}}})
        await kit.until(job, phase="Running", reached=all_run, within_seconds=60)
        assert (await account(kit, "mine"))["metadata"]["ownerReferences"][0]["uid"] == job.body["metadata"]["uid"]


@virtual_time
async def test_the_rights_follow_the_launcher_to_another_account() -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        job = await kit.submit(manifest())
        await kit.until(job, phase="Running", within_seconds=10)
        await kit.edit(job, {"spec": {"runPolicy": {"suspend": True}}})
        await kit.until(job, phase="Suspended", reached=lambda view: not view.pods)
        launcher = {"template": {"spec": {"containers": [MAIN], "serviceAccountName": "mine"}}}
        await kit.edit(job, {"spec": {"runPolicy": {"suspend": False}, "mpiReplicaSpecs": {"Launcher": launcher}}})
        await kit.until(job, phase="Running", reached=lambda view: len(view.pods) == 3 and all_run(view), within_seconds=60)
        binding = await kit.client.get(ROLE_BINDINGS, "demo-launcher", namespace="default")
        assert [subject["name"] for subject in binding["subjects"]] == ["mine"]
        assert await account(kit, "mine")


@virtual_time
async def test_scaled_workers_are_hosts_and_within_the_rights_of_the_launcher() -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        kit.script.when("*").run()
        job = await kit.submit(manifest())
        await kit.until(job, phase="Running")
        patch = {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 3}}}}
        await kit.client.patch(MPIJob.job_type.resource, "demo", patch, namespace="default", patch_type=PatchType.MERGE)
        await kit.until(job, reached=lambda view: view.pod_phases.get("demo-worker-2") == "Running")
        await kit.writes_at_rest()
        data = (await kit.client.get(CONFIG_MAPS, "demo-config", namespace="default"))["data"]
        assert data["hostfile"].splitlines()[-1] == "demo-worker-2 slots=1"
        assert data["discover_hosts.sh"].splitlines()[1:] == [f"echo demo-worker-{index}:1" for index in range(3)]
        rules = (await kit.client.get(ROLES, "demo-launcher", namespace="default"))["rules"]
        assert rules[1]["resourceNames"] == ["demo-worker-0", "demo-worker-1", "demo-worker-2"]


@virtual_time
async def test_what_the_operator_before_has_made_is_kept_and_brought_up_to_date() -> None:
    async with OperatorKit(frameworks=[MPIJob], operator=False) as kit:
        kit.script.when("*").run()
        job = await kit.submit(manifest())
        made = make(MPIJob, job.body["spec"], name="demo", namespace="default", uid=job.body["metadata"]["uid"])
        before = {}
        for each in made.other_objects():
            before[each.resource] = (await kit.client.create(each.resource, each.body, namespace="default"))["metadata"]["uid"]
        await kit.start_operator()
        await kit.until(job, phase="Running")
        assert await kit.writes_at_rest() == []
        for each in made.other_objects():
            found = await kit.client.get(each.resource, each.name, namespace="default")
            assert found["metadata"]["uid"] == before[each.resource]
            assert found["metadata"]["labels"][JOB_UID_LABEL] == job.body["metadata"]["uid"]
        data = (await kit.client.get(CONFIG_MAPS, "demo-config", namespace="default"))["data"]
        assert "echo demo-worker-1:1" in data["discover_hosts.sh"]
        assert SERVICE_ACCOUNTS in before
