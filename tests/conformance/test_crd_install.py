"""Custom resources come and go with their definitions."""

from __future__ import annotations

from typing import Any

import pytest

from dlop.kube.errors import InvalidError, NotFoundError
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, Resource
from dlop.kube.types import JsonObject
from tests.conformance.bodies import custom, definition, schema, version
from tests.conformance.support import Api, refused

OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def trinkets(group: str, *, namespaced: bool = True) -> Resource:
    return Resource(f"{group}.install.dlop.dev", "v1", "trinkets", "Trinket", namespaced=namespaced)


def conditions(found: JsonObject) -> dict[str, str]:
    return {each["type"]: each["status"] for each in found.get("status", {}).get("conditions") or []}


async def installed(api: Api, resource: Resource, root: JsonObject = OPEN, **more: Any) -> JsonObject:
    body = definition(resource, version("v1", root, **more))
    await api.create(CUSTOM_RESOURCE_DEFINITIONS, body)
    await api.served(body)
    return await api.get(CUSTOM_RESOURCE_DEFINITIONS, resource.qualified_name)


async def test_a_definition_is_established_and_its_names_are_accepted(api: Api) -> None:
    found = await installed(api, trinkets("established"))
    assert conditions(found) == {"NamesAccepted": "True", "Established": "True"}
    names = {"plural": "trinkets", "singular": "trinket", "kind": "Trinket", "listKind": "TrinketList"}
    assert found["spec"]["names"] == found["status"]["acceptedNames"] == names
    assert found["status"]["storedVersions"] == ["v1"]
    assert found["spec"]["conversion"] == {"strategy": "None"}


async def test_a_definition_may_be_for_the_whole_cluster(api: Api) -> None:
    resource = trinkets("cluster", namespaced=False)
    await installed(api, resource)
    created = await api.create(resource, custom(resource, "a"))
    assert "namespace" not in created["metadata"]
    assert await api.names(resource) == ["a"]


async def test_objects_go_with_their_definition(api: Api) -> None:
    resource = trinkets("leaving")
    await installed(api, resource)
    await api.create(resource, custom(resource, "a"))
    await api.delete(CUSTOM_RESOURCE_DEFINITIONS, resource.qualified_name)
    await api.gone(CUSTOM_RESOURCE_DEFINITIONS, resource.qualified_name)
    await api.eventually(lambda: answers(api, resource), lambda found: not found)
    await installed(api, resource)
    assert await api.names(resource) == []


async def answers(api: Api, resource: Resource) -> bool:
    try:
        await api.list(resource)
    except NotFoundError:
        return False
    return True


