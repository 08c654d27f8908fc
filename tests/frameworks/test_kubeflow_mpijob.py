"""MPIJob of kubeflow.org/v1 beyond the recordings: restarts, scaling, GPUs, service accounts, and adoption of existing objects."""

from __future__ import annotations

from typing import Any

import pytest

from dlop import DLJob, Options, SpecError
from dlop.api.constants import ATTEMPT_LABEL, JOB_UID_LABEL
from dlop.embedded.apiserver.faults import RequestMatch
from dlop.frameworks.kubeflow.mpi.job import MPIJob
from dlop.kube.client import PatchType
from dlop.kube.resources import CONFIG_MAPS, PODS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from dlop.kube.types import JsonObject
from dlop.policies.mpi import MPIFlags
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


def manifest(*, name: str = "demo", **fields: Any) -> JsonObject:
    return {"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "metadata": {"name": name}, "spec": spec(**fields)}


def files(job: DLJob) -> dict[str, str]:
    return next(child.body["data"] for child in job.child_objects() if child.resource == CONFIG_MAPS)


def pod_spec(job: DLJob, role_name: str) -> JsonObject:
    role_spec = job.spec.role(role_name)
    assert role_spec is not None
    rendered: JsonObject = job.replica(role_spec, 0).pod()["spec"]
    return rendered


def test_a_worker_without_a_command_sleeps() -> None:
    container = pod_spec(make(MPIJob, spec(), name="demo"), "Worker")["containers"][0]
    assert (container["command"], container["args"]) == (["sleep"], ["365d"])


def test_a_launcher_with_a_gpu_is_in_the_host_file() -> None:
    gpu = {**MAIN, "resources": {"limits": {"nvidia.com/gpu": 1}}}
    demo = make(MPIJob, spec(role(1, container=gpu), workers=1, slotsPerWorker=4), name="demo")
    assert files(demo)["hostfile"] == "demo-launcher slots=4\ndemo-worker-0 slots=4\n"
    assert files(demo)["discover_hosts.sh"] == "#!/bin/sh\necho demo-launcher:4\n"
    assert not any(variable["name"].startswith("NVIDIA") for variable in pod_spec(demo, "Launcher")["containers"][0]["env"])


def test_the_environment_of_a_launcher_without_a_gpu() -> None:
    env = {variable["name"]: variable["value"] for variable in pod_spec(make(MPIJob, spec()), "Launcher")["containers"][0]["env"]}
    assert env == {
        "OMPI_MCA_plm_rsh_agent": "/etc/mpi/kubexec.sh",
        "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
        "NVIDIA_VISIBLE_DEVICES": "",
        "NVIDIA_DRIVER_CAPABILITIES": "",
        "I_MPI_HYDRA_BOOTSTRAP": "rsh",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": "/etc/mpi/kubexec.sh",
    }


def test_variables_of_the_user_for_intel_mpi_take_precedence() -> None:
    container = {**MAIN, "env": [{"name": "I_MPI_HYDRA_BOOTSTRAP", "value": "ssh"}]}
    env = pod_spec(make(MPIJob, spec(role(1, container=container))), "Launcher")["containers"][0]["env"]
    assert [variable["value"] for variable in env if variable["name"] == "I_MPI_HYDRA_BOOTSTRAP"] == ["ssh"]


def test_a_service_account_of_the_user_is_bound_to_the_role() -> None:
    demo = make(MPIJob, spec(role(1, serviceAccountName="mine")), name="demo")
    bodies = {child.resource.kind: child.body for child in demo.child_objects()}
    assert bodies["ServiceAccount"]["metadata"]["name"] == "mine"
    assert bodies["RoleBinding"]["subjects"][0]["name"] == "mine"
    assert pod_spec(demo, "Launcher")["serviceAccountName"] == "mine"


def test_the_role_of_a_launcher_without_workers_has_no_exec_rule() -> None:
    rules = next(child.body["rules"] for child in make(MPIJob, spec(workers=0)).child_objects() if child.resource == ROLES)
    assert [rule["resources"] for rule in rules] == [["pods"]]


def test_kubectl_comes_from_the_configured_image() -> None:
    demo = make(MPIJob, spec(), options=Options(framework_flags=(MPIFlags(mpi_kubectl_delivery_image="example.org/kubectl:7"),)))
    assert [container["image"] for container in pod_spec(demo, "Launcher")["initContainers"]] == ["example.org/kubectl:7"]


def test_the_clean_pod_policy_of_the_run_policy_takes_precedence() -> None:
    both = spec(cleanPodPolicy="All", runPolicy={"cleanPodPolicy": "Running"})
    assert make(MPIJob, both).spec.run_policy.clean_pod_policy == "Running"
    assert make(MPIJob, spec(cleanPodPolicy="All")).spec.run_policy.clean_pod_policy == "All"


def test_the_main_container_must_be_a_container_name() -> None:
    with pytest.raises(SpecError, match="mainContainer"):
        _ = make(MPIJob, spec(mainContainer="main; rm -rf /")).spec


@virtual_time
async def test_a_launcher_waits_until_all_workers_run() -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        kit.script.when("*-worker-1").after(60).run()
        kit.script.when("*-worker-0").run()
        kit.script.when("*-launcher").run().after(10).succeed()
        job = await kit.submit(manifest())
        await kit.until(job, reached=lambda view: view.pod_phases.get("demo-worker-0") == "Running")
        assert "demo-launcher" not in job.pods
        await kit.until(job, phase="Succeeded")


@virtual_time
async def test_a_failed_launcher_is_restarted_by_its_policy() -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        kit.script.when("*-launcher", times=1).run().after(10).fail(exit_code=137)
        kit.script.when("*-launcher").run().after(10).succeed()
        kit.script.when("*").run()
        job = await kit.submit(manifest(restart="ExitCode"))
        await kit.until(job, phase="Succeeded")
        assert job.status["dlop"]["restarts"] == {"Launcher": 1}


@virtual_time
async def test_a_failed_worker_is_restarted_by_its_policy() -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        kit.script.when("*-worker-0", times=1).run().after(30).fail(exit_code=137)
        kit.script.when("*-launcher").run().after(60).succeed()
        kit.script.when("*").run()
        job = await kit.submit(manifest(restart="ExitCode"))
        await kit.until(job, phase="Succeeded")
        assert job.status["dlop"]["restarts"] == {"Worker": 1}


@pytest.mark.parametrize(
    ("scope", "restarted"),
    [
        ("Replica", ["demo-worker-0"]),
        ("Role", ["demo-worker-0", "demo-worker-1"]),
        ("Job", ["demo-launcher", "demo-worker-0", "demo-worker-1"]),
    ],
)
@virtual_time
async def test_the_restart_scope_determines_the_restarted_pods(scope: str, restarted: list[str]) -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        kit.script.when("demo-worker-0", times=1).run().after(30).fail(exit_code=137)
        kit.script.when("*").run()
        job = await kit.submit(manifest(restart="ExitCode", runPolicy={"restartScope": scope}))
        await kit.until(job, phase="Running", reached=lambda view: len(view.pods) == 3 and all_run(view))
        before = {name: pod["metadata"]["uid"] for name, pod in job.pods.items()}
        await kit.until(
            job, phase="Running", reached=lambda view: "restarts" in view.status["dlop"] and len(view.pods) == 3 and all_run(view)
        )
        assert [name for name, pod in sorted(job.pods.items()) if pod["metadata"]["uid"] != before[name]] == restarted


def has_attempt(view: ObservedJob, name: str, attempt: int) -> bool:
    return name in view.pods and view.pods[name]["metadata"]["labels"][ATTEMPT_LABEL] == str(attempt)


@virtual_time
async def test_a_restarted_launcher_waits_for_its_workers() -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        kit.script.when("demo-launcher", times=1).run().after(30).fail(exit_code=137)
        kit.script.when("demo-worker-1", times=1).run()
        kit.script.when("demo-worker-1").after(300).run()
        kit.script.when("*").run()
        job = await kit.submit(manifest(restart="ExitCode", runPolicy={"restartScope": "Job"}))
        await kit.until(job, reached=lambda view: has_attempt(view, "demo-worker-0", 1) and view.pod_phases["demo-worker-0"] == "Running")
        assert (sorted(job.pods), job.pod_phases["demo-worker-1"]) == (["demo-worker-0", "demo-worker-1"], "Pending")
        await kit.until(job, phase="Running", reached=lambda view: len(view.pods) == 3 and all_run(view), within_seconds=600)


@virtual_time
async def test_an_evicted_worker_is_replaced_and_the_job_continues() -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        kit.script.when("demo-worker-0", times=1).run().after(30).evict()
        kit.script.when("*").run()
        job = await kit.submit(manifest())
        await kit.until(
            job, phase="Running", reached=lambda view: view.status["dlop"].get("disruptions") == {"Worker": 1} and all_run(view)
        )
        assert job.condition("Failed") is None


@virtual_time
async def test_a_suspended_job_has_no_pods_and_keeps_its_other_objects() -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        kit.script.when("*").run()
        job = await kit.submit(manifest())
        await kit.until(job, phase="Running", reached=lambda view: len(view.pods) == 3 and all_run(view))
        children = list(make(MPIJob, job.body["spec"], name="demo", namespace="default").child_objects())
        before = [(await kit.client.get(child.resource, child.name, namespace="default"))["metadata"]["uid"] for child in children]
        await kit.edit(job, {"spec": {"runPolicy": {"suspend": True}}})
        await kit.until(job, phase="Suspended", reached=lambda view: not view.pods)
        assert job.status["replicaStatuses"] == {"Launcher": {}, "Worker": {}}
        await kit.edit(job, {"spec": {"runPolicy": {"suspend": False}}})
        await kit.until(job, phase="Running", reached=lambda view: len(view.pods) == 3 and all_run(view))
        assert [(await kit.client.get(child.resource, child.name, namespace="default"))["metadata"]["uid"] for child in children] == before


@virtual_time
async def test_a_launcher_without_workers_starts_immediately() -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        kit.script.when("*").run().after(10).succeed()
        alone = manifest()
        del alone["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"]
        job = await kit.submit(alone)
        await kit.until(job, phase="Succeeded")
        assert sorted(job.pods) == ["demo-launcher"]


@pytest.mark.parametrize("name", ["2-tries", "a.b", "x" * 60, "y" * 63])
@virtual_time
async def test_the_job_name_need_not_be_a_dns_label(name: str) -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        kit.script.when("*-launcher").run().after(10).succeed()
        kit.script.when("*").run()
        job = await kit.submit(manifest(name=name))
        await kit.until(job, phase="Succeeded")
        if len(name) < 50:
            assert sorted(job.pods) == [f"{name}-launcher", f"{name}-worker-0", f"{name}-worker-1"]


@virtual_time
async def test_an_object_of_another_owner_with_the_same_name_blocks_the_job_and_is_not_changed() -> None:
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


async def exec_names(kit: OperatorKit) -> list[str]:
    """The pods in which the launcher of the job may run commands."""
    rules = (await kit.client.get(ROLES, "demo-launcher", namespace="default"))["rules"]
    return [name for rule in rules if rule["resources"] == ["pods/exec"] for name in rule["resourceNames"]]


@virtual_time
async def test_a_pod_of_another_owner_with_the_name_of_a_worker_is_not_part_of_the_role() -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        kit.script.when("*").run()
        foreign = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "demo-worker-0"}, "spec": {"containers": [MAIN]}}
        await kit.client.create(PODS, foreign, namespace="default")
        job = await kit.submit(manifest())
        await kit.until(job, reached=lambda view: view.condition("Blocked") is not None and "demo-worker-1" in view.pods)
        assert await kit.writes_when_idle() == []
        assert await exec_names(kit) == ["demo-worker-1"]
        await kit.client.delete(PODS, "demo-worker-0", namespace="default")
        await kit.until(job, phase="Running", reached=lambda view: len(view.pods) == 3 and all_run(view), within_seconds=300)
        assert await exec_names(kit) == ["demo-worker-0", "demo-worker-1"]


