"""Large jobs: pods are rendered when they are sent, and a job that no API server can hold is refused before its first pod."""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest

from dlop import DLJob
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.frameworks.kubeflow.tfjob import TFJob
from dlop.frameworks.registry import Registry
from dlop.jobs.render import parse_job
from dlop.kube.objects import CustomObject, ObjectMeta, Pod, object_decoder
from dlop.kube.types import JsonObject
from dlop.reconcile.plan import Plan
from dlop.reconcile.snapshot import Snapshot
from tests.frameworks.kubeflow_manifests import manifest

MEGABYTE = 1 << 20
read_pod = object_decoder(Pod)


def plan(kind: type[DLJob], workers: int) -> Plan:
    return parse_job(manifest(kind, {"Worker": workers}), Registry([kind])).reconcile(Snapshot(), 0.0)


def failed_condition(result: Plan) -> JsonObject:
    assert result.status is not None
    condition: JsonObject = next(condition for condition in result.status["conditions"] if condition["type"] == "Failed")
    return condition


def test_a_plan_does_not_contain_the_bodies_of_its_pods() -> None:
    plan(TFJob, 1)  # import everything
    tracemalloc.start()
    try:
        planned = plan(TFJob, 2_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    pod_bytes = len(msgspec.json.encode(planned.pods[0].body))
    assert len(planned.pods) * pod_bytes > 100 * MEGABYTE
    assert peak < 15 * MEGABYTE


def test_a_job_that_is_larger_than_the_api_server_is_refused_before_its_first_pod() -> None:
    refused = plan(TFJob, 10_000)
    assert not refused.creates
    assert failed_condition(refused)["reason"] == "InvalidSpec"
    message = failed_condition(refused)["message"]
    assert message.startswith("spec.tfReplicaSpecs.Worker.replicas: the pods of this job need 3.")
    assert "more than the limit of 1 GiB; use fewer replicas" in message
    assert [(event.reason, event.message) for event in refused.events] == [("InvalidSpec", message)]


def stored_job(workers: int, *, generation: int, status: JsonObject) -> TFJob:
    body = manifest(TFJob, {"Worker": workers})
    metadata = ObjectMeta(name="train", namespace="default", uid="u", generation=generation)
    spec, encoded_status = (msgspec.Raw(msgspec.json.encode(part)) for part in (body["spec"], status))
    return TFJob(CustomObject(metadata=metadata, spec=spec, status=encoded_status))


def test_a_job_that_is_scaled_beyond_the_limit_keeps_its_pods_and_gets_no_more() -> None:
    started = stored_job(1, generation=1, status={}).reconcile(Snapshot(), 0.0)
    snapshot = Snapshot(pods=tuple(read_pod(msgspec.json.encode(create.body)) for create in started.pods))
    blocked = stored_job(10_000, generation=2, status=started.status or {}).reconcile(snapshot, 0.0)
    assert blocked.status is not None
    assert [condition["type"] for condition in blocked.status["conditions"]] == ["Created", "Blocked"]
    assert blocked.status["conditions"][-1]["reason"] == "InvalidSpec"
    after = stored_job(10_000, generation=2, status=blocked.status).reconcile(snapshot, 0.0)
    assert (blocked.creates, blocked.deletes, after) == ((), (), Plan())


@pytest.mark.parametrize(("kind", "workers"), [(TFJob, 2_000), (PyTorchJob, 10_000)])
def test_a_large_job_within_the_limit_is_created(kind: type[DLJob], workers: int) -> None:
    assert len(plan(kind, workers).pods) == workers
