"""Decodes a patch of any supported type into a pure function.

Unchanged parts are shared between the old and the new object; nothing is modified in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from dlop.embedded.apiserver.api_errors import bad_request, status_error, unsupported_media_type
from dlop.embedded.apiserver.patches.jsonpatch import apply_operations, decode_operations
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


def decode_patch(type: ResourceType, content_type: str, body: bytes) -> Patch:
    """Decode a patch into a function that applies it.

    Raises:
        UnsupportedMediaTypeError: the type does not support this kind of patch. Server-side apply is not supported.
        BadRequestError: the body is malformed.
    """
    media = media_type(content_type)
    if media == JSON_PATCH:
        operations = decode_operations(_decode(body, "error decoding patch: "))
        return lambda old: apply_operations(old, operations)
    if media == MERGE_PATCH:
        changes = _decode_merge_patch(body)
        return lambda old: apply_merge_patch(old, changes)
    schema = type.merge_schema
    if media == STRATEGIC_PATCH and schema is not None:
        strategic = _check_object(_decode(body, ""), "")
        return lambda old: merge_strategically(old, strategic, schema=schema)
    raise _unsupported(type)


def apply_merge_patch(target: Any, patch: Any) -> Any:
    """Apply a merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = apply_merge_patch(result.get(name), value)
    return result


def _decode(body: bytes, prefix: str) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise bad_request(f"{prefix}{syntax_error(body, error)}") from None


def _check_object(decoded: Any, prefix: str) -> JsonObject:
    if decoded is None:
        return {}
    if not isinstance(decoded, dict):
        json_type = _JSON_NAMES[decoded.__class__]
        raise bad_request(f"{prefix}json: cannot unmarshal {json_type} into Go value of type map[string]interface {{}}")
    return decoded


def _decode_merge_patch(body: bytes) -> JsonObject:
    decoded = _decode(body, "error decoding patch: ")
    if decoded is None:
        raise bad_request("Invalid JSON Patch")
    return _check_object(decoded, "error decoding patch: ")


def _unsupported(type: ResourceType) -> UnsupportedMediaTypeError:
    if type.is_custom:
        return unsupported_media_type(
            f"the body of the request was in an unknown format - accepted media types include: {JSON_PATCH}, {MERGE_PATCH}"
        )
    error = status_error(UnsupportedMediaTypeError, "415: Unsupported Media Type", {})
    return UnsupportedMediaTypeError(error.status)
