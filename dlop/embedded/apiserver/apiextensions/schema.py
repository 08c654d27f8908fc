"""Structural schemas, compiled into nodes that validate, prune and default objects.

Validation reports errors with the messages of kube-apiserver. Pruning and defaulting do not modify their argument;
unchanged parts are shared with the result.
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
"""No value, as opposed to null."""

META_FIELDS = frozenset({"apiVersion", "kind", "metadata"})


class SchemaNode:
    __slots__ = (
        "_checks",
        "_combinators",
        "_required",
        "_type_check",
        "_type_names",
        "additional",
        "default",
        "embedded",
        "items",
        "list_keys",
        "list_type",
        "map_is_atomic",
        "nullable",
        "preserves_unknown",
        "properties",
        "schema",
    )

    def __init__(self, schema: JsonObject) -> None:
        self.schema = schema
        types = _types(schema)
        self._type_names = ",".join(types)
        self._type_check = type_check(types, known_format(schema)) if types else None
        self.nullable = bool(schema.get("nullable"))
        self.default = schema.get("default", MISSING)
        self.preserves_unknown = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
        self.embedded = bool(schema.get("x-kubernetes-embedded-resource"))
        self.list_type = str(schema.get("x-kubernetes-list-type", "atomic"))
        self.list_keys = tuple(schema.get("x-kubernetes-list-map-keys", ()))
        self.map_is_atomic = schema.get("x-kubernetes-map-type") == "atomic"
        self._required = tuple(schema.get("required", ()))
        self.properties = {name: SchemaNode(child) for name, child in schema.get("properties", {}).items()}
        self.items = SchemaNode(schema["items"]) if isinstance(schema.get("items"), dict) else None
        additional = schema.get("additionalProperties")
        # `true` allows any key, but kube-apiserver still prunes the values.
        self.additional = SchemaNode({} if additional is True else additional) if additional else None
        self._checks = tuple(_checks(schema))
        self._combinators = SchemaCombinators(schema) if any(keyword in schema for keyword in ("allOf", "anyOf", "oneOf", "not")) else None

    def check(self, value: Any, old: Any, path: str, errors: list[FieldError]) -> None:
        """Append all errors of the value.

        Values that are equal to `old` are not validated again (ratcheting), so that a stricter schema does not block updates.
        """
        if old is not MISSING and old == value:
            return
        if value is None:
            self._check_null(path, errors)
            return
        if self._type_check is not None:
            self._type_check(value, path, errors)
        if self._combinators is not None:
            self._combinators.check(value, path, errors)
        if isinstance(value, list) and self.items is not None:
            for index, (item, old_item) in enumerate(zip(value, self.old_items(value, old), strict=True)):
                self.items.check(item, old_item, f"{path}[{index}]", errors)
        for check in self._checks:
            check(value, path, errors)
        if isinstance(value, dict):
            self._check_object(value, old, path, errors)

    def _check_null(self, path: str, errors: list[FieldError]) -> None:
        if self._type_names and not self.nullable:
            errors.append(type_error(path, self._type_names, "null"))
        for check in self._checks:
            check(None, path, errors)

    def _check_object(self, value: JsonObject, old: Any, path: str, errors: list[FieldError]) -> None:
        for name, child in value.items():
            node = self.properties.get(name, self.additional)
            if node is not None:
                child_path = f"{path}.{name}" if path else name
                node.check(child, self.old_child(old, name), child_path, errors)
        errors += [FieldError(FieldErrorType.REQUIRED, f"{path}.{name}" if path else name) for name in self._required if name not in value]

    def old_child(self, old: Any, name: str) -> Any:
        """The old value of a field, or MISSING."""
        if self.map_is_atomic or not isinstance(old, dict):
            return MISSING
        return old.get(name, MISSING)

    def old_items(self, items: list[Any], old: Any) -> Iterator[Any]:
        """The old value of each item, or MISSING. Only items of lists of type map have old values."""
        if self.list_type != "map" or not isinstance(old, list):
            return iter([MISSING] * len(items))
        old_by_key = {self.item_key(item): item for item in old}
        return iter([old_by_key.get(self.item_key(item), MISSING) for item in items])

    def item_key(self, item: Any) -> tuple[Any, ...]:
        """The key of an item of a list of type map."""
        if not isinstance(item, dict):
            return (id(item),)
        key = []
        for name in self.list_keys:
            default = self.items.properties[name].default if self.items and name in self.items.properties else MISSING
            key.append(repr(item.get(name, default)))
        return tuple(key)

    def prune(self, value: Any, path: str, unknown: list[str]) -> Any:
        """The value without unknown fields, whose paths are appended to `unknown`. Returns `value` itself if there are none."""
        if isinstance(value, dict):
            return self._prune_object(value, path, unknown)
        if isinstance(value, list) and not (self.preserves_unknown and self.items is None):
            # Without a schema for the items, all their fields are unknown.
            node = self.items or _EMPTY_NODE
            pruned = [node.prune(item, f"{path}[{index}]", unknown) for index, item in enumerate(value)]
            return value if all(new is old for new, old in zip(pruned, value, strict=True)) else pruned
        return value

    def _prune_object(self, value: JsonObject, path: str, unknown: list[str]) -> JsonObject:
        pruned: JsonObject = {}
        changed = False
        for name, child in value.items():
            child_path = f"{path}.{name}" if path else name
            kept = self._prune_child(name, child, child_path, unknown)
            changed = changed or kept is not child
            if kept is not MISSING:
                pruned[name] = kept
        return pruned if changed else value

    def _prune_child(self, name: str, child: Any, path: str, unknown: list[str]) -> Any:
        if self.embedded and name in META_FIELDS:
            return child
        node = self.properties.get(name, self.additional)
        if node is not None:
            return node.prune(child, path, unknown)
        if self.preserves_unknown:
            return child
        unknown.append(path)
        return MISSING

    def with_defaults(self, value: Any) -> Any:
        """The value with defaults and without invalid nulls. Returns `value` itself if nothing changes."""
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
                # kube-apiserver drops such a null, so that a required field is reported as missing.
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

    def children(self, value: Any, old: Any, path: str) -> Iterator[tuple[SchemaNode, Any, Any, str]]:
        """The children of a value that the schema describes: node, value, old value and path."""
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


class SchemaCombinators:
    """The keywords allOf, anyOf, oneOf and not."""

    __slots__ = ("_all", "_any", "_not", "_one")

    def __init__(self, schema: JsonObject) -> None:
        self._all = [SchemaNode(nested) for nested in schema.get("allOf", ())]
        self._any = [SchemaNode(nested) for nested in schema.get("anyOf", ())]
        self._one = [SchemaNode(nested) for nested in schema.get("oneOf", ())]
        self._not = SchemaNode(schema["not"]) if "not" in schema else None

    def check(self, value: Any, path: str, errors: list[FieldError]) -> None:
        """Append the errors. A failed anyOf or oneOf includes the errors of its first alternative."""
        self._check_any(value, path, errors)
        self._check_one(value, path, errors)
        self._check_all(value, path, errors)
        if self._not is not None and not _errors(self._not, value, path):
            errors.append(_combinator_error(f'"{path}" must not validate the schema (not)'))

    def _check_any(self, value: Any, path: str, errors: list[FieldError]) -> None:
        failures = [_errors(node, value, path) for node in self._any]
        if failures and all(failures):
            errors.append(_combinator_error(f'"{path}" must validate at least one schema (anyOf)'))
            errors += failures[0]

    def _check_one(self, value: Any, path: str, errors: list[FieldError]) -> None:
        if not self._one:
            return
        failures = [_errors(node, value, path) for node in self._one]
        valid = failures.count([])
        if valid == 1:
            return
        result = f"Found {valid} valid alternatives" if valid else "Found none valid"
        errors.append(_combinator_error(f'"{path}" must validate one and only one schema (oneOf). {result}'))
        if not valid:
            errors += failures[0]

    def _check_all(self, value: Any, path: str, errors: list[FieldError]) -> None:
        failures = [_errors(node, value, path) for node in self._all]
        for failure in failures:
            errors += failure
        if any(failures):
            detail = ". None validated" if all(failures) else ""
            errors.append(_combinator_error(f'"{path}" must validate all the schemas (allOf){detail}'))


def _errors(node: SchemaNode, value: Any, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    node.check(value, MISSING, path, errors)
    return errors


def _combinator_error(detail: str) -> FieldError:
    return FieldError(FieldErrorType.INVALID, "<nil>", detail, "")


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


_EMPTY_NODE = SchemaNode({})
