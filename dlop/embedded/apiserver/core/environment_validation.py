"""Validation of container environments, with the messages of kube-apiserver."""

from __future__ import annotations

import re

from dlop.embedded.apiserver.api_errors import FieldError
from dlop.embedded.apiserver.core.base import enum_errors, invalid, required
from dlop.embedded.apiserver.name_validation import config_key_errors, environment_name_errors, qualified_name_errors, subdomain_errors
from dlop.kube.types import JsonObject

_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_POD_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")
_RESOURCE_FIELDS = (
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
)


def environment_errors(container: JsonObject, path: str) -> list[FieldError]:
    """The errors in `env` and `envFrom`."""
    errors: list[FieldError] = []
    for index, variable in enumerate(container.get("env") or ()):
        name = variable.get("name", "")
        if name and "valueFrom" not in variable and not environment_name_errors(name):
            continue
        variable_path = f"{path}.env[{index}]"
        errors += (
            [invalid(f"{variable_path}.name", name, detail) for detail in environment_name_errors(name)]
            if name
            else [required(f"{variable_path}.name")]
        )
        if "valueFrom" in variable:
            errors += _source_errors(variable["valueFrom"], f"{variable_path}.valueFrom", has_value=bool(variable.get("value")))
    for source in container.get("envFrom") or ():
        errors += _env_from_errors(source, f"{path}.envFrom")
    return errors


def _source_errors(source: JsonObject, path: str, *, has_value: bool) -> list[FieldError]:
    sources = [name for name in _SOURCES if name in source]
    if not sources:
        detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        return [invalid(path, "", detail)]
    errors: list[FieldError] = []
    for name in sources:
        errors += _reference_errors(name, source[name], f"{path}.{name}")
    if has_value:
        errors.append(invalid(path, "", "may not be specified when `value` is not empty"))
    elif len(sources) > 1:
        errors.append(invalid(path, "", "may not have more than one field specified at a time"))
    return errors


def _reference_errors(kind: str, reference: JsonObject, path: str) -> list[FieldError]:
    if kind == "fieldRef":
        return _field_errors(reference.get("fieldPath", ""), f"{path}.fieldPath")
    if kind == "resourceFieldRef":
        return _resource_field_errors(reference.get("resource", ""), f"{path}.resource")
    if kind in ("configMapKeyRef", "secretKeyRef"):
        return _key_errors(reference, path)
    return []


def _field_errors(field: str, path: str) -> list[FieldError]:
    if not field:
        return [required(path)]
    if field in _POD_FIELDS:
        return []
    if match := _SUBSCRIPT.fullmatch(field):
        key = match[2] if match[1] == "labels" else match[2].lower()
        return [invalid(path, match[2], detail) for detail in qualified_name_errors(key)]
    return [invalid(path, field, f"error converting fieldPath: field label not supported: {field}")]


def _resource_field_errors(resource: str, path: str) -> list[FieldError]:
    if not resource:
        return [required(path)]
    if resource.startswith(("requests.hugepages-", "limits.hugepages-")):
        return []
    return enum_errors(path, resource, _RESOURCE_FIELDS)


def _key_errors(reference: JsonObject, path: str) -> list[FieldError]:
    name, key = reference.get("name", ""), reference.get("key", "")
    errors = [invalid(f"{path}.name", name, detail) for detail in subdomain_errors(name)]
    if not key:
        return [*errors, required(f"{path}.key")]
    return errors + [invalid(f"{path}.key", key, detail) for detail in config_key_errors(key)]


def _env_from_errors(source: JsonObject, path: str) -> list[FieldError]:
    sources = [name for name in ("configMapRef", "secretRef") if name in source]
    if not sources:
        return [invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")]
    errors: list[FieldError] = []
    for name in sources:
        reference = source[name].get("name", "")
        errors += [invalid(f"{path}.{name}.name", reference, detail) for detail in subdomain_errors(reference)]
    if len(sources) > 1:
        errors.append(invalid(path, "", "may not have more than one field specified at a time"))
    return errors
