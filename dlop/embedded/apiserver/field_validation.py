"""Validates the kind and the fields of a body before it is stored.

Unknown fields are dropped, reported as warnings or rejected, depending on fieldValidation. Error messages differ between
a request body and the result of a patch, so the caller passes a function that makes the error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from dlop.embedded.apiserver.api_errors import FieldError, FieldErrorType, bad_request, invalid, status_error
from dlop.embedded.apiserver.query_options import FieldValidation, WriteOptions
from dlop.embedded.apiserver.request_decoding import summary
from dlop.embedded.apiserver.resource_type import ResourceType
from dlop.kube.errors import InvalidError, StatusError
from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject

# Dropped, because server-side apply is not supported and selfLink is obsolete.
_DROPPED_METADATA = ("managedFields", "selfLink")
_NO_RESOURCE = Resource("", "", "", "")

MakeError = Callable[[str], StatusError]


def read_body(type: ResourceType, body: JsonObject, options: WriteOptions, *, make_error: MakeError) -> JsonObject:
    """A copy of the body with the kind of the type and without unknown fields. Top level and metadata are not shared with `body`.

    Raises:
        StatusError: made by `make_error` if the body does not decode as the type, or has unknown fields in strict mode.
    """
    metadata = body.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise make_error(_metadata_type_error(type, metadata))
    try:
        known, unknown = type.strategy.prune_unknown_fields(body)
    except ValueError as error:
        raise make_error(str(error)) from None
    _report(type, unknown, options, make_error=make_error)
    kept = {name: value for name, value in (known.get("metadata") or {}).items() if value not in _EMPTY and name not in _DROPPED_METADATA}
    resource = type.resource
    # `ResponseEncoder` expects kind and apiVersion first when it strips them from list items.
    return {"kind": resource.kind, "apiVersion": resource.api_version, **known, "metadata": kept}


_EMPTY: tuple[Any, ...] = (None, "", [], {})


def body_error_factory(type: ResourceType, body: JsonObject) -> MakeError:
    """Makes the errors of a request body."""
    kind = body.get("kind") or type.resource.kind
    version = str(body.get("apiVersion") or type.resource.version).rpartition("/")[2]

    def make_error(reason: str) -> StatusError:
        return bad_request(f'{kind} in version "{version}" cannot be handled as a {type.resource.kind}: {reason}')

    return make_error


def patch_error_factory(body: JsonObject) -> MakeError:
    """Makes the errors of the result of a patch."""

    def make_error(reason: str) -> StatusError:
        encoded = msgspec.json.encode(body).decode()
        return invalid(_NO_RESOURCE, "", [FieldError(FieldErrorType.INVALID, "patch", reason, encoded)])

    return make_error


def check_kind(type: ResourceType, body: JsonObject, *, make_error: MakeError, patched: bool = False) -> None:
    """Check apiVersion and kind of a body. Bodies of built-in types may omit them; custom resources may not.

    Raises:
        StatusError: they differ from the type. The message differs between built-in and custom types.
    """
    api_version, kind = body.get("apiVersion"), body.get("kind")
    expected = type.resource
    if type.is_custom:
        _check_custom_kind(type, api_version, kind, body, patched=patched)
    elif api_version and api_version != expected.api_version:
        raise make_error(f'no kind "{kind}" is registered for version "{api_version}" in scheme "pkg/runtime/scheme.go:111"')
    elif kind and kind != expected.kind:
        raise make_error(f'no kind "{kind}" is registered for version "{expected.api_version}" in scheme "pkg/runtime/scheme.go:111"')


def _check_custom_kind(type: ResourceType, api_version: Any, kind: Any, body: JsonObject, *, patched: bool) -> None:
    expected = type.resource
    if not kind:
        encoded = msgspec.json.encode(body)
        missing = f"Object 'Kind' is missing in '{encoded.decode()}' ({summary(encoded)})"
        raise bad_request(f"the object provided is unrecognized (must be of type {expected.kind}): {missing}")
    if api_version != expected.api_version:
        if patched:
            sent_as = Resource(str(api_version).rpartition("/")[0], expected.version, expected.plural, expected.kind)
            detail = f"must be {expected.api_version}"
            raise invalid(sent_as, _name(body), [FieldError(FieldErrorType.INVALID, "apiVersion", detail, api_version)])
        raise bad_request(
            f"the API version in the data ({api_version or ''}) does not match the expected API version ({expected.api_version})"
        )
    if kind != expected.kind:
        sent_as = Resource(expected.group, expected.version, expected.plural, str(kind))
        raise invalid(sent_as, _name(body), [FieldError(FieldErrorType.INVALID, "kind", f"must be {expected.kind}", kind)])


def _name(body: JsonObject) -> str:
    metadata = body.get("metadata")
    return str(metadata.get("name") or "") if isinstance(metadata, dict) else ""


def _report(type: ResourceType, unknown: list[str], options: WriteOptions, *, make_error: MakeError) -> None:
    if options.field_validation is FieldValidation.IGNORE or not (unknown or options.duplicate_fields):
        return
    unknowns = [f'unknown field "{path}"' for path in unknown]
    duplicates = [f'duplicate field "{path}"' for path in options.duplicate_fields]
    messages = duplicates + unknowns if type.is_custom else unknowns + duplicates
    if options.field_validation is FieldValidation.STRICT:
        raise make_error(f"strict decoding error: {', '.join(messages)}")
    for message in messages:
        options.warn(message)


def _metadata_type_error(type: ResourceType, value: Any) -> str:
    json_type = {str: "string", bool: "bool", int: "number", float: "number", list: "array"}[value.__class__]
    location = "value" if type.is_custom else f"struct field {type.resource.kind}.metadata"
    return f"json: cannot unmarshal {json_type} into Go {location} of type v1.ObjectMeta"


def rejected_patch() -> StatusError:
    """422: a patch that cannot be applied to the object. kube-apiserver gives no details."""
    return status_error(InvalidError, "the server rejected our request due to an error in our request", {})
