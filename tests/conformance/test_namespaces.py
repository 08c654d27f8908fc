"""Namespaces: creation, deletion and requests to missing or terminating ones."""

from __future__ import annotations

from dlop.kube.errors import AlreadyExistsError, BadRequestError, ForbiddenError, NotFoundError
from dlop.kube.resources import CONFIG_MAPS, LEASES, NAMESPACES, PODS
from tests.conformance.bodies import config_map, lease, pod
from tests.conformance.crds import WIDGETS, widget
from tests.conformance.support import Api, expect_error, failure_status

HOLD = "example.org/hold"


async def test_a_namespace_is_active_and_has_its_name_as_a_label(api: Api) -> None:
    namespace = await api.get(NAMESPACES, api.namespace)
    assert namespace["status"] == {"phase": "Active"}
    assert namespace["spec"] == {"finalizers": ["kubernetes"]}
    assert namespace["metadata"]["labels"] == {"kubernetes.io/metadata.name": api.namespace}


async def test_the_initial_namespaces_exist(api: Api) -> None:
    names = await api.list_names(NAMESPACES)
    assert {"default", "kube-system", "kube-public", "kube-node-lease"} <= set(names)


async def test_creating_an_object_in_a_missing_namespace_is_not_found(api: Api) -> None:
    error = await expect_error(api.client.create(CONFIG_MAPS, config_map("a"), namespace="missing"), NotFoundError)
    assert error.status == failure_status(404, "NotFound", 'namespaces "missing" not found', {"name": "missing", "kind": "namespaces"})


async def test_creating_a_custom_object_in_a_missing_namespace_is_not_found(api: Api) -> None:
    error = await expect_error(api.client.create(WIDGETS, widget("a"), namespace="missing"), NotFoundError)
    assert error.status == failure_status(404, "NotFound", 'namespaces "missing" not found', {"name": "missing", "kind": "namespaces"})


async def test_listing_a_missing_namespace_returns_an_empty_list(api: Api) -> None:
    assert (await api.client.list(CONFIG_MAPS, namespace="missing"))["items"] == []


async def test_the_namespace_of_the_body_must_match_the_path(api: Api) -> None:
    error = await expect_error(api.create(CONFIG_MAPS, config_map("a", namespace="default")), BadRequestError)
    message = "the namespace of the provided object does not match the namespace sent on the request"
    assert error.status == failure_status(400, "BadRequest", message)


async def test_deleting_a_namespace_deletes_its_content(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    await api.create(WIDGETS, widget("a"))
    await api.create(PODS, pod("a"))
    response = await api.delete(NAMESPACES, api.namespace)
    assert response["status"]["phase"] == "Terminating"
    assert "deletionTimestamp" in response["metadata"]
    await api.wait_for_deletion(NAMESPACES, api.namespace)
    assert [await api.list_names(resource) for resource in (CONFIG_MAPS, WIDGETS, PODS)] == [[], [], []]


async def test_a_terminating_namespace_waits_for_the_finalizers_of_its_objects(api: Api) -> None:
    await api.create(LEASES, lease("a", finalizers=[HOLD]))
    await api.delete(NAMESPACES, api.namespace)
    await api.wait_for_termination(LEASES, "a")
    assert (await api.get(NAMESPACES, api.namespace))["status"]["phase"] == "Terminating"
    await api.patch(LEASES, "a", {"metadata": {"finalizers": None}})
    await api.wait_for_deletion(LEASES, "a")


async def test_creating_an_object_in_a_terminating_namespace_is_forbidden(api: Api) -> None:
    await api.create(LEASES, lease("a", finalizers=[HOLD]))
    await api.delete(NAMESPACES, api.namespace)
    error = await expect_error(api.create(CONFIG_MAPS, config_map("late")), ForbiddenError)
    detail = f"unable to create new content in namespace {api.namespace} because it is being terminated"
    assert (error.status_code, error.status_reason, str(error)) == (403, "Forbidden", f'configmaps "late" is forbidden: {detail}')
    cause = {"reason": "NamespaceTerminating", "message": f"namespace {api.namespace} is being terminated", "field": "metadata.namespace"}
    assert error.details == {"name": "late", "kind": "configmaps", "causes": [cause]}


async def test_objects_in_a_terminating_namespace_can_be_changed(api: Api) -> None:
    await api.create(LEASES, lease("a", finalizers=[HOLD]))
    await api.delete(NAMESPACES, api.namespace)
    patched = await api.patch(LEASES, "a", {"spec": {"holderIdentity": "you"}})
    assert patched["spec"]["holderIdentity"] == "you"


async def test_a_namespace_cannot_be_created_twice(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": api.namespace}}
    error = await expect_error(api.create(NAMESPACES, body), AlreadyExistsError)
    assert str(error) == f'namespaces "{api.namespace}" already exists'


async def test_a_second_delete_of_a_terminating_namespace_keeps_its_deletion_timestamp(api: Api) -> None:
    await api.create(LEASES, lease("a", finalizers=[HOLD]))
    first = await api.delete(NAMESPACES, api.namespace)
    second = await api.delete(NAMESPACES, api.namespace)
    assert second["metadata"]["deletionTimestamp"] == first["metadata"]["deletionTimestamp"]
    assert second["status"]["phase"] == "Terminating"
