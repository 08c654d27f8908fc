"""Pods: how they are placed, changed, evicted and ended."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from dlop.kube.client import PatchType
from dlop.kube.errors import AlreadyExistsError, ConflictError, InvalidError, NotFoundError
from dlop.kube.resources import PODS
from dlop.kube.types import JsonObject
from dlop.kube.watch import WatchEventType
from tests.conformance.bodies import pod
from tests.conformance.support import Api, failure, refused, version_of


def binding(name: str, node: str) -> JsonObject:
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": node}}


def eviction(name: str) -> JsonObject:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}


async def test_a_pod_gets_the_defaults_of_a_pod(api: Api) -> None:
    spec = (await api.create(PODS, pod("a")))["spec"]
    chosen = ("restartPolicy", "terminationGracePeriodSeconds", "dnsPolicy", "schedulerName", "enableServiceLinks", "securityContext")
    assert {name: spec[name] for name in chosen} == {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "enableServiceLinks": True,
        "securityContext": {},
    }
    assert spec["containers"][0] == {
        "name": "main",
        "image": "none",
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always",
    }


async def test_a_pod_without_a_node_is_gone_at_once(api: Api) -> None:
    await api.create(PODS, pod("a"))
    answer = await api.delete(PODS, "a")
    assert (answer["kind"], answer["metadata"]["deletionGracePeriodSeconds"]) == ("Pod", 0)
    assert await api.find(PODS, "a") is None


async def test_a_pod_on_a_node_stays_until_the_kubelet_confirms(api: Api) -> None:
    await api.create(PODS, pod("a", node="one", spec={"terminationGracePeriodSeconds": 7}))
    answer = await api.delete(PODS, "a")
    assert answer["metadata"]["deletionGracePeriodSeconds"] == 7
    assert await api.get(PODS, "a") == answer
    await api.delete(PODS, "a", grace_seconds=0, uid=answer["metadata"]["uid"])
    assert await api.find(PODS, "a") is None


async def test_the_time_of_deletion_is_when_the_grace_will_be_over(api: Api) -> None:
    created = await api.create(PODS, pod("a", node="one"))
    marked = await api.delete(PODS, "a", grace_seconds=3600)
    start, end = (
        datetime.fromisoformat(each["metadata"][name]) for each, name in ((created, "creationTimestamp"), (marked, "deletionTimestamp"))
    )
    assert timedelta(seconds=3600) <= end - start <= timedelta(seconds=3630)


async def test_the_mark_of_deletion_raises_the_generation_of_a_pod(api: Api) -> None:
    await api.create(PODS, pod("a", node="one"))
    assert (await api.delete(PODS, "a"))["metadata"]["generation"] == 2


async def test_the_grace_can_be_shortened_but_not_lengthened(api: Api) -> None:
    await api.create(PODS, pod("a", node="one"))
    await api.delete(PODS, "a", grace_seconds=20)
    shorter = await api.delete(PODS, "a", grace_seconds=5)
    longer = await api.delete(PODS, "a", grace_seconds=50)
    assert [each["metadata"]["deletionGracePeriodSeconds"] for each in (shorter, longer)] == [5, 5]
    assert version_of(shorter) == version_of(longer)


async def test_a_pod_that_has_ended_is_gone_at_once(api: Api) -> None:
    for phase in ("Succeeded", "Failed"):
        await api.create(PODS, pod("a", node="one"))
        await api.patch(PODS, "a", {"status": {"phase": phase}}, subresource="status")
        await api.delete(PODS, "a")
        assert await api.find(PODS, "a") is None


async def test_a_pod_with_a_finalizer_outlives_its_kubelet(api: Api) -> None:
    await api.create(PODS, pod("a", node="one", finalizers=["example.org/hold"]))
    await api.delete(PODS, "a")
    answer = await api.delete(PODS, "a", grace_seconds=0)
    assert answer["metadata"]["deletionGracePeriodSeconds"] == 0
    assert (await api.get(PODS, "a"))["metadata"]["finalizers"] == ["example.org/hold"]
    await api.patch(PODS, "a", {"metadata": {"finalizers": None}})
    assert await api.find(PODS, "a") is None


async def test_a_pod_that_is_ending_keeps_its_name(api: Api) -> None:
    await api.create(PODS, pod("a", node="one"))
    await api.delete(PODS, "a")
    error = await refused(api.create(PODS, pod("a")), AlreadyExistsError)
    details = {"name": "a", "kind": "pods"}
    assert error.status == failure(409, "AlreadyExists", 'object is being deleted: pods "a" already exists', details)


async def test_a_watch_sees_a_graceful_end_step_by_step(api: Api) -> None:
    await api.create(PODS, pod("a", node="one"))
    async with api.watching(PODS) as watch:
        await api.delete(PODS, "a")
        await api.delete(PODS, "a", grace_seconds=0)
        events = [await watch.next() for _ in range(3)]
    steps = [(kind, found["metadata"]["deletionGracePeriodSeconds"]) for kind, found in events]
    assert steps == [(WatchEventType.MODIFIED, 30), (WatchEventType.MODIFIED, 0), (WatchEventType.DELETED, 0)]


async def test_a_watch_sees_even_a_pod_without_a_node_marked_before_it_goes(api: Api) -> None:
    await api.create(PODS, pod("a"))
    async with api.watching(PODS) as watch:
        await api.delete(PODS, "a")
        assert await watch.story(2) == [("MODIFIED", "a"), ("DELETED", "a")]


async def test_a_binding_places_a_pod(api: Api) -> None:
    await api.create(PODS, pod("a"))
    answer = await api.create(PODS, binding("a", "one"), name="a", subresource="binding")
    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    placed = await api.get(PODS, "a")
    assert placed["spec"]["nodeName"] == "one"
    assert [(each["type"], each["status"]) for each in placed["status"]["conditions"]] == [("PodScheduled", "True")]


async def test_a_pod_is_not_placed_twice(api: Api) -> None:
    await api.create(PODS, pod("a", node="one"))
    error = await refused(api.create(PODS, binding("a", "two"), name="a", subresource="binding"), ConflictError)
    message = 'Operation cannot be fulfilled on pods/binding "a": pod a is already assigned to node "one"'
    assert error.status == failure(409, "Conflict", message, {"name": "a", "kind": "pods/binding"})


async def test_an_eviction_ends_a_pod_with_its_grace(api: Api) -> None:
    await api.create(PODS, pod("a", node="one"))
    answer = await api.create(PODS, eviction("a"), name="a", subresource="eviction")
    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    assert (await api.get(PODS, "a"))["metadata"]["deletionGracePeriodSeconds"] == 30


async def test_an_eviction_of_what_is_not_there_is_not_found(api: Api) -> None:
    error = await refused(api.create(PODS, eviction("a"), name="a", subresource="eviction"), NotFoundError)
    assert error.status == failure(404, "NotFound", 'pods "a" not found', {"name": "a", "kind": "pods"})


async def test_the_image_of_a_pod_may_change_and_its_command_may_not(api: Api) -> None:
    await api.create(PODS, pod("a"))
    image = {"spec": {"containers": [{"name": "main", "image": "new"}]}}
    changed = await api.patch(PODS, "a", image, patch_type=PatchType.STRATEGIC)
    assert (changed["spec"]["containers"][0]["image"], changed["metadata"]["generation"]) == ("new", 2)
    command = {"spec": {"containers": [{"name": "main", "command": ["x"]}]}}
    error = await refused(api.patch(PODS, "a", command, patch_type=PatchType.STRATEGIC), InvalidError)
    assert [(cause["reason"], cause["field"]) for cause in error.causes] == [("FieldValueForbidden", "spec")]
    assert str(error).startswith(
        'Pod "a" is invalid: spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`'
    )


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({"containers": []}, "spec.containers", "Required value"),
        ({"containers": [{"image": "x"}]}, "spec.containers[0].name", "Required value"),
        ({"containers": [{"name": "main"}]}, "spec.containers[0].image", "Required value"),
        (
            {"restartPolicy": "Sometimes"},
            "spec.restartPolicy",
            'Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"',
        ),
    ],
)
async def test_a_pod_that_could_never_run_is_invalid(api: Api, spec: JsonObject, field: str, message: str) -> None:
    error = await refused(api.create(PODS, pod("a", spec=spec)), InvalidError)
    assert str(error) == f'Pod "a" is invalid: {field}: {message}'
    assert [(cause["field"], cause["message"]) for cause in error.causes] == [(field, message)]
    assert (error.details["name"], error.details["kind"]) == ("a", "Pod")