@virtual_time
async def test_the_role_names_all_workers_before_the_launcher_starts() -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        kit.script.when("*-worker-*").run()
        kit.script.when("*-launcher").run()
        job = await kit.submit(manifest(workers=5))
        await kit.until(job, reached=lambda view: "demo-launcher" in view.pods)
        assert await exec_names(kit) == [f"demo-worker-{index}" for index in range(5)]


async def get_account(kit: OperatorKit, name: str) -> JsonObject:
    return await kit.client.get(SERVICE_ACCOUNTS, name, namespace="default")


async def create_account(kit: OperatorKit, name: str, **metadata: Any) -> JsonObject:
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, **metadata}}
    return await kit.client.create(SERVICE_ACCOUNTS, body, namespace="default")


def create_requests(kit: OperatorKit, plural: str) -> int:
    """Number of create requests of all operators for objects of a type."""
    return sum(write.request.method == "POST" and write.request.path.endswith(f"/{plural}") for write in kit.writes)


@pytest.mark.parametrize("name", ["demo-launcher", "mine"])
@virtual_time
async def test_an_existing_service_account_is_used_and_not_changed(name: str) -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        before = await create_account(kit, name)
        named: dict[str, Any] = {} if name == "demo-launcher" else {"serviceAccountName": name}
        job = await kit.submit(manifest(launcher=role(1, **named)))
        await kit.until(job, phase="Running", reached=lambda view: len(view.pods) == 3 and all_run(view), within_seconds=10)
        assert job.pods["demo-launcher"]["spec"]["serviceAccountName"] == name
        assert job.condition("Blocked") is None
        assert create_requests(kit, "serviceaccounts") == 1
        await kit.operator.crash()
        await kit.start_operator()
        await kit.writes_when_idle()
        await kit.client.delete(MPIJob.job_type.resource, "demo", namespace="default")
        await kit.until(job, reached=lambda view: not view.exists and not view.pods)
        assert await get_account(kit, name) == before


