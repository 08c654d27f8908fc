"""MXJob of fioravanzo.org/v1alpha1: names, labels, environment, validation, exit codes and status."""

from __future__ import annotations

from typing import Any

import pytest

from dlop import LastFailure, Options, Phase, RestartPolicy, SpecError
from dlop.frameworks.fioravanzo.accelerators import MXJobFlags, read_accelerators
from dlop.frameworks.fioravanzo.mxjob import MXJob
from dlop.frameworks.registry import Registry
from dlop.jobs.render import PLACEHOLDER_UID, render
from dlop.testing.kit import OperatorKit
from dlop.testing.pod_steps import PodControl
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.example_manifests import by_name, example, variables
from tests.unit.job.jobs import make

REGISTRY = Registry([MXJob])
SCHEDULER = "mx-test-dist-scheduler-r1d0-0"
SERVER = "mx-test-dist-server-r1d0-0"
WORKER = "mx-test-dist-worker-r1d0-0"


def entry(role: str | None, replicas: int | None = None, **more: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "mxnet", "image": "example.org/mx:1"}], "restartPolicy": "OnFailure"}}
    fields = {"mxReplicaType": role, "replicas": replicas, "template": template} | more
    return {name: value for name, value in fields.items() if value is not None}


def spec(*entries: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"replicaSpecs": list(entries) or [entry("SCHEDULER"), entry("SERVER", 2), entry("WORKER", 3)], "RuntimeId": "r1d0", **more}


def job(*entries: dict[str, Any], **more: Any) -> MXJob:
    return make(MXJob, spec(*entries, **more))


def linear() -> dict[str, Any]:
    manifest = example("01-mxnet-linear")
    manifest["spec"]["RuntimeId"] = "r1d0"
    return manifest


def pods_of(manifest: dict[str, Any], **options: Any) -> dict[str, dict[str, Any]]:
    return by_name(render(manifest, REGISTRY, **options), "Pod")


# --- names, labels, environment ---------------------------------------------------------------------------------------


