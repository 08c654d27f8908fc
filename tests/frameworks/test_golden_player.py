"""The player can fail: whatever is changed in a recording, it finds, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple

import pytest

from dlop.api.gang import VOLCANO
from dlop.deploy.apply import apply
from dlop.embedded.apiserver.faults import Match
from dlop.embedded.cluster import EmbeddedCluster
from dlop.kube.resources import CONFIG_MAPS, HORIZONTAL_POD_AUTOSCALERS, ROLES, SCHEDULER_PLUGINS_POD_GROUPS, VOLCANO_POD_GROUPS, Resource
from dlop.kube.types import JsonObject
from dlop.testing.virtual_time import LoopClock, run
from tests.frameworks.golden_judge import IN_THE_END, Judge, Report
from tests.frameworks.golden_kinds import kind_of
from tests.frameworks.golden_player import Golden, goldens, play
from tests.frameworks.golden_stage import ON_A_REAL_SERVER, ON_VIRTUAL_TIME, Patience, Stage, stage
from tests.frameworks.pod_groups import PLUGINS, definition
from tests.frameworks.test_goldens import on_embedded, played

AT_FIRST = "at first"
AT_LAST = "after succeed *"


class Change(NamedTuple):
    """What is changed in a recording, and where the player has to find it."""

    golden: str
    alter: Callable[[JsonObject], object]
    moment: str
    path: str


def pod(body: JsonObject, name: str = "demo-worker-0") -> JsonObject:
    found: JsonObject = body["objects"]["pods"][name]
    return found


def container(body: JsonObject, pod_name: str = "demo-worker-0") -> JsonObject:
    found: JsonObject = pod(body, pod_name)["spec"]["containers"][0]
    return found


def last_job(body: JsonObject) -> JsonObject:
    found: JsonObject = body["steps"][-1]["then"]["job"]
    return found


CHANGES: dict[str, Change] = {
    "a variable": Change(
        "tf-single",
        lambda body: container(body).setdefault("env", []).append({"name": "MORE", "value": "1"}),
        AT_FIRST,
        "objects.pods[demo-worker-0].spec.containers[tensorflow].env[MORE]",
    ),
    "a port": Change(
        "tf-single",
        lambda body: container(body)["ports"][0].update(containerPort=1),
        AT_FIRST,
        "objects.pods[demo-worker-0].spec.containers[tensorflow].ports[tfjob-port].containerPort",
    ),
    "a label too many": Change(
        "tf-single",
        lambda body: pod(body)["metadata"]["labels"].pop("training.kubeflow.org/job-role"),
        AT_FIRST,
        "objects.pods[demo-worker-0].metadata.labels[training.kubeflow.org/job-role]",
    ),
    "an owner": Change(
        "tf-single",
        lambda body: body["objects"]["services"]["demo-worker-0"]["metadata"]["ownerReferences"][0].update(kind="PyTorchJob"),
        AT_FIRST,
        "objects.services[demo-worker-0].metadata.ownerReferences[demo].kind",
    ),
    "an object": Change("tf-single", lambda body: body["objects"].update(configmaps={"demo": {}}), AT_FIRST, "objects.configmaps[demo]"),
    "a pod": Change(
        "tf-single", lambda body: body["settled"]["pods"].update({"demo-worker-1": "Pending"}), AT_FIRST, "view.pods[demo-worker-1]"
    ),
    "a message": Change(
        "tf-single",
        lambda body: last_job(body)["conditions"][-1].update(message="else"),
        AT_LAST,
        "view.job.conditions[Succeeded].message",
    ),
    "the order": Change("tf-single", lambda body: last_job(body)["conditions"].reverse(), AT_LAST, "view.job.conditions (order)"),
    "a count": Change(
        "tf-single",
        lambda body: last_job(body)["replicaStatuses"]["Worker"].update(succeeded=2),
        AT_LAST,
        "view.job.replicaStatuses.Worker.succeeded",
    ),
    "a time": Change("tf-single", lambda body: last_job(body).pop("completionTime"), AT_LAST, "view.job.completionTime"),
    "a mount of a launcher that comes later": Change(
        "mpi-main-container",
        lambda body: container(body, "demo-launcher")["volumeMounts"][0].update(mountPath="/else"),
        "after run *",
        "objects.pods[demo-launcher].spec.containers[mpi].volumeMounts[mpi-job-kubectl].mountPath",
    ),
    "an image of a launcher that comes later": Change(
        "mpi-launcher-fails",
        lambda body: pod(body, "demo-launcher")["spec"]["initContainers"][0].update(image="else"),
        "after run *",
        "objects.pods[demo-launcher].spec.initContainers[kubectl-delivery].image",
    ),
    "that the launcher comes": Change("mpi-launcher-fails", lambda body: body["steps"].clear(), IN_THE_END, "objects.pods[demo-launcher]"),
    "the phase of a launcher that comes later": Change(
        "mpi-launcher-fails",
        lambda body: body["settled"]["pods"].update({"demo-launcher": "Running"}),
        AT_FIRST,
        "view.pods[demo-launcher]",
    ),
    "a right": Change(
        "mpi",
        lambda body: body["objects"]["roles"]["demo-launcher"]["rules"].pop(),
        AT_FIRST,
        "objects.roles[demo-launcher].rules",
    ),
    "a container that is left out": Change(
        "pytorch-custom-port",
        lambda body: pod(body)["spec"]["initContainers"][0].update(image="else"),
        AT_FIRST,
        "objects.pods[demo-worker-0].spec.initContainers[init-pytorch]",
    ),
    "when a selector is lost": Change(
        "pytorch-master-worker",
        lambda body: body["steps"][-2]["then"]["job"]["replicaStatuses"]["Worker"].pop("selector"),
        "after succeed demo-worker-0",
        "view.job.replicaStatuses.Worker.selector",
    ),
    "a rank": Change(
        "jax",
        lambda body: container(body)["env"][3].update(value="7"),
        AT_FIRST,
        "objects.pods[demo-worker-0].spec.containers[jax].env[PROCESS_ID].value",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_recording_that_was_changed_is_found_to_be_different_in_that_place(change: str) -> None:
    changed = CHANGES[change]
    golden = Golden.read(changed.golden)
    changed.alter(golden.body)
    report = run(on_embedded(golden))
    assert [(wrong.moment, wrong.path) for wrong in report.wrong] == [(changed.moment, changed.path)]


# --- every word --------------------------------------------------------------------------------------------------------


def words(value: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Whatever has nothing below it: its path, the object or list that it is in, and its key there."""
    within = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, found in within:
        if found and isinstance(found, dict | list):
            yield from words(found, f"{path}.{key}")
        else:
            yield f"{path}.{key}", value, key


