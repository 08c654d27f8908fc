"""Translate errors of the API server into field errors: the path of the field and how to fix it. Pure.

A decoding error of the server has an incomplete path. The field is then searched in the object that was sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from dlop.jobs.submit import field_errors
from dlop.kube.errors import NotFoundError, StatusError
from dlop.kube.types import JsonObject

# The decoding error of a Go server. Its path has no indexes.
_DECODING_ERROR = re.compile(
    r"cannot unmarshal (?P<actual>\w+) into Go struct field (?P<struct>\w*)\.(?P<path>[\w.]+) of type (?P<type>\S+)"
)
_NOUNS = {"string": "a string", "number": "a number", "bool": "true or false", "array": "a list", "object": "an object"}
_JSON_TYPES: dict[type, str] = {str: "string", int: "number", float: "number", bool: "bool", list: "array", dict: "object"}
_QUANTITY = re.compile(r"[+-]?[0-9.]+([eE][-+]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?")

PathError = tuple[str, str]
"""The path of a field and a message. An empty path means the whole object."""


def parse_status_error(error: StatusError, body: JsonObject) -> list[PathError]:
    """The field errors of an object that the server rejected."""
    return field_errors(error) or list(_infer_field_errors(error, body)) or [("", str(error))]


def _infer_field_errors(error: StatusError, body: JsonObject) -> Iterator[PathError]:
    message = str(error)
    if isinstance(error, NotFoundError) and error.details.get("kind") == "namespaces":
        yield "metadata.namespace", message
    elif match := _DECODING_ERROR.search(message):
        go_path = f"metadata.{match['path']}" if match["struct"] == "ObjectMeta" else match["path"]
        path = _find_value(body, go_path.split("."), match["actual"], "") or go_path
        yield path.removeprefix("."), f"must be {_describe_go_type(match['type'])}, got {_NOUNS.get(match['actual'], match['actual'])}"
    elif "quantities must match" in message:
        for path, value in _invalid_quantities(body, ""):
            yield path, f"must be a quantity such as 500m or 4Gi, got {value!r}"
    elif "illegal base64" in message:
        yield "data", "must be base64; use `stringData` for plain text"


def _describe_go_type(type: str) -> str:
    if type.startswith("["):
        return "a list"
    if type.startswith(("int", "uint", "float")):
        return "a number"
    return _NOUNS.get(type, "an object")


def _find_value(value: Any, steps: Sequence[str], json_type: str, path: str) -> str | None:
    """The path of the first value of this type below the steps, with any list indexes."""
    if not steps and _JSON_TYPES.get(type(value)) == json_type:
        return path
    if isinstance(value, list):
        paths = (_find_value(item, steps, json_type, f"{path}[{index}]") for index, item in enumerate(value))
        return next((found_path for found_path in paths if found_path is not None), None)
    if isinstance(value, dict) and not steps:
        paths = (_find_value(item, (), json_type, f"{path}.{name}") for name, item in value.items())
        return next((found_path for found_path in paths if found_path is not None), None)
    return _find_value(value.get(steps[0]), steps[1:], json_type, f"{path}.{steps[0]}") if isinstance(value, dict) else None


def _invalid_quantities(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Values of requests and limits that are not quantities."""
    children = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    for key, child in children:
        child_path = f"{path}[{key}]" if isinstance(key, int) else f"{path}.{key}".removeprefix(".")
        if key in ("requests", "limits") and isinstance(child, dict):
            yield from ((f"{child_path}[{name}]", quantity) for name, quantity in child.items() if not _QUANTITY.fullmatch(str(quantity)))
        else:
            yield from _invalid_quantities(child, child_path)