def test_names_and_labels_of_pods_and_services() -> None:
    objects = render(linear(), REGISTRY)
    pods, services = by_name(objects, "Pod"), by_name(objects, "Service")
    assert list(pods) == list(services) == [SCHEDULER, SERVER, WORKER]
    labels = {"fioravanzo.org": "", "job_type": "WORKER", "runtime_id": "r1d0", "mx_job_name": "mx-test-dist", "task_index": "0"}
    assert labels.items() <= pods[WORKER]["metadata"]["labels"].items()
    assert services[WORKER]["spec"]["selector"] == labels
    assert services[WORKER]["spec"]["ports"] == [{"name": "mx-port", "port": 9000}]
    assert pods[WORKER]["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "fioravanzo.org/v1alpha1",
            "kind": "MXJob",
            "name": "mx-test-dist",
            "uid": PLACEHOLDER_UID,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def test_the_environment_has_the_variables_of_ps_lite() -> None:
    assert variables(pods_of(linear())[SERVER]) == {
        "DMLC_ROLE": "server",
        "DMLC_PS_ROOT_URI": SCHEDULER,
        "DMLC_PS_ROOT_PORT": "9000",
        "DMLC_NUM_SERVER": "1",
        "DMLC_NUM_WORKER": "1",
        "DMLC_USE_KUBERNETES": "1",
        "PS_VERBOSE": "2",
    }


def test_no_container_port_is_added() -> None:
    assert all("ports" not in pod["spec"]["containers"][0] for pod in pods_of(linear()).values())


def test_the_address_of_the_scheduler_does_not_depend_on_the_order_of_roles_or_on_other_ports() -> None:
    reordered = job(entry("WORKER", mxPort=9555), entry("SCHEDULER", mxPort=9111))
    worker = reordered.spec.role("WORKER")
    assert worker is not None
    env = variables(reordered.replica(worker, 0).pod())
    assert (env["DMLC_PS_ROOT_URI"], env["DMLC_PS_ROOT_PORT"]) == ("train-scheduler-r1d0-0", "9111")
    assert (env["DMLC_NUM_SERVER"], env["DMLC_NUM_WORKER"]) == ("0", "1")


def test_the_user_can_override_the_verbosity() -> None:
    manifest = linear()
    manifest["spec"]["replicaSpecs"][2]["template"]["spec"]["containers"][0]["env"] = [{"name": "PS_VERBOSE", "value": "0"}]
    assert variables(pods_of(manifest)[WORKER])["PS_VERBOSE"] == "0"


def test_only_the_container_named_mxnet_gets_the_environment() -> None:
    containers = [{"name": "log", "image": "x"}, {"name": "mxnet", "image": "y"}]
    manifest = linear()
    manifest["spec"]["replicaSpecs"][2]["template"]["spec"]["containers"] = containers
    pod = pods_of(manifest)[WORKER]
    assert (variables(pod, 0), variables(pod, 1)["DMLC_ROLE"]) == ({}, "worker")


def test_the_job_name_is_truncated_to_40_characters_in_pod_names_but_not_in_the_label() -> None:
    long = make(MXJob, spec(), name="n" * 60)
    assert long.naming.pod_name(long, long.spec.roles[0], 0) == "n" * 40 + "-scheduler-r1d0-0"
    assert long.naming.labels(long, long.spec.roles[0], 0)["mx_job_name"] == "n" * 60


def test_the_runtime_id_is_derived_from_the_uid_unless_the_spec_has_one() -> None:
    without_id = {"replicaSpecs": spec()["replicaSpecs"]}
    first, again, other = make(MXJob, without_id), make(MXJob, without_id), make(MXJob, without_id, uid="another")
    assert first.runtime_id == again.runtime_id != other.runtime_id
    assert len(first.runtime_id) == 4
    assert (job().runtime_id, make(MXJob, without_id | {"runtimeId": "low"}).runtime_id) == ("r1d0", "low")


@pytest.mark.parametrize(("fields", "expected"), [({}, "special"), ({"schedulerName": ""}, "special"), ({"schedulerName": "gang"}, "gang")])
def test_the_scheduler_name_is_set_on_every_pod_unless_it_is_empty(fields: dict[str, Any], expected: str) -> None:
    manifest = linear()
    manifest["spec"] |= fields
    for role in manifest["spec"]["replicaSpecs"]:
        role["template"]["spec"]["schedulerName"] = "special"
    assert {pod["spec"]["schedulerName"] for pod in pods_of(manifest).values()} == {expected}


def test_the_gpu_example_requests_the_current_gpu_resource_and_keeps_its_volumes() -> None:
    manifest = example("05-mxnet-cifar-gpu")
    worker = next(pod for name, pod in pods_of(manifest).items() if "-worker-" in name)
    assert worker["spec"]["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    assert worker["spec"]["containers"][0]["volumeMounts"] == [{"mountPath": "/", "name": "myshare"}]
    assert worker["spec"]["volumes"][0]["azureFile"]["shareName"] == "mxsn"


def test_accelerators_of_the_configuration_file_are_mounted() -> None:
    azure = {
        "alpha.kubernetes.io/nvidia-gpu": {"volumes": [{"name": "nv", "hostPath": "/usr/local/nvidia", "mountPath": "/usr/local/nvidia"}]}
    }
    options = Options(framework_flags=(MXJobFlags(controller_config_file=read_accelerators({"accelerators": azure})),))
    pods = pods_of(example("05-mxnet-cifar-gpu"), options=options)
    mounted = {name for name, pod in pods.items() if any(volume["name"] == "nv" for volume in pod["spec"]["volumes"])}
    assert mounted == {name for name in pods if "-worker-" in name}


# --- validation --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("invalid", "problem"),
    [
        (spec(entry("SCHEDULER", 2)), "spec.replicaSpecs[0].replicas: must be exactly 1, got 2"),
        (spec(entry("SCHEDULER", 0)), "spec.replicaSpecs[0].replicas: must be exactly 1, got 0"),
        (spec(entry("WORKER")), "spec.replicaSpecs: must contain the role SCHEDULER"),
        (spec(entry("SCHEDULER"), entry(None)), "spec.replicaSpecs[1].mxReplicaType: duplicates the role SCHEDULER"),
        (spec(entry("scheduler")), "spec.replicaSpecs[0].mxReplicaType: must be one of SCHEDULER, SERVER, WORKER, got 'scheduler'"),
        (spec(entry("SCHEDULER", mxPort=0)), "spec.replicaSpecs[0].mxPort: must be from 1 to 65535, got 0"),
        (spec(entry("SCHEDULER", template=None)), "spec.replicaSpecs[0].template: is missing"),
        (
            spec(entry("SCHEDULER", template={"spec": {"containers": [{"name": "main", "image": "x"}]}})),
            "spec.replicaSpecs[0].template.spec.containers: must have a container named 'mxnet'; got 'main'",
        ),
        (spec(terminationPolicy={}), "spec.terminationPolicy: must have a chief"),
        (spec(terminationPolicy={"chief": {"replicaName": 5}}), "spec.terminationPolicy.chief.replicaName: must be a string, got 5"),
        (spec() | {"RuntimeId": 5}, "spec.RuntimeId: must be a string, got 5"),
        (spec(terminationPolicy={"chief": {"replicaName": "MASTER"}}), "chief.replicaName: Missing ReplicaSpec for chief: MASTER"),
        (
            spec(terminationPolicy={"chief": {"replicaName": "WORKER", "replicaIndex": 3}}),
            "spec.terminationPolicy.chief.replicaIndex: must be less than 3, the number of replicas of WORKER",
        ),
        (spec() | {"RuntimeId": "Not Fit"}, "spec.RuntimeId: must be at most 20 lower-case letters, digits and dashes"),
        ([], "spec: must be an object, got a list"),
    ],
)
def test_an_invalid_spec_is_rejected_with_the_path(invalid: Any, problem: str) -> None:
    with pytest.raises(SpecError) as caught:
        _ = make(MXJob, invalid).spec
    assert problem in str(caught.value)


def test_an_entry_without_a_type_is_the_scheduler_and_mx_image_is_ignored() -> None:
    assert [role.name for role in job(entry(None), mxImage="example.org/none:1").spec.roles] == ["SCHEDULER"]


# --- exit codes and restarts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "reason", "is_final"), [(1, "", True), (127, "", True), (128, "", False), (244, "", False), (244, "OOMKilled", True)]
)
def test_only_the_exit_code_of_the_chief_can_be_a_final_failure(code: int, reason: str, is_final: bool) -> None:
    scheduler, server, _ = job().spec.roles
    failure = LastFailure(exit_code=code, reason=reason)
    assert MXJob.lifecycle.is_final_failure(job(), scheduler, 0, failure) is is_final
    assert MXJob.lifecycle.is_final_failure(job(), server, 0, failure) is False


