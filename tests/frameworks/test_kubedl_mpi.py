"""MPIJob of training.kubedl.io: scripts, environment, permissions, the life of a job, and the fields of earlier versions."""

from __future__ import annotations

from typing import Any

import pytest

from dlop import Options, SpecError
from dlop.api.crd import build_crds
from dlop.deploy.apply import apply
from dlop.embedded.cluster import EmbeddedCluster
from dlop.frameworks.kubedl.mpijob import MPIJob
from dlop.frameworks.registry import Registry
from dlop.jobs.render import render
from dlop.kube.errors import InvalidError
from dlop.kube.resources import CONFIG_MAPS, ROLE_BINDINGS, ROLES
from dlop.kube.types import JsonObject
from dlop.policies.mpi import MPIFlags
from dlop.reconcile.spec_warnings import spec_warnings
from dlop.testing.kit import OperatorKit
from dlop.testing.observed_job import ObservedJob
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.example_manifests import by_name, variables
from tests.frameworks.kubedl_manifests import kubedl_job, role
from tests.frameworks.kubeflow_jobs import all_run, created, message_of
from tests.unit.job.jobs import make

SHELL = '#!/bin/sh\nset -x\nPOD_NAME=$1\nshift\n/opt/kube/kubectl exec ${POD_NAME} -- /bin/sh -c "$*"'
MAIN: JsonObject = {"name": "mpi", "image": "example.org/train:1"}


def flags(**values: Any) -> Options:
    return Options(framework_flags=(MPIFlags(**values),))


def objects(kind: str, *, options: Options | None = None, roles: Any = None, **spec: Any) -> dict[str, JsonObject]:
    return by_name(render(kubedl_job(MPIJob, roles, **spec), Registry([MPIJob]), options=options), kind)


def files(**arguments: Any) -> dict[str, str]:
    data: dict[str, str] = objects("ConfigMap", **arguments)["demo-config"]["data"]
    return data


def pods(**arguments: Any) -> dict[str, JsonObject]:
    return objects("Pod", **arguments)


def messages(spec: JsonObject, **metadata: Any) -> list[str]:
    """The problems of a spec, or else the warnings."""
    job = make(MPIJob, spec, name="demo", **metadata)
    try:
        return [str(warning) for warning in spec_warnings(job)]
    except SpecError as error:
        return [str(problem) for problem in error.problems]


# --- scripts and pods ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("distribution", "separator", "env"),
    [
        (None, " slots=", ("OMPI_MCA_plm_rsh_agent", "OMPI_MCA_orte_default_hostfile")),
        ("OpenMPI", " slots=", ("OMPI_MCA_plm_rsh_agent", "OMPI_MCA_orte_default_hostfile")),
        ("IntelMPI", ":", ("I_MPI_HYDRA_BOOTSTRAP_EXEC", "I_MPI_HYDRA_HOST_FILE")),
        ("MPICH", ":", ("HYDRA_LAUNCHER_EXEC", "HYDRA_HOST_FILE")),
    ],
)
def test_host_file_and_environment_are_those_of_the_distribution(distribution: str | None, separator: str, env: tuple[str, str]) -> None:
    spec: dict[str, Any] = {"slotsPerWorker": 4} | ({} if distribution is None else {"mpiDistribution": distribution})
    hosts = ("demo-launcher-0", "demo-worker-0", "demo-worker-1")
    assert files(**spec) == {"hostfile": "".join(f"{host}{separator}4\n" for host in hosts), "kubexec.sh": SHELL}
    rendered = pods(**spec)
    assert variables(rendered["demo-launcher-0"]) == dict(zip(env, ("/etc/mpi/kubexec.sh", "/etc/mpi/hostfile"), strict=True))
    assert variables(rendered["demo-worker-0"]) == {}


def test_without_the_flag_the_launcher_is_not_in_the_host_file() -> None:
    assert files(options=flags(mpi_launcher_runs_workloads=False))["hostfile"] == "demo-worker-0 slots=1\ndemo-worker-1 slots=1\n"


def test_the_remote_shell_enters_the_main_container() -> None:
    assert "exec ${POD_NAME} --container train -- " in files(mainContainer="train")["kubexec.sh"]


