"""Namespaces: nothing lives outside of one, and nothing survives it."""

from __future__ import annotations

from dlop.kube.errors import AlreadyExistsError, BadRequestError, ForbiddenError, NotFoundError
from dlop.kube.resources import CONFIG_MAPS, LEASES, NAMESPACES, PODS
from tests.conformance.bodies import config_map, lease, pod
from tests.conformance.definitions import WIDGETS, widget
from tests.conformance.support import Api, failure, refused

HOLD = "example.org/hold"


async def test_a_namespace_is_active_and_carries_its_own_name_as_a_label(api: Api) -> None:
    found = await api.get(NAMESPACES, api.namespace)
    assert found["status"] == {"phase": "Active"}
    assert found["spec"] == {"finalizers": ["kubernetes"]}
    assert found["metadata"]["labels"] == {"kubernetes.io/metadata.name": api.namespace}


async def test_the_usual_namespaces_are_there(api: Api) -> None:
    names = await api.names(NAMESPACES)
    assert {"default", "kube-system", "kube-public", "kube-node-lease"} <= set(names)


async def test_nothing_can_be_created_in_a_namespace_that_is_not_there(api: Api) -> None:
    error = await refused(api.client.create(CONFIG_MAPS, config_map("a"), namespace="nowhere"), NotFoundError)
    assert error.status == failure(404, "NotFound", 'namespaces "nowhere" not found', {"name": "nowhere", "kind": "namespaces"})


async def test_no_custom_object_can_be_created_in_a_namespace_that_is_not_there(api: Api) -> None:
    error = await refused(api.client.create(WIDGETS, widget("a"), namespace="nowhere"), NotFoundError)
    assert error.status == failure(404, "NotFound", 'namespaces "nowhere" not found', {"name": "nowhere", "kind": "namespaces"})


async def test_a_namespace_that_is_not_there_lists_as_empty(api: Api) -> None:
    assert (await api.client.list(CONFIG_MAPS, namespace="nowhere"))["items"] == []


async def test_the_namespace_of_the_body_must_be_that_of_the_address(api: Api) -> None:
    error = await refused(api.create(CONFIG_MAPS, config_map("a", namespace="default")), BadRequestError)
    message = "the namespace of the provided object does not match the namespace sent on the request"
    assert error.status == failure(400, "BadRequest", message)


async def test_a_deleted_namespace_is_emptied_and_then_gone(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    await api.create(WIDGETS, widget("a"))
    await api.create(PODS, pod("a"))
    answer = await api.delete(NAMESPACES, api.namespace)
    assert answer["status"]["phase"] == "Terminating"
    assert "deletionTimestamp" in answer["metadata"]
    await api.gone(NAMESPACES, api.namespace)
    assert [await api.names(resource) for resource in (CONFIG_MAPS, WIDGETS, PODS)] == [[], [], []]


async def test_a_namespace_waits_for_the_finalizers_of_what_is_in_it(api: Api) -> None:
    await api.create(LEASES, lease("a", finalizers=[HOLD]))
    await api.delete(NAMESPACES, api.namespace)
    await api.changed(LEASES, "a", lambda found: "deletionTimestamp" in found["metadata"])
    assert (await api.get(NAMESPACES, api.namespace))["status"]["phase"] == "Terminating"
    await api.patch(LEASES, "a", {"metadata": {"finalizers": None}})
    await api.gone(LEASES, "a")


async def test_nothing_can_be_created_in_a_namespace_that_is_going(api: Api) -> None:
    await api.create(LEASES, lease("a", finalizers=[HOLD]))
    await api.delete(NAMESPACES, api.namespace)
    error = await refused(api.create(CONFIG_MAPS, config_map("late")), ForbiddenError)
    why = f"unable to create new content in namespace {api.namespace} because it is being terminated"
    assert (error.status_code, error.status_reason, str(error)) == (403, "Forbidden", f'configmaps "late" is forbidden: {why}')
    cause = {"reason": "NamespaceTerminating", "message": f"namespace {api.namespace} is being terminated", "field": "metadata.namespace"}
    assert error.details == {"name": "late", "kind": "configmaps", "causes": [cause]}


async def test_what_is_in_a_going_namespace_can_still_be_changed(api: Api) -> None:
    await api.create(LEASES, lease("a", finalizers=[HOLD]))
    await api.delete(NAMESPACES, api.namespace)
    patched = await api.patch(LEASES, "a", {"spec": {"holderIdentity": "you"}})
    assert patched["spec"]["holderIdentity"] == "you"


async def test_a_namespace_cannot_be_created_twice(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": api.namespace}}
    error = await refused(api.create(NAMESPACES, body), AlreadyExistsError)
    assert str(error) == f'namespaces "{api.namespace}" already exists'


async def test_a_second_delete_of_a_going_namespace_changes_nothing_about_its_end(api: Api) -> None:
    await api.create(LEASES, lease("a", finalizers=[HOLD]))
    first = await api.delete(NAMESPACES, api.namespace)
    second = await api.delete(NAMESPACES, api.namespace)
    assert second["metadata"]["deletionTimestamp"] == first["metadata"]["deletionTimestamp"]
    assert second["status"]["phase"] == "Terminating"
