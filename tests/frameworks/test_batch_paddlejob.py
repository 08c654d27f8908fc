"""PaddleJob of batch.paddlepaddle.org/v1: names, environment in each network mode, restarts, cleanup, status and validation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from dlop import Phase, Progress, ReplicaProgress, ReplicaState, RestartPolicy, RestartScope, RoleProgress, SpecError
from dlop.frameworks.batch_paddlepaddle.endpoints import Endpoints
from dlop.frameworks.batch_paddlepaddle.paddlejob import PaddleJob
from dlop.frameworks.registry import Registry
from dlop.jobs.render import render
from dlop.kube.objects import ObjectMeta, Pod, PodStatus
from dlop.kube.resources import CONFIG_MAPS, PODS
from dlop.reconcile.snapshot import Snapshot
from dlop.reconcile.spec_warnings import spec_warnings
from dlop.testing.kit import OperatorKit
from dlop.testing.observed_job import ObservedJob
from dlop.testing.pod_steps import ContainerExit
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.example_manifests import by_name
from tests.frameworks.paddle_manifests import batch_job as manifest
from tests.frameworks.paddle_manifests import batch_role as role
from tests.unit.job.jobs import make

REGISTRY = Registry([PaddleJob])
POD_IP = {"fieldRef": {"fieldPath": "status.podIP"}}


ENDPOINT_VARIABLES = (
    *("TRAINER_PORTS_NUM", "PADDLE_PORT", "PADDLE_PSERVERS_IP_PORT_LIST", "PADDLE_TRAINER_ENDPOINTS", "PADDLE_TRAINERS"),
    *("PADDLE_TRAINERS_NUM", "PADDLE_HETER_ENDPOINTS", "PADDLE_WITH_GLOO", "PADDLE_GLOO_RENDEZVOUS", "PADDLE_GLOO_HTTP_ENDPOINT"),
)


def job(**fields: Any) -> PaddleJob:
    return make(PaddleJob, manifest(**fields)["spec"], name="wide")


def pods_of(**fields: Any) -> dict[str, dict[str, Any]]:
    return by_name(render(manifest(**fields), REGISTRY), "Pod")


def env(pod: Mapping[str, Any]) -> dict[str, Any]:
    return {variable["name"]: variable.get("value", variable.get("valueFrom")) for variable in pod["spec"]["containers"][0]["env"]}


def config_map_key(key: str) -> dict[str, Any]:
    return {"configMapKeyRef": {"name": "wide", "key": key}}


# --- names and labels -------------------------------------------------------------------------------------------------


def test_names_labels_and_services() -> None:
    objects = render(manifest(), REGISTRY)
    pods, services = by_name(objects, "Pod"), by_name(objects, "Service")
    assert list(pods) == list(services) == ["wide-ps-0", "wide-ps-1", "wide-worker-0", "wide-worker-1"]
    metadata, pod_spec = pods["wide-ps-1"]["metadata"], pods["wide-ps-1"]["spec"]
    assert {"paddle-res-name": "wide-ps-1", "paddle-res-type": "ps"}.items() <= metadata["labels"].items()
    assert metadata["annotations"]["paddle-resource"] == "ps"
    assert (pod_spec["hostname"], pod_spec["subdomain"]) == ("wide-ps-1", "wide-ps-1")
    service = services["wide-ps-1"]["spec"]
    assert service["selector"]["paddle-res-name"] == "wide-ps-1"
    assert (service["clusterIP"], service["publishNotReadyAddresses"]) == ("None", True)
    assert service["ports"] == [{"name": f"p-{number}", "port": 36000 + number} for number in range(20)]


# --- environment ------------------------------------------------------------------------------------------------------


def test_with_services_all_addresses_are_in_the_environment() -> None:
    pods = pods_of(intranet="Service", withGloo=1, heter=role(1))
    servers, trainers = "wide-ps-0:36000,wide-ps-1:36000", "wide-worker-0:36000,wide-worker-1:36000"
    assert env(pods["wide-worker-1"]) == {
        "POD_IP": "wide-worker-1",
        "PADDLE_TRAINER_ID": "1",
        "TRAINING_ROLE": "TRAINER",
        "PADDLE_TRAINING_ROLE": "TRAINER",
        "TRAINER_PORTS_NUM": "20",
        "PADDLE_PORT": "36000",
        "PADDLE_PSERVERS_IP_PORT_LIST": servers,
        "PADDLE_TRAINER_ENDPOINTS": trainers,
        "PADDLE_TRAINERS": "wide-worker-0,wide-worker-1",
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_HETER_ENDPOINTS": "wide-heter-0:36000",
        "PADDLE_WITH_GLOO": "1",
        "PADDLE_GLOO_RENDEZVOUS": "3",
        "PADDLE_GLOO_HTTP_ENDPOINT": "wide-ps-0:36018",
    }
    assert env(pods["wide-ps-0"])["PADDLE_TRAINING_ROLE"] == "PSERVER"
    assert env(pods["wide-heter-0"])["TRAINING_ROLE"] == "HETER"
    assert pods["wide-ps-0"]["spec"]["containers"][0]["ports"] == [{"containerPort": 36000}]


@pytest.mark.parametrize(
    ("declared", "added"), [({"containerPort": 36000}, 0), ({"containerPort": 36000, "protocol": "UDP"}, 1), ({"containerPort": 80}, 1)]
)
def test_a_port_that_the_template_declares_is_not_added_again(declared: dict[str, Any], added: int) -> None:
    containers = [{"name": "paddle", "image": "example.org/paddle:1", "ports": [declared]}]
    for intranet in ("Service", "Host"):
        pod = pods_of(intranet=intranet, worker=role(1, containers=containers))["wide-worker-0"]
        assert pod["spec"]["containers"][0]["ports"] == [declared, {"containerPort": 36000}][: 1 + added]


@pytest.mark.parametrize("intranet", [None, "PodIP", "Host"])
def test_without_services_the_addresses_come_from_a_config_map(intranet: str | None) -> None:
    fields = {} if intranet is None else {"intranet": intranet}
    objects = render(manifest(withGloo=1, heter=role(1), **fields), REGISTRY)
    pod = by_name(objects, "Pod")["wide-worker-1"]
    assert env(pod) == {
        "POD_IP": POD_IP,
        "PADDLE_TRAINER_ID": "1",
        "TRAINING_ROLE": "TRAINER",
        "PADDLE_TRAINING_ROLE": "TRAINER",
        "DLOP_ENDPOINTS": config_map_key("worker-attempt-0"),
        **{name: config_map_key(name) for name in ENDPOINT_VARIABLES},
    }
    assert by_name(objects, "ConfigMap")["wide"]["data"] == {}
    assert pod["spec"].get("hostNetwork", False) is (intranet == "Host")


@pytest.mark.parametrize(("intranet", "address"), [("PodIP", POD_IP), ("Host", POD_IP), ("Service", "wide-worker-1")])
def test_elastic_workers_get_their_number_and_no_addresses(intranet: str, address: Any) -> None:
    objects = render(manifest(elastic=0, intranet=intranet), REGISTRY)
    assert env(by_name(objects, "Pod")["wide-worker-1"]) == {
        "POD_IP": address,
        "PADDLE_TRAINER_ID": "1",
        "TRAINING_ROLE": "TRAINER",
        "PADDLE_TRAINING_ROLE": "TRAINER",
        "PADDLE_ELASTIC_JOB_ID": "default-wide",
        "PADDLE_ELASTIC_NP": "2",
        "PADDLE_ELASTIC_TIMEOUT": "60",
    }
    assert by_name(objects, "ConfigMap") == {}


def progress(job: PaddleJob, addresses: Mapping[str, list[str]], *, attempts: Mapping[str, str] | None = None) -> Progress:
    """Pods with these IPs. An empty address means that a pod is not scheduled yet."""

    def replica(role: str, index: int, address: str) -> ReplicaProgress:
        labels = {"dlop.dev/attempt": (attempts or {}).get(role, "0")}
        pod = Pod(metadata=ObjectMeta(name=f"{role}-{index}", labels=labels), status=PodStatus(pod_ip=address))
        return ReplicaProgress(role=role, index=index, state=ReplicaState.PENDING, pod=pod)

    return Progress(
        roles=tuple(
            RoleProgress(spec=each, replicas=tuple(replica(each.name, index, ip) for index, ip in enumerate(addresses[each.name])))
            for each in job.spec.roles
        )
    )


def test_the_config_map_has_the_addresses_once_all_pods_have_one() -> None:
    complete = job(withGloo=2, heter=role(1))
    addresses = {"ps": ["10.0.0.1", "10.0.0.2"], "worker": ["10.0.0.3", "fd00::4"], "heter": ["10.0.0.5"]}
    (create,) = Endpoints().update(complete, progress(complete, addresses))
    assert (create.resource, create.body["metadata"]["name"]) == (CONFIG_MAPS, "wide")
    assert create.body["metadata"]["labels"]["paddle-res-name"] == "wide"
    assert create.body["data"] == {
        "TRAINER_PORTS_NUM": "20",
        "PADDLE_PORT": "36000",
        "PADDLE_PSERVERS_IP_PORT_LIST": "10.0.0.1:36000,10.0.0.2:36000",
        "PADDLE_TRAINER_ENDPOINTS": "10.0.0.3:36000,[fd00::4]:36000",
        "PADDLE_TRAINERS": "10.0.0.3,fd00::4",
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_HETER_ENDPOINTS": "10.0.0.5:36000",
        "PADDLE_WITH_GLOO": "2",
        "PADDLE_GLOO_RENDEZVOUS": "3",
        "PADDLE_GLOO_HTTP_ENDPOINT": "10.0.0.1:36018",
        "ps-attempt-0": "complete",
        "worker-attempt-0": "complete",
        "heter-attempt-0": "complete",
    }


def test_the_config_map_is_not_updated_while_an_address_is_missing_or_pods_of_an_earlier_attempt_exist() -> None:
    addresses = {"ps": ["10.0.0.1", "10.0.0.2"], "worker": ["10.0.0.3", "10.0.0.4"]}
    assert Endpoints().update(job(), progress(job(), {**addresses, "worker": ["10.0.0.3", ""]})) == ()
    mixed = progress(job(), addresses)
    ps, worker = mixed.roles
    pod = worker.replicas[1].pod
    assert pod is not None
    restarted = replace(worker.replicas[1], pod=Pod(metadata=ObjectMeta(labels={"dlop.dev/attempt": "1"}), status=pod.status))
    mixed = Progress(roles=(ps, replace(worker, replicas=(worker.replicas[0], restarted))))
    assert Endpoints().update(job(), mixed) == ()


def test_roles_can_be_in_different_attempts() -> None:
    addresses = {"ps": ["10.0.0.1", "10.0.0.2"], "worker": ["10.0.0.3", "10.0.0.4"]}
    (create,) = Endpoints().update(job(), progress(job(), addresses, attempts={"worker": "1"}))
    assert {"ps-attempt-0", "worker-attempt-1"} <= create.body["data"].keys()


@virtual_time
async def test_a_role_that_is_restarted_alone_gets_its_addresses() -> None:
    async with OperatorKit(frameworks=[PaddleJob]) as kit:
        view = await kit.submit(manifest(runPolicy={"restartScope": "Role"}))
        await kit.until(view, phase="Running")
        await kit.client.delete(PODS, "wide-worker-0", namespace="default")
        data = await _addresses(kit, view, key="worker-attempt-1")
        assert "ps-attempt-1" not in data


@virtual_time
async def test_containers_wait_until_the_config_map_has_the_addresses_of_their_attempt() -> None:
    async with OperatorKit(frameworks=[PaddleJob]) as kit:
        kit.script.when("*").config_error().until_released().run().after(60).succeed()
        view = await kit.submit(manifest())
        data = await _addresses(kit, view)
        assert data["PADDLE_TRAINERS"] == "10.244.0.2,10.244.0.2"
        assert {"ps-attempt-0", "worker-attempt-0"} <= data.keys()
        assert "worker-attempt-1" not in data
        for name in view.pods:
            kit.kubelet.release(f"default/{name}")
        await kit.until(view, phase="Running")
        await kit.client.delete(PODS, "wide-worker-0", namespace="default")
        data = await _addresses(kit, view, key="worker-attempt-1")
        assert {env(pod)["DLOP_ENDPOINTS"]["configMapKeyRef"]["key"] for pod in view.pods.values()} == {"ps-attempt-1", "worker-attempt-1"}


async def _addresses(kit: OperatorKit, view: ObservedJob, *, key: str = "worker-attempt-0") -> dict[str, str]:
    def data() -> dict[str, str]:
        return view.children("configmaps").get("wide", {}).get("data") or {}

    await kit.until(view, reached=lambda _: key in data(), within_seconds=200)
    return data()


# --- restarts and scaling ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ("Never", "Never")),
        ({"intranet": "Service"}, ("Never", "OnFailure")),
        ({"elastic": 1, "worker": role(restartPolicy="Never")}, ("OnFailure", "OnFailure")),
        ({"ps": role(restartPolicy="Always"), "worker": role(restartPolicy="ExitCode")}, ("Always", "Never")),
    ],
)
def test_the_restart_policy_of_the_pods(fields: dict[str, Any], expected: tuple[str, str]) -> None:
    pods = pods_of(**fields)
    assert tuple(pods[f"wide-{role}-0"]["spec"]["restartPolicy"] for role in ("ps", "worker")) == expected


def test_a_lost_pod_restarts_the_job_unless_the_names_of_services_outlive_it() -> None:
    scopes = {"PodIP": RestartScope.JOB, "Host": RestartScope.JOB, "Service": RestartScope.REPLICA}
    assert {mode: job(intranet=mode).spec.run_policy.restart_scope for mode in scopes} == scopes
    assert job(elastic=1).spec.run_policy.restart_scope is RestartScope.REPLICA
    assert job(runPolicy={"restartScope": "Role"}).spec.run_policy.restart_scope is RestartScope.ROLE


@virtual_time
async def test_scaling_restarts_the_job_with_the_new_addresses() -> None:
    async with OperatorKit(frameworks=[PaddleJob]) as kit:
        view = await kit.submit(manifest(intranet="Service"))
        await kit.until(view, phase="Running")
        await kit.edit(view, {"spec": {"ps": {"replicas": 1}, "worker": {"replicas": 4}}})
        await kit.until(view, reached=lambda view: view.phase is Phase.RUNNING and len(view.pods) == 5, within_seconds=200)
        assert {env(pod)["PADDLE_TRAINERS_NUM"] for pod in view.pods.values()} == {"4"}
        assert (len(view.status["ps"]["refs"]), len(view.status["worker"]["refs"])) == (1, 4)
        assert view.status["mode"] == "PS"


@virtual_time
async def test_scaling_without_services_restarts_the_job_with_the_new_addresses() -> None:
    async with OperatorKit(frameworks=[PaddleJob]) as kit:
        view = await kit.submit(manifest())
        before = await _addresses(kit, view)
        await kit.until(view, phase="Running")
        await kit.edit(view, {"spec": {"ps": {"replicas": 1}, "worker": {"replicas": 4}}})
        after = await _addresses(kit, view, key="worker-attempt-1")
        await kit.until(view, phase="Running", reached=lambda view: len(view.pods) == 5)
        assert [len(data["PADDLE_TRAINER_ENDPOINTS"].split(",")) for data in (before, after)] == [2, 4]
        assert [len(data["PADDLE_PSERVERS_IP_PORT_LIST"].split(",")) for data in (before, after)] == [2, 1]
        assert (before["PADDLE_TRAINERS_NUM"], after["PADDLE_TRAINERS_NUM"]) == ("2", "4")


@virtual_time
async def test_elastic_workers_are_scaled_without_a_restart() -> None:
    async with OperatorKit(frameworks=[PaddleJob]) as kit:
        body = manifest(elastic=1, worker=role(2))
        del body["spec"]["ps"]
        view = await kit.submit(body)
        await kit.until(view, phase="Running")
        before = {pod["metadata"]["uid"] for pod in view.pods.values()}
        await kit.edit(view, {"spec": {"worker": {"replicas": 3}}})
        await kit.until(view, reached=lambda view: len(view.pods) == 3 and view.phase is Phase.RUNNING, within_seconds=60)
        assert before < {pod["metadata"]["uid"] for pod in view.pods.values()}
        assert env(view.pods["wide-worker-2"])["PADDLE_ELASTIC_NP"] == "3"


# --- status and cleanup -----------------------------------------------------------------------------------------------


@virtual_time
async def test_a_job_is_pending_then_starting_then_running_then_completed() -> None:
    async with OperatorKit(frameworks=[PaddleJob]) as kit:
        kit.script.when("wide-ps-0").after(20).run().after(100).succeed()
        kit.script.when("*").after(10).run(ready=False).after(20).become_ready().after(100).succeed()
        view = await kit.submit(manifest())
        await kit.until(view, reached=lambda view: view.status.get("phase") == "Pending")
        await kit.until(view, reached=lambda view: view.status.get("phase") == "Starting")
        await kit.until(view, reached=lambda view: view.status.get("phase") == "Running")
        await kit.until(view, reached=lambda view: view.status["worker"].get("running") == 2, within_seconds=60)
        assert view.status["ps"]["refs"][0].items() >= {"kind": "Pod", "namespace": "default", "name": "wide-ps-0"}.items()
        await kit.until(view, phase="Succeeded")
        status = view.status
        assert (status["phase"], status["mode"], status["worker"]["succeeded"]) == ("Completed", "PS", 2)
        assert status["startTime"] < status["completionTime"]


@pytest.mark.parametrize(("roles", "mode"), [({"worker": role(1)}, "Single"), ({"worker": role(2)}, "Collective"), ({"ps": role(1)}, "PS")])
def test_the_mode_depends_on_the_roles(roles: dict[str, Any], mode: str) -> None:
    assert make(PaddleJob, roles).mode == mode


@virtual_time
async def test_one_failed_pod_of_any_role_fails_the_job() -> None:
    async with OperatorKit(frameworks=[PaddleJob]) as kit:
        kit.script.when("wide-ps-1").run().after(60).fail(exit_code=137)
        view = await kit.submit(manifest(intranet="Service"))
        await kit.until(view, phase="Failed")
        assert (view.status["phase"], view.status["ps"]["failed"]) == ("Failed", 1)


@pytest.mark.parametrize(
    ("policy", "after_success", "after_failure"),
    [
        (None, 0, 2),
        ("Always", 0, 0),
        ("Never", 2, 2),
        ("OnFailure", 2, 0),
        ("OnCompletion", 0, 2),
        ("OnFailed", 2, 0),
        ("Sometimes", 2, 2),
    ],
)
@virtual_time
async def test_the_clean_pod_policy_depends_on_the_result(policy: str | None, after_success: int, after_failure: int) -> None:
    for name, exit_code, expected in (("good", 0, after_success), ("bad", 1, after_failure)):
        async with OperatorKit(frameworks=[PaddleJob]) as kit:
            kit.script.when("*").run().after(30).then(ContainerExit(exit_code))
            body = manifest(worker=role(2), **({} if policy is None else {"cleanPodPolicy": policy}))
            del body["spec"]["ps"]
            body["metadata"]["name"] = name
            view = await kit.submit(body)
            await kit.until(view, phase="Failed" if exit_code else "Succeeded")
            await kit.writes_when_idle()
            assert len(view.pods) == expected


@virtual_time
async def test_a_job_that_the_old_operator_has_finished_is_not_started_again() -> None:
    async with OperatorKit(frameworks=[PaddleJob], operator=False) as kit:
        view = await kit.submit(manifest())
        await kit.client.patch(
            PaddleJob.job_type.resource, "wide", {"status": {"phase": "Completed", "mode": "PS"}}, namespace="default", subresource="status"
        )
        await kit.start_operator()
        assert await kit.writes_when_idle() == []
        assert view.pods == {}


# --- validation -------------------------------------------------------------------------------------------------------


def problems(**fields: Any) -> list[str]:
    try:
        job(**fields).spec  # noqa: B018
    except SpecError as error:
        return [str(problem) for problem in error.problems]
    return []


def test_a_role_without_replicas_or_template_and_a_job_without_roles_are_rejected() -> None:
    assert problems(ps={"template": role()["template"]}) == ["spec.ps.replicas: is missing"]
    assert "spec.ps.template: is missing; add the pod template of this role" in problems(ps={"replicas": 1})
    with pytest.raises(SpecError, match="spec: must contain at least one role"):
        make(PaddleJob, {}).spec  # noqa: B018


@pytest.mark.parametrize("invalid", [5, [], {}, {"worker": []}, {"worker": {"replicas": "two"}}, {"elastic": {}, "withGloo": "x"}])
def test_an_invalid_spec_fails_the_job_with_its_problems(invalid: Any) -> None:
    status = make(PaddleJob, invalid).reconcile(Snapshot(), 1000.0).status
    assert status is not None
    assert (status["phase"], status["mode"], status["conditions"][-1]["reason"]) == ("Failed", "Single", "InvalidSpec")
    assert status["conditions"][-1]["message"].startswith("spec")


def test_values_without_effect_are_reported_with_their_effect() -> None:
    fields = {"cleanPolicy": "Always", "intranet": "Bridge", "sampleSetRef": {"name": "x"}, "worker": {**role(), "limits": 4}}
    warnings = {warning.path: warning.message for warning in spec_warnings(job(cleanPodPolicy="OnFailed", **fields))}
    assert warnings == {
        "spec.cleanPodPolicy": "'OnFailed' is unknown, so OnFailure is used; use one of Always, Never, OnFailure, OnCompletion",
        "spec.cleanPolicy": "is read as cleanPodPolicy, with the result OnFailure; rename the field",
        "spec.intranet": "'Bridge' is unknown, so PodIP is used; use one of PodIP, Service, Host",
        "spec.sampleSetRef": "has no effect, because sample sets are not supported; mount a volume in the pod templates",
        "spec.worker.limits": "has no effect; the number of pods is set by replicas",
    }


@pytest.mark.parametrize(
    ("spec", "has_effect"),
    [
        ({"ps": role(), "withGloo": 1}, True),
        ({"worker": role(), "withGloo": 0}, True),
        ({"worker": role(), "withGloo": 1}, False),
        ({"ps": role(), "worker": role(), "elastic": 1, "withGloo": 2}, False),
    ],
)
def test_gloo_without_an_endpoint_is_reported(spec: dict[str, Any], has_effect: bool) -> None:
    paddle_job = make(PaddleJob, spec)
    message = "has no effect, because the job has no parameter servers, or is elastic; remove it"
    warnings = {warning.path: warning.message for warning in spec_warnings(paddle_job)}
    assert warnings == ({} if has_effect else {"spec.withGloo": message})
    assert has_effect or "PADDLE_WITH_GLOO" not in env(paddle_job.replica(paddle_job.spec.roles[0], 0).pod())


def test_the_options_of_gang_scheduling_are_in_the_spec_or_in_the_run_policy() -> None:
    in_spec = job(schedulingPolicy={"minAvailable": 3, "queue": "q", "priorityClass": "high"}).spec.run_policy.scheduling
    assert (in_spec.min_available, in_spec.queue, in_spec.priority_class) == (3, "q", "high")
    assert job(runPolicy={"schedulingPolicy": {"minAvailable": 2}}).spec.run_policy.scheduling.min_available == 2


def test_an_elastic_job_without_workers_is_rejected() -> None:
    with pytest.raises(SpecError, match=r"spec\.worker: is missing; a job with elastic needs workers"):
        make(PaddleJob, {"ps": role(1), "elastic": 1}).spec  # noqa: B018


def test_elastic_workers_are_scaled_between_their_requests_and_limits() -> None:
    scaled = job(elastic=1, worker={**role(1), "requests": 2, "limits": 6}, runPolicy={"autoscale": True})
    worker = scaled.spec.role("worker")
    assert worker is not None
    assert (worker.replicas, worker.minimum, scaled.total_replicas) == (2, 2, 4)
    assert env(scaled.replica(worker, 0).pod())["PADDLE_ELASTIC_NP"] == "2:6"
    assert {warning.path for warning in spec_warnings(scaled)} == {"spec.worker.limits"}


@pytest.mark.parametrize("fields", [{"elastic": 1}, {"elastic": 1, "worker": {**role(2), "requests": 3, "limits": 3}}, {}])
def test_autoscale_without_a_range_is_reported(fields: dict[str, Any]) -> None:
    warnings = {warning.path: warning.message for warning in spec_warnings(job(runPolicy={"autoscale": True}, **fields))}
    assert warnings["spec.runPolicy.autoscale"] == "has no effect, because no role has a minimum and a higher maximum"


def test_a_restart_policy_that_does_not_exist_is_rejected() -> None:
    (problem,) = problems(worker=role(restartPolicy="Sometimes"))
    assert problem.startswith("spec.worker.template.spec.restartPolicy: must be one of")
    assert job().spec.roles[0].restart_policy is RestartPolicy.NEVER