def test_all_containers_of_the_launcher_find_kubectl_and_the_files() -> None:
    launcher = role(container={"env": [{"name": "OMPI_MCA_plm_rsh_agent", "value": "mine"}]})
    launcher["template"]["spec"]["containers"].append({"name": "sidecar", "image": "sidecar:1"})
    spec = pods(roles={"Launcher": launcher, "Worker": 1})["demo-launcher-0"]["spec"]
    mounts = [{"name": "kubectl-volume", "mountPath": "/opt/kube"}, {"name": "mpi-config-volume", "mountPath": "/etc/mpi"}]
    assert [container["volumeMounts"] for container in spec["containers"]] == [mounts, mounts]
    assert [variables({"spec": spec}, index)["OMPI_MCA_plm_rsh_agent"] for index in (0, 1)] == ["/etc/mpi/kubexec.sh"] * 2
    items = [{"key": "kubexec.sh", "path": "kubexec.sh", "mode": 0o555}, {"key": "hostfile", "path": "hostfile", "mode": 0o444}]
    assert spec["volumes"] == [
        {"name": "kubectl-volume", "emptyDir": {}},
        {"name": "mpi-config-volume", "configMap": {"name": "demo-config", "items": items}},
    ]
    (delivery,) = spec["initContainers"]
    assert delivery == {
        "name": "kubectl-delivery",
        "image": "ghcr.io/kubeflow/training-v1/kubectl-delivery:v1-3f15cb8",
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": "TARGET_DIR", "value": "/opt/kube"}, {"name": "NAMESPACE", "value": "default"}],
        "volumeMounts": mounts,
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
    }


def test_kubectl_comes_from_the_configured_image() -> None:
    rendered = pods(options=flags(mpi_kubectl_delivery_image="example.org/kubectl:7"))
    assert [container["image"] for container in rendered["demo-launcher-0"]["spec"]["initContainers"]] == ["example.org/kubectl:7"]
    assert "initContainers" not in rendered["demo-worker-0"]["spec"]


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ({}, (["sleep"], ["365d"])),
        ({"command": ["mine"]}, (["mine"], None)),
        ({"args": ["mine"]}, (None, ["mine"])),
    ],
)
def test_a_worker_without_command_and_arguments_sleeps(container: JsonObject, expected: tuple[Any, Any]) -> None:
    spec = pods(roles={"Launcher": 1, "Worker": role(container=container)})["demo-worker-0"]["spec"]
    (main,) = spec["containers"]
    assert (main.get("command"), main.get("args")) == expected
    assert main["volumeMounts"] == [{"name": "mpi-config-volume", "mountPath": "/etc/mpi"}]
    (volume,) = spec["volumes"]
    assert [item["key"] for item in volume["configMap"]["items"]] == ["kubexec.sh"]


def test_a_launcher_gets_an_account_that_can_run_commands_in_the_workers() -> None:
    assert pods()["demo-launcher-0"]["spec"]["serviceAccountName"] == "demo-launcher"
    assert [name for kind in ("ServiceAccount", "Role", "RoleBinding") for name in objects(kind)] == ["demo-launcher"] * 3


def test_a_named_account_is_used_as_it_is() -> None:
    roles = {"Launcher": role(pod={"serviceAccountName": "mine"}), "Worker": 2}
    assert pods(roles=roles)["demo-launcher-0"]["spec"]["serviceAccountName"] == "mine"
    assert [name for kind in ("ServiceAccount", "Role", "RoleBinding", "ConfigMap") for name in objects(kind, roles=roles)] == [
        "demo-config"
    ]


# --- the life of a job --------------------------------------------------------------------------------------------------


def workers_run(view: ObservedJob) -> bool:
    return [view.pod_phases.get(f"demo-worker-{index}") for index in (0, 1)] == ["Running"] * 2


@virtual_time
async def test_the_launcher_waits_for_the_workers_and_ends_the_job() -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        kit.script.when("demo-worker-1").until_released().run()
        kit.script.when("*-launcher-0").after(5).run().after(60).succeed()
        job = await kit.submit(kubedl_job(MPIJob))
        await kit.until(job, reached=lambda view: view.pod_phases.get("demo-worker-0") == "Running")
        await kit.writes_when_idle(seconds=60)
        assert "demo-launcher-0" not in job.pods
        kit.kubelet.release("default/demo-worker-1")
        await kit.until(job, reached=workers_run)
        assert job.condition("Running") is None
        await kit.until(job, phase="Running", reached=all_run)
        await kit.until(job, phase="Succeeded", reached=lambda view: list(view.pods) == ["demo-launcher-0"])
        assert message_of(job, "Succeeded") == "MPIJob demo has successfully completed."
        assert job.status["replicaStatuses"] == {"Launcher": {"succeeded": 1}, "Worker": {"succeeded": 2}}


