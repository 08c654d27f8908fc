"""Validation of list types (set and map) and embedded resources."""

from __future__ import annotations

from typing import Any

import msgspec

from dlop.embedded.apiserver.api_errors import FieldError, FieldErrorType
from dlop.embedded.apiserver.apiextensions.schema import MISSING, SchemaNode
from dlop.embedded.apiserver.name_validation import dns_1035_errors
from dlop.kube.types import JsonObject


def needs_list_or_embedded_checks(node: SchemaNode) -> bool:
    """Whether the schema has lists of type set or map, or embedded resources."""
    children = [*node.properties.values(), *(child for child in (node.items, node.additional) if child is not None)]
    return node.list_type != "atomic" or node.embedded or any(needs_list_or_embedded_checks(child) for child in children)


def embedded_errors(node: SchemaNode, value: Any, path: str) -> list[FieldError]:
    """Errors of embedded resources, which need apiVersion and kind."""
    errors: list[FieldError] = []
    for child, child_value, _, child_path in node.children(value, MISSING, path):
        if child.embedded and isinstance(child_value, dict):
            errors += _type_meta_errors(child_value, child_path)
        errors += embedded_errors(child, child_value, child_path)
    return errors


def _type_meta_errors(value: JsonObject, path: str) -> list[FieldError]:
    errors = []
    for name in ("apiVersion", "kind"):
        if name not in value:
            errors.append(FieldError(FieldErrorType.REQUIRED, f"{path}.{name}"))
        elif value[name] == "":
            errors.append(FieldError(FieldErrorType.INVALID, f"{path}.{name}", "must not be empty", ""))
    if messages := dns_1035_errors(str(value.get("kind") or "kind").lower()):
        detail = f"may have mixed case, but should otherwise match: {','.join(messages)}"
        errors.append(FieldError(FieldErrorType.INVALID, f"{path}.kind", detail, value["kind"]))
    return errors


def list_errors(node: SchemaNode, value: Any, path: str) -> list[FieldError]:
    """Duplicate items in lists of type set and map."""
    errors: list[FieldError] = []
    if isinstance(value, list) and node.list_type in ("set", "map"):
        errors += _duplicates(node, value, path)
    for child, child_value, _, child_path in node.children(value, MISSING, path):
        errors += list_errors(child, child_value, child_path)
    return errors


def _duplicates(node: SchemaNode, items: list[Any], path: str) -> list[FieldError]:
    if node.list_type == "map":
        for index, item in enumerate(items):
            if not isinstance(item, dict | None):
                detail = "must be an object for an array of list-type map"
                return [FieldError(FieldErrorType.INVALID, f"{path}[{index}]", detail, item)]
    seen: set[bytes] = set()
    reported: set[bytes] = set()
    errors = []
    for index, item in enumerate(items):
        if item is None:
            continue
        identity = item if node.list_type == "set" else _key_fields(node, item)
        encoded = msgspec.json.encode(identity, order="sorted")
        if encoded in seen and encoded not in reported:
            reported.add(encoded)
            errors.append(FieldError(FieldErrorType.DUPLICATE, f"{path}[{index}]", "", identity))
        seen.add(encoded)
    return errors


def _key_fields(node: SchemaNode, item: JsonObject) -> JsonObject:
    key = {}
    for name in node.list_keys:
        property_node = node.items.properties.get(name) if node.items else None
        value = item.get(name, property_node.default if property_node else MISSING)
        if value is not MISSING:
            key[name] = value
    return key
