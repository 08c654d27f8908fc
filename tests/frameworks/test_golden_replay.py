"""The replay detects every change of a recording, and reports nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from dlop.api.gang import VOLCANO
from dlop.deploy.apply import apply
from dlop.embedded.apiserver.faults import RequestMatch
from dlop.kube.resources import CONFIG_MAPS, HORIZONTAL_POD_AUTOSCALERS, ROLES, SCHEDULER_PLUGINS_POD_GROUPS, VOLCANO_POD_GROUPS, Resource
from dlop.kube.types import JsonObject
from dlop.testing.virtual_time import run
from tests.frameworks.golden_checker import AT_THE_END, RecordingChecker, Report
from tests.frameworks.golden_recordings import Golden, golden_names
from tests.frameworks.golden_replay import replay
from tests.frameworks.golden_runs import embedded_report, embedded_sandbox, replay_embedded
from tests.frameworks.golden_sandbox import REAL_SERVER
from tests.frameworks.pod_groups import PLUGINS, pod_group_crd

pytestmark = pytest.mark.selftest

INITIAL_STATE = "initial state"
LAST_STEP = "after succeed *"


class Change(NamedTuple):
    """A change of a recording, and the step and path at which the replay must report it."""

    golden: str
    alter: Callable[[JsonObject], object]
    step: str
    path: str


def pod(body: JsonObject, name: str = "demo-worker-0") -> JsonObject:
    recorded_pod: JsonObject = body["objects"]["pods"][name]
    return recorded_pod


def container(body: JsonObject, pod_name: str = "demo-worker-0") -> JsonObject:
    first: JsonObject = pod(body, pod_name)["spec"]["containers"][0]
    return first


def last_status(body: JsonObject) -> JsonObject:
    status: JsonObject = body["steps"][-1]["then"]["job"]
    return status


CHANGES: dict[str, Change] = {
    "a variable": Change(
        "tf-single",
        lambda body: container(body).setdefault("env", []).append({"name": "MORE", "value": "1"}),
        INITIAL_STATE,
        "objects.pods[demo-worker-0].spec.containers[tensorflow].env[MORE]",
    ),
    "a port": Change(
        "tf-single",
        lambda body: container(body)["ports"][0].update(containerPort=1),
        INITIAL_STATE,
        "objects.pods[demo-worker-0].spec.containers[tensorflow].ports[tfjob-port].containerPort",
    ),
    "an additional label": Change(
        "tf-single",
        lambda body: pod(body)["metadata"]["labels"].pop("training.kubeflow.org/job-role"),
        INITIAL_STATE,
        "objects.pods[demo-worker-0].metadata.labels[training.kubeflow.org/job-role]",
    ),
    "an owner": Change(
        "tf-single",
        lambda body: body["objects"]["services"]["demo-worker-0"]["metadata"]["ownerReferences"][0].update(kind="PyTorchJob"),
        INITIAL_STATE,
        "objects.services[demo-worker-0].metadata.ownerReferences[demo].kind",
    ),
    "an object": Change(
        "tf-single", lambda body: body["objects"].update(configmaps={"demo": {}}), INITIAL_STATE, "objects.configmaps[demo]"
    ),
    "a pod": Change(
        "tf-single", lambda body: body["settled"]["pods"].update({"demo-worker-1": "Pending"}), INITIAL_STATE, "view.pods[demo-worker-1]"
    ),
    "a message": Change(
        "tf-single",
        lambda body: last_status(body)["conditions"][-1].update(message="else"),
        LAST_STEP,
        "view.job.conditions[Succeeded].message",
    ),
    "order of conditions": Change(
        "tf-single", lambda body: last_status(body)["conditions"].reverse(), LAST_STEP, "view.job.conditions (order)"
    ),
    "a count": Change(
        "tf-single",
        lambda body: last_status(body)["replicaStatuses"]["Worker"].update(succeeded=2),
        LAST_STEP,
        "view.job.replicaStatuses.Worker.succeeded",
    ),
    "a time": Change("tf-single", lambda body: last_status(body).pop("completionTime"), LAST_STEP, "view.job.completionTime"),
    "a volume mount of an awaited launcher": Change(
        "mpi-main-container",
        lambda body: container(body, "demo-launcher")["volumeMounts"][0].update(mountPath="/else"),
        "after run *",
        "objects.pods[demo-launcher].spec.containers[mpi].volumeMounts[mpi-job-kubectl].mountPath",
    ),
    "an image of an awaited launcher": Change(
        "mpi-launcher-fails",
        lambda body: pod(body, "demo-launcher")["spec"]["initContainers"][0].update(image="else"),
        "after run *",
        "objects.pods[demo-launcher].spec.initContainers[kubectl-delivery].image",
    ),
    "creation of the launcher": Change("mpi-launcher-fails", lambda body: body["steps"].clear(), AT_THE_END, "objects.pods[demo-launcher]"),
    "the phase of an awaited launcher": Change(
        "mpi-launcher-fails",
        lambda body: body["settled"]["pods"].update({"demo-launcher": "Running"}),
        INITIAL_STATE,
        "view.pods[demo-launcher]",
    ),
    "an RBAC rule": Change(
        "mpi",
        lambda body: body["objects"]["roles"]["demo-launcher"]["rules"].pop(),
        INITIAL_STATE,
        "objects.roles[demo-launcher].rules",
    ),
    "an omitted init container": Change(
        "pytorch-custom-port",
        lambda body: pod(body)["spec"]["initContainers"][0].update(image="else"),
        INITIAL_STATE,
        "objects.pods[demo-worker-0].spec.initContainers[init-pytorch]",
    ),
    "the step at which a selector is dropped": Change(
        "pytorch-master-worker",
        lambda body: body["steps"][-2]["then"]["job"]["replicaStatuses"]["Worker"].pop("selector"),
        "after succeed demo-worker-0",
        "view.job.replicaStatuses.Worker.selector",
    ),
    "a rank": Change(
        "jax",
        lambda body: container(body)["env"][3].update(value="7"),
        INITIAL_STATE,
        "objects.pods[demo-worker-0].spec.containers[jax].env[PROCESS_ID].value",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_recording_differs_at_the_changed_path(change: str) -> None:
    changed = CHANGES[change]
    golden = Golden.read(changed.golden)
    changed.alter(golden.body)
    report = run(replay_embedded(golden))
    assert [(difference.step, difference.path) for difference in report.unexpected] == [(changed.step, changed.path)]


# --- all values -------------------------------------------------------------------------------------------------------


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """All scalars and empty containers: path, parent object or list, and key in the parent."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        if child and isinstance(child, dict | list):
            yield from leaves(child, f"{path}.{key}")
        else:
            yield f"{path}.{key}", value, key


