"""Jobs that name a queue, in clusters with and without Kueue, on both API servers: admitted, evicted, scaled, suspended and finished."""

from __future__ import annotations

import asyncio

import pytest
from real_cluster import RealCluster

from dlop.api.constants import QUEUE_LABEL
from dlop.api.types import Options
from dlop.deploy.apply import apply
from dlop.frameworks.batch_paddlepaddle.paddlejob import PaddleJob as BatchPaddleJob
from dlop.frameworks.kubedl.xdljob import XDLJob
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.job import DLJob
from dlop.kube.resources import EVENTS, PRIORITY_CLASSES, WORKLOAD_PRIORITY_CLASSES
from dlop.kube.transport import Transport
from dlop.kube.types import JsonObject
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.kubedl_manifests import KINDS as KUBEDL_KINDS
from tests.frameworks.kubedl_manifests import ROLES, kubedl_job, role
from tests.frameworks.kubeflow_jobs import job as kubeflow_job
from tests.frameworks.kueue_workloads import KUEUE_CRDS, WorkloadKueue
from tests.frameworks.paddle_manifests import batch_job, batch_role
from tests.frameworks.pod_groups import PodGroups, pod_group_crd
from tests.frameworks.sandbox import Clock, Sandbox, open_sandbox, run_embedded, run_real
from tests.shared_clusters import Clusters, ClusterSpec

QUEUE = {"queue": "research"}


@pytest.fixture(scope="module")
def cluster(clusters: Clusters) -> RealCluster:
    """A control plane of its own: with the CRDs of Kueue, the jobs of other tests would wait in queues."""
    return clusters.get(ClusterSpec(name="kueue"))


def queued(kind: type[DLJob]) -> JsonObject:
    """A job that names a queue."""
    if kind is PyTorchJob:
        return kubeflow_job(PyTorchJob, runPolicy={"schedulingPolicy": QUEUE})
    if kind is BatchPaddleJob:
        paddle_job = batch_job(worker=batch_role(2), schedulingPolicy=QUEUE, intranet="Service")
        return {**paddle_job, "metadata": {**paddle_job["metadata"], "name": "demo"}}
    for kubedl_kind in KUBEDL_KINDS:
        if kind is kubedl_kind:
            roles = {name: role(replicas, restartPolicy="Never") for name, replicas in ROLES[kubedl_kind].items()}
            return kubedl_job(kubedl_kind, roles, runPolicy={"schedulingPolicy": QUEUE, "ttlSecondsAfterFinished": 600})
    raise LookupError(kind)


async def start(sandbox: Sandbox) -> WorkloadKueue:
    kueue = WorkloadKueue(sandbox.client, sandbox.namespace)
    await kueue.create_flavors("spot", "reserved")
    sandbox.start()
    return kueue


async def until_queued(sandbox: Sandbox, kueue: WorkloadKueue) -> JsonObject:
    """Wait until the job has a Workload, and check that nothing runs without quota."""
    await sandbox.until_condition("Suspended")
    await sandbox.until(kueue.workload)
    await sandbox.settle()
    assert not await sandbox.has_children()
    workload = await kueue.workload()
    assert workload is not None
    return workload


async def has_no_children(sandbox: Sandbox) -> bool:
    return not await sandbox.has_children()


async def admit_evict_and_finish(transport: Transport, clock: Clock, kind: type[DLJob]) -> None:
    """Every step is taken by another operator than the one before."""
    async with open_sandbox(transport, kind, clock=clock, further_crds=KUEUE_CRDS) as sandbox:
        sandbox.script.when("*", times=1).run()
        sandbox.script.when("*").run().after(3).succeed()
        kueue = await start(sandbox)
        await sandbox.submit(queued(kind))
        workload = await until_queued(sandbox, kueue)
        size = sum(pod_set["count"] for pod_set in workload["spec"]["podSets"])
        assert workload["spec"]["queueName"] == "research"
        assert (await sandbox.condition("Suspended") or {})["reason"] == "Queued"
        assert "startTime" not in await sandbox.status()
        uid = workload["metadata"]["uid"]

        await sandbox.restart()
        await kueue.admit("spot")
        await sandbox.until_condition("Running")
        await check_pods(sandbox, size, "spot")
        first = await sandbox.pod_uids()
        await sandbox.settle()
        assert (await kueue.conditions())["PodsReady"] == ("True", "Started")

        await sandbox.restart()
        await sandbox.settle()
        assert await sandbox.pod_uids() == first
        await kueue.evict()
        await sandbox.until_condition("Suspended")
        await sandbox.until(lambda: has_no_children(sandbox))
        await sandbox.settle()
        assert not await kueue.holds_quota()
        conditions = await kueue.conditions()
        assert conditions["Requeued"] == ("True", "Preempted")
        assert conditions["PodsReady"] == ("False", "WaitForStart")
        assert (await sandbox.condition("Suspended") or {})["message"] == "Kueue has evicted the job (Preempted): Preempted by Kueue"

        await sandbox.restart()
        await kueue.admit("reserved")
        await sandbox.until(lambda: has_pods(sandbox, size))
        await check_pods(sandbox, size, "reserved")
        assert not set((await sandbox.pod_uids()).values()) & set(first.values())
        await sandbox.until_condition("Succeeded")
        await sandbox.settle()
        assert (await kueue.conditions())["Finished"] == ("True", "Succeeded")
        finished = await kueue.workload()
        assert finished is not None
        assert finished["metadata"]["uid"] == uid

        await sandbox.restart()
        await sandbox.settle()
        assert sandbox.writes("workloads") == []
        assert await sandbox.event_count("QueueIgnored") == 0