@virtual_time
async def test_a_missing_service_account_is_created_for_the_first_of_two_jobs() -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        named = role(1, serviceAccountName="mine")
        jobs = [await kit.submit(manifest(name=name, launcher=named)) for name in ("first", "second")]
        for job in jobs:
            await kit.until(job, phase="Running", within_seconds=10)
        owners = [owner["name"] for owner in (await get_account(kit, "mine"))["metadata"]["ownerReferences"]]
        assert owners in (["first"], ["second"])
        assert await kit.writes_when_idle() == []


@virtual_time
async def test_the_service_account_of_a_deleted_job_of_the_same_name_blocks_the_job() -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        # The version is not served, so the garbage collector cannot determine whether the owner exists and does not delete the account.
        deleted_owner = {"apiVersion": "kubeflow.org/v1beta1", "kind": "MPIJob", "name": "demo", "uid": "deleted", "controller": True}
        await create_account(kit, "demo-launcher", ownerReferences=[deleted_owner])
        job = await kit.submit(manifest())
        await kit.until(job, reached=lambda view: view.condition("Blocked") is not None)
        assert job.pods == {}
        await kit.client.delete(SERVICE_ACCOUNTS, "demo-launcher", namespace="default")
        await kit.until(job, phase="Running", within_seconds=300)
        owner = (await get_account(kit, "demo-launcher"))["metadata"]["ownerReferences"][0]
        assert owner["uid"] == job.body["metadata"]["uid"]


