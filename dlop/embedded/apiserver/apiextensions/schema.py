"""Structural schemas of custom resources, compiled once into nodes that check, prune and default whole objects.

Checking reports every error with the path and the words of the real server. Pruning and defaulting never change the
value they are given: what changes is copied, what does not is shared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dlop.embedded.apiserver.api_errors import FieldError, FieldErrorType
from dlop.embedded.apiserver.apiextensions.schema_checks import (
    Check,
    array_checks,
    enum_check,
    known_format,
    number_checks,
    object_checks,
    string_checks,
    type_check,
    type_error,
)
from dlop.kube.types import JsonObject

MISSING: Any = object()
"""There is no such value, which is not the same as null."""

META_FIELDS = frozenset({"apiVersion", "kind", "metadata"})


class Node:
    """One place of a schema: what may be there, and what is below it."""

    __slots__ = (
        "_checks",
        "_choices",
        "_required",
        "_type_check",
        "_type_words",
        "additional",
        "default",
        "embedded",
        "items",
        "list_keys",
        "list_type",
        "map_is_atomic",
        "nullable",
        "preserves",
        "properties",
        "schema",
    )

    def __init__(self, schema: JsonObject) -> None:
        self.schema = schema
        types = _types(schema)
        self._type_words = ",".join(types)
        self._type_check = type_check(types, known_format(schema)) if types else None
        self.nullable = bool(schema.get("nullable"))
        self.default = schema.get("default", MISSING)
        self.preserves = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
        self.embedded = bool(schema.get("x-kubernetes-embedded-resource"))
        self.list_type = str(schema.get("x-kubernetes-list-type", "atomic"))
        self.list_keys = tuple(schema.get("x-kubernetes-list-map-keys", ()))
        self.map_is_atomic = schema.get("x-kubernetes-map-type") == "atomic"
        self._required = tuple(schema.get("required", ()))
        self.properties = {name: Node(child) for name, child in schema.get("properties", {}).items()}
        self.items = Node(schema["items"]) if isinstance(schema.get("items"), dict) else None
        additional = schema.get("additionalProperties")
        # `true` allows any key, and yet the real server prunes what is below it.
        self.additional = Node({} if additional is True else additional) if additional else None
        self._checks = tuple(_checks(schema))
        self._choices = Choices(schema) if any(word in schema for word in ("allOf", "anyOf", "oneOf", "not")) else None

    def check(self, value: Any, old: Any, path: str, errors: list[FieldError]) -> None:
        """Add every error of the value to the list.

        What has not changed since `old` is not checked again: a schema that became stricter does not lock its objects.
        """
        if old is not MISSING and old == value:
            return
        if value is None:
            self._check_null(path, errors)
            return
        if self._type_check is not None:
            self._type_check(value, path, errors)
        if self._choices is not None:
            self._choices.check(value, path, errors)
        if isinstance(value, list) and self.items is not None:
            for index, (item, old_item) in enumerate(zip(value, self.old_items(value, old), strict=True)):
                self.items.check(item, old_item, f"{path}[{index}]", errors)
        for check in self._checks:
            check(value, path, errors)
        if isinstance(value, dict):
            self._check_object(value, old, path, errors)

    def _check_null(self, path: str, errors: list[FieldError]) -> None:
        if self._type_words and not self.nullable:
            errors.append(type_error(path, self._type_words, "null"))
        for check in self._checks:
            check(None, path, errors)

    def _check_object(self, value: JsonObject, old: Any, path: str, errors: list[FieldError]) -> None:
        for name, child in value.items():
            node = self.properties.get(name, self.additional)
            if node is not None:
                below = f"{path}.{name}" if path else name
                node.check(child, self.old_child(old, name), below, errors)
        errors += [FieldError(FieldErrorType.REQUIRED, f"{path}.{name}" if path else name) for name in self._required if name not in value]

    def old_child(self, old: Any, name: str) -> Any:
        """The earlier value of a field, or MISSING."""
        if self.map_is_atomic or not isinstance(old, dict):
            return MISSING
        return old.get(name, MISSING)

    def old_items(self, items: list[Any], old: Any) -> Iterator[Any]:
        """For every item, its earlier value, or MISSING: only lists with keys can tell."""
        if self.list_type != "map" or not isinstance(old, list):
            return iter([MISSING] * len(items))
        earlier = {self.item_key(item): item for item in old}
        return iter([earlier.get(self.item_key(item), MISSING) for item in items])

    def item_key(self, item: Any) -> tuple[Any, ...]:
        """What identifies an item of a list with keys."""
        if not isinstance(item, dict):
            return (id(item),)
        found = []
        for name in self.list_keys:
            default = self.items.properties[name].default if self.items and name in self.items.properties else MISSING
            found.append(repr(item.get(name, default)))
        return tuple(found)

    def prune(self, value: Any, path: str, unknown: list[str]) -> Any:
        """The value without unknown fields, whose paths are added to the list; the value itself when nothing is unknown."""
        if isinstance(value, dict):
            return self._prune_object(value, path, unknown)
        if isinstance(value, list) and not (self.preserves and self.items is None):
            # Of items that the schema does not describe, nothing is known.
            node = self.items or _NOTHING
            pruned = [node.prune(item, f"{path}[{index}]", unknown) for index, item in enumerate(value)]
            return value if all(new is old for new, old in zip(pruned, value, strict=True)) else pruned
        return value

    def _prune_object(self, value: JsonObject, path: str, unknown: list[str]) -> JsonObject:
        pruned: JsonObject = {}
        changed = False
        for name, child in value.items():
            below = f"{path}.{name}" if path else name
            kept = self._pruned_child(name, child, below, unknown)
            changed = changed or kept is not child
            if kept is not MISSING:
                pruned[name] = kept
        return pruned if changed else value

    def _pruned_child(self, name: str, child: Any, path: str, unknown: list[str]) -> Any:
        if self.embedded and name in META_FIELDS:
            return child
        node = self.properties.get(name, self.additional)
        if node is not None:
            return node.prune(child, path, unknown)
        if self.preserves:
            return child
        unknown.append(path)
        return MISSING

    def with_defaults(self, value: Any) -> Any:
        """The value with defaults filled in and stray nulls removed; the value itself when there is nothing to do."""
        if isinstance(value, dict):
            return self._object_with_defaults(value)
        if isinstance(value, list) and self.items is not None:
            filled = [self.items._or_default(item) for item in value]
            return value if all(new is old for new, old in zip(filled, value, strict=True)) else filled
        return value

    def _object_with_defaults(self, value: JsonObject) -> JsonObject:
        filled = dict(value)
        for name, node in self.properties.items():
            if name not in filled and node.default is not MISSING:
                filled[name] = node.default
        changed = len(filled) != len(value)
        for name, child in list(filled.items()):
            child_node = self.properties.get(name, self.additional)
            if child_node is None:
                continue
            new = child_node._or_default(child)
            if new is None and not child_node.nullable:
                # The real server drops a null that has no meaning, so that a required field is missed and not mistyped.
                del filled[name]
                changed = True
            elif new is not child:
                filled[name] = new
                changed = True
        return filled if changed else value

    def _or_default(self, value: Any) -> Any:
        if value is None and not self.nullable and self.default is not MISSING:
            value = self.default
        return self.with_defaults(value)

    def children(self, value: Any, old: Any, path: str) -> Iterator[tuple[Node, Any, Any, str]]:
        """Everything right below a value that the schema describes: its node, the value, its earlier value, its path."""
        if isinstance(value, dict):
            for name, child in value.items():
                node = self.properties.get(name)
                if node is not None:
                    yield node, child, self.old_child(old, name), f"{path}.{name}" if path else name
                elif self.additional is not None:
                    yield self.additional, child, self.old_child(old, name), f"{path}[{name}]"
        elif isinstance(value, list) and self.items is not None:
            for index, (item, old_item) in enumerate(zip(value, self.old_items(value, old), strict=True)):
                yield self.items, item, old_item, f"{path}[{index}]"


class Choices:
    """allOf, anyOf, oneOf and not."""

    __slots__ = ("_all", "_any", "_not", "_one")

    def __init__(self, schema: JsonObject) -> None:
        self._all = [Node(one) for one in schema.get("allOf", ())]
        self._any = [Node(one) for one in schema.get("anyOf", ())]
        self._one = [Node(one) for one in schema.get("oneOf", ())]
        self._not = Node(schema["not"]) if "not" in schema else None

    def check(self, value: Any, path: str, errors: list[FieldError]) -> None:
        """Add what is wrong, with the reasons of the first alternative that fails."""
        self._check_any(value, path, errors)
        self._check_one(value, path, errors)
        self._check_all(value, path, errors)
        if self._not is not None and not _errors(self._not, value, path):
            errors.append(_choice_error(f'"{path}" must not validate the schema (not)'))

    def _check_any(self, value: Any, path: str, errors: list[FieldError]) -> None:
        failures = [_errors(node, value, path) for node in self._any]
        if failures and all(failures):
            errors.append(_choice_error(f'"{path}" must validate at least one schema (anyOf)'))
            errors += failures[0]

    def _check_one(self, value: Any, path: str, errors: list[FieldError]) -> None:
        if not self._one:
            return
        failures = [_errors(node, value, path) for node in self._one]
        valid = failures.count([])
        if valid == 1:
            return
        found = f"Found {valid} valid alternatives" if valid else "Found none valid"
        errors.append(_choice_error(f'"{path}" must validate one and only one schema (oneOf). {found}'))
        if not valid:
            errors += failures[0]

    def _check_all(self, value: Any, path: str, errors: list[FieldError]) -> None:
        failures = [_errors(node, value, path) for node in self._all]
        for failure in failures:
            errors += failure
        if any(failures):
            words = ". None validated" if all(failures) else ""
            errors.append(_choice_error(f'"{path}" must validate all the schemas (allOf){words}'))


def _errors(node: Node, value: Any, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    node.check(value, MISSING, path, errors)
    return errors


def _choice_error(words: str) -> FieldError:
    return FieldError(FieldErrorType.INVALID, "<nil>", words, "")


def _types(schema: JsonObject) -> tuple[str, ...]:
    if schema.get("x-kubernetes-int-or-string"):
        return ("integer", "string")
    return (schema["type"],) if schema.get("type") else ()


def _checks(schema: JsonObject) -> Iterator[Check]:
    yield from string_checks(schema)
    yield from number_checks(schema)
    yield from array_checks(schema)
    if schema.get("enum"):
        yield enum_check(schema["enum"])
    yield from object_checks(schema)


_NOTHING = Node({})
