"""Reads a server's refusal: which field it is about, as exactly as it can be told, and what to write instead. Pure.

Where a server only says that it could not read an object, the field is looked for in what was sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from dlop.jobs.submit import complaints
from dlop.kube.errors import NotFoundError, StatusError
from dlop.kube.types import JsonObject

# How a server says that it cannot read a field. It names the path without indexes.
_UNREAD = re.compile(r"cannot unmarshal (?P<given>\w+) into Go struct field (?P<struct>\w*)\.(?P<path>[\w.]+) of type (?P<type>\S+)")
_NOUNS = {"string": "a text", "number": "a number", "bool": "true or false", "array": "a list", "object": "an object"}
_JSON_TYPES: dict[type, str] = {str: "string", int: "number", float: "number", bool: "bool", list: "array", dict: "object"}
_QUANTITY = re.compile(r"[+-]?[0-9.]+([eE][-+]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?")

Complaint = tuple[str, str]
"""The path of a field, and what is wrong with it. Without a path it is about the whole object."""


def read_refusal(error: StatusError, body: JsonObject) -> list[Complaint]:
    """What a server has against an object."""
    return complaints(error) or list(_guessed(error, body)) or [("", str(error))]


def _guessed(error: StatusError, body: JsonObject) -> Iterator[Complaint]:
    said = str(error)
    if isinstance(error, NotFoundError) and error.details.get("kind") == "namespaces":
        yield "metadata.namespace", said
    elif unread := _UNREAD.search(said):
        path = f"metadata.{unread['path']}" if unread["struct"] == "ObjectMeta" else unread["path"]
        place = _located(body, path.split("."), unread["given"], "") or path
        yield place.removeprefix("."), f"must be {_noun(unread['type'])}, not {_NOUNS.get(unread['given'], unread['given'])}"
    elif "quantities must match" in said:
        yield from ((path, f"must be a number with a unit such as 500m or 4Gi, not {value!r}") for path, value in _no_quantities(body, ""))
    elif "illegal base64" in said:
        yield "data", "must be base64; under `stringData` it can be written as it is"


def _noun(type: str) -> str:
    """A type of the server's own language in words."""
    if type.startswith("["):
        return "a list"
    if type.startswith(("int", "uint", "float")):
        return "a number"
    return _NOUNS.get(type, "an object")


def _located(value: Any, steps: Sequence[str], given: str, path: str) -> str | None:
    """The first place on a way, whatever the indexes, where something of the given type stands."""
    if not steps and _JSON_TYPES.get(type(value)) == given:
        return path
    if isinstance(value, list):
        places = (_located(item, steps, given, f"{path}[{index}]") for index, item in enumerate(value))
        return next((place for place in places if place is not None), None)
    if isinstance(value, dict) and not steps:
        places = (_located(item, (), given, f"{path}.{name}") for name, item in value.items())
        return next((place for place in places if place is not None), None)
    return _located(value.get(steps[0]), steps[1:], given, f"{path}.{steps[0]}") if isinstance(value, dict) else None


def _no_quantities(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """What stands among requests and limits and is no quantity."""
    children = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    for key, child in children:
        place = f"{path}[{key}]" if isinstance(key, int) else f"{path}.{key}".removeprefix(".")
        if key in ("requests", "limits") and isinstance(child, dict):
            yield from ((f"{place}[{name}]", each) for name, each in child.items() if not _QUANTITY.fullmatch(str(each)))
        else:
            yield from _no_quantities(child, place)