@contextmanager
def something_else(within: Any, key: Any) -> Iterator[None]:
    said = within[key]
    within[key] = "something else"
    yield
    within[key] = said


def parts(recording: JsonObject) -> Iterator[JsonObject]:
    """All that was recorded: answers, views and objects."""
    yield {**recording["create"], "view": recording["settled"]}
    yield from ({key: value for key, value in step.items() if key != "do"} for step in recording["steps"])
    for moment in ("objects", "objects_after"):
        yield from (body for named in recording.get(moment, {}).values() for body in named.values())


@pytest.mark.parametrize("name", list(goldens()))
def test_no_word_of_a_recording_can_be_changed_without_being_noticed(name: str) -> None:
    recording, compared = Golden.read(name).body, played(name).compared
    judge, places, noticed = Judge(name, recording), {}, set()
    for comparison in compared:
        for path, within, key in words(comparison.recorded, comparison.path):
            places[id(within), key] = f"{comparison.moment}: {path}"
            with something_else(within, key):
                if judge.wrong(comparison):
                    noticed.add((id(within), key))
    assert [place for word, place in places.items() if word not in noticed] == []
    assert len(places) == sum(len(list(words(part))) for part in parts(recording))


# --- what nobody has recorded ------------------------------------------------------------------------------------------


STRAYS: dict[Resource, JsonObject] = {
    CONFIG_MAPS: {"data": {}},
    ROLES: {"rules": []},
    HORIZONTAL_POD_AUTOSCALERS: {
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "demo"}}
    },
    VOLCANO_POD_GROUPS: {"spec": {"minMember": 1}},
    SCHEDULER_PLUGINS_POD_GROUPS: {"spec": {"minMember": 1}},
}


@asynccontextmanager
async def embedded_stage(golden: Golden, patience: Patience = ON_VIRTUAL_TIME) -> AsyncIterator[tuple[EmbeddedCluster, Stage]]:
    clock = LoopClock()
    async with (
        EmbeddedCluster(clock=clock) as cluster,
        stage(cluster.transport(), kind_of(golden), clock=clock, patience=patience) as there,
    ):
        yield cluster, there


async def beside(golden: Golden, stray: Resource) -> Report:
    """Played in a namespace in which there is an object without an owner."""
    async with embedded_stage(golden) as (_, there):
        await apply(there.client, [definition(scheduler) for scheduler in (PLUGINS, VOLCANO)], say=lambda _: None)
        body = {"apiVersion": stray.api_version, "kind": stray.kind, "metadata": {"name": "stray"}, **STRAYS[stray]}
        await there.client.create(stray, body, namespace=there.namespace)
        return await play(golden, there)


@pytest.mark.parametrize("stray", STRAYS, ids=lambda stray: stray.qualified_name)
def test_an_object_that_nobody_owns_and_nobody_has_recorded_is_found(stray: Resource) -> None:
    report = run(beside(Golden.read("tf-single"), stray))
    assert [(wrong.moment, wrong.path) for wrong in report.wrong] == [(AT_FIRST, f"objects.{stray.plural}[stray]")]


# --- an operator that does nothing -------------------------------------------------------------------------------------


async def late(golden: Golden) -> Report:
    """Played for an operator that hears of the job later than the world has to stay unchanged."""
    async with embedded_stage(golden, ON_A_REAL_SERVER) as (cluster, there):
        hold = cluster.faults.hold_watches(match=Match(plural=there.resource.plural))
        asyncio.get_running_loop().call_later(3 * ON_A_REAL_SERVER.unchanged_for, hold.release)
        return await play(golden, there)


def test_an_operator_that_has_not_looked_yet_does_not_pass_for_one_that_leaves_a_job_alone() -> None:
    golden = Golden.read("pytorch-managed-elsewhere")
    del golden.manifest["spec"]["runPolicy"]
    assert "view.pods[demo-master-0]" in [wrong.path for wrong in run(late(golden)).wrong]


def test_an_operator_that_has_looked_and_leaves_a_job_alone_is_right() -> None:
    assert not run(late(Golden.read("pytorch-managed-elsewhere"))).wrong


async def deaf(golden: Golden) -> Report:
    async with embedded_stage(golden) as (cluster, there):
        cluster.faults.hold_watches(match=Match(plural=there.resource.plural))
        return await play(golden, there)


def test_an_operator_that_never_looks_at_the_job_is_told_from_one_that_leaves_it_alone() -> None:
    with pytest.raises(AssertionError, match="has not looked at the job"):
        run(deaf(Golden.read("pytorch-managed-elsewhere")))
