"""MarsJob of training.kubedl.io: environment, memory, volumes, web services and results."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dlop.deploy.apply import apply
from dlop.deploy.rbac import find_grants, job_rules
from dlop.embedded.apiserver.store import ObjectKey
from dlop.frameworks.kubedl.marsjob import MarsJob
from dlop.frameworks.registry import Registry
from dlop.jobs.render import render
from dlop.kube.types import JsonObject
from dlop.reconcile.snapshot import Snapshot
from dlop.testing.kit import OperatorKit
from dlop.testing.pod_steps import ContainerExit
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.example_manifests import by_name
from tests.frameworks.ingress_crd import INGRESS_CRD
from tests.frameworks.kubedl_manifests import kubedl_job, role
from tests.frameworks.kubeflow_jobs import all_run, created, message_of
from tests.unit.job.jobs import make

REGISTRY = Registry([MarsJob])
GIB = 1024**3


def worker_pod(policy: JsonObject | None = None, *, pod: JsonObject | None = None, **container: Any) -> JsonObject:
    """The pod of the only worker of a job."""
    spec: dict[str, Any] = {} if policy is None else {"workerMemoryTuningPolicy": policy}
    roles = {"Scheduler": 1, "Worker": role(container=container, pod=pod)}
    return by_name(render(kubedl_job(MarsJob, roles, **spec), REGISTRY), "Pod")["demo-worker-0"]


def env(pod: JsonObject, container: int = 0) -> dict[str, Any]:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in pod["spec"]["containers"][container].get("env", ())}


def volumes(pod: JsonObject) -> dict[str, tuple[str, JsonObject]]:
    """By name: the path in the main container, and the source."""
    paths = {mount["name"]: mount["mountPath"] for mount in pod["spec"]["containers"][0].get("volumeMounts", ())}
    return {
        volume["name"]: (paths[volume["name"]], {key: value for key, value in volume.items() if key != "name"})
        for volume in pod["spec"].get("volumes", ())
    }


# --- environment --------------------------------------------------------------------------------------------------------


def test_the_environment_of_a_scheduler() -> None:
    pods = by_name(render(kubedl_job(MarsJob, {"Scheduler": 2, "WebService": 1, "Worker": 3}), REGISTRY), "Pod")
    variables = env(pods["demo-scheduler-1"])
    assert json.loads(variables.pop("MARS_CLUSTER_DETAIL")) == {
        "cluster": {
            "scheduler": ["demo-scheduler-0.default.svc:11111", "demo-scheduler-1.default.svc:11111"],
            "webservice": ["demo-webservice-0.default.svc:11111"],
        },
        "task": {"type": "scheduler", "index": 1},
    }
    assert variables == {
        "MARS_CPU_TOTAL": "0",
        "MARS_MEMORY_TOTAL": "0",
        "MARS_CPU_USE_PROCESS_STAT": "1",
        "MARS_MEM_USE_CGROUP_STAT": "1",
        "MARS_BIND_PORT": "11111",
        "MARS_K8S_GROUP_LABELS": "job-name",
        "MARS_CONTAINER_IP": {"fieldRef": {"fieldPath": "status.podIP"}},
        "MARS_K8S_POD_NAME": {"fieldRef": {"fieldPath": "metadata.name"}},
        "MARS_K8S_POD_NAMESPACE": {"fieldRef": {"fieldPath": "metadata.namespace"}},
    }


@pytest.mark.parametrize(
    ("resources", "cpus", "memory"),
    [
        ({}, "0", "0"),
        ({"requests": {"cpu": "1500m", "memory": "1Gi"}}, "2", str(GIB)),
        ({"requests": {"cpu": "2", "memory": "1G"}, "limits": {"cpu": "7", "memory": "9Gi"}}, "2", "1000000000"),
        ({"limits": {"cpu": "250m", "memory": "512Mi"}}, "1", str(GIB // 2)),
    ],
)
def test_cpus_and_memory_are_those_of_the_main_container(resources: JsonObject, cpus: str, memory: str) -> None:
    variables = env(worker_pod(resources=resources))
    assert (variables["MARS_CPU_TOTAL"], variables["MARS_MEMORY_TOTAL"]) == (cpus, memory)


def test_the_task_of_a_worker_has_the_resources_of_its_pod() -> None:
    worker = role(container={"resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}}})
    sidecar = {"name": "sidecar", "image": "s", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    worker["template"]["spec"]["containers"].append(sidecar)
    pod = by_name(render(kubedl_job(MarsJob, {"Scheduler": 1, "Worker": worker}), REGISTRY), "Pod")["demo-worker-0"]
    detail = json.loads(env(pod)["MARS_CLUSTER_DETAIL"])
    assert detail["task"] == {"type": "worker", "index": 0, "resources": {"cpu_procs": 3, "phy_mem": 2 * GIB}}
    assert detail["cluster"] == {"scheduler": ["demo-scheduler-0.default.svc:11111"]}
    assert (env(pod)["MARS_CPU_TOTAL"], env(pod)["MARS_MEMORY_TOTAL"]) == ("2", str(GIB))
    assert env(pod, 1) == {}


def test_the_environment_overrides_that_of_the_user() -> None:
    variables = env(worker_pod(env=[{"name": "MARS_BIND_PORT", "value": "7"}, {"name": "A", "value": "1"}]))
    assert (variables["MARS_BIND_PORT"], variables["A"]) == ("11111", "1")


def test_the_bind_port_is_constant_even_if_the_template_has_another_port() -> None:
    ports = [{"name": "mars-port", "containerPort": 7000}]
    assert env(worker_pod(ports=ports))["MARS_BIND_PORT"] == "11111"


# --- memory and volumes -------------------------------------------------------------------------------------------------


def test_the_defaults_of_the_memory_policy_add_no_volumes() -> None:
    policies: tuple[JsonObject | None, ...] = (None, {})
    for policy in policies:
        pod = worker_pod(policy)
        variables = env(pod)
        assert (variables["MARS_PLASMA_DIRS"], variables["MARS_LOCK_FREE_FILEIO"]) == ("/dev/shm", "1")
        assert not {"MARS_SPILL_DIRS", "MARS_CACHE_MEM_SIZE"} & variables.keys()
        assert "volumes" not in pod["spec"]


def test_only_workers_have_the_memory_policy() -> None:
    policy = {"spillDirs": ["/spill"], "workerCacheSize": "1Gi"}
    pods = by_name(render(kubedl_job(MarsJob, workerMemoryTuningPolicy=policy), REGISTRY), "Pod")
    with_policy = [name for name, pod in pods.items() if "MARS_PLASMA_DIRS" in env(pod) and "volumes" in pod["spec"]]
    assert with_policy == ["demo-worker-0", "demo-worker-1"]
    assert "volumes" not in pods["demo-scheduler-0"]["spec"]


def test_spill_directories_share_the_ephemeral_storage_of_the_container() -> None:
    resources = {"requests": {"ephemeral-storage": "3Gi"}}
    pod = worker_pod({"spillDirs": ["/a", "/b", "/c"]}, resources=resources)
    assert volumes(pod) == {
        "mars-empty-dir-0": ("/a", {"emptyDir": {"sizeLimit": str(GIB)}}),
        "mars-empty-dir-1": ("/b", {"emptyDir": {"sizeLimit": str(GIB)}}),
        "mars-empty-dir-2": ("/c", {"emptyDir": {"sizeLimit": str(GIB)}}),
    }
    assert env(pod)["MARS_SPILL_DIRS"] == "/a:/b:/c"


def test_without_a_request_the_limit_of_the_ephemeral_storage_is_shared() -> None:
    pod = worker_pod({"spillDirs": ["/a"]}, resources={"limits": {"ephemeral-storage": "1Gi"}})
    assert volumes(pod) == {"mars-empty-dir-0": ("/a", {"emptyDir": {"sizeLimit": str(GIB)}})}


@pytest.mark.parametrize("resources", ["x", ["x"], {"requests": "x"}, {"requests": {"ephemeral-storage": []}}])
def test_resources_that_cannot_be_read_are_ignored(resources: Any) -> None:
    assert volumes(worker_pod({"spillDirs": ["/a"]}, resources=resources)) == {"mars-empty-dir-0": ("/a", {"emptyDir": {}})}


def test_spill_directories_have_no_limit_without_a_request() -> None:
    assert volumes(worker_pod({"spillDirs": ["/a"]})) == {"mars-empty-dir-0": ("/a", {"emptyDir": {}})}


@pytest.mark.parametrize(
    ("policy", "size"),
    [
        ({"workerCachePercentage": 25}, GIB // 2),
        ({"workerCachePercentage": 300}, 2 * GIB),
        ({"workerCacheSize": "200M"}, 200_000_000),
        ({"workerCacheSize": 4096}, 4096),
        ({"workerCacheSize": "1Gi", "workerCachePercentage": 1}, GIB),
    ],
)
def test_the_shared_memory_is_a_volume_at_the_plasma_store(policy: JsonObject, size: int) -> None:
    resources = {"requests": {"memory": "2Gi"}}
    pod = worker_pod({**policy, "plasmaStore": "/plasma", "lockFreeFileIO": False}, resources=resources)
    assert volumes(pod) == {"mars-shared-cache": ("/plasma", {"emptyDir": {"medium": "Memory", "sizeLimit": str(size)}})}
    variables = env(pod)
    assert (variables["MARS_CACHE_MEM_SIZE"], variables["MARS_PLASMA_DIRS"]) == (str(size), "/plasma")
    assert variables["MARS_LOCK_FREE_FILEIO"] == "0"


@pytest.mark.parametrize("policy", [{"workerCachePercentage": 50}, {"workerCachePercentage": 0}, {"workerCacheSize": 0}])
def test_a_cache_of_size_zero_is_left_out(policy: JsonObject) -> None:
    pod = worker_pod(policy)
    assert "MARS_CACHE_MEM_SIZE" not in env(pod)
    assert "volumes" not in pod["spec"]


def test_volumes_of_the_template_are_kept() -> None:
    own = {"volumes": [{"name": "data", "emptyDir": {}}]}
    pod = worker_pod({"spillDirs": ["/a"]}, pod=own, volumeMounts=[{"name": "data", "mountPath": "/data"}])
    assert volumes(pod) == {"data": ("/data", {"emptyDir": {}}), "mars-empty-dir-0": ("/a", {"emptyDir": {}})}


# --- web services -------------------------------------------------------------------------------------------------------


def test_each_web_service_has_an_ingress_on_the_web_host() -> None:
    ingresses = by_name(render(kubedl_job(MarsJob, {"Scheduler": 1, "WebService": 2}, webHost="mars.example.org"), REGISTRY), "Ingress")
    assert list(ingresses) == ["demo-webservice-0", "demo-webservice-1"]
    ingress = ingresses["demo-webservice-1"]
    assert ingress["apiVersion"] == "networking.k8s.io/v1"
    assert ingress["metadata"]["annotations"] == {"nginx.ingress.kubernetes.io/rewrite-target": "/$1"}
    assert [owner["kind"] for owner in ingress["metadata"]["ownerReferences"]] == ["MarsJob"]
    backend = {"service": {"name": "demo-webservice-1", "port": {"number": 11111}}}
    assert ingress["spec"]["rules"] == [
        {
            "host": "mars.example.org",
            "http": {
                "paths": [
                    {"path": "/mars/default/demo-webservice-1/(.*)", "pathType": "ImplementationSpecific", "backend": backend},
                    {"path": "/mars/default/demo-webservice-1", "pathType": "ImplementationSpecific", "backend": backend},
                ]
            },
        }
    ]


@pytest.mark.parametrize(("roles", "spec"), [({"Scheduler": 1, "WebService": 1}, {}), ({"Scheduler": 1}, {"webHost": "mars.example.org"})])
def test_without_a_host_or_a_web_service_there_is_no_ingress(roles: Any, spec: Any) -> None:
    assert by_name(render(kubedl_job(MarsJob, roles, **spec), REGISTRY), "Ingress") == {}


def test_the_permissions_for_ingresses_are_a_permission_set() -> None:
    (grant,) = find_grants(["ingress"], [MarsJob])
    (rule,) = grant.permission_set.rules
    assert (rule["apiGroups"], rule["resources"]) == (["networking.k8s.io"], ["ingresses"])
    assert not any("networking.k8s.io" in each["apiGroups"] for each in job_rules([MarsJob]))


@virtual_time
async def test_a_job_with_a_web_host_creates_its_ingresses_and_has_their_addresses_in_the_status() -> None:
    async with OperatorKit(frameworks=[MarsJob], operator=False) as kit:
        await apply(kit.client, [INGRESS_CRD], report=lambda _: None)
        await kit.start_operator()
        job = await kit.submit(kubedl_job(MarsJob, {"Scheduler": 1, "WebService": 2, "Worker": 1}, webHost="mars.example.org"))
        await kit.until(job, phase="Running", reached=lambda view: len(view.pods) == 4 and all_run(view))
        assert job.children("ingresses.networking.k8s.io").keys() == {"demo-webservice-0", "demo-webservice-1"}
        assert job.status["webServiceAddresses"] == [
            "mars.example.org/mars/default/demo-webservice-0",
            "mars.example.org/mars/default/demo-webservice-1",
        ]
        assert await kit.writes_when_idle() == []


@virtual_time
async def test_a_job_with_a_web_host_is_blocked_on_a_cluster_without_ingresses_and_others_run() -> None:
    async with OperatorKit(frameworks=[MarsJob]) as kit:
        blocked = await kit.submit(kubedl_job(MarsJob, webHost="mars.example.org", name="web"))
        job = await kit.submit(kubedl_job(MarsJob))
        await kit.until(job, phase="Running", reached=lambda view: len(view.pods) == 4 and all_run(view))
        await kit.until(blocked, reached=lambda view: view.condition("Blocked") is not None, within_seconds=600)
        assert "ingresses.networking.k8s.io" in message_of(blocked, "Blocked")
        assert blocked.pods == {}
        assert await kit.writes_when_idle() == []


def test_an_invalid_job_with_a_web_host_has_a_status() -> None:
    for field in ({}, {"Worker": role()}, {"WebService": 3}):
        status = make(MarsJob, {"marsReplicaSpecs": field, "webHost": "mars.example.org"}).reconcile(Snapshot(), 1000.0).status
        assert status is not None
        assert status["conditions"][-1]["reason"] == "InvalidSpec"
        assert "webServiceAddresses" not in status


# --- results ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("roles", "exits", "expected"),
    [
        ({"Scheduler": 2, "Worker": 1}, {"demo-scheduler-0": 0}, "Running"),
        ({"Scheduler": 2, "Worker": 1}, {"demo-scheduler-*": 0}, "Succeeded"),
        ({"Scheduler": 2, "Worker": 1}, {"demo-worker-0": 0}, "Running"),
        ({"Scheduler": 2, "Worker": 1}, {"demo-scheduler-1": 137}, "Failed"),
        ({"Scheduler": 1, "Worker": role(2, restartPolicy="Never")}, {"demo-worker-0": 1}, "Running"),
        ({"Scheduler": 1, "Worker": role(2, restartPolicy="Never")}, {"demo-worker-0": 1, "demo-scheduler-0": 0}, "Succeeded"),
        ({"Scheduler": 1, "WebService": role(restartPolicy="Never"), "Worker": 1}, {"demo-webservice-0": 1}, "Running"),
    ],
)
@virtual_time
async def test_the_schedulers_decide(roles: Any, exits: dict[str, int], expected: str) -> None:
    async with OperatorKit(frameworks=[MarsJob]) as kit:
        for pattern, exit_code in exits.items():
            kit.script.when(pattern).run().after(60).then(ContainerExit(exit_code))
        job = await kit.submit(kubedl_job(MarsJob, roles))
        assert await kit.writes_when_idle(settle_seconds=600) == []
        assert job.phase == expected


@virtual_time
async def test_a_job_runs_when_a_worker_does() -> None:
    async with OperatorKit(frameworks=[MarsJob]) as kit:
        kit.script.when("demo-worker-*").until_released().run()
        job = await kit.submit(kubedl_job(MarsJob))
        await kit.writes_when_idle()
        assert (job.pod_phases["demo-scheduler-0"], job.pod_phases["demo-worker-0"]) == ("Running", "Pending")
        assert job.phase == "Created"
        kit.kubelet.release("default/demo-worker-0")
        await kit.until(job, phase="Running", within_seconds=60)


@virtual_time
async def test_scaling_the_workers_restarts_nothing() -> None:
    async with OperatorKit(frameworks=[MarsJob]) as kit:
        job = await kit.submit(kubedl_job(MarsJob))
        await kit.until(job, phase="Running", reached=lambda view: len(view.pods) == 4 and all_run(view))
        await kit.edit(job, {"spec": {"marsReplicaSpecs": {"Worker": {"replicas": 3}}}})
        await kit.until(job, phase="Running", reached=lambda view: len(view.pods) == 5 and all_run(view))
        assert len(created(kit, "pods")) == 5


@virtual_time
async def test_an_edited_web_host_reaches_the_ingress() -> None:
    async with OperatorKit(frameworks=[MarsJob], operator=False) as kit:
        await apply(kit.client, [INGRESS_CRD], report=lambda _: None)
        await kit.start_operator()
        job = await kit.submit(kubedl_job(MarsJob, webHost="mars.example.org"))
        await kit.until(job, phase="Running", reached=lambda view: len(view.pods) == 4 and all_run(view))
        await kit.edit(job, {"spec": {"webHost": "new.example.org"}})
        await kit.writes_when_idle()
        ingress = kit.cluster.store.get(ObjectKey("ingresses.networking.k8s.io", "default", "demo-webservice-0"))
        assert ingress is not None
        assert ingress.body["spec"]["rules"][0]["host"] == "new.example.org"
        assert job.status["webServiceAddresses"] == ["new.example.org/mars/default/demo-webservice-0"]
