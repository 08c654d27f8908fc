"""Creating, changing and deleting CustomResourceDefinitions."""

from __future__ import annotations

import pytest

from dlop.kube.errors import InvalidError
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, Resource
from dlop.kube.types import JsonObject
from tests.conformance.bodies import crd, crd_version, object_of, object_schema
from tests.conformance.crds import OPEN_SCHEMA
from tests.conformance.support import Api, expect_error, validation_error
from tests.conformance.trinkets import crd_conditions, install_trinkets, trinkets
from tests.kubernetes_versions import since


async def test_a_crd_is_established_and_its_names_are_accepted(api: Api) -> None:
    definition = await install_trinkets(api, trinkets("established"))
    assert crd_conditions(definition) == {"NamesAccepted": "True", "Established": "True"}
    names = {"plural": "trinkets", "singular": "trinket", "kind": "Trinket", "listKind": "TrinketList"}
    assert definition["spec"]["names"] == definition["status"]["acceptedNames"] == names
    assert definition["status"]["storedVersions"] == ["v1"]
    assert definition["spec"]["conversion"] == {"strategy": "None"}


async def test_a_crd_can_be_cluster_scoped(api: Api) -> None:
    resource = trinkets("cluster", namespaced=False)
    await install_trinkets(api, resource)
    created = await api.create(resource, object_of(resource, "a"))
    assert "namespace" not in created["metadata"]
    assert await api.list_names(resource) == ["a"]


async def test_deleting_a_crd_deletes_its_objects(api: Api) -> None:
    resource = trinkets("deleted")
    await install_trinkets(api, resource)
    await api.create(resource, object_of(resource, "a"))
    await api.delete(CUSTOM_RESOURCE_DEFINITIONS, resource.qualified_name)
    await api.wait_for_deletion(CUSTOM_RESOURCE_DEFINITIONS, resource.qualified_name)
    await api.wait_until(lambda: api.is_served(resource), lambda served: not served)
    await install_trinkets(api, resource)
    assert await api.list_names(resource) == []


