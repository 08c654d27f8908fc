"""How a body that arrived becomes one that the verbs can work with.

Unknown fields are dropped, warned of or refused; values of the wrong type are refused; and the body gets the kind that
it was sent as. The sentences differ between a body that was sent and one that a patch has made, so the way to refuse
is given by the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from dlop.embedded.apiserver.api_errors import FieldError, FieldErrorType, bad_request, failure, invalid
from dlop.embedded.apiserver.query_options import FieldValidation, WriteOptions
from dlop.embedded.apiserver.request_decoding import summary
from dlop.embedded.apiserver.resource_type import ResourceType
from dlop.kube.errors import InvalidError, StatusError
from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject

# Never kept: who set which field is of no use without server-side apply, and selfLink is long gone.
_NOT_KEPT = ("managedFields", "selfLink")
_NOBODY = Resource("", "", "", "")

Refuse = Callable[[str], StatusError]


def read_body(type: ResourceType, body: JsonObject, options: WriteOptions, *, refuse: Refuse) -> JsonObject:
    """The body with fresh top level and metadata, of the right kind, without unknown fields.

    Raises:
        StatusError: made by `refuse` when the body cannot be read as the type, or has unknown fields and may not.
    """
    metadata = body.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise refuse(_metadata_sentence(type, metadata))
    try:
        known, unknown = type.rules.unknown_fields(body)
    except ValueError as error:
        raise refuse(str(error)) from None
    _report(type, unknown, options, refuse=refuse)
    kept = {name: value for name, value in (known.get("metadata") or {}).items() if value not in _EMPTY and name not in _NOT_KEPT}
    resource = type.resource
    # The kind comes first: lists leave it out, and find it there.
    return {"kind": resource.kind, "apiVersion": resource.api_version, **known, "metadata": kept}


_EMPTY: tuple[Any, ...] = (None, "", [], {})


def refuse_sent(type: ResourceType, body: JsonObject) -> Refuse:
    """How a body that was sent is refused."""
    kind = body.get("kind") or type.resource.kind
    version = str(body.get("apiVersion") or type.resource.version).rpartition("/")[2]

    def refuse(why: str) -> StatusError:
        return bad_request(f'{kind} in version "{version}" cannot be handled as a {type.resource.kind}: {why}')

    return refuse


def refuse_patched(body: JsonObject) -> Refuse:
    """How a body that a patch has made is refused."""

    def refuse(why: str) -> StatusError:
        shown = msgspec.json.encode(body).decode()
        return invalid(_NOBODY, "", [FieldError(FieldErrorType.INVALID, "patch", why, shown)])

    return refuse


def check_kind(type: ResourceType, body: JsonObject, *, refuse: Refuse, patched: bool = False) -> None:
    """Refuse a body that says it is something else. Built-in types may leave it out; custom resources may not.

    Raises:
        StatusError: as the real server words it, which differs between built-in and custom types.
    """
    api_version, kind = body.get("apiVersion"), body.get("kind")
    expected = type.resource
    if type.is_custom:
        _check_custom_kind(type, api_version, kind, body, patched=patched)
    elif api_version and api_version != expected.api_version:
        raise refuse(f'no kind "{kind}" is registered for version "{api_version}" in scheme "pkg/runtime/scheme.go:111"')
    elif kind and kind != expected.kind:
        raise refuse(f'no kind "{kind}" is registered for version "{expected.api_version}" in scheme "pkg/runtime/scheme.go:111"')


def _check_custom_kind(type: ResourceType, api_version: Any, kind: Any, body: JsonObject, *, patched: bool) -> None:
    expected = type.resource
    if not kind:
        encoded = msgspec.json.encode(body)
        missing = f"Object 'Kind' is missing in '{encoded.decode()}' ({summary(encoded)})"
        raise bad_request(f"the object provided is unrecognized (must be of type {expected.kind}): {missing}")
    if api_version != expected.api_version:
        if patched:
            named = Resource(str(api_version).rpartition("/")[0], expected.version, expected.plural, expected.kind)
            detail = f"must be {expected.api_version}"
            raise invalid(named, _name(body), [FieldError(FieldErrorType.INVALID, "apiVersion", detail, api_version)])
        raise bad_request(
            f"the API version in the data ({api_version or ''}) does not match the expected API version ({expected.api_version})"
        )
    if kind != expected.kind:
        named = Resource(expected.group, expected.version, expected.plural, str(kind))
        raise invalid(named, _name(body), [FieldError(FieldErrorType.INVALID, "kind", f"must be {expected.kind}", kind)])


def _name(body: JsonObject) -> str:
    metadata = body.get("metadata")
    return str(metadata.get("name") or "") if isinstance(metadata, dict) else ""


def _report(type: ResourceType, unknown: list[str], options: WriteOptions, *, refuse: Refuse) -> None:
    if options.field_validation is FieldValidation.IGNORE or not (unknown or options.duplicate_fields):
        return
    unknowns = [f'unknown field "{path}"' for path in unknown]
    duplicates = [f'duplicate field "{path}"' for path in options.duplicate_fields]
    complaints = duplicates + unknowns if type.is_custom else unknowns + duplicates
    if options.field_validation is FieldValidation.STRICT:
        raise refuse(f"strict decoding error: {', '.join(complaints)}")
    for complaint in complaints:
        options.warn(complaint)


def _metadata_sentence(type: ResourceType, value: Any) -> str:
    given = {str: "string", bool: "bool", int: "number", float: "number", list: "array"}[value.__class__]
    where = "value" if type.is_custom else f"struct field {type.resource.kind}.metadata"
    return f"json: cannot unmarshal {given} into Go {where} of type v1.ObjectMeta"


def rejected_patch() -> StatusError:
    """422: a patch that does not fit the object. The real server says no more about it."""
    return failure(InvalidError, "the server rejected our request due to an error in our request", {})