@virtual_time
async def test_a_failed_launcher_fails_the_job() -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        kit.script.when("*-launcher-0").run().after(10).fail(exit_code=1)
        kit.script.when("*").run()
        job = await kit.submit(kubedl_job(MPIJob))
        await kit.until(job, phase="Failed")
        assert message_of(job, "Failed") == "MPIJob demo is failed because 1 Launcher replica(s) failed."


@virtual_time
async def test_a_failed_worker_alone_does_not_fail_a_job_whose_launcher_runs() -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        kit.script.when("demo-worker-1").run().after(60).fail(exit_code=1)
        kit.script.when("*-launcher-0").run().after(600).succeed()
        kit.script.when("*").run()
        job = await kit.submit(kubedl_job(MPIJob))
        await kit.until(job, reached=lambda view: view.pod_phases.get("demo-worker-1") == "Failed")
        await kit.writes_when_idle(seconds=60)
        assert (job.phase, created(kit, "pods").count("demo-worker-1")) == ("Running", 1)
        await kit.until(job, phase="Succeeded", within_seconds=900)


@virtual_time
async def test_a_worker_that_fails_before_the_launcher_starts_fails_the_job() -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        kit.script.when("demo-worker-1").until_released().run()
        kit.script.when("demo-worker-0").run().after(10).fail(exit_code=1)
        job = await kit.submit(kubedl_job(MPIJob))
        await kit.until(job, phase="Failed")
        assert created(kit, "pods").count("demo-launcher-0") == 0
        assert message_of(job, "Failed") == "MPIJob demo is failed because 1 Worker replica(s) failed."


@virtual_time
async def test_the_exit_code_is_that_of_the_main_container() -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        kit.script.when("*-launcher-0", times=1).run().after(10).fail(exit_code=137)
        kit.script.when("*-launcher-0").run().after(10).fail(exit_code=2)
        kit.script.when("*").run()
        roles = {"Launcher": role(restartPolicy="ExitCode"), "Worker": 1}
        job = await kit.submit(kubedl_job(MPIJob, roles))
        await kit.until(job, phase="Failed")
        assert job.status["dlop"]["restarts"] == {"Launcher": 1}


@virtual_time
async def test_scaled_workers_are_in_the_host_file_and_nothing_restarts() -> None:
    async with OperatorKit(frameworks=[MPIJob]) as kit:
        kit.script.when("*").run()
        job = await kit.submit(kubedl_job(MPIJob))
        await kit.until(job, phase="Running", reached=lambda view: len(view.pods) == 3 and all_run(view))
        await kit.edit(job, {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 3}}}})
        await kit.until(job, phase="Running", reached=lambda view: len(view.pods) == 4 and all_run(view))
        await kit.writes_when_idle()
        data = (await kit.client.get(CONFIG_MAPS, "demo-config", namespace="default"))["data"]
        assert data["hostfile"].splitlines()[-1] == "demo-worker-2 slots=1"
        rules = (await kit.client.get(ROLES, "demo-launcher", namespace="default"))["rules"]
        assert rules[1]["resourceNames"] == ["demo-worker-0", "demo-worker-1", "demo-worker-2"]
        assert (await kit.client.get(ROLE_BINDINGS, "demo-launcher", namespace="default"))["subjects"][0]["name"] == "demo-launcher"
        assert created(kit, "pods").count("demo-launcher-0") == 1
        await kit.edit(job, {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 1}}}})
        await kit.until(job, reached=lambda view: sorted(view.pods) == ["demo-launcher-0", "demo-worker-0"])
        await kit.writes_when_idle()
        data = (await kit.client.get(CONFIG_MAPS, "demo-config", namespace="default"))["data"]
        assert data["hostfile"] == "demo-launcher-0 slots=1\ndemo-worker-0 slots=1\n"


# --- the run policy and the fields of earlier versions ------------------------------------------------------------------


