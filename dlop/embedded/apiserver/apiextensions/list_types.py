"""What a schema promises beyond types: lists without duplicates, and whole objects embedded in others."""

from __future__ import annotations

from typing import Any

import msgspec

from dlop.embedded.apiserver.api_errors import FieldError, FieldErrorType
from dlop.embedded.apiserver.apiextensions.schema import MISSING, Node
from dlop.embedded.apiserver.name_validation import dns_1035_errors
from dlop.kube.types import JsonObject


def has_promises(node: Node) -> bool:
    """Whether anything in the schema needs the checks of this module."""
    below = [*node.properties.values(), *(child for child in (node.items, node.additional) if child is not None)]
    return node.list_type != "atomic" or node.embedded or any(has_promises(child) for child in below)


def embedded_errors(node: Node, value: Any, path: str) -> list[FieldError]:
    """Embedded objects must say what they are."""
    errors: list[FieldError] = []
    for child, below, _, below_path in node.children(value, MISSING, path):
        if child.embedded and isinstance(below, dict):
            errors += _identity_errors(below, below_path)
        errors += embedded_errors(child, below, below_path)
    return errors


def _identity_errors(value: JsonObject, path: str) -> list[FieldError]:
    errors = []
    for name in ("apiVersion", "kind"):
        if name not in value:
            errors.append(FieldError(FieldErrorType.REQUIRED, f"{path}.{name}"))
        elif value[name] == "":
            errors.append(FieldError(FieldErrorType.INVALID, f"{path}.{name}", "must not be empty", ""))
    if problems := dns_1035_errors(str(value.get("kind") or "kind").lower()):
        words = f"may have mixed case, but should otherwise match: {','.join(problems)}"
        errors.append(FieldError(FieldErrorType.INVALID, f"{path}.kind", words, value["kind"]))
    return errors


def list_errors(node: Node, value: Any, path: str) -> list[FieldError]:
    """Lists of type `set` and `map` must not hold an item twice."""
    errors: list[FieldError] = []
    if isinstance(value, list) and node.list_type in ("set", "map"):
        errors += _duplicates(node, value, path)
    for child, below, _, below_path in node.children(value, MISSING, path):
        errors += list_errors(child, below, below_path)
    return errors


def _duplicates(node: Node, items: list[Any], path: str) -> list[FieldError]:
    if node.list_type == "map":
        for index, item in enumerate(items):
            if not isinstance(item, dict | None):
                words = "must be an object for an array of list-type map"
                return [FieldError(FieldErrorType.INVALID, f"{path}[{index}]", words, item)]
    seen: set[bytes] = set()
    twice: set[bytes] = set()
    errors = []
    for index, item in enumerate(items):
        if item is None:
            continue
        shown = item if node.list_type == "set" else _key_fields(node, item)
        identity = msgspec.json.encode(shown, order="sorted")
        if identity in seen and identity not in twice:
            twice.add(identity)
            errors.append(FieldError(FieldErrorType.DUPLICATE, f"{path}[{index}]", "", shown))
        seen.add(identity)
    return errors


def _key_fields(node: Node, item: JsonObject) -> JsonObject:
    found = {}
    for name in node.list_keys:
        property_node = node.items.properties.get(name) if node.items else None
        value = item.get(name, property_node.default if property_node else MISSING)
        if value is not MISSING:
            found[name] = value
    return found