@contextmanager
def replaced(parent: Any, key: Any) -> Iterator[None]:
    original = parent[key]
    parent[key] = "something else"
    yield
    parent[key] = original


def parts(recording: JsonObject) -> Iterator[JsonObject]:
    """All recorded responses, views and objects."""
    yield {**recording["create"], "view": recording["settled"]}
    yield from ({key: value for key, value in step.items() if key != "do"} for step in recording["steps"])
    for key in ("objects", "objects_after"):
        yield from (body for named in recording.get(key, {}).values() for body in named.values())


@pytest.mark.parametrize("name", list(golden_names()))
def test_every_changed_value_of_a_recording_is_detected(name: str) -> None:
    recording, comparisons = Golden.read(name).body, embedded_report(name).comparisons
    checker, paths, detected = RecordingChecker(name, recording), {}, set()
    for comparison in comparisons:
        for path, parent, key in leaves(comparison.recorded, comparison.path):
            paths[id(parent), key] = f"{comparison.step}: {path}"
            with replaced(parent, key):
                if checker.unexpected(comparison):
                    detected.add((id(parent), key))
    assert [path for leaf, path in paths.items() if leaf not in detected] == []
    assert len(paths) == sum(len(list(leaves(part))) for part in parts(recording))


# --- objects without a recording ------------------------------------------------------------------------------------------


STRAYS: dict[Resource, JsonObject] = {
    CONFIG_MAPS: {"data": {}},
    ROLES: {"rules": []},
    HORIZONTAL_POD_AUTOSCALERS: {
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "demo"}}
    },
    VOLCANO_POD_GROUPS: {"spec": {"minMember": 1}},
    SCHEDULER_PLUGINS_POD_GROUPS: {"spec": {"minMember": 1}},
}


async def replay_with_stray_object(golden: Golden, stray: Resource) -> Report:
    """Replay in a namespace that has an object without an owner."""
    async with embedded_sandbox(golden) as (_, sandbox):
        await apply(sandbox.client, [pod_group_crd(scheduler) for scheduler in (PLUGINS, VOLCANO)], report=lambda _: None)
        body = {"apiVersion": stray.api_version, "kind": stray.kind, "metadata": {"name": "stray"}, **STRAYS[stray]}
        await sandbox.client.create(stray, body, namespace=sandbox.namespace)
        return await replay(golden, sandbox)


@pytest.mark.parametrize("stray", STRAYS, ids=lambda stray: stray.qualified_name)
def test_an_unrecorded_object_without_an_owner_is_reported(stray: Resource) -> None:
    report = run(replay_with_stray_object(Golden.read("tf-single"), stray))
    assert [(difference.step, difference.path) for difference in report.unexpected] == [(INITIAL_STATE, f"objects.{stray.plural}[stray]")]


# --- an idle operator -------------------------------------------------------------------------------------


async def replay_with_late_operator(golden: Golden) -> Report:
    """Replay with an operator that sees the job only after `unchanged_for`."""
    async with embedded_sandbox(golden, REAL_SERVER) as (cluster, sandbox):
        hold = cluster.faults.hold_watches(match=RequestMatch(plural=sandbox.resource.plural))
        asyncio.get_running_loop().call_later(3 * REAL_SERVER.unchanged_for, hold.release)
        return await replay(golden, sandbox)


def test_an_operator_that_has_not_seen_a_job_yet_is_not_mistaken_for_one_that_ignores_it() -> None:
    golden = Golden.read("pytorch-managed-elsewhere")
    del golden.manifest["spec"]["runPolicy"]
    assert "view.pods[demo-master-0]" in [difference.path for difference in run(replay_with_late_operator(golden)).unexpected]


def test_an_operator_that_has_seen_a_job_and_ignores_it_passes() -> None:
    assert not run(replay_with_late_operator(Golden.read("pytorch-managed-elsewhere"))).unexpected


async def replay_without_watch(golden: Golden) -> Report:
    async with embedded_sandbox(golden) as (cluster, sandbox):
        cluster.faults.hold_watches(match=RequestMatch(plural=sandbox.resource.plural))
        return await replay(golden, sandbox)


def test_an_operator_that_never_reconciles_a_job_is_detected() -> None:
    with pytest.raises(AssertionError, match="has not reconciled the job"):
        run(replay_without_watch(Golden.read("pytorch-managed-elsewhere")))
