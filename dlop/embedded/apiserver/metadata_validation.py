"""Validation of object metadata, with the messages of kube-apiserver.

The type's strategy validates the name; everything else applies to all types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlop.embedded.apiserver.api_errors import FieldError, FieldErrorType
from dlop.embedded.apiserver.name_validation import generate_name_errors, label_errors, label_value_errors, qualified_name_errors
from dlop.embedded.apiserver.resource_type import ResourceType
from dlop.kube.types import JsonObject

ORPHAN_FINALIZER = "orphan"
FOREGROUND_FINALIZER = "foregroundDeletion"
MAX_ANNOTATION_BYTES = 256 * 1024
_IMMUTABLE = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


def validate_metadata(body: JsonObject, old: JsonObject | None, *, type: ResourceType) -> list[FieldError]:
    """The errors in an object's metadata; `old` is None on create."""
    metadata: JsonObject = body["metadata"]
    errors = _create_errors(metadata, type) if old is None else _update_errors(metadata, old["metadata"])
    errors += _label_errors(metadata.get("labels"))
    errors += _annotation_errors(metadata.get("annotations"))
    errors += _owner_errors(metadata.get("ownerReferences"))
    if old is None or not type.is_custom:
        errors += _finalizer_errors(metadata.get("finalizers"))
    return errors


def _invalid(path: str, value: Any, details: Sequence[str]) -> list[FieldError]:
    return [FieldError(FieldErrorType.INVALID, path, detail, value) for detail in details]


def _create_errors(metadata: JsonObject, type: ResourceType) -> list[FieldError]:
    errors: list[FieldError] = []
    if (prefix := metadata.get("generateName")) and type.is_custom:
        # For built-in types only the generated name is validated.
        errors += _invalid("metadata.generateName", prefix, generate_name_errors(prefix, type.strategy.validate_name))
    if name := metadata.get("name"):
        errors += _invalid("metadata.name", name, type.strategy.validate_name(name))
    else:
        errors.append(FieldError(FieldErrorType.REQUIRED, "metadata.name", "name or generateName is required"))
    return errors + _namespace_errors(metadata.get("namespace"), namespaced=type.resource.namespaced)


def _namespace_errors(namespace: str | None, *, namespaced: bool) -> list[FieldError]:
    if not namespaced:
        return [FieldError(FieldErrorType.FORBIDDEN, "metadata.namespace", "not allowed on this type")] if namespace else []
    if not namespace:
        return [FieldError(FieldErrorType.REQUIRED, "metadata.namespace")]
    return _invalid("metadata.namespace", namespace, label_errors(namespace))


def _update_errors(metadata: JsonObject, old: JsonObject) -> list[FieldError]:
    errors: list[FieldError] = []
    if old.get("deletionTimestamp"):
        errors += _new_finalizer_errors(metadata.get("finalizers"), old.get("finalizers"))
    if metadata.get("generation", 0) < old.get("generation", 0):
        errors += _invalid("metadata.generation", metadata.get("generation", 0), ["must not be decremented"])
    for field in _IMMUTABLE:
        if metadata.get(field) != old.get(field):
            errors += _invalid(f"metadata.{field}", metadata.get(field), ["field is immutable"])
    return errors


def _new_finalizer_errors(finalizers: list[str] | None, old: list[str] | None) -> list[FieldError]:
    extra = sorted(set(finalizers or ()) - set(old or ()))
    if not extra:
        return []
    quoted = ", ".join(f'"{finalizer}"' for finalizer in extra)
    detail = f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{quoted}}}"
    return [FieldError(FieldErrorType.FORBIDDEN, "metadata.finalizers", detail)]


def _label_errors(labels: dict[str, str] | None) -> list[FieldError]:
    errors: list[FieldError] = []
    for key, value in (labels or {}).items():
        errors += _invalid("metadata.labels", key, qualified_name_errors(key))
        errors += _invalid("metadata.labels", value, label_value_errors(value))
    return errors


def _annotation_errors(annotations: dict[str, str] | None) -> list[FieldError]:
    errors: list[FieldError] = []
    size = 0
    for key, value in (annotations or {}).items():
        # Annotation keys may contain upper case, even in the prefix.
        errors += _invalid("metadata.annotations", key, qualified_name_errors(key.lower()))
        size += len(key.encode()) + len(value.encode())
    if size > MAX_ANNOTATION_BYTES:
        errors.append(FieldError(FieldErrorType.TOO_LONG, "metadata.annotations", f"may not be more than {MAX_ANNOTATION_BYTES} bytes"))
    return errors


def _owner_errors(references: list[JsonObject] | None) -> list[FieldError]:
    errors: list[FieldError] = []
    controller = ""
    for reference in references or ():
        errors += _owner_reference_errors(reference)
        if not reference.get("controller"):
            continue
        owner = f"{reference.get('kind', '')}/{reference.get('name', '')}"
        if controller:
            detail = f'Only one reference can have Controller set to true. Found "true" in references for {controller} and {owner}'
            errors += _invalid("metadata.ownerReferences", references, [detail])
        controller = controller or owner
    return errors


def _owner_reference_errors(reference: JsonObject) -> list[FieldError]:
    path = "metadata.ownerReferences"
    api_version = reference.get("apiVersion") or ""
    errors = [] if api_version.rpartition("/")[2] else _invalid(f"{path}.apiVersion", api_version, ["version must not be empty"])
    for field in ("kind", "name", "uid"):
        if not reference.get(field):
            errors += _invalid(f"{path}.{field}", reference.get(field, ""), ["must not be empty"])
    if (api_version, reference.get("kind")) == ("v1", "Event"):
        errors += _invalid(path, reference, ["/v1, Kind=Event is disallowed from being an owner"])
    return errors


def _finalizer_errors(finalizers: list[str] | None) -> list[FieldError]:
    path = "metadata.finalizers"
    errors: list[FieldError] = []
    for finalizer in finalizers or ():
        errors += _invalid(path, finalizer, qualified_name_errors(finalizer))
    if {ORPHAN_FINALIZER, FOREGROUND_FINALIZER} <= set(finalizers or ()):
        detail = f"finalizer {ORPHAN_FINALIZER} and {FOREGROUND_FINALIZER} cannot be both set"
        errors += _invalid(path, finalizers, [detail])
    return errors