def test_the_run_policy_is_nested_or_inline() -> None:
    scheduling = {"priorityClassName": "high", "queue": "q", "minAvailable": 2, "priority": 3}
    nested = {"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 7, "backoffLimit": 9, "schedulingPolicy": scheduling}
    inline: dict[str, Any] = {"cleanPodPolicy": "None", "activeDeadlineSeconds": 8, "backoffLimit": 1}
    policy = make(MPIJob, kubedl_job(MPIJob, runPolicy=nested, **inline)["spec"]).spec.run_policy
    assert (policy.clean_pod_policy, policy.ttl_seconds_after_finished) == ("All", 7)
    assert (policy.active_deadline_seconds, policy.backoff_limit) == (8, 9)
    assert (policy.scheduling.priority_class, policy.scheduling.queue, policy.scheduling.min_available) == ("high", "q", 2)


TEMPLATE: JsonObject = {"spec": {"containers": [{**MAIN, "resources": {"limits": {"nvidia.com/gpu": "2"}}}]}}


@pytest.mark.parametrize(
    ("fields", "workers", "slots"),
    [
        ({"gpus": 8, "gpusPerNode": 4}, 2, 4),
        ({"gpus": 6, "gpusPerNode": 3}, 2, 3),
        ({"gpus": 4, "gpusPerNode": 4}, 1, 4),
        ({"gpus": 3, "gpusPerNode": 4}, 1, 3),
        ({"gpus": 3}, 3, 1),
        ({"processingUnits": 10, "processingUnitsPerNode": 5}, 2, 5),
        ({"processingUnits": 10, "processingUnitsPerNode": 5, "slotsPerWorker": 2}, 2, 2),
        ({"processingUnits": 2, "gpusPerNode": 2}, 2, 1),
        ({"replicas": 3}, 3, 1),
        ({"replicas": 3, "processingResourceType": "nvidia.com/gpu"}, 3, 2),
        ({"replicas": 3, "processingResourceType": "cpu"}, 3, 1),
    ],
)
def test_the_fields_of_earlier_versions_determine_workers_and_slots(fields: JsonObject, workers: int, slots: int) -> None:
    manifest = {**kubedl_job(MPIJob), "spec": {**fields, "template": TEMPLATE}}
    rendered = render(manifest, Registry([MPIJob]))
    names = [f"demo-worker-{index}" for index in range(workers)]
    assert list(by_name(rendered, "Pod")) == [*names, "demo-launcher-0"]
    hosts = ["demo-launcher-0", *names]
    assert by_name(rendered, "ConfigMap")["demo-config"]["data"]["hostfile"] == "".join(f"{host} slots={slots}\n" for host in hosts)


def test_replica_specs_take_precedence_over_the_fields_of_earlier_versions() -> None:
    own = {"spec": {"containers": [{**MAIN, "image": "own:1"}]}}
    spec = {"gpus": 8, "template": TEMPLATE, "mpiReplicaSpecs": {"worker": {"replicas": 3, "template": own}}}
    job = make(MPIJob, spec, name="demo")
    assert [(each.name, each.replicas, each.template) for each in job.spec.roles] == [("Worker", 3, own), ("Launcher", 1, TEMPLATE)]
    job = make(MPIJob, {**spec, "mpiReplicaSpecs": {"worker": {"template": own}}}, name="demo")
    assert [(each.name, each.replicas, each.template) for each in job.spec.roles] == [("Worker", 8, own), ("Launcher", 1, TEMPLATE)]


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"replicas": 3, "template": TEMPLATE}, ("replicas",)),
        ({"gpus": 3, "template": TEMPLATE}, None),
        (kubedl_job(MPIJob)["spec"], ("mpiReplicaSpecs", "Worker", "replicas")),
    ],
)
def test_which_field_scales_the_workers(spec: JsonObject, path: tuple[str, ...] | None) -> None:
    job = make(MPIJob, spec)
    assert MPIJob.schema.replicas_path(job.spec_field, "Worker") == path


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"gpus": 5, "gpusPerNode": 4, "template": TEMPLATE}, "spec.gpus: must be a multiple of gpusPerNode, which is 4, got 5"),
        ({"gpus": 6, "gpusPerNode": 4, "template": TEMPLATE}, "spec.gpus: must be a multiple of gpusPerNode, which is 4, got 6"),
        (
            {"processingUnits": 5, "processingUnitsPerNode": 2, "template": TEMPLATE},
            "spec.processingUnits: must be a multiple of processingUnitsPerNode, which is 2, got 5",
        ),
        ({"gpus": 2, "processingUnits": 2, "template": TEMPLATE}, "spec.gpus: must not be set together with processingUnits"),
        ({"gpus": 0, "template": TEMPLATE}, "spec.gpus: must be at least 1, got 0"),
        ({"gpus": 4, "gpusPerNode": 0, "template": TEMPLATE}, "spec.gpusPerNode: must be at least 1, got 0"),
        ({"replicas": "x", "template": TEMPLATE}, "spec.replicas: must be an integer, got 'x'"),
        ({"replicas": 10_001, "template": TEMPLATE}, "spec.replicas: must be from 0 to 10000, got 10001"),
        ({"gpus": 20_002, "gpusPerNode": 2, "template": TEMPLATE}, "spec.gpus: must be from 0 to 10000, got 10001"),
        ({"replicas": 2}, "spec.template: is missing; add the pod template of this role"),
        ({"replicas": 2, "template": {"spec": {"containers": []}}}, "spec.template.spec.containers: must have at least one container"),
        ({"replicas": 2, "template": 3}, "spec.template: must be an object, got 3"),
        ({"mpiReplicaSpecs": 3, "replicas": 2, "template": TEMPLATE}, "spec.mpiReplicaSpecs: must be an object, got 3"),
        ({"mpiReplicaSpecs": {"Worker": 3}, "replicas": 2, "template": TEMPLATE}, "spec.mpiReplicaSpecs.Worker: must be an object, got 3"),
        ({}, "spec.mpiReplicaSpecs: must contain at least one role with replicas and a template"),
        (kubedl_job(MPIJob, {"Worker": 1})["spec"], "spec.mpiReplicaSpecs: must contain the role Launcher"),
        (kubedl_job(MPIJob, mpiDistribution="LAM")["spec"], "spec.mpiDistribution: must be one of OpenMPI, IntelMPI, MPICH, got 'LAM'"),
        (kubedl_job(MPIJob, slotsPerWorker=-1)["spec"], "spec.slotsPerWorker: must be at least 0, got -1"),
        (kubedl_job(MPIJob, mainContainer="main; rm -rf /")["spec"], "spec.mainContainer: string should match pattern"),
        (
            kubedl_job(MPIJob, runPolicy={"schedulingPolicy": {"priorityClassName": 3}})["spec"],
            "spec.runPolicy.schedulingPolicy.priorityClassName: must be a string",
        ),
        (kubedl_job(MPIJob, runPolicy=3)["spec"], "spec.runPolicy: must be an object, got 3"),
    ],
)
def test_problems_of_a_spec_name_the_field(spec: JsonObject, expected: str) -> None:
    problem, *_ = messages(spec)
    assert problem.startswith(expected)