async def has_pods(sandbox: Sandbox, count: int) -> bool:
    return len(await sandbox.pods()) == count


async def check_pods(sandbox: Sandbox, count: int, flavor: str) -> None:
    pods = await sandbox.pods()
    assert len(pods) == count
    for name, pod in pods.items():
        assert pod["spec"]["nodeSelector"] == {"flavor": flavor}, name
        assert {"key": flavor, "operator": "Exists", "effect": "NoSchedule"} in pod["spec"]["tolerations"], name
        assert "kueue.x-k8s.io/podset" in pod["metadata"]["labels"], name


async def fail(transport: Transport, clock: Clock) -> None:
    """The quota of a job that fails is returned, and says why."""
    async with open_sandbox(transport, XDLJob, clock=clock, further_crds=KUEUE_CRDS) as sandbox:
        sandbox.script.when("*").run().after(1).fail(1)
        kueue = await start(sandbox)
        await sandbox.submit(queued(XDLJob))
        await until_queued(sandbox, kueue)
        await kueue.admit("spot")
        await sandbox.until_condition("Failed")
        await sandbox.settle()
        assert (await kueue.conditions())["Finished"] == ("True", "Failed")


async def change(transport: Transport, clock: Clock) -> None:
    """A job waits for quota again when its size or its queue changes, when it is resumed, and when its Workload is deleted."""
    async with open_sandbox(transport, XDLJob, clock=clock, further_crds=KUEUE_CRDS) as sandbox:
        sandbox.script.when("*").run()
        kueue = await start(sandbox)
        await sandbox.submit(queued(XDLJob))
        await until_queued(sandbox, kueue)
        await kueue.admit("spot")
        await sandbox.until_running(4)

        await sandbox.edit({"spec": {"xdlReplicaSpecs": {"Worker": {"replicas": 3}}}})
        await sandbox.until_condition("Suspended")
        await sandbox.until(lambda: asks_for(kueue, {"ps": 1, "scheduler": 1, "worker": 3}))
        await sandbox.settle()
        assert not await sandbox.has_children()
        await kueue.admit("spot")
        await sandbox.until_running(5)

        await sandbox.edit({"spec": {"runPolicy": {"suspend": True}}})
        await sandbox.until_condition("Suspended")
        await sandbox.settle()
        assert await kueue.workload() is None
        await sandbox.edit({"spec": {"runPolicy": {"suspend": False}}})
        await sandbox.until(kueue.workload)
        await sandbox.settle()
        assert not await sandbox.has_children()
        await kueue.admit("spot")
        await sandbox.until_running(5)

        await kueue.delete()
        await sandbox.until_condition("Suspended")
        await until_queued(sandbox, kueue)
        await kueue.admit("spot")
        await sandbox.until_running(5)

        # An image does not change the quota.
        before = await sandbox.pod_uids()
        template = role(container={"name": "xdl", "image": "example.org/train:2"})["template"]
        await sandbox.edit({"spec": {"xdlReplicaSpecs": {"Worker": {"template": template}}}})
        await sandbox.settle()
        assert await sandbox.pod_uids() == before
        assert (await kueue.conditions())["Admitted"] == ("True", "Admitted")


async def asks_for(kueue: WorkloadKueue, counts: dict[str, int]) -> bool:
    workload = await kueue.workload()
    return workload is not None and {each["name"]: each["count"] for each in workload["spec"]["podSets"]} == counts


async def leave_the_queue(transport: Transport, clock: Clock) -> None:
    """A job whose queue is removed starts without quota, and its Workload is deleted."""
    async with open_sandbox(transport, XDLJob, clock=clock, further_crds=KUEUE_CRDS) as sandbox:
        sandbox.script.when("*").run()
        kueue = await start(sandbox)
        await sandbox.submit(kubedl_job(XDLJob, schedulingPolicy=QUEUE))
        await until_queued(sandbox, kueue)
        await sandbox.edit({"spec": {"schedulingPolicy": None}})
        await sandbox.until_running(4)
        await sandbox.settle()
        assert await kueue.workload() is None
        assert "queue" not in (await sandbox.status())["dlop"]