def test_the_kubelet_never_restarts_the_chief() -> None:
    chief = job(terminationPolicy={"chief": {"replicaName": "WORKER", "replicaIndex": 0}})
    scheduler, _, worker = chief.spec.roles
    restart_policy = MXJob.lifecycle.pod_restart_policy
    assert restart_policy(chief, scheduler, 0) == RestartPolicy.ON_FAILURE
    assert [restart_policy(chief, worker, index) for index in (0, 1)] == [RestartPolicy.NEVER, RestartPolicy.ON_FAILURE]


@virtual_time
async def test_the_linear_example_succeeds_with_its_scheduler() -> None:
    async with OperatorKit(frameworks=[MXJob]) as kit:
        kit.script.when("*-scheduler-*").run().after(60).succeed()
        kit.script.when("*-worker-*").run().after(30).succeed()
        running = await kit.submit(linear())
        await kit.until(running, phase="Running")
        assert (running.status["phase"], running.status["state"]) == ("Running", "Running")
        await kit.until(running, phase="Succeeded")
        assert (running.status["phase"], running.status["state"], running.status["reason"]) == ("Done", "Succeeded", "")
        assert running.status["replicaStatuses"] == [
            {"mx_replica_type": "SCHEDULER", "state": "Succeeded", "ReplicasStates": {"Succeeded": 1}},
            {"mx_replica_type": "SERVER", "state": "Running", "ReplicasStates": {"Running": 1}},
            {"mx_replica_type": "WORKER", "state": "Succeeded", "ReplicasStates": {"Succeeded": 1}},
        ]
        assert await kit.writes_when_idle() == []
        assert running.pod_phases == {SCHEDULER: "Succeeded", WORKER: "Succeeded"}
        assert running.body["spec"] == linear()["spec"]


