"""Compares the schemas of the embedded server with the OpenAPI schemas of the real one."""

from __future__ import annotations

from dlop.kube.types import JsonObject

_MERGE_KEY = "x-kubernetes-patch-merge-key"


def schema_differences(components: JsonObject, real: JsonObject, embedded: JsonObject, path: str) -> list[str]:
    """Paths where the schemas have different fields or merge lists by different keys. `components` resolves references of `real`."""
    real = _resolve(components, real)
    if "properties" in embedded:
        real_fields, embedded_fields = real.get("properties", {}), embedded["properties"]
        differences = [f"{path}.{name}" for name in sorted({*real_fields} ^ {*embedded_fields})]
        for name in embedded_fields:
            if name in real_fields:
                differences += _field_differences(components, real_fields[name], embedded_fields[name], f"{path}.{name}")
        return differences
    for keyword in ("items", "additionalProperties"):
        if keyword in embedded:
            if keyword not in real:
                return [f"{path} has no {keyword}"]
            return schema_differences(components, real[keyword], embedded[keyword], f"{path}[]")
    return []


def _field_differences(components: JsonObject, real: JsonObject, embedded: JsonObject, path: str) -> list[str]:
    merge_key = [f"{path} is merged by {real.get(_MERGE_KEY)}"] if real.get(_MERGE_KEY) != embedded.get(_MERGE_KEY) else []
    return merge_key + schema_differences(components, real, embedded, path)


def _resolve(components: JsonObject, schema: JsonObject) -> JsonObject:
    while "$ref" in schema or "allOf" in schema:
        reference = schema["$ref"] if "$ref" in schema else schema["allOf"][0]["$ref"]
        schema = components[reference.rpartition("/")[2]]
    return schema
