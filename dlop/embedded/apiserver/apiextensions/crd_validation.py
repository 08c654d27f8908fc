"""Validation of CustomResourceDefinitions, with the messages of kube-apiserver.

If all versions have the same schema, kube-apiserver reports its errors at `spec.validation` instead of a version, and
likewise for subresources, columns and selectable fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dlop.embedded.apiserver.api_errors import FieldError, FieldErrorType
from dlop.embedded.apiserver.apiextensions.crd_schema import not_supported, schema_errors
from dlop.embedded.apiserver.apiextensions.crd_structural import forbidden, invalid, required
from dlop.embedded.apiserver.apiextensions.schema import SchemaNode
from dlop.embedded.apiserver.name_validation import dns_1035_errors, subdomain_errors
from dlop.kube.types import JsonObject

_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_APPROVAL = "api-approved.kubernetes.io"
_MAX_SELECTABLE_FIELDS = 8


def crd_errors(crd: JsonObject, old: JsonObject | None) -> list[FieldError]:
    """The errors of a CRD; `old` is None on create."""
    spec = crd["spec"]
    errors = [*_name_errors(crd), *_spec_errors(spec)]
    if old is not None:
        errors += _change_errors(spec, old)
    errors += _stored_version_errors(crd)
    errors += _approval_errors(crd)
    if spec.get("preserveUnknownFields"):
        detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        errors.append(invalid("spec.preserveUnknownFields", value=True, detail=detail))
    return errors


def _name_errors(crd: JsonObject) -> Iterator[FieldError]:
    spec, name = crd["spec"], crd["metadata"].get("name", "")
    if name and name != f"{spec.get('names', {}).get('plural', '')}.{spec.get('group', '')}":
        yield invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')


def _spec_errors(spec: JsonObject) -> Iterator[FieldError]:
    yield from _group_errors(spec.get("group", ""))
    yield from _scope_errors(spec.get("scope", ""))
    versions = spec.get("versions", [])
    for index, version in enumerate(versions):
        if "openAPIV3Schema" not in version.get("schema", {}):
            yield required(f"spec.versions[{index}].schema.openAPIV3Schema")
    for index, version in enumerate(versions):
        yield from _version_errors(version, f"spec.versions[{index}]", versions)
    yield from _version_set_errors(versions)
    yield from _names_errors(spec.get("names", {}))
    if versions:
        yield from _shared_errors(versions)
    yield from _conversion_errors(spec.get("conversion", {}))


def _group_errors(group: str) -> Iterator[FieldError]:
    if not group:
        yield required("spec.group")
    elif messages := subdomain_errors(group):
        yield invalid("spec.group", group, ",".join(messages))
    elif "." not in group:
        yield invalid("spec.group", group, "should be a domain with at least one dot")


def _scope_errors(scope: str) -> Iterator[FieldError]:
    if not scope:
        yield required("spec.scope")
    elif scope not in ("Cluster", "Namespaced"):
        yield not_supported("spec.scope", scope, ("Cluster", "Namespaced"))


def _is_shared(versions: list[JsonObject], part: str) -> bool:
    return bool(versions[0].get(part)) and all(version.get(part) == versions[0].get(part) for version in versions)


def _version_errors(version: JsonObject, path: str, versions: list[JsonObject]) -> Iterator[FieldError]:
    if messages := dns_1035_errors(version.get("name", "")):
        yield invalid(f"{path}.name", version.get("name", ""), ",".join(messages))
    if "deprecationWarning" in version and not version.get("deprecated"):
        yield invalid(f"{path}.deprecationWarning", version["deprecationWarning"], "can only be set for deprecated versions")
    for part in _PARTS:
        if version.get(part) and not _is_shared(versions, part):
            yield from _part_errors(part, version, f"{path}.{part}")


def _shared_errors(versions: list[JsonObject]) -> Iterator[FieldError]:
    for part, shared_name in _PARTS.items():
        if _is_shared(versions, part):
            yield from _part_errors(part, versions[0], f"spec.{shared_name}")


_PARTS = {
    "schema": "validation",
    "subresources": "subresources",
    "additionalPrinterColumns": "additionalPrinterColumns",
    "selectableFields": "selectableFields",
}


def _part_errors(part: str, version: JsonObject, path: str) -> Iterator[FieldError]:
    schema = version.get("schema", {}).get("openAPIV3Schema")
    if part == "schema" and schema is not None:
        yield from schema_errors(schema, f"{path}.openAPIV3Schema", has_status="status" in version.get("subresources", {}))
    elif part == "subresources":
        yield from _scale_errors(version[part].get("scale"), f"{path}.scale")
    elif part == "additionalPrinterColumns":
        for index, column in enumerate(version[part]):
            yield from _column_errors(column, f"{path}[{index}]")
    elif part == "selectableFields" and schema is not None:
        yield from _selectable_errors(version[part], schema, path)


def _scale_errors(scale: JsonObject | None, path: str) -> Iterator[FieldError]:
    if scale is None:
        return
    for name, allowed in (("specReplicasPath", (".spec.",)), ("statusReplicasPath", (".status.",))):
        if not scale.get(name):
            yield required(f"{path}.{name}")
        else:
            yield from _path_errors(scale[name], f"{path}.{name}", allowed)
    if scale.get("labelSelectorPath"):
        yield from _path_errors(scale["labelSelectorPath"], f"{path}.labelSelectorPath", (".spec.", ".status."))


def _path_errors(value: str, path: str, allowed: tuple[str, ...] = ()) -> Iterator[FieldError]:
    if not value.startswith("."):
        yield invalid(path, value, "must be a simple json path starting with .")
    elif allowed and not value.startswith(allowed):
        detail = "either .spec or .status" if len(allowed) > 1 else allowed[0].rstrip(".")
        yield invalid(path, value, f"should be a json path under {detail}")


def _column_errors(column: JsonObject, path: str) -> Iterator[FieldError]:
    if not column.get("name"):
        yield required(f"{path}.name")
    detail = f"must be one of {','.join(_COLUMN_TYPES)}"
    if not column.get("type"):
        yield required(f"{path}.type", detail)
    elif column["type"] not in _COLUMN_TYPES:
        yield invalid(f"{path}.type", column["type"], detail)
    if column.get("format") and column["format"] not in _COLUMN_FORMATS:
        yield invalid(f"{path}.format", column["format"], f"must be one of {','.join(_COLUMN_FORMATS)}")
    if not column.get("jsonPath"):
        yield required(f"{path}.JSONPath")
    else:
        yield from _path_errors(column["jsonPath"], f"{path}.JSONPath")


def _selectable_errors(fields: list[JsonObject], schema: JsonObject, path: str) -> Iterator[FieldError]:
    seen = set()
    for index, field in enumerate(fields):
        field_path, value = f"{path}[{index}].jsonPath", field.get("jsonPath", "")
        if not value:
            yield required(field_path)
            continue
        yield from _selectable_field_errors(value, schema, field_path)
        if value in seen:
            yield FieldError(FieldErrorType.DUPLICATE, field_path, "", value)
        seen.add(value)
    if len(seen) > _MAX_SELECTABLE_FIELDS:
        yield FieldError(FieldErrorType.TOO_MANY, path, f"must have at most {_MAX_SELECTABLE_FIELDS} items", len(seen))


def _selectable_field_errors(value: str, schema: JsonObject, field_path: str) -> Iterator[FieldError]:
    node: SchemaNode | None = SchemaNode(schema)
    for name in value.removeprefix(".").split("."):
        node = node.properties.get(name) if node is not None else None
    if node is None:
        yield invalid(field_path, value, "is an invalid path: does not refer to a valid field")
    elif value.startswith(".metadata"):
        yield invalid(field_path, value, "must not point to fields in metadata")
    elif node.schema.get("type") not in ("string", "boolean", "integer"):
        detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed."
        yield invalid(field_path, value, detail)


def _version_set_errors(versions: list[JsonObject]) -> Iterator[FieldError]:
    names = [version.get("name", "") for version in versions]
    if len(set(names)) != len(names):
        yield invalid("spec.versions", _go_versions(versions), "must contain unique version names")
    if sum(bool(version.get("storage")) for version in versions) != 1:
        yield invalid("spec.versions", _go_versions(versions), "must have exactly one version marked as storage version")


def _go_versions(versions: list[JsonObject]) -> list[JsonObject]:
    """Versions as kube-apiserver prints them, without shared fields."""
    return [
        {
            "Name": version.get("name", ""),
            "Served": version.get("served", False),
            "Storage": version.get("storage", False),
            "Deprecated": version.get("deprecated", False),
            "DeprecationWarning": version.get("deprecationWarning"),
            **dict.fromkeys(("Schema", "Subresources", "AdditionalPrinterColumns", "SelectableFields")),
        }
        for version in versions
    ]


def _names_errors(names: JsonObject) -> Iterator[FieldError]:
    for name in ("plural", "singular", "kind", "listKind"):
        if not names.get(name):
            yield required(f"spec.names.{name}")
    for name in ("plural", "singular"):
        yield from _label_errors(names.get(name, ""), f"spec.names.{name}")
    for name in ("kind", "listKind"):
        messages = dns_1035_errors(names.get(name, "").lower()) if names.get(name) else []
        if messages:
            yield invalid(f"spec.names.{name}", names[name], f"may have mixed case, but should otherwise match: {','.join(messages)}")
    for name in ("shortNames", "categories"):
        for index, value in enumerate(names.get(name, ())):
            yield from _label_errors(value, f"spec.names.{name}[{index}]")
    if names.get("kind") and names["kind"] == names.get("listKind"):
        yield invalid("spec.names.listKind", names["listKind"], "kind and listKind may not be the same")


def _label_errors(value: str, path: str) -> Iterator[FieldError]:
    messages = dns_1035_errors(value) if value else []
    if messages:
        yield invalid(path, value, ",".join(messages))


def _conversion_errors(conversion: JsonObject) -> Iterator[FieldError]:
    strategy = conversion.get("strategy", "None")
    if strategy not in ("None", "Webhook"):
        yield not_supported("spec.conversion.strategy", strategy, ("None", "Webhook"))
    elif strategy == "Webhook":
        # Reject instead of storing objects unconverted, because this server cannot call webhooks.
        yield forbidden("spec.conversion.strategy", "conversion webhooks are not supported by this server")
    elif conversion.get("webhook"):
        yield forbidden("spec.conversion.webhookClientConfig", "should not be set when strategy is not set to Webhook")


def _change_errors(spec: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    before = old["spec"]
    conditions = old.get("status", {}).get("conditions", ())
    established = any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions)
    if established:
        yield from _immutable_errors(spec.get("scope"), before.get("scope"), "spec.scope")
        yield from _immutable_errors(spec["names"].get("kind"), before["names"].get("kind"), "spec.names.kind")
    yield from _immutable_errors(spec.get("group"), before.get("group"), "spec.group")
    yield from _immutable_errors(spec["names"].get("plural"), before["names"].get("plural"), "spec.names.plural")


def _immutable_errors(value: Any, before: Any, path: str) -> Iterator[FieldError]:
    if value != before:
        yield invalid(path, value, "field is immutable")


def _stored_version_errors(crd: JsonObject) -> Iterator[FieldError]:
    path, stored = "status.storedVersions", crd.get("status", {}).get("storedVersions")
    if not stored:
        yield invalid(path, None, "must have at least one stored version")
        return
    names = {version.get("name") for version in crd["spec"].get("versions", ())}
    for version in crd["spec"].get("versions", ()):
        if version.get("storage") and version.get("name") not in stored:
            yield invalid(path, stored, f"must have the storage version {version.get('name')}")
    for index, name in enumerate(stored):
        if name not in names:
            detail = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage "
                f"migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            )
            yield invalid(f"{path}[{index}]", name, detail)


def _approval_errors(crd: JsonObject) -> Iterator[FieldError]:
    group = str(crd["spec"].get("group", ""))
    is_protected = group in ("k8s.io", "kubernetes.io") or group.endswith((".k8s.io", ".kubernetes.io"))
    if is_protected and not crd["metadata"].get("annotations", {}).get(_APPROVAL):
        detail = f'protected groups must have approval annotation "{_APPROVAL}", see https://github.com/kubernetes/enhancements/pull/1111'
        yield required(f"metadata.annotations[{_APPROVAL}]", detail)