@virtual_time
async def test_a_service_account_of_another_owner_that_was_deleted_is_created_on_resumption() -> None:
    message = 'error looking up service account default/mine: serviceaccount "mine" not found'
    async with OperatorKit(frameworks=[MPIJob], operator=False) as kit:
        server = kit.new_server()
        await kit.start_operator(server)
        await create_account(kit, "mine")
        job = await kit.submit(manifest(launcher=role(1, serviceAccountName="mine")))
        await kit.until(job, phase="Running", within_seconds=10)
        await kit.edit(job, {"spec": {"runPolicy": {"suspend": True}}})
        await kit.until(job, phase="Suspended", reached=lambda view: not view.pods)
        await kit.client.delete(SERVICE_ACCOUNTS, "mine", namespace="default")
        status = {"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": message}
        server.faults.fail_before(status, match=RequestMatch(verb="create", plural="pods"), times=2)
        await kit.edit(job, {"spec": {"runPolicy": {"suspend": False}}})
        await kit.until(job, phase="Running", reached=all_run, within_seconds=60)
        assert (await get_account(kit, "mine"))["metadata"]["ownerReferences"][0]["uid"] == job.body["metadata"]["uid"]


@virtual_time
async def test_the_role_binding_follows_a_change_of_the_service_account() -> None:
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
        assert await get_account(kit, "mine")


@virtual_time
async def test_scaled_workers_are_in_the_scripts_and_in_the_role() -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        kit.script.when("*").run()
        job = await kit.submit(manifest())
        await kit.until(job, phase="Running")
        patch = {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 3}}}}
        await kit.client.patch(MPIJob.job_type.resource, "demo", patch, namespace="default", patch_type=PatchType.MERGE)
        await kit.until(job, reached=lambda view: view.pod_phases.get("demo-worker-2") == "Running")
        await kit.writes_when_idle()
        data = (await kit.client.get(CONFIG_MAPS, "demo-config", namespace="default"))["data"]
        assert data["hostfile"].splitlines()[-1] == "demo-worker-2 slots=1"
        assert data["discover_hosts.sh"].splitlines()[1:] == [f"echo demo-worker-{index}:1" for index in range(3)]
        rules = (await kit.client.get(ROLES, "demo-launcher", namespace="default"))["rules"]
        assert rules[1]["resourceNames"] == ["demo-worker-0", "demo-worker-1", "demo-worker-2"]


@virtual_time
async def test_existing_objects_of_the_job_are_kept_and_updated() -> None:
    async with OperatorKit(frameworks=[MPIJob], operator=False) as kit:
        kit.script.when("*").run()
        job = await kit.submit(manifest())
        rendered = make(MPIJob, job.body["spec"], name="demo", namespace="default", uid=job.body["metadata"]["uid"])
        before = {}
        for child in rendered.child_objects():
            before[child.resource] = (await kit.client.create(child.resource, child.body, namespace="default"))["metadata"]["uid"]
        await kit.start_operator()
        await kit.until(job, phase="Running")
        assert await kit.writes_when_idle() == []
        for child in rendered.child_objects():
            stored = await kit.client.get(child.resource, child.name, namespace="default")
            assert stored["metadata"]["uid"] == before[child.resource]
            assert stored["metadata"]["labels"][JOB_UID_LABEL] == job.body["metadata"]["uid"]
        data = (await kit.client.get(CONFIG_MAPS, "demo-config", namespace="default"))["data"]
        assert "echo demo-worker-1:1" in data["discover_hosts.sh"]
        assert SERVICE_ACCOUNTS in before