@virtual_time
async def test_a_permanent_failure_of_the_scheduler_fails_the_job() -> None:
    async with OperatorKit(frameworks=[MXJob]) as kit:
        kit.script.when("*-scheduler-*").run().after(5).fail(exit_code=3)
        failing = await kit.submit(linear())
        await kit.until(failing, phase="Failed")
        assert (failing.status["phase"], failing.status["state"]) == ("Done", "Failed")
        assert f"pod {SCHEDULER}" in failing.status["reason"]
        assert "exit code 3" in failing.status["reason"]
        assert await kit.writes_when_idle() == []


@virtual_time
async def test_a_retryable_failure_of_the_scheduler_is_retried() -> None:
    async with OperatorKit(frameworks=[MXJob]) as kit:
        kit.script.when("*-scheduler-*", times=1).run().after(5).fail(exit_code=137)
        kit.script.when("*-scheduler-*").run().after(5).succeed()
        retried = await kit.submit(linear())
        await kit.until(retried, phase="Succeeded")
        assert retried.status["dlop"]["restarts"] == {"SCHEDULER": 1}


class FailingInitContainer:
    """Reports a failed init container."""

    async def perform(self, hand: PodControl) -> None:
        fetch = {"name": "fetch", "image": "x", "imageID": "", "ready": False, "restartCount": 0}
        await hand.bind()
        await hand.report({"phase": "Failed", "initContainerStatuses": [{**fetch, "state": {"terminated": {"exitCode": 1}}}]})


@virtual_time
async def test_a_scheduler_whose_init_container_fails_is_retried() -> None:
    async with OperatorKit(frameworks=[MXJob]) as kit:
        kit.script.when("*-scheduler-*", times=1).then(FailingInitContainer())
        kit.script.when("*-scheduler-*").run().after(5).succeed()
        retried = await kit.submit(linear())
        await kit.until(retried, phase="Succeeded")
        assert retried.status["dlop"]["restarts"] == {"SCHEDULER": 1}


@virtual_time
async def test_oom_killed_is_final_for_the_scheduler() -> None:
    async with OperatorKit(frameworks=[MXJob]) as kit:
        kit.script.when("*-scheduler-*").run().after(5).fail(exit_code=137, reason="OOMKilled")
        failing = await kit.submit(linear())
        await kit.until(failing, phase="Failed")
        assert "OOMKilled" in failing.status["reason"]


@virtual_time
async def test_a_failed_server_is_restarted_despite_restart_policy_never() -> None:
    manifest = linear()
    manifest["spec"]["replicaSpecs"][1]["template"]["spec"]["restartPolicy"] = "Never"
    async with OperatorKit(frameworks=[MXJob]) as kit:
        kit.script.when("*-server-*", times=1).run().after(5).fail(exit_code=1)
        kit.script.when("*-scheduler-*").run().after(60).succeed()
        restarted = await kit.submit(manifest)
        await kit.until(restarted, phase="Succeeded")
        assert restarted.status["dlop"]["restarts"] == {"SERVER": 1}


