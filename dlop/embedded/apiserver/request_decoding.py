"""Request bodies: JSON, YAML or protobuf to plain data, with the real server's words for what cannot be read."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import yaml

from dlop.embedded.apiserver.api_errors import bad_request, failure, unsupported_media_type
from dlop.embedded.apiserver.core import protobuf
from dlop.kube.errors import RequestTooLargeError
from dlop.kube.types import JsonObject

MAX_BODY_BYTES = 3 * 1024 * 1024

_JSON = "application/json"
_YAML = "application/yaml"
_UNKNOWN_FORM = f"the body of the request was in an unknown format - accepted media types include: {_JSON}, {_YAML}"
_SHOWN_BYTES = 30
_KIND_STRUCT = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
_JSON_NAMES = {str: "string", bool: "bool", int: "number", float: "number", list: "array"}


def check_size(size: int) -> None:
    """Refuse a body that is too large.

    Raises:
        RequestTooLargeError: above the real server's limit.
    """
    if size > MAX_BODY_BYTES:
        raise failure(RequestTooLargeError, f"Request entity too large: limit is {MAX_BODY_BYTES}")


def decode_object(body: bytes, content_type: str, *, kind: str) -> JsonObject:
    """The object in a body.

    Raises:
        UnsupportedMediaTypeError: when the body is in no form that can be read.
        BadRequestError: when it cannot be read as an object.
    """
    if media_type(content_type) == protobuf.PROTOBUF:
        return _from_protobuf(body)
    decoded = _decoded(body, content_type, kind=kind)
    if decoded is None:
        decoded = {}
    why = _form_error(decoded)
    if why:
        raise _unrecognized(kind, f"couldn't get version/kind; json parse error: {why}", body)
    result: JsonObject = decoded
    return result


def decode_delete_options(body: bytes | None, content_type: str) -> JsonObject | None:
    """The options in the body of a delete; None when there is no body.

    Raises:
        UnsupportedMediaTypeError: when the body is in no form that can be read.
        BadRequestError: when it cannot be read as an object.
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
    why = _form_error(decoded)
    if why:
        raise bad_request(f"couldn't get version/kind; json parse error: {why}")
    result: JsonObject = decoded
    return result


def check_media_type(content_type: str) -> None:
    """Refuse a body that is neither JSON nor YAML.

    Raises:
        UnsupportedMediaTypeError: when it is something else.
    """
    if media_type(content_type) not in (_JSON, _YAML, ""):
        raise unsupported_media_type(_UNKNOWN_FORM)


def duplicate_fields(body: bytes, decoded: JsonObject) -> tuple[str, ...]:
    """The paths of the fields that a JSON body names more than once."""
    # What is named twice is decoded once. So a body as long as its own encoding cannot hold anything twice, and the
    # slower look is only taken at bodies that were not written by a machine.
    if len(body) == len(msgspec.json.encode(decoded)):
        return ()
    try:
        return tuple(_doubled_paths(json.loads(body, object_pairs_hook=_object), ""))
    except (ValueError, RecursionError):
        return ()  # no JSON, or nothing that anybody wrote by hand


class _Doubled(dict[str, Any]):
    """An object in which some names stood twice."""

    names: tuple[str, ...]


def _object(items: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(result := dict(items)) == len(items):
        return result
    doubled = _Doubled(result)
    names = [name for name, _ in items]
    doubled.names = tuple(dict.fromkeys(name for name in names if names.count(name) > 1))
    return doubled


def _doubled_paths(value: Any, path: str) -> list[str]:
    found: list[str] = []
    prefix = f"{path}." if path else ""
    if isinstance(value, _Doubled):
        found += [prefix + name for name in value.names]
    if isinstance(value, dict):
        for name, child in value.items():
            found += _doubled_paths(child, prefix + name)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            found += _doubled_paths(child, f"{path}[{index}]")
    return found


def syntax_error(body: bytes, error: Exception) -> str:
    """What Go's decoder says about bytes that are no JSON."""
    if isinstance(error, yaml.YAMLError):
        return f"yaml: {error}".replace("\n", " ")
    try:
        json.loads(body)
    except json.JSONDecodeError as found:
        if found.pos >= len(found.doc.rstrip()):
            return "unexpected end of JSON input"
        return f"invalid character {found.doc[found.pos]!r} looking for beginning of value"
    except RecursionError:
        return "exceeded max depth"
    except ValueError:
        pass
    return f"invalid JSON: {error}"


def media_type(content_type: str) -> str:
    """The content type without its parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


def _decoded(body: bytes, content_type: str, *, kind: str) -> Any:
    check_media_type(content_type)
    try:
        return _from_yaml(body) if media_type(content_type) == _YAML else msgspec.json.decode(body)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise _unrecognized(kind, syntax_error(body, error), body) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise _unrecognized(kind, f"couldn't get version/kind; json parse error: {syntax_error(body, error)}", body) from None


def _from_yaml(body: bytes) -> Any:
    # Through JSON and back: YAML knows dates and other values that JSON does not.
    return json.loads(json.dumps(yaml.safe_load(body.decode()), default=str))


def _from_protobuf(body: bytes) -> JsonObject:
    try:
        return protobuf.decode(body)
    except protobuf.NotReadableError as error:
        # Custom resources have no protobuf, and neither has anything else that is not built in.
        raise unsupported_media_type(f"{_UNKNOWN_FORM}; {error}") from None


def _form_error(decoded: Any) -> str:
    if not isinstance(decoded, dict):
        return f"json: cannot unmarshal {_JSON_NAMES.get(type(decoded), 'null')} into Go value of type {_KIND_STRUCT}"
    for name in ("apiVersion", "kind"):
        value = decoded.get(name)
        if value is not None and not isinstance(value, str):
            given = "object" if isinstance(value, dict) else _JSON_NAMES[type(value)]
            return f"json: cannot unmarshal {given} into Go struct field .{name} of type string"
    return ""


def _unrecognized(kind: str, why: str, body: bytes) -> Exception:
    return bad_request(f"the object provided is unrecognized (must be of type {kind}): {why} ({summary(body)})")


def summary(body: bytes) -> str:
    """The beginning of a body, as messages show it."""
    if not body:
        return "<empty>"
    shown = body[:_SHOWN_BYTES]
    text = shown.decode(errors="replace") if body.startswith(b"{") else shown.hex()
    return f"{text} ..." if len(body) > _SHOWN_BYTES else text
