"""Gang scheduling and queues of the kinds of training.kubedl.io: PodGroups and pods by scheduler, and the AIMaster."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dlop import Options, SpecError
from dlop.api.gang import VOLCANO
from dlop.deploy.apply import apply
from dlop.frameworks.kubedl.base import KubeDLJob
from dlop.frameworks.kubedl.pytorchjob import PyTorchJob
from dlop.frameworks.kubedl.tfjob import TFJob
from dlop.frameworks.kubedl.xdljob import XDLJob
from dlop.frameworks.registry import Registry
from dlop.jobs.render import render
from dlop.kube.resources import PODS, VOLCANO_POD_GROUPS
from dlop.kube.types import JsonObject
from dlop.reconcile.spec_warnings import spec_warnings
from dlop.testing.kit import OperatorKit
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.example_manifests import by_name
from tests.frameworks.kubedl_manifests import KINDS, kubedl_job, role
from tests.frameworks.kubeflow_jobs import all_run
from tests.frameworks.pod_groups import BY_COSCHEDULER, BY_KUBE_BATCH, BY_VOLCANO, PodGroups, pod_group_crd
from tests.unit.job.jobs import make

REGISTRY = Registry(KINDS)
COSCHEDULER_LABEL = "pod-group.scheduling.sigs.k8s.io"
POLICY = {"minAvailable": 3, "priority": 7, "priorityClassName": "high", "queue": "research"}
CPU = {"resources": {"requests": {"cpu": "500m"}}}


def cpu_role(replicas: int, **pod: Any) -> JsonObject:
    return role(replicas, container=CPU, pod=pod)


async def run_job(options: Options, kind: type[KubeDLJob], manifest: JsonObject) -> tuple[JsonObject, dict[str, JsonObject]]:
    """The spec of the PodGroup of a running job, and its pods."""
    scheduler = options.gang_scheduler_name
    async with OperatorKit([kind], operator=False, options=options) as kit:
        await apply(kit.client, [pod_group_crd(scheduler)], report=lambda _: None)
        kit.script.when("*").run()
        await kit.start_operator()
        groups, view = PodGroups(kit.client, scheduler), await kit.submit(manifest)
        if scheduler == VOLCANO:
            await asyncio.sleep(5)
            await groups.set_phase("Inqueue")
        size = sum(entry["replicas"] for entry in manifest["spec"][kind.schema.field].values())
        await kit.until(view, reached=lambda view: len(view.pods) == size and all_run(view), within_seconds=600)
        assert await kit.writes_when_idle() == []
        return await groups.spec(), dict(view.pods)


# --- by scheduler --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "spec", "scheduler", "labels", "annotations"),
    [
        pytest.param(
            BY_VOLCANO,
            {"minMember": 3, "minResources": {"cpu": "1500m"}, "priorityClassName": "high", "queue": "research"},
            "volcano",
            {},
            {"scheduling.k8s.io/group-name": "demo", "volcano.sh/task-spec": "worker"},
            id="volcano",
        ),
        pytest.param(
            BY_KUBE_BATCH,
            {"minMember": 3, "priorityClassName": "high", "queue": "research"},
            "kube-batch",
            {},
            {"scheduling.k8s.io/group-name": "demo"},
            id="kube-batch",
        ),
        pytest.param(
            BY_COSCHEDULER,
            {"minMember": 3, "minResources": {"cpu": "1500m"}},
            "default-scheduler",
            {COSCHEDULER_LABEL: "demo", f"{COSCHEDULER_LABEL}/name": "demo", f"{COSCHEDULER_LABEL}/min-available": "3"},
            {},
            id="kube-coscheduler",
        ),
    ],
)
@virtual_time
async def test_a_job_has_one_pod_group_with_its_scheduling_policy_and_all_pods_reference_it(
    options: Options, spec: JsonObject, scheduler: str, labels: JsonObject, annotations: JsonObject
) -> None:
    roles = {"PS": cpu_role(1), "Scheduler": cpu_role(1), "Worker": cpu_role(2)}
    group, pods = await run_job(options, XDLJob, kubedl_job(XDLJob, roles, schedulingPolicy=POLICY))
    assert group == spec
    assert len(pods) == 4
    plain = by_name(render(kubedl_job(XDLJob, roles), REGISTRY), "Pod")
    for name, pod in pods.items():
        metadata, before = pod["metadata"], plain[name]["metadata"]
        own = {key: value for key, value in metadata["annotations"].items() if not key.startswith("dlop.dev/")}
        expected = {key: value if key != "volcano.sh/task-spec" else before["labels"]["replica-type"] for key, value in annotations.items()}
        assert own == expected
        assert {key: value for key, value in metadata["labels"].items() if "pod-group" in key} == labels
        assert metadata["labels"].keys() - labels.keys() == before["labels"].keys()
        assert pod["spec"]["schedulerName"] == scheduler


@pytest.mark.parametrize("options", [BY_VOLCANO, BY_COSCHEDULER], ids=lambda options: options.gang_scheduler_name)
@pytest.mark.parametrize(("order", "members"), [(None, 1), ('{"Worker": []}', 3)], ids=["default order", "no order"])
@virtual_time
async def test_the_pods_of_roles_that_wait_for_others_are_not_counted(options: Options, order: str | None, members: int) -> None:
    manifest = kubedl_job(TFJob)
    manifest["metadata"]["annotations"] = {} if order is None else {"dlop.dev/start-order": order}
    group, pods = await run_job(options, TFJob, manifest)
    assert group["minMember"] == members
    sizes = {pod["metadata"]["labels"].get(f"{COSCHEDULER_LABEL}/min-available") for pod in pods.values()}
    assert sizes == ({str(members)} if options is BY_COSCHEDULER else {None})


# --- takeover ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [BY_VOLCANO, BY_COSCHEDULER], ids=lambda options: options.gang_scheduler_name)
@virtual_time
async def test_pod_groups_of_kubedl_are_kept_as_long_as_they_have_pods(options: Options) -> None:
    """KubeDL created one PodGroup per role. A pod that replaces one of its pods is not in the same group."""
    scheduler = options.gang_scheduler_name
    async with OperatorKit([XDLJob], operator=False, options=options) as kit:
        await apply(kit.client, [pod_group_crd(scheduler)], report=lambda _: None)
        kit.script.when("*").run()
        groups, view = PodGroups(kit.client, scheduler), await kit.submit(kubedl_job(XDLJob, {"PS": 1, "Worker": 2}))
        await create_objects_of_kubedl(kit, groups, by_name(render(kubedl_job(XDLJob, {"PS": 1, "Worker": 2}), REGISTRY), "Pod"))
        before = {pod["metadata"]["uid"] for pod in (await kit.client.list(PODS, namespace="default"))["items"]}
        await kit.start_operator()
        await kit.until(view, phase="Running", reached=all_run)
        await asyncio.sleep(60)
        assert {pod["metadata"]["uid"] for pod in view.pods.values()} == before
        assert [await groups.get(name) is not None for name in ("demo-ps", "demo-worker", "demo")] == [True] * 3
        assert "minMember" not in await groups.spec()

        if scheduler == VOLCANO:
            await groups.set_phase("Inqueue")
        await kit.client.delete(PODS, "demo-ps-0", namespace="default")
        await kit.until(view, reached=lambda view: {pod["metadata"]["uid"] for pod in view.pods.values()} != before and len(view.pods) == 3)
        await kit.until(view, reached=all_run, within_seconds=60)
        assert [await groups.get(name) is not None for name in ("demo-ps", "demo-worker")] == [False, True]
        assert (await groups.spec())["minMember"] == 1


async def create_objects_of_kubedl(kit: OperatorKit, groups: PodGroups, pods: dict[str, JsonObject]) -> None:
    """The PodGroups and pods of a job that KubeDL runs."""
    job = await kit.client.get(XDLJob.job_type.resource, "demo", namespace="default")
    owner = {
        "apiVersion": "training.kubedl.io/v1alpha1",
        "kind": "XDLJob",
        "name": "demo",
        "uid": job["metadata"]["uid"],
        "controller": True,
    }
    for group, size in {"demo-ps": 1, "demo-worker": 2}.items():
        await groups.create({"metadata": {"name": group, "ownerReferences": [owner]}, "spec": {"minMember": size}})
    for pod in pods.values():
        labels = {key: value for key, value in pod["metadata"]["labels"].items() if not key.startswith("dlop.dev/")}
        metadata = {"name": pod["metadata"]["name"], "labels": labels, "ownerReferences": [owner]}
        group = f"demo-{labels['replica-type']}"
        if groups.resource == VOLCANO_POD_GROUPS:
            metadata["annotations"] = {"scheduling.k8s.io/group-name": group}
        else:
            metadata["labels"] = labels | {COSCHEDULER_LABEL: group, f"{COSCHEDULER_LABEL}/name": group}
        await kit.client.create(PODS, {**pod, "metadata": metadata}, namespace="default")


# --- AIMaster ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [BY_VOLCANO, BY_KUBE_BATCH, BY_COSCHEDULER], ids=lambda options: options.gang_scheduler_name)
@virtual_time
async def test_the_default_scheduler_places_the_ai_master_and_the_other_pods_are_a_gang(options: Options) -> None:
    roles = {"AIMaster": cpu_role(1, schedulerName="volcano"), "Master": cpu_role(1), "Worker": cpu_role(2)}
    manifest = kubedl_job(PyTorchJob, roles)
    manifest["metadata"]["annotations"] = {"dlop.dev/start-order": '{"Worker": [{"role": "AIMaster"}]}'}
    group, pods = await run_job(options, PyTorchJob, manifest)
    assert group["minMember"] == 3
    assert group.get("minResources", {"cpu": "1500m"}) == {"cpu": "1500m"}
    ai_master = pods.pop("demo-aimaster-0")
    assert ai_master["spec"]["schedulerName"] == "default-scheduler"
    keys = [*ai_master["metadata"]["labels"], *ai_master["metadata"]["annotations"]]
    assert not [key for key in keys if "scheduling" in key or "volcano" in key]
    scheduler = "default-scheduler" if options is BY_COSCHEDULER else options.gang_scheduler_name
    assert {pod["spec"]["schedulerName"] for pod in pods.values()} == {scheduler}


@virtual_time
async def test_a_job_with_only_an_ai_master_needs_no_pod_group() -> None:
    async with OperatorKit([TFJob], options=BY_VOLCANO) as kit:
        view = await kit.submit(kubedl_job(TFJob, {"AIMaster": 1, "Worker": 0}))
        await kit.until(view, phase="Running", reached=all_run)
        assert list(view.pods) == ["demo-aimaster-0"]
        assert await kit.writes_when_idle() == []


def test_without_gang_scheduling_the_scheduler_of_an_ai_master_is_that_of_its_template() -> None:
    manifest = kubedl_job(TFJob, {"AIMaster": cpu_role(1, schedulerName="mine"), "Worker": 1})
    pods = by_name(render(manifest, REGISTRY), "Pod")
    assert pods["demo-aimaster-0"]["spec"]["schedulerName"] == "mine"
    assert "schedulerName" not in pods["demo-worker-0"]["spec"]


# --- warnings and bad input ----------------------------------------------------------------------------------------------


def warnings(kind: type[KubeDLJob], roles: JsonObject | None = None, *, options: Options, **spec: Any) -> list[str]:
    job = make(kind, kubedl_job(kind, roles, **spec)["spec"], name="demo", options=options)
    return [str(warning) for warning in spec_warnings(job)]


def test_an_ai_master_does_not_count_for_min_available_and_may_name_any_scheduler() -> None:
    roles = {"AIMaster": cpu_role(1, schedulerName="mine"), "Worker": 2}
    assert warnings(TFJob, roles, options=BY_VOLCANO, schedulingPolicy={"minAvailable": 2}) == []
    [warning] = warnings(TFJob, roles, options=BY_VOLCANO, schedulingPolicy={"minAvailable": 3})
    assert warning.startswith("spec.schedulingPolicy.minAvailable: is 3, but the job has only 2 pods")


NO_QUEUE = "has an effect only with a gang scheduler that has queues (volcano, kube-batch), or with Kueue and the permission set kueue"
NO_KUEUE = (
    "has no effect without a gang scheduler that has queues (volcano, kube-batch) or Kueue; for a queue of Kueue the operator must be "
    "able to read workloads.kueue.x-k8s.io: install Kueue 0.15 or newer, and add `--with kueue:default`, or `--with kueue` for all "
    "namespaces, to the `dlop deploy` line that was used"
)
QUEUE: JsonObject = {"queue": "research"}
QUEUE_LABELS = {"kueue.x-k8s.io/queue-name": "research"}


@pytest.mark.parametrize(
    ("options", "spec", "expected"),
    [
        (Options(), {"schedulingPolicy": QUEUE}, [f"spec.schedulingPolicy.queue: {NO_QUEUE}"]),
        (Options(), {"runPolicy": {"schedulingPolicy": QUEUE}}, [f"spec.runPolicy.schedulingPolicy.queue: {NO_QUEUE}"]),
        (BY_COSCHEDULER, {"schedulingPolicy": QUEUE}, [f"spec.schedulingPolicy.queue: {NO_QUEUE}"]),
        (BY_VOLCANO, {"schedulingPolicy": QUEUE}, []),
        (BY_KUBE_BATCH, {"schedulingPolicy": QUEUE}, []),
        (Options(), {"schedulingPolicy": {"queue": ""}}, []),
        (Options(), {}, []),
    ],
)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.job_type.kind)
def test_a_queue_that_nothing_reads_is_reported(kind: type[KubeDLJob], options: Options, spec: dict[str, Any], expected: list[str]) -> None:
    assert warnings(kind, options=options, **spec) == expected


def test_a_queue_is_not_reported_if_the_job_or_its_pods_are_labelled_for_kueue() -> None:
    labelled = make(TFJob, kubedl_job(TFJob, schedulingPolicy=QUEUE)["spec"], name="demo", labels=QUEUE_LABELS)
    assert list(spec_warnings(labelled)) == []
    worker = role(2)
    worker["template"]["metadata"] = {"labels": QUEUE_LABELS}
    assert warnings(TFJob, {"PS": 1, "Worker": worker}, options=Options(), schedulingPolicy=QUEUE) == []


@virtual_time
async def test_a_queue_that_nothing_reads_is_one_event() -> None:
    async with OperatorKit([TFJob]) as kit:
        view = await kit.submit(kubedl_job(TFJob, schedulingPolicy=QUEUE))
        await kit.until(view, phase="Running", reached=all_run)
        await kit.operator.crash()
        await kit.start_operator()
        assert await kit.writes_when_idle() == []
        assert [note for reason, note in view.events if reason == "QueueIgnored"] == [f"spec.schedulingPolicy.queue: {NO_KUEUE}"]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({"queue": 5}, "spec.schedulingPolicy.queue: must be a string, got 5"),
        ({"queue": ["a"]}, "spec.schedulingPolicy.queue: must be a string"),
        ({"minAvailable": "many"}, "spec.schedulingPolicy.minAvailable: must be an integer"),
        ({"minAvailable": -1}, "spec.schedulingPolicy.minAvailable: must be"),
        ({"priorityClassName": {}}, "spec.schedulingPolicy.priorityClassName: "),
        ("research", "spec.schedulingPolicy: must be an object"),
    ],
)
@pytest.mark.parametrize("options", [Options(), BY_KUBE_BATCH, BY_COSCHEDULER], ids=lambda options: options.gang_scheduler_name)
def test_problems_of_a_scheduling_policy_name_the_field(options: Options, policy: Any, expected: str) -> None:
    with pytest.raises(SpecError) as error:
        warnings(XDLJob, options=options, schedulingPolicy=policy)
    assert [str(problem).startswith(expected) for problem in error.value.problems] == [True], error.value.problems