async def test_a_definition_waits_for_the_finalizers_of_its_objects(api: Api) -> None:
    resource = trinkets("waiting")
    await installed(api, resource)
    held = custom(resource, "a")
    held["metadata"]["finalizers"] = ["example.org/hold"]
    await api.create(resource, held)
    answer = await api.delete(CUSTOM_RESOURCE_DEFINITIONS, resource.qualified_name)
    assert answer["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    await api.changed(resource, "a", lambda found: "deletionTimestamp" in found["metadata"])
    await api.patch(resource, "a", {"metadata": {"finalizers": None}})
    await api.gone(CUSTOM_RESOURCE_DEFINITIONS, resource.qualified_name)


async def test_a_definition_is_named_after_its_plural_and_group(api: Api) -> None:
    body = definition(trinkets("named"), version("v1", OPEN)) | {"metadata": {"name": "wrong.named.install.dlop.dev"}}
    error = await refused(api.create(CUSTOM_RESOURCE_DEFINITIONS, body), InvalidError)
    message = 'Invalid value: "wrong.named.install.dlop.dev": must be spec.names.plural+"."+spec.group'
    assert {"reason": "FieldValueInvalid", "message": message, "field": "metadata.name"} in error.causes


async def test_a_definition_needs_one_version_to_store(api: Api) -> None:
    body = definition(trinkets("store"), version("v1", OPEN, storage=False))
    error = await refused(api.create(CUSTOM_RESOURCE_DEFINITIONS, body), InvalidError)
    message = "must have exactly one version marked as storage version"
    assert any(cause["field"] == "spec.versions" and message in cause["message"] for cause in error.causes)


async def test_a_version_needs_a_schema(api: Api) -> None:
    body = definition(trinkets("schemaless"), {"name": "v1", "served": True, "storage": True})
    error = await refused(api.create(CUSTOM_RESOURCE_DEFINITIONS, body), InvalidError)
    field = "spec.versions[0].schema.openAPIV3Schema"
    assert error.causes == [{"reason": "FieldValueRequired", "message": "Required value", "field": field}]


@pytest.mark.parametrize(
    ("name", "root", "field", "message"),
    [
        ("untyped", {"properties": {}}, "type", "Required value: must not be empty at the root"),
        ("untyped-field", schema(spec={}), "properties[spec].type", "Required value: must not be empty for specified object fields"),
        (
            "unknown-type",
            schema(spec={"type": "text"}),
            "properties[spec].type",
            'Unsupported value: "text": supported values: "array", "boolean", "integer", "number", "object", "string"',
        ),
        ("no-items", schema(spec={"type": "array"}), "properties[spec].items", "Required value: must be specified"),
    ],
)
async def test_a_schema_must_be_structural(api: Api, name: str, root: JsonObject, field: str, message: str) -> None:
    body = definition(trinkets(name), version("v1", root))
    error = await refused(api.create(CUSTOM_RESOURCE_DEFINITIONS, body), InvalidError)
    # One schema that all versions share is named by the place it had in older definitions.
    assert {(cause["field"], cause["message"]) for cause in error.causes} == {(f"spec.validation.openAPIV3Schema.{field}", message)}
    assert error.details["kind"] == "CustomResourceDefinition"


async def test_a_changed_schema_holds_for_the_next_write(api: Api) -> None:
    resource = trinkets("changing")
    body = definition(resource, version("v1", schema(spec={"type": "object", "properties": {"size": {"type": "integer"}}})))
    await api.create(CUSTOM_RESOURCE_DEFINITIONS, body)
    await api.served(body)
    await api.create(resource, custom(resource, "a", spec={"size": 50}))
    path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/maximum"
    await api.client.call(
        "PATCH",
        CUSTOM_RESOURCE_DEFINITIONS.path(name=resource.qualified_name),
        body=[{"op": "add", "path": path, "value": 10}],
        content_type="application/json-patch+json",
    )
    await api.eventually(lambda: is_refused(api, resource), bool)
    assert (await api.get(resource, "a"))["spec"] == {"size": 50}


async def is_refused(api: Api, resource: Resource) -> bool:
    try:
        await api.create(resource, custom(resource, "b", spec={"size": 50}), dry_run=True)
    except InvalidError:
        return True
    return False


async def test_the_generation_of_a_definition_rises_with_its_spec(api: Api) -> None:
    resource = trinkets("generation")
    found = await installed(api, resource)
    patched = await api.patch(CUSTOM_RESOURCE_DEFINITIONS, resource.qualified_name, {"spec": {"names": {"shortNames": ["tkt"]}}})
    assert (found["metadata"]["generation"], patched["metadata"]["generation"]) == (1, 2)


async def test_a_kind_that_is_taken_is_not_accepted(api: Api) -> None:
    await installed(api, trinkets("taken"))
    second = Resource("taken.install.dlop.dev", "v1", "baubles", "Trinket")
    await api.create(CUSTOM_RESOURCE_DEFINITIONS, definition(second, version("v1", OPEN)))
    found = await api.changed(CUSTOM_RESOURCE_DEFINITIONS, second.qualified_name, lambda found: "NamesAccepted" in conditions(found))
    assert conditions(found) == {"NamesAccepted": "False", "Established": "False"}
    refusal = next(each for each in found["status"]["conditions"] if each["type"] == "NamesAccepted")
    assert refusal["message"] == '"TrinketList" is already in use'


async def test_a_default_must_fit_its_own_schema(api: Api) -> None:
    root = schema(spec={"type": "object", "properties": {"size": {"type": "integer", "default": "big"}}})
    error = await refused(api.create(CUSTOM_RESOURCE_DEFINITIONS, definition(trinkets("default"), version("v1", root))), InvalidError)
    field = "spec.validation.openAPIV3Schema.properties[spec].properties[size].default"
    assert [cause["field"] for cause in error.causes] == [field]
    assert "must be of type integer" in str(error)
