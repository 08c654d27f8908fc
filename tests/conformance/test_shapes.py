"""The embedded server knows the fields of the built-in types as the real one describes them."""

from __future__ import annotations

import pytest

from dlop.embedded.apiserver.core import builtin_types
from dlop.embedded.apiserver.resource_type import ResourceType
from dlop.kube.types import JsonObject
from tests.conformance.support import Api, decoded, only_on

TYPES = builtin_types()


def described(types: JsonObject, schema: JsonObject) -> JsonObject:
    """A schema with the types that it refers to by name put in their place."""
    while "$ref" in schema or "allOf" in schema:
        reference = schema["$ref"] if "$ref" in schema else schema["allOf"][0]["$ref"]
        schema = types[reference.rpartition("/")[2]]
    return schema


def differences(types: JsonObject, real: JsonObject, ours: JsonObject, path: str) -> list[str]:
    """Where two schemas do not have the same fields, or do not merge the same lists."""
    real = described(types, real)
    if "properties" in ours:
        names = {*real.get("properties", {}), *ours["properties"]}
        missing = [f"{path}.{name}" for name in sorted(names) if (name in real.get("properties", {})) != (name in ours["properties"])]
        shared = [name for name in ours["properties"] if name in real.get("properties", {})]
        return missing + [
            found
            for name in shared
            for found in field_differences(types, real["properties"][name], ours["properties"][name], f"{path}.{name}")
        ]
    for inner in ("items", "additionalProperties"):
        if inner in ours:
            return differences(types, real[inner], ours[inner], f"{path}[]") if inner in real else [f"{path} has no {inner}"]
    return []


def field_differences(types: JsonObject, real: JsonObject, ours: JsonObject, path: str) -> list[str]:
    key = "x-kubernetes-patch-merge-key"
    wrong = [f"{path} is merged by {real.get(key)}"] if real.get(key) != ours.get(key) else []
    return wrong + differences(types, real, ours, path)


@only_on("real", because="it compares the embedded server's table of fields with the real server's description of itself")
@pytest.mark.parametrize("served", TYPES, ids=[each.resource.qualified_name for each in TYPES])
async def test_a_built_in_type_has_the_fields_that_the_real_server_describes(api: Api, served: ResourceType) -> None:
    resource = served.resource
    place = f"apis/{resource.group}/{resource.version}" if resource.group else f"api/{resource.version}"
    types = decoded(await api.raw("GET", f"/openapi/v3/{place}"))["components"]["schemas"]
    group = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    (real,) = [schema for schema in types.values() if group in schema.get("x-kubernetes-group-version-kind", [])]
    assert served.schema is not None
    assert differences(types, real, served.schema, resource.kind) == []