@virtual_time
async def test_a_worker_can_be_the_chief() -> None:
    manifest = linear()
    manifest["spec"]["terminationPolicy"] = {"chief": {"replicaName": "WORKER", "replicaIndex": 0}}
    async with OperatorKit(frameworks=[MXJob]) as kit:
        kit.script.when("*-worker-*").run().after(5).succeed()
        await kit.until(await kit.submit(manifest), phase="Succeeded")


@virtual_time
async def test_an_invalid_spec_fails_the_job_until_it_is_corrected() -> None:
    manifest = linear()
    manifest["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]["env"] = [{"value": "no name"}]
    async with OperatorKit(frameworks=[MXJob]) as kit:
        invalid = await kit.submit(manifest)
        await kit.until(invalid, phase="Invalid")
        assert (invalid.status["phase"], invalid.status["state"], invalid.pods) == ("Failed", "Failed", {})
        assert invalid.status["reason"].startswith("invalid job spec: ")
        assert "spec.replicaSpecs[0].template.spec.containers[0].env[0]: must have a name" in invalid.status["reason"]
        await kit.edit(invalid, {"spec": linear()["spec"]})
        await kit.until(invalid, phase="Running")


@virtual_time
async def test_a_running_job_continues_while_its_spec_is_invalid() -> None:
    async with OperatorKit(frameworks=[MXJob]) as kit:
        kit.script.when("*").run()
        running = await kit.submit(linear())
        await kit.until(running, phase="Running")
        before, pods = running.status, {name: pod["metadata"]["uid"] for name, pod in running.pods.items()}
        invalid = linear()["spec"]
        invalid["replicaSpecs"][0]["template"]["spec"]["containers"][0]["env"] = [{"value": "no name"}]
        await kit.edit(running, {"spec": invalid})
        await kit.until(running, reached=lambda view: "must have a name" in view.status["reason"])
        assert {name: pod["metadata"]["uid"] for name, pod in running.pods.items()} == pods
        kept = ("phase", "state", "replicaStatuses")
        assert {name: running.status[name] for name in kept} == {name: before[name] for name in kept}
        await kit.edit(running, {"spec": linear()["spec"]})
        await kit.until(running, phase="Running", reached=lambda view: not view.status["reason"])


@virtual_time
async def test_an_edit_of_the_runtime_id_replaces_the_pods_and_counts_nothing() -> None:
    manifest = linear()
    manifest["spec"]["runPolicy"] = {"backoffLimit": 0, "disruptionLimit": 0}
    async with OperatorKit(frameworks=[MXJob]) as kit:
        kit.script.when("*").run()
        running = await kit.submit(manifest)
        await kit.until(running, phase="Running", reached=lambda view: set(view.pod_phases.values()) == {"Running"})
        await kit.edit(running, {"spec": {"RuntimeId": "r2d2"}})
        renamed = dict.fromkeys((name.replace("r1d0", "r2d2") for name in (SCHEDULER, SERVER, WORKER)), "Running")
        await kit.until(running, phase="Running", reached=lambda view: view.pod_phases == renamed)
        assert await kit.writes_when_idle() == []
        record = running.status["dlop"]
        assert {"restarts", "disruptions", "backoffs", "lastFailure"}.isdisjoint(record)
        assert record["startedIndexes"] == {"SCHEDULER": "0", "SERVER": "0", "WORKER": "0"}


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.RESTARTING])
def test_the_phase_is_read_from_the_status(phase: Phase) -> None:
    statuses = {
        Phase.CREATED: ("Creating", "Running"),
        Phase.RUNNING: ("Running", "Running"),
        Phase.SUSPENDED: ("Suspended", "Unknown"),
        Phase.SUCCEEDED: ("Done", "Succeeded"),
        Phase.FAILED: ("Done", "Failed"),
        Phase.INVALID: ("Failed", "Failed"),
    }
    phase_field, state = statuses[phase]
    assert MXJob.status.read_phase({"phase": phase_field, "state": state}) is phase
