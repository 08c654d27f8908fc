"""What is wrong with the schema inside a CRD, with the paths and the words of the real server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from dlop.embedded.apiserver.api_errors import FieldError, FieldErrorType
from dlop.embedded.apiserver.apiextensions.cel import Expression
from dlop.embedded.apiserver.apiextensions.cel_parser import ExpressionError, read
from dlop.embedded.apiserver.apiextensions.crd_structural import forbidden, required, structural_errors, wrong
from dlop.embedded.apiserver.apiextensions.schema import MISSING, Node
from dlop.kube.types import JsonObject

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_UNSUPPORTED = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
_META = ("metadata", "kind", "apiVersion")
_ROOT_WITH_STATUS = frozenset(
    {
        *("description", "type", "format", "title", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "maxLength"),
        *("minLength", "pattern", "maxItems", "minItems", "uniqueItems", "multipleOf", "required", "items", "properties"),
        *("externalDocs", "example", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-validations"),
    }
)


@dataclass(frozen=True, slots=True)
class _Place:
    """What the walk knows of where it is."""

    defaults_forbidden: str = ""
    uncorrelated: str = ""
    """The path of the list or map inside which an object cannot be matched with its earlier state."""
    rules: bool = True


def schema_errors(schema: JsonObject, path: str, *, has_status: bool) -> list[FieldError]:
    """Everything that the real server refuses in the schema of one version."""
    errors = list(_root_errors(schema, path, has_status=has_status))
    structural = structural_errors(schema, path)
    defaults = [] if structural else list(_default_errors(schema, path))
    place = _Place(rules=not structural and not defaults)
    own = list(_errors(schema, path, place, is_root=True))
    return [*errors, *structural, *defaults, *own]


def not_supported(path: str, value: Any, supported: tuple[str, ...]) -> FieldError:
    """A value out of a closed set that it is not in."""
    listed = ", ".join(f'"{one}"' for one in supported)
    return FieldError(FieldErrorType.NOT_SUPPORTED, path, f"supported values: {listed}", value)


def _root_errors(schema: JsonObject, path: str, *, has_status: bool) -> Iterator[FieldError]:
    extra = [name for name, value in schema.items() if value not in (None, False, "", [], {}) and name not in _ROOT_WITH_STATUS]
    if has_status and extra:
        words = "only description, type, properties and the like are allowed at the root of the schema if the status subresource is enabled"
        yield wrong(path, {name: schema[name] for name in extra}, words)
    if schema.get("nullable"):
        yield forbidden(f"{path}.nullable", "nullable cannot be true at the root")


def _default_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    if schema.get("default") is not None:
        yield from _one_default_errors(schema, f"{path}.default")
    for child, below in _children(schema, path):
        yield from _default_errors(child, below)


def _one_default_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    node = Node(schema)
    unknown: list[str] = []
    node.prune(schema["default"], "", unknown)
    if unknown:
        yield wrong(path, schema["default"], "must not have unknown fields")
    errors: list[FieldError] = []
    node.check(schema["default"], MISSING, "", errors)
    for error in errors:
        yield replace(error, path=path if error.path == "<nil>" else f"{path}.{error.path}")


def _children(schema: JsonObject, path: str) -> Iterator[tuple[JsonObject, str]]:
    for name, child in schema.get("properties", {}).items():
        yield child, f"{path}.properties[{name}]"
    if isinstance(schema.get("items"), dict):
        yield schema["items"], f"{path}.items"
    if isinstance(schema.get("additionalProperties"), dict):
        yield schema["additionalProperties"], f"{path}.additionalProperties"


def _errors(schema: JsonObject, path: str, place: _Place, *, is_root: bool = False) -> Iterator[FieldError]:
    own = [*_own_errors(schema, path, place), *_list_errors(schema, path), *_map_errors(schema, path)]
    yield from own
    for child, below in _children(schema, path):
        yield from _errors(child, below, _below(schema, path, place, below, is_root=is_root))
    without_rules = replace(place, rules=False)
    for word in ("allOf", "oneOf", "anyOf"):
        for index, nested in enumerate(schema.get(word, ())):
            yield from _errors(nested, f"{path}.{word}[{index}]", without_rules)
    if isinstance(schema.get("not"), dict):
        yield from _errors(schema["not"], f"{path}.not", without_rules)
    yield from _rules_errors(schema, path, place, compiles=not own)


def _below(schema: JsonObject, path: str, place: _Place, below: str, *, is_root: bool) -> _Place:
    atomic_list = below.endswith(".items") and schema.get("x-kubernetes-list-type") != "map"
    if not place.uncorrelated and (atomic_list or schema.get("x-kubernetes-map-type") == "atomic"):
        place = replace(place, uncorrelated=path)
    for name in _META if is_root else ():
        if below.endswith(f".properties[{name}]"):
            place = replace(place, defaults_forbidden=f"must not be set in top-level {name}")
    return place


def _own_errors(schema: JsonObject, path: str, place: _Place) -> Iterator[FieldError]:
    kind = schema.get("type", "")
    if kind and kind not in _TYPES:
        yield not_supported(f"{path}.type", kind, _TYPES)
    if schema.get("default") is not None and place.defaults_forbidden:
        yield forbidden(f"{path}.default", place.defaults_forbidden)
    for name in _UNSUPPORTED:
        if schema.get(name):
            yield forbidden(f"{path}.{name}", f"{name} is not supported")
    if isinstance(schema.get("items"), list):
        yield forbidden(f"{path}.items", "items must be a schema object and not an array")
    if schema.get("uniqueItems"):
        yield forbidden(f"{path}.uniqueItems", "uniqueItems cannot be set to true since the runtime complexity becomes quadratic")
    if schema.get("properties") and schema.get("additionalProperties", True) is not True:
        yield forbidden(f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive")
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        yield wrong(f"{path}.x-kubernetes-preserve-unknown-fields", value=False, detail="must be true or undefined")


def _map_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    map_type, kind = schema.get("x-kubernetes-map-type"), schema.get("type", "")
    if map_type is None:
        return
    if kind != "object":
        words = "must be object if x-kubernetes-map-type is specified"
        yield wrong(f"{path}.type", kind, words) if kind else required(f"{path}.type", words)
    if map_type not in ("atomic", "granular"):
        yield not_supported(f"{path}.x-kubernetes-map-type", map_type, ("atomic", "granular"))


def _list_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    list_type, kind = schema.get("x-kubernetes-list-type"), schema.get("type", "")
    if list_type is not None and kind != "array":
        words = "must be array if x-kubernetes-list-type is specified"
        yield wrong(f"{path}.type", kind, words) if kind else required(f"{path}.type", words)
    if list_type not in (None, "atomic", "set", "map"):
        yield not_supported(f"{path}.x-kubernetes-list-type", list_type, ("atomic", "set", "map"))
    if schema.get("x-kubernetes-list-map-keys") and list_type != "map":
        words = "must be map if x-kubernetes-list-map-keys is non-empty"
        where = f"{path}.x-kubernetes-list-type"
        yield wrong(where, list_type, words) if list_type else required(where, words)
    if list_type in ("set", "map") and isinstance(schema.get("items"), dict) and schema["items"].get("nullable"):
        yield forbidden(f"{path}.items.nullable", f"cannot be nullable when x-kubernetes-list-type is {list_type}")
    if list_type == "map":
        yield from _map_list_errors(schema, path)


def _map_list_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    keys = schema.get("x-kubernetes-list-map-keys") or []
    if not keys:
        yield required(f"{path}.x-kubernetes-list-map-keys", "must not be empty if x-kubernetes-list-type is map")
    items = schema.get("items")
    if not isinstance(items, dict):
        yield required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map")
        return
    if items.get("type", "") != "object":
        words = "must be object if parent array's x-kubernetes-list-type is map"
        yield wrong(f"{path}.items.type", items.get("type", ""), words)
        return
    for key in keys:
        yield from _key_errors(key, keys, items, path)


def _key_errors(key: str, keys: list[str], items: JsonObject, path: str) -> Iterator[FieldError]:
    found = items.get("properties", {}).get(key)
    where = f"{path}.items.properties[{key}]"
    if found is None:
        yield wrong(f"{path}.x-kubernetes-list-map-keys", keys, "entries must all be names of item properties")
        return
    if found.get("type") in ("array", "object"):
        yield wrong(f"{where}.type", items.get("type"), "must be a scalar type if parent array's x-kubernetes-list-type is map")
    if key not in items.get("required", ()) and found.get("default") is None:
        words = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
        yield required(f"{where}.default", words)
    if found.get("nullable"):
        yield forbidden(f"{where}.nullable", "this property is in x-kubernetes-list-map-keys, so it cannot be nullable")


def _rules_errors(schema: JsonObject, path: str, place: _Place, *, compiles: bool) -> Iterator[FieldError]:
    for index, rule in enumerate(schema.get("x-kubernetes-validations", ())):
        where = f"{path}.x-kubernetes-validations[{index}]"
        words = list(_rule_words(rule, where))
        yield from words
        if compiles and place.rules and not words:
            yield from _expression_errors(rule, schema, where, place)


def _rule_words(rule: JsonObject, where: str) -> Iterator[FieldError]:
    text, message = str(rule.get("rule", "")).strip(), str(rule.get("message", ""))
    if not text:
        yield required(f"{where}.rule", "rule is not specified")
    elif message and not message.strip():
        yield wrong(f"{where}.message", message, "must be non-empty if specified")
    elif "\n" in message.strip():
        yield wrong(f"{where}.message", message, "must not contain line breaks")
    elif "\n" in text and not message.strip():
        yield required(f"{where}.message", "message must be specified if rule contains line breaks")
    if rule.get("messageExpression") and not str(rule["messageExpression"]).strip():
        yield required(f"{where}.messageExpression", "messageExpression must be non-empty if specified")
    if rule.get("reason") is not None and rule["reason"] not in _REASONS:
        yield not_supported(f"{where}.reason", rule["reason"], _REASONS)


def _expression_errors(rule: JsonObject, schema: JsonObject, where: str, place: _Place) -> Iterator[FieldError]:
    node = Node(schema)
    for name, result in (("rule", "bool"), ("messageExpression", "string")):
        try:
            if rule.get(name):
                Expression(rule[name], node, result=result)
        except ExpressionError as problem:
            yield wrong(f"{where}.{name}", _shown(rule), str(problem))
            return
    uses_old = any(token.text == "oldSelf" for token in read(rule["rule"]))
    if uses_old and place.uncorrelated:
        words = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {place.uncorrelated}"
        yield wrong(f"{where}.rule", rule["rule"], words)
    if not uses_old and rule.get("optionalOldSelf") is not None:
        yield wrong(f"{where}.optionalOldSelf", rule["optionalOldSelf"], "may not be set if oldSelf is not used in rule")


def _shown(rule: JsonObject) -> JsonObject:
    """A rule as the real server prints it."""
    return {
        "Rule": rule["rule"],
        "Message": rule.get("message", ""),
        "MessageExpression": rule.get("messageExpression", ""),
        "Reason": rule.get("reason"),
        "FieldPath": rule.get("fieldPath", ""),
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }
