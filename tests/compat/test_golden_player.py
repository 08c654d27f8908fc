"""The player can fail: whatever is changed in a recording, it finds, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dlop.kube.errors import JsonObject
from dlop.testing.virtual_time import run
from tests.compat.golden_player import Golden
from tests.compat.test_goldens import on_embedded

Change = Callable[[JsonObject], object]

AT_FIRST = "at first"
AT_LAST = "after succeed *"


def container(body: JsonObject) -> JsonObject:
    found: JsonObject = body["objects"]["pods"]["demo-worker-0"]["spec"]["containers"][0]
    return found


def last_job(body: JsonObject) -> JsonObject:
    found: JsonObject = body["steps"][-1]["then"]["job"]
    return found


CHANGES: dict[str, tuple[Change, str, str]] = {
    "a variable": (
        lambda body: container(body).setdefault("env", []).append({"name": "MORE", "value": "1"}),
        AT_FIRST,
        "objects.pods[demo-worker-0].spec.containers[tensorflow].env[MORE]",
    ),
    "a port": (
        lambda body: container(body)["ports"][0].update(containerPort=1),
        AT_FIRST,
        "objects.pods[demo-worker-0].spec.containers[tensorflow].ports[tfjob-port].containerPort",
    ),
    "a label too many": (
        lambda body: body["objects"]["pods"]["demo-worker-0"]["metadata"]["labels"].pop("training.kubeflow.org/job-role"),
        AT_FIRST,
        "objects.pods[demo-worker-0].metadata.labels[training.kubeflow.org/job-role]",
    ),
    "an owner": (
        lambda body: body["objects"]["services"]["demo-worker-0"]["metadata"]["ownerReferences"][0].update(kind="PyTorchJob"),
        AT_FIRST,
        "objects.services[demo-worker-0].metadata.ownerReferences[demo].kind",
    ),
    "an object": (lambda body: body["objects"].update(configmaps={"demo": {}}), AT_FIRST, "objects.configmaps"),
    "a pod": (lambda body: body["settled"]["pods"].update({"demo-worker-1": "Pending"}), AT_FIRST, "view.pods[demo-worker-1]"),
    "a message": (
        lambda body: last_job(body)["conditions"][-1].update(message="else"),
        AT_LAST,
        "view.job.conditions[Succeeded].message",
    ),
    "the order": (lambda body: last_job(body)["conditions"].reverse(), AT_LAST, "view.job.conditions (order)"),
    "a count": (
        lambda body: last_job(body)["replicaStatuses"]["Worker"].update(succeeded=2),
        AT_LAST,
        "view.job.replicaStatuses.Worker.succeeded",
    ),
    "a time": (lambda body: last_job(body).pop("completionTime"), AT_LAST, "view.job.completionTime"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_recording_that_was_changed_is_found_to_be_different_in_that_place(change: str) -> None:
    alter, moment, path = CHANGES[change]
    body = Golden.read("tf-single").body
    alter(body)
    report = run(on_embedded(Golden("tf-changed", body)))
    assert [(wrong.moment, wrong.path) for wrong in report.wrong] == [(moment, path)]
