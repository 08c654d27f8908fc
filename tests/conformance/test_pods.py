"""Pods: binding, updates, eviction and graceful deletion."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from dlop.kube.client import PatchType
from dlop.kube.errors import AlreadyExistsError, ConflictError, InvalidError, NotFoundError
from dlop.kube.resources import PODS
from dlop.kube.types import JsonObject
from dlop.kube.watch import WatchEventType
from tests.conformance.bodies import binding, eviction, pod
from tests.conformance.support import Api, expect_error, failure_status, resource_version_of
from tests.kubernetes_versions import POD_GENERATIONS, since


async def test_a_pod_gets_the_expected_defaults(api: Api) -> None:
    spec = (await api.create(PODS, pod("a")))["spec"]
    fields = ("restartPolicy", "terminationGracePeriodSeconds", "dnsPolicy", "schedulerName", "enableServiceLinks", "securityContext")
    assert {name: spec[name] for name in fields} == {
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


async def test_an_unscheduled_pod_is_deleted_immediately(api: Api) -> None:
    await api.create(PODS, pod("a"))
    response = await api.delete(PODS, "a")
    assert (response["kind"], response["metadata"]["deletionGracePeriodSeconds"]) == ("Pod", 0)
    assert await api.get_or_none(PODS, "a") is None


async def test_a_scheduled_pod_is_terminating_until_the_kubelet_deletes_it(api: Api) -> None:
    await api.create(PODS, pod("a", node="one", spec={"terminationGracePeriodSeconds": 7}))
    response = await api.delete(PODS, "a")
    assert response["metadata"]["deletionGracePeriodSeconds"] == 7
    assert await api.get(PODS, "a") == response
    await api.delete(PODS, "a", grace_seconds=0, uid=response["metadata"]["uid"])
    assert await api.get_or_none(PODS, "a") is None


async def test_the_deletion_timestamp_is_the_end_of_the_grace_period(api: Api) -> None:
    created = await api.create(PODS, pod("a", node="one"))
    terminating = await api.delete(PODS, "a", grace_seconds=3600)
    start = datetime.fromisoformat(created["metadata"]["creationTimestamp"])
    end = datetime.fromisoformat(terminating["metadata"]["deletionTimestamp"])
    assert timedelta(seconds=3600) <= end - start <= timedelta(seconds=3630)


@since(POD_GENERATIONS, reason="pods have a generation")
async def test_the_deletion_timestamp_increases_the_generation_of_a_pod(api: Api) -> None:
    await api.create(PODS, pod("a", node="one"))
    assert (await api.delete(PODS, "a"))["metadata"]["generation"] == 2


async def test_the_grace_period_can_be_shortened_but_not_extended(api: Api) -> None:
    await api.create(PODS, pod("a", node="one"))
    await api.delete(PODS, "a", grace_seconds=20)
    shorter = await api.delete(PODS, "a", grace_seconds=5)
    longer = await api.delete(PODS, "a", grace_seconds=50)
    assert [obj["metadata"]["deletionGracePeriodSeconds"] for obj in (shorter, longer)] == [5, 5]
    assert resource_version_of(shorter) == resource_version_of(longer)


async def test_a_finished_pod_is_deleted_immediately(api: Api) -> None:
    for phase in ("Succeeded", "Failed"):
        await api.create(PODS, pod("a", node="one"))
        await api.patch(PODS, "a", {"status": {"phase": phase}}, subresource="status")
        await api.delete(PODS, "a")
        assert await api.get_or_none(PODS, "a") is None


async def test_a_pod_with_a_finalizer_stays_after_the_grace_period(api: Api) -> None:
    await api.create(PODS, pod("a", node="one", finalizers=["example.org/hold"]))
    await api.delete(PODS, "a")
    response = await api.delete(PODS, "a", grace_seconds=0)
    assert response["metadata"]["deletionGracePeriodSeconds"] == 0
    assert (await api.get(PODS, "a"))["metadata"]["finalizers"] == ["example.org/hold"]
    await api.patch(PODS, "a", {"metadata": {"finalizers": None}})
    assert await api.get_or_none(PODS, "a") is None


async def test_the_name_of_a_terminating_pod_is_in_use(api: Api) -> None:
    await api.create(PODS, pod("a", node="one"))
    await api.delete(PODS, "a")
    error = await expect_error(api.create(PODS, pod("a")), AlreadyExistsError)
    details = {"name": "a", "kind": "pods"}
    assert error.status == failure_status(409, "AlreadyExists", 'object is being deleted: pods "a" already exists', details)


async def test_a_watch_sends_an_event_for_each_step_of_a_graceful_deletion(api: Api) -> None:
    await api.create(PODS, pod("a", node="one"))
    async with api.watch(PODS) as watch:
        await api.delete(PODS, "a")
        await api.delete(PODS, "a", grace_seconds=0)
        events = [await watch.next() for _ in range(3)]
    steps = [(event_type, obj["metadata"]["deletionGracePeriodSeconds"]) for event_type, obj in events]
    assert steps == [(WatchEventType.MODIFIED, 30), (WatchEventType.MODIFIED, 0), (WatchEventType.DELETED, 0)]


async def test_a_watch_sends_modified_before_the_deletion_of_an_unscheduled_pod(api: Api) -> None:
    await api.create(PODS, pod("a"))
    async with api.watch(PODS) as watch:
        await api.delete(PODS, "a")
        assert await watch.next_changes(2) == [("MODIFIED", "a"), ("DELETED", "a")]


async def test_a_binding_assigns_a_pod_to_a_node(api: Api) -> None:
    await api.create(PODS, pod("a"))
    response = await api.create(PODS, binding("a", "one"), name="a", subresource="binding")
    assert (response["kind"], response["status"]) == ("Status", "Success")
    bound = await api.get(PODS, "a")
    assert bound["spec"]["nodeName"] == "one"
    assert [(condition["type"], condition["status"]) for condition in bound["status"]["conditions"]] == [("PodScheduled", "True")]


async def test_a_scheduled_pod_cannot_be_bound_again(api: Api) -> None:
    await api.create(PODS, pod("a", node="one"))
    error = await expect_error(api.create(PODS, binding("a", "two"), name="a", subresource="binding"), ConflictError)
    message = 'Operation cannot be fulfilled on pods/binding "a": pod a is already assigned to node "one"'
    assert error.status == failure_status(409, "Conflict", message, {"name": "a", "kind": "pods/binding"})


async def test_an_eviction_deletes_a_pod_with_its_grace_period(api: Api) -> None:
    await api.create(PODS, pod("a", node="one"))
    response = await api.create(PODS, eviction("a"), name="a", subresource="eviction")
    assert (response["kind"], response["status"]) == ("Status", "Success")
    assert (await api.get(PODS, "a"))["metadata"]["deletionGracePeriodSeconds"] == 30


async def test_an_eviction_of_a_missing_pod_is_not_found(api: Api) -> None:
    error = await expect_error(api.create(PODS, eviction("a"), name="a", subresource="eviction"), NotFoundError)
    assert error.status == failure_status(404, "NotFound", 'pods "a" not found', {"name": "a", "kind": "pods"})


@since(POD_GENERATIONS, reason="pods have a generation")
async def test_a_new_image_increases_the_generation_of_a_pod(api: Api) -> None:
    await api.create(PODS, pod("a"))
    changed = await api.patch(PODS, "a", {"spec": {"containers": [{"name": "main", "image": "new"}]}})
    assert changed["metadata"]["generation"] == 2


async def test_the_image_of_a_pod_can_change_and_its_command_cannot(api: Api) -> None:
    await api.create(PODS, pod("a"))
    image = {"spec": {"containers": [{"name": "main", "image": "new"}]}}
    changed = await api.patch(PODS, "a", image, patch_type=PatchType.STRATEGIC)
    assert changed["spec"]["containers"][0]["image"] == "new"
    command = {"spec": {"containers": [{"name": "main", "command": ["x"]}]}}
    error = await expect_error(api.patch(PODS, "a", command, patch_type=PatchType.STRATEGIC), InvalidError)
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
async def test_an_invalid_pod_spec_is_rejected(api: Api, spec: JsonObject, field: str, message: str) -> None:
    error = await expect_error(api.create(PODS, pod("a", spec=spec)), InvalidError)
    assert str(error) == f'Pod "a" is invalid: {field}: {message}'
    assert [(cause["field"], cause["message"]) for cause in error.causes] == [(field, message)]
    assert (error.details["name"], error.details["kind"]) == ("a", "Pod")
