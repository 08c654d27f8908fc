"""Known bugs of Kubeflow's operator, by their numbers: none of them is here. Those of one kind are in the tests of that kind."""

from __future__ import annotations

import pytest

from dlop import DLJob
from dlop.frameworks.kubeflow.jaxjob import JAXJob
from dlop.frameworks.kubeflow.paddlejob import PaddleJob
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.frameworks.kubeflow.tfjob import TFJob
from dlop.frameworks.kubeflow.xgboostjob import XGBoostJob
from dlop.kube.errors import JsonObject
from dlop.kube.resources import PODS
from dlop.testing.job_view import JobView
from dlop.testing.kit import OperatorKit
from dlop.testing.virtual_time import virtual_time
from tests.compat.kubeflow_manifests import KINDS, manifest, role


def leading(kind: type[DLJob], replicas: int = 1) -> dict[str, int | JsonObject]:
    """The roles of a small job of any kind."""
    return {next(name for name in ("Master", "Worker") if name in {each.name for each in kind.replica_types}): replicas}


def uids(job: JobView) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in job.pods.items()}


@pytest.mark.parametrize("kind", [XGBoostJob, JAXJob, PaddleJob])
@virtual_time
async def test_bug_5_is_not_there_a_pod_that_is_drained_does_not_fail_the_job(kind: type[DLJob]) -> None:
    name, _ = next(iter(leading(kind).items()))
    async with OperatorKit(frameworks=[kind]) as kit:
        kit.script.when("*", times=1).run().after(60).evict()
        kit.script.when("*").run().after(60).succeed()
        found = await kit.submit(manifest(kind, {name: role(kind, 1, restartPolicy="Never")}, runPolicy={"backoffLimit": 0}))
        await kit.until(found, phase="Succeeded")
        assert found.condition("Failed") is None


@virtual_time
async def test_bug_7_is_not_there_a_job_whose_pods_are_refused_says_so() -> None:
    wrong = role(TFJob)
    wrong["template"]["spec"]["containers"][0]["ports"] = [{"name": "NOT A NAME", "containerPort": 1}]
    async with OperatorKit(frameworks=[TFJob]) as kit:
        found = await kit.submit(manifest(TFJob, {"Worker": wrong}))
        await kit.until(found, reached=lambda view: view.condition("Blocked") is not None)
        conditions = found.status["conditions"]
        assert [each["type"] for each in conditions] == ["Created", "Blocked"]
        assert "NOT A NAME" in conditions[-1]["message"]


@virtual_time
async def test_bug_15_is_not_there_a_worker_needs_no_init_container_to_find_the_name_of_its_master() -> None:
    async with OperatorKit(frameworks=[PyTorchJob]) as kit:
        found = await kit.submit(manifest(PyTorchJob, {"Master": 1, "Worker": 1}))
        await kit.until(found, reached=lambda view: len(view.pods) == 2)
        assert all("initContainers" not in pod["spec"] for pod in found.pods.values())
        assert all(service["spec"]["publishNotReadyAddresses"] for service in found.services.values())
        order = [write.request.path.rpartition("/")[2] for write in kit.writes if write.request.method == "POST"]
        assert order.index("pods") > max(place for place, what in enumerate(order) if what == "services")


@virtual_time
async def test_bug_18_is_not_there_a_replica_that_is_done_is_not_run_again_when_its_pod_is_collected() -> None:
    async with OperatorKit(frameworks=[JAXJob]) as kit:
        kit.script.when("*-worker-0").run().after(60).succeed()
        kit.script.when("*-worker-1").run().after(600).succeed()
        found = await kit.submit(manifest(JAXJob, {"Worker": 2}))
        await kit.until(found, reached=lambda view: view.status.get("replicaStatuses", {}).get("Worker", {}).get("succeeded") == 1)
        await kit.client.delete(PODS, "demo-worker-0", namespace="default")
        await kit.until(found, phase="Succeeded")
        assert list(found.pods) == ["demo-worker-1"]
        assert found.status["replicaStatuses"]["Worker"]["succeeded"] == 2


@virtual_time
async def test_bug_18_is_not_there_a_pod_of_a_lost_node_is_replaced() -> None:
    async with OperatorKit(frameworks=[PyTorchJob]) as kit:
        kit.script.when("*-worker-0", times=1).run().after(60).lose_node()
        kit.script.when("*").run().after(3600).succeed()
        found = await kit.submit(manifest(PyTorchJob, {"Master": 1, "Worker": 1}))
        await kit.until(found, phase="Running")
        first = uids(found)["demo-worker-0"]
        await kit.until(found, reached=lambda view: uids(view).get("demo-worker-0", first) != first, within_seconds=1800)
        await kit.until(found, phase="Succeeded")


@virtual_time
async def test_bug_19_is_not_there_a_suspended_job_leaves_no_service_behind() -> None:
    async with OperatorKit(frameworks=[PyTorchJob]) as kit:
        kit.script.when("*-worker-*").run().after(60).succeed()
        kit.script.when("*").run()
        found = await kit.submit(manifest(PyTorchJob, {"Master": 1, "Worker": 1}))
        await kit.until(found, reached=lambda view: view.pod_phases.get("demo-worker-0") == "Succeeded")
        await kit.until(found, reached=lambda view: view.status["replicaStatuses"]["Worker"].get("succeeded") == 1)
        await kit.client.delete(PODS, "demo-worker-0", namespace="default")
        await kit.edit(found, {"spec": {"runPolicy": {"suspend": True}}})
        await kit.until(found, reached=lambda view: not view.pods and not view.services)


@pytest.mark.parametrize("kind", KINDS)
@virtual_time
async def test_bug_20_is_not_there_the_whole_job_can_be_restarted_together(kind: type[DLJob]) -> None:
    names = [each.name for each in kind.replica_types]
    first = next(name for name in ("Master", "Scheduler", "Worker") if name in names)
    roles: dict[str, int | JsonObject] = {first: role(kind, 1, restartPolicy="OnFailure")}
    if first != "Worker":
        roles["Worker"] = role(kind, 1, restartPolicy="OnFailure")
    else:
        roles["Worker"] = role(kind, 2, restartPolicy="OnFailure")
    broken = "*-worker-0" if first != "Worker" else "*-worker-1"
    async with OperatorKit(frameworks=[kind]) as kit:
        kit.script.when(broken, times=1).run().after(60).fail(exit_code=1)
        kit.script.when("*").run().after(600).succeed()
        found = await kit.submit(manifest(kind, roles, runPolicy={"restartScope": "Job"}))
        await kit.until(found, phase="Running")
        before = uids(found)
        await kit.until(found, phase="Succeeded")
        assert len(before) == 2
        assert not set(before.values()) & set(uids(found).values())


@pytest.mark.parametrize("kind", KINDS)
@virtual_time
async def test_bugs_10_and_22_are_not_there_a_job_at_rest_costs_neither_writes_nor_events(kind: type[DLJob]) -> None:
    async with OperatorKit(frameworks=[kind]) as kit:
        kit.script.when("*").run()
        found = await kit.submit(manifest(kind, leading(kind)))
        await kit.until(found, reached=lambda view: "Running" in view.pod_phases.values())
        assert await kit.writes_at_rest() == []
        await kit.edit(found, {"spec": {"runPolicy": {"suspend": True}}})
        await kit.until(found, phase="Suspended")
        assert await kit.writes_at_rest() == []
