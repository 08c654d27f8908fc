"""Decodes request bodies from JSON, YAML or protobuf, with the error messages of kube-apiserver."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import yaml

from dlop.embedded.apiserver.api_errors import bad_request, status_error, unsupported_media_type
from dlop.embedded.apiserver.core import protobuf
from dlop.kube.errors import RequestTooLargeError
from dlop.kube.types import JsonObject

MAX_BODY_BYTES = 3 * 1024 * 1024

_JSON = "application/json"
_YAML = "application/yaml"
_UNKNOWN_FORMAT = f"the body of the request was in an unknown format - accepted media types include: {_JSON}, {_YAML}"
_SHOWN_BYTES = 30
_KIND_STRUCT = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
_JSON_NAMES = {str: "string", bool: "bool", int: "number", float: "number", list: "array"}


def check_size(size: int) -> None:
    """Check the size of a body.

    Raises:
        RequestTooLargeError: the body exceeds the limit of kube-apiserver.
    """
    if size > MAX_BODY_BYTES:
        raise status_error(RequestTooLargeError, f"Request entity too large: limit is {MAX_BODY_BYTES}")


def decode_object(body: bytes, content_type: str, *, kind: str) -> JsonObject:
    """Decode an object.

    Raises:
        UnsupportedMediaTypeError: the media type is not supported.
        BadRequestError: the body is not a valid object.
    """
    if media_type(content_type) == protobuf.PROTOBUF:
        return _from_protobuf(body)
    decoded = _decode(body, content_type, kind=kind)
    if decoded is None:
        decoded = {}
    error_message = _object_error(decoded)
    if error_message:
        raise _unrecognized(kind, f"couldn't get version/kind; json parse error: {error_message}", body)
    result: JsonObject = decoded
    return result


def decode_delete_options(body: bytes | None, content_type: str) -> JsonObject | None:
    """Decode the DeleteOptions in the body of a delete; None without a body.

    Raises:
        UnsupportedMediaTypeError: the media type is not supported.
        BadRequestError: the body is not a valid object.
    """
    if not body:
        return None
    if media_type(content_type) == protobuf.PROTOBUF:
        return _from_protobuf(body)
    check_media_type(content_type)
    try:
        decoded = msgspec.json.decode(body) if media_type(content_type) == _JSON else _from_yaml(body)
    except (msgspec.DecodeError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {syntax_error(body, error)}") from None
    error_message = _object_error(decoded)
    if error_message:
        raise bad_request(f"couldn't get version/kind; json parse error: {error_message}")
    result: JsonObject = decoded
    return result


def check_media_type(content_type: str) -> None:
    """Check that the media type is JSON or YAML.

    Raises:
        UnsupportedMediaTypeError: it is neither.
    """
    if media_type(content_type) not in (_JSON, _YAML, ""):
        raise unsupported_media_type(_UNKNOWN_FORMAT)


def duplicate_fields(body: bytes, decoded: JsonObject) -> tuple[str, ...]:
    """The paths of fields that a JSON body has more than once."""
    # Decoding drops duplicates, so a body of the same length as its re-encoding has none. This skips the slow check
    # for compact JSON, which most clients send.
    if len(body) == len(msgspec.json.encode(decoded)):
        return ()
    try:
        return tuple(_duplicate_paths(json.loads(body, object_pairs_hook=_build_object), ""))
    except (ValueError, RecursionError):
        return ()  # not JSON, or nested too deeply


class _ObjectWithDuplicates(dict[str, Any]):
    duplicates: tuple[str, ...]


def _build_object(items: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(result := dict(items)) == len(items):
        return result
    with_duplicates = _ObjectWithDuplicates(result)
    names = [name for name, _ in items]
    with_duplicates.duplicates = tuple(dict.fromkeys(name for name in names if names.count(name) > 1))
    return with_duplicates


def _duplicate_paths(value: Any, path: str) -> list[str]:
    paths: list[str] = []
    prefix = f"{path}." if path else ""
    if isinstance(value, _ObjectWithDuplicates):
        paths += [prefix + name for name in value.duplicates]
    if isinstance(value, dict):
        for name, child in value.items():
            paths += _duplicate_paths(child, prefix + name)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            paths += _duplicate_paths(child, f"{path}[{index}]")
    return paths


def syntax_error(body: bytes, error: Exception) -> str:
    """The message of Go's decoder for invalid JSON."""
    if isinstance(error, yaml.YAMLError):
        return f"yaml: {error}".replace("\n", " ")
    try:
        json.loads(body)
    except json.JSONDecodeError as json_error:
        if json_error.pos >= len(json_error.doc.rstrip()):
            return "unexpected end of JSON input"
        return f"invalid character {json_error.doc[json_error.pos]!r} looking for beginning of value"
    except RecursionError:
        return "exceeded max depth"
    except ValueError:
        pass
    return f"invalid JSON: {error}"


def media_type(content_type: str) -> str:
    """The content type without its parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


def _decode(body: bytes, content_type: str, *, kind: str) -> Any:
    check_media_type(content_type)
    try:
        return _from_yaml(body) if media_type(content_type) == _YAML else msgspec.json.decode(body)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise _unrecognized(kind, syntax_error(body, error), body) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise _unrecognized(kind, f"couldn't get version/kind; json parse error: {syntax_error(body, error)}", body) from None


def _from_yaml(body: bytes) -> Any:
    # Convert to JSON and back, because YAML has dates and other values that JSON does not have.
    return json.loads(json.dumps(yaml.safe_load(body.decode()), default=str))


def _from_protobuf(body: bytes) -> JsonObject:
    try:
        return protobuf.decode(body)
    except protobuf.ProtobufDecodeError as error:
        # Only built-in types support protobuf.
        raise unsupported_media_type(f"{_UNKNOWN_FORMAT}; {error}") from None


def _object_error(decoded: Any) -> str:
    if not isinstance(decoded, dict):
        return f"json: cannot unmarshal {_JSON_NAMES.get(type(decoded), 'null')} into Go value of type {_KIND_STRUCT}"
    for name in ("apiVersion", "kind"):
        value = decoded.get(name)
        if value is not None and not isinstance(value, str):
            json_type = "object" if isinstance(value, dict) else _JSON_NAMES[type(value)]
            return f"json: cannot unmarshal {json_type} into Go struct field .{name} of type string"
    return ""


def _unrecognized(kind: str, reason: str, body: bytes) -> Exception:
    return bad_request(f"the object provided is unrecognized (must be of type {kind}): {reason} ({summary(body)})")


def summary(body: bytes) -> str:
    """The start of a body for error messages."""
    if not body:
        return "<empty>"
    prefix = body[:_SHOWN_BYTES]
    text = prefix.decode(errors="replace") if body.startswith(b"{") else prefix.hex()
    return f"{text} ..." if len(body) > _SHOWN_BYTES else text
