"""Patches: how a body of one of three kinds changes an object.

A patch is read once and applied as a pure function. What it does not touch is shared between the old and the new
object; nothing is ever changed in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from dlop.embedded.apiserver.api_errors import bad_request, failure, unsupported_media_type
from dlop.embedded.apiserver.patches.jsonpatch import apply_operations, read_operations
from dlop.embedded.apiserver.patches.strategic import merge_strategically
from dlop.embedded.apiserver.request_decoding import media_type, syntax_error
from dlop.embedded.apiserver.resource_type import ResourceType
from dlop.kube.errors import UnsupportedMediaTypeError
from dlop.kube.types import JsonObject

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

_JSON_NAMES = {str: "string", bool: "bool", int: "number", float: "number", list: "array"}

Patch = Callable[[JsonObject], JsonObject]


def read_patch(type: ResourceType, content_type: str, body: bytes) -> Patch:
    """The function that a patch describes.

    Raises:
        UnsupportedMediaTypeError: for a kind of patch that the type does not take; server-side apply is none that is.
        BadRequestError: when the body cannot be read.
    """
    media = media_type(content_type)
    if media == JSON_PATCH:
        operations = read_operations(_decoded(body, "error decoding patch: "))
        return lambda old: apply_operations(old, operations)
    if media == MERGE_PATCH:
        changes = _merge_object(body)
        return lambda old: merge(old, changes)
    schema = type.merge_schema
    if media == STRATEGIC_PATCH and schema is not None:
        strategic = _object(_decoded(body, ""), "")
        return lambda old: merge_strategically(old, strategic, schema=schema)
    raise _unsupported(type)


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386: objects are merged, null removes, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge(result.get(name), value)
    return result


def _decoded(body: bytes, prefix: str) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise bad_request(f"{prefix}{syntax_error(body, error)}") from None


def _object(decoded: Any, prefix: str) -> JsonObject:
    if decoded is None:
        return {}
    if not isinstance(decoded, dict):
        given = _JSON_NAMES[decoded.__class__]
        raise bad_request(f"{prefix}json: cannot unmarshal {given} into Go value of type map[string]interface {{}}")
    return decoded


def _merge_object(body: bytes) -> JsonObject:
    decoded = _decoded(body, "error decoding patch: ")
    if decoded is None:
        raise bad_request("Invalid JSON Patch")
    return _object(decoded, "error decoding patch: ")


def _unsupported(type: ResourceType) -> UnsupportedMediaTypeError:
    if type.is_custom:
        return unsupported_media_type(
            f"the body of the request was in an unknown format - accepted media types include: {JSON_PATCH}, {MERGE_PATCH}"
        )
    refusal = failure(UnsupportedMediaTypeError, "415: Unsupported Media Type", {})
    return UnsupportedMediaTypeError(refusal.status)