async def install_kueue_later(transport: Transport, clock: Clock) -> None:
    """A job that runs when Kueue is installed continues. One that is suspended and resumed afterwards waits in its queue."""
    async with open_sandbox(transport, XDLJob, clock=clock) as sandbox:
        sandbox.script.when("*").run()
        sandbox.start()
        await sandbox.submit(queued(XDLJob))
        await sandbox.until_running(4)
        await sandbox.settle()
        pods = await sandbox.pod_uids()
        assert await sandbox.event_count("QueueIgnored") == 1
        (event,) = [event for event in (await sandbox.all(EVENTS)).values() if event["reason"] == "QueueIgnored"]
        assert "workloads.kueue.x-k8s.io" in event["note"]
        assert "--with kueue" in event["note"]

        await apply(sandbox.client, KUEUE_CRDS, report=lambda _: None)
        kueue = WorkloadKueue(sandbox.client, sandbox.namespace)
        await sandbox.restart()
        await sandbox.settle()
        assert await sandbox.pod_uids() == pods
        assert await kueue.workloads() == []

        await sandbox.edit({"spec": {"runPolicy": {"suspend": True}}})
        await sandbox.until(lambda: has_no_children(sandbox))
        await sandbox.edit({"spec": {"runPolicy": {"suspend": False}}})
        await until_queued(sandbox, kueue)


async def prioritize(transport: Transport, clock: Clock) -> None:
    """The priority of a job in its queue: `priority`, or the class of its label, of its policy, or of its pods."""
    async with open_sandbox(transport, XDLJob, clock=clock, further_crds=KUEUE_CRDS) as sandbox:
        await start(sandbox)
        suffix = sandbox.namespace
        kueue_class, pod_class = f"kueue-{suffix}", f"pods-{suffix}"
        for resource, name, value in ((WORKLOAD_PRIORITY_CLASSES, kueue_class, 30), (PRIORITY_CLASSES, pod_class, 20)):
            body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "value": value}
            await sandbox.client.create(resource, body)
        jobs = {
            "number": kubedl_job(XDLJob, name="number", schedulingPolicy={**QUEUE, "priority": 7, "priorityClassName": pod_class}),
            "label": kubedl_job(XDLJob, name="label", schedulingPolicy={**QUEUE, "priorityClassName": pod_class}),
            "policy": kubedl_job(XDLJob, name="policy", schedulingPolicy={**QUEUE, "priorityClassName": pod_class}),
            "pods": kubedl_job(XDLJob, {"Worker": role(pod={"priorityClassName": pod_class})}, name="pods", schedulingPolicy=QUEUE),
            "unknown": kubedl_job(XDLJob, name="unknown", schedulingPolicy={**QUEUE, "priorityClassName": "none"}),
        }
        jobs["label"]["metadata"]["labels"] = {"kueue.x-k8s.io/priority-class": kueue_class}
        kueue = WorkloadKueue(sandbox.client, sandbox.namespace)
        for manifest in jobs.values():
            await sandbox.submit(manifest)

        async def all_queued() -> bool:
            return len(await kueue.workloads()) == len(jobs)

        await sandbox.until(all_queued)
        specs = {each["metadata"]["ownerReferences"][0]["name"]: each["spec"] for each in await kueue.workloads()}
        assert {name: spec["priority"] for name, spec in specs.items()} == {
            "number": 7,
            "label": 30,
            "policy": 20,
            "pods": 20,
            "unknown": 0,
        }
        references = {name: spec.get("priorityClassRef", {}).get("name") for name, spec in specs.items()}
        assert references == {"number": None, "label": kueue_class, "policy": pod_class, "pods": pod_class, "unknown": None}
        for resource, name in ((WORKLOAD_PRIORITY_CLASSES, kueue_class), (PRIORITY_CLASSES, pod_class)):
            await sandbox.client.delete(resource, name)


async def apply_checks(transport: Transport, clock: Clock) -> None:
    """Pods get what the admission checks add, and wait until their ResourceFlavor exists."""
    async with open_sandbox(transport, XDLJob, clock=clock, further_crds=KUEUE_CRDS) as sandbox:
        sandbox.script.when("*").run()
        kueue = await start(sandbox)
        await sandbox.submit(queued(XDLJob))
        await until_queued(sandbox, kueue)
        late = f"late-{sandbox.namespace}"
        updates = [{"name": "worker", "labels": {"zone": "b"}, "annotations": {"node": "new"}, "nodeSelector": {"reserved": "yes"}}]
        await kueue.admit(late, checks=[{"name": "provision", "state": "Ready", "podSetUpdates": updates}])
        await sandbox.settle()
        assert await sandbox.pods() == {}

        await kueue.create_flavors(late)
        await sandbox.until_running(4)
        pods = await sandbox.pods()
        assert pods["demo-ps-0"]["spec"]["nodeSelector"] == {"flavor": late}
        for name in ("demo-worker-0", "demo-worker-1"):
            assert pods[name]["spec"]["nodeSelector"] == {"flavor": late, "reserved": "yes"}
            assert pods[name]["metadata"]["labels"]["zone"] == "b"
            assert pods[name]["metadata"]["annotations"]["node"] == "new"