def test_earlier_fields_without_effect_are_reported() -> None:
    spec = kubedl_job(MPIJob, launcherOnMaster=True)["spec"]
    assert messages(spec) == ["spec.launcherOnMaster: has no effect: the launcher has no fixed node; remove it"]
    assert messages(kubedl_job(MPIJob, launcherOnMaster=False)["spec"]) == []


async def create(spec: JsonObject) -> JsonObject:
    async with EmbeddedCluster() as cluster:
        client = cluster.client()
        await apply(client, build_crds([MPIJob]), report=lambda _: None)
        return await client.create(MPIJob.job_type.resource, {**kubedl_job(MPIJob), "spec": spec}, namespace="default")


@virtual_time
async def test_the_nested_run_policy_and_the_fields_of_earlier_versions_are_stored() -> None:
    scheduling = {"priorityClassName": "high", "queue": "q", "minAvailable": 2, "priority": 3}
    policy = {"cleanPodPolicy": "All", "schedulingPolicy": scheduling, "cronPolicy": {"schedule": "@daily"}, "suspend": False}
    spec = {
        "gpus": 8,
        "gpusPerNode": 4,
        "processingResourceType": "cpu",
        "launcherOnMaster": True,
        "template": TEMPLATE,
        "replicas": 2,
        "processingUnits": 1,
        "processingUnitsPerNode": 1,
        "mpiDistribution": "MPICH",
        "runPolicy": policy,
    }
    stored = (await create(spec))["spec"]
    assert stored == {**spec, "runPolicy": stored["runPolicy"]}
    assert policy.items() <= stored["runPolicy"].items()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mainContainer": "main; rm -rf /"}, "spec.mainContainer"),
        ({"mpiDistribution": "LAM"}, "spec.mpiDistribution: Unsupported value"),
        ({"gpus": 0}, "spec.gpus in body should be greater than or equal to 1"),
    ],
)
@virtual_time
async def test_values_that_cannot_be_used_are_rejected(fields: JsonObject, message: str) -> None:
    with pytest.raises(InvalidError) as rejection:
        await create({**kubedl_job(MPIJob)["spec"], **fields})
    assert message in str(rejection.value)