async def test_a_terminating_crd_waits_for_the_finalizers_of_its_objects(api: Api) -> None:
    resource = trinkets("terminating")
    await install_trinkets(api, resource)
    body = object_of(resource, "a")
    body["metadata"]["finalizers"] = ["example.org/hold"]
    await api.create(resource, body)
    response = await api.delete(CUSTOM_RESOURCE_DEFINITIONS, resource.qualified_name)
    assert response["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    await api.wait_for_termination(resource, "a")
    await api.patch(resource, "a", {"metadata": {"finalizers": None}})
    await api.wait_for_deletion(CUSTOM_RESOURCE_DEFINITIONS, resource.qualified_name)


async def test_a_crd_must_be_named_after_its_plural_and_group(api: Api) -> None:
    body = crd(trinkets("named"), crd_version("v1", OPEN_SCHEMA)) | {"metadata": {"name": "wrong.named.install.dlop.dev"}}
    error = await expect_error(api.create(CUSTOM_RESOURCE_DEFINITIONS, body), InvalidError)
    message = 'Invalid value: "wrong.named.install.dlop.dev": must be spec.names.plural+"."+spec.group'
    assert {"reason": "FieldValueInvalid", "message": message, "field": "metadata.name"} in error.causes


async def test_a_crd_needs_a_storage_version(api: Api) -> None:
    body = crd(trinkets("store"), crd_version("v1", OPEN_SCHEMA, storage=False))
    error = await expect_error(api.create(CUSTOM_RESOURCE_DEFINITIONS, body), InvalidError)
    message = "must have exactly one version marked as storage version"
    assert any(cause["field"] == "spec.versions" and message in cause["message"] for cause in error.causes)


@since("1.34", reason="the message has no detail")
async def test_a_crd_version_needs_a_schema(api: Api) -> None:
    body = crd(trinkets("schemaless"), {"name": "v1", "served": True, "storage": True})
    error = await expect_error(api.create(CUSTOM_RESOURCE_DEFINITIONS, body), InvalidError)
    field = "spec.versions[0].schema.openAPIV3Schema"
    assert error.causes == [{"reason": "FieldValueRequired", "message": "Required value", "field": field}]


@pytest.mark.parametrize(
    ("name", "schema", "field", "message"),
    [
        ("untyped", {"properties": {}}, "type", "Required value: must not be empty at the root"),
        ("untyped-field", object_schema(spec={}), "properties[spec].type", "Required value: must not be empty for specified object fields"),
        (
            "unknown-type",
            object_schema(spec={"type": "text"}),
            "properties[spec].type",
            'Unsupported value: "text": supported values: "array", "boolean", "integer", "number", "object", "string"',
        ),
        ("no-items", object_schema(spec={"type": "array"}), "properties[spec].items", "Required value: must be specified"),
    ],
)
async def test_a_schema_must_be_structural(api: Api, name: str, schema: JsonObject, field: str, message: str) -> None:
    body = crd(trinkets(name), crd_version("v1", schema))
    error = await expect_error(api.create(CUSTOM_RESOURCE_DEFINITIONS, body), InvalidError)
    # If all versions have the same schema, the server reports the path of the schema in v1beta1 CRDs.
    assert {(cause["field"], cause["message"]) for cause in error.causes} == {(f"spec.validation.openAPIV3Schema.{field}", message)}
    assert error.details["kind"] == "CustomResourceDefinition"


async def test_a_changed_schema_applies_to_new_writes_only(api: Api) -> None:
    resource = trinkets("changed")
    body = crd(resource, crd_version("v1", object_schema(spec={"type": "object", "properties": {"size": {"type": "integer"}}})))
    await api.create(CUSTOM_RESOURCE_DEFINITIONS, body)
    await api.wait_until_served(body)
    await api.create(resource, object_of(resource, "a", spec={"size": 50}))
    too_large = object_of(resource, "b", spec={"size": 50})
    path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/maximum"
    await api.client.call(
        "PATCH",
        CUSTOM_RESOURCE_DEFINITIONS.path(name=resource.qualified_name),
        body=[{"op": "add", "path": path, "value": 10}],
        content_type="application/json-patch+json",
    )
    await api.wait_until(lambda: validation_error(api.create(resource, too_large, dry_run=True)), bool)
    assert (await api.get(resource, "a"))["spec"] == {"size": 50}


async def test_the_generation_of_a_crd_increases_with_its_spec(api: Api) -> None:
    resource = trinkets("generation")
    definition = await install_trinkets(api, resource)
    patched = await api.patch(CUSTOM_RESOURCE_DEFINITIONS, resource.qualified_name, {"spec": {"names": {"shortNames": ["tkt"]}}})
    assert (definition["metadata"]["generation"], patched["metadata"]["generation"]) == (1, 2)


async def test_a_kind_that_is_in_use_is_not_accepted(api: Api) -> None:
    await install_trinkets(api, trinkets("in-use"))
    second = Resource("in-use.install.dlop.dev", "v1", "baubles", "Trinket")
    await api.create(CUSTOM_RESOURCE_DEFINITIONS, crd(second, crd_version("v1", OPEN_SCHEMA)))
    definition = await api.wait_for(CUSTOM_RESOURCE_DEFINITIONS, second.qualified_name, lambda obj: "NamesAccepted" in crd_conditions(obj))
    assert crd_conditions(definition) == {"NamesAccepted": "False", "Established": "False"}
    names_accepted = next(condition for condition in definition["status"]["conditions"] if condition["type"] == "NamesAccepted")
    assert names_accepted["message"] == '"TrinketList" is already in use'


async def test_a_default_must_be_valid_for_its_schema(api: Api) -> None:
    schema = object_schema(spec={"type": "object", "properties": {"size": {"type": "integer", "default": "big"}}})
    error = await expect_error(api.create(CUSTOM_RESOURCE_DEFINITIONS, crd(trinkets("default"), crd_version("v1", schema))), InvalidError)
    field = "spec.validation.openAPIV3Schema.properties[spec].properties[size].default"
    assert [cause["field"] for cause in error.causes] == [field]
    assert "must be of type integer" in str(error)