async def keep_the_label(transport: Transport, clock: Clock) -> None:
    """A job with the label of Kueue is left to Kueue."""
    async with open_sandbox(transport, PyTorchJob, clock=clock, further_crds=KUEUE_CRDS) as sandbox:
        sandbox.script.when("*").run()
        kueue = await start(sandbox)
        manifest = queued(PyTorchJob)
        manifest["metadata"]["labels"] = {QUEUE_LABEL: "research"}
        await sandbox.submit(manifest)
        await sandbox.until_condition("Running")
        await sandbox.settle()
        assert await kueue.workloads() == []


async def recover(transport: Transport, clock: Clock) -> None:
    """While lost pods are replaced, the Workload says that the pods are not ready, and keeps its quota."""
    async with open_sandbox(transport, XDLJob, clock=clock, further_crds=KUEUE_CRDS) as sandbox:
        sandbox.script.when("demo-worker-0", times=1).run().after(4).fail(137)
        sandbox.script.when("demo-worker-0", times=1).until_released().run()
        sandbox.script.when("*").run()
        kueue = await start(sandbox)
        manifest = kubedl_job(XDLJob, {"PS": 1, "Worker": role(1, restartPolicy="ExitCode")}, schedulingPolicy=QUEUE)
        await sandbox.submit(manifest)
        await until_queued(sandbox, kueue)
        await kueue.admit("spot")

        async def has(status: str, reason: str) -> bool:
            return (await kueue.conditions()).get("PodsReady") == (status, reason)

        await sandbox.until(lambda: has("True", "Started"))
        await sandbox.until(lambda: has("False", "WaitForRecovery"))
        assert await kueue.holds_quota()
        await sandbox.until(lambda: has_pods(sandbox, 2))
        sandbox.kubelet.release(f"{sandbox.namespace}/demo-worker-0")
        await sandbox.until(lambda: has("True", "Started"))
        assert (await sandbox.pods())["demo-worker-0"]["spec"]["nodeSelector"] == {"flavor": "spot"}


SCENARIOS = (fail, change, leave_the_queue, prioritize, apply_checks, keep_the_label, recover)


@pytest.mark.parametrize("kind", [*KUBEDL_KINDS, PyTorchJob, BatchPaddleJob], ids=lambda kind: f"{kind.__module__}-{kind.__name__}")
@virtual_time
async def test_a_job_is_admitted_evicted_and_finished_on_the_embedded_server(kind: type[DLJob]) -> None:
    await run_embedded(admit_evict_and_finish, kind)


@pytest.mark.parametrize("scenario", [*SCENARIOS, install_kueue_later], ids=lambda scenario: scenario.__name__)
@virtual_time
async def test_queues_on_the_embedded_server(scenario: object) -> None:
    assert callable(scenario)
    await run_embedded(scenario)


async def test_queues_on_the_real_server(cluster: RealCluster) -> None:
    async with asyncio.TaskGroup() as group:
        for kind in (XDLJob, PyTorchJob):
            group.create_task(run_real(admit_evict_and_finish, cluster, kind), name=kind.__name__)
        for scenario in SCENARIOS:
            group.create_task(run_real(scenario, cluster), name=scenario.__name__)


@virtual_time
async def test_a_job_waits_for_its_queue_before_its_pod_group() -> None:
    await run_embedded(wait_for_the_gang)


async def wait_for_the_gang(transport: Transport, clock: Clock) -> None:
    """The scheduler has no queues, so the queue is that of Kueue. The PodGroup is created after the admission by Kueue."""
    options = Options(gang_scheduler_name="scheduler-plugins-scheduler")
    crds = (*KUEUE_CRDS, pod_group_crd(options.gang_scheduler_name))
    async with open_sandbox(transport, XDLJob, clock=clock, options=options, further_crds=crds) as sandbox:
        sandbox.script.when("*").run()
        kueue, groups = await start(sandbox), PodGroups(sandbox.client, options.gang_scheduler_name, namespace=sandbox.namespace)
        await sandbox.submit(queued(XDLJob))
        await until_queued(sandbox, kueue)
        assert await groups.get() is None
        await kueue.admit("spot")
        await sandbox.until_running(4)
        assert await groups.get() is not None
        await kueue.evict()
        await sandbox.until(lambda: has_no_children(sandbox))
        await sandbox.settle()
        assert await groups.get() is None
