"""Validation of the schemas in CRDs, with the messages of kube-apiserver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from dlop.embedded.apiserver.api_errors import FieldError, FieldErrorType
from dlop.embedded.apiserver.apiextensions.cel import Expression
from dlop.embedded.apiserver.apiextensions.cel_parser import ExpressionError, tokenize
from dlop.embedded.apiserver.apiextensions.crd_structural import forbidden, invalid, required, structural_errors
from dlop.embedded.apiserver.apiextensions.schema import MISSING, SchemaNode
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
class _WalkState:
    """State of the walk at a schema node."""

    defaults_forbidden: str = ""
    uncorrelated: str = ""
    """The path of the atomic list or map above the node, in which values have no old value."""
    check_rules: bool = True


def schema_errors(schema: JsonObject, path: str, *, has_status: bool) -> list[FieldError]:
    """The errors in the schema of one version."""
    errors = list(_root_errors(schema, path, has_status=has_status))
    structural = structural_errors(schema, path)
    defaults = [] if structural else list(_default_errors(schema, path))
    state = _WalkState(check_rules=not structural and not defaults)
    node_errors = list(_errors(schema, path, state, is_root=True))
    return [*errors, *structural, *defaults, *node_errors]


def not_supported(path: str, value: Any, supported: tuple[str, ...]) -> FieldError:
    quoted = ", ".join(f'"{option}"' for option in supported)
    return FieldError(FieldErrorType.NOT_SUPPORTED, path, f"supported values: {quoted}", value)


def _root_errors(schema: JsonObject, path: str, *, has_status: bool) -> Iterator[FieldError]:
    extra = [name for name, value in schema.items() if value not in (None, False, "", [], {}) and name not in _ROOT_WITH_STATUS]
    if has_status and extra:
        detail = (
            "only description, type, properties and the like are allowed at the root of the schema if the status subresource is enabled"
        )
        yield invalid(path, {name: schema[name] for name in extra}, detail)
    if schema.get("nullable"):
        yield forbidden(f"{path}.nullable", "nullable cannot be true at the root")


def _default_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    if schema.get("default") is not None:
        yield from _default_value_errors(schema, f"{path}.default")
    for child, child_path in _children(schema, path):
        yield from _default_errors(child, child_path)


def _default_value_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    node = SchemaNode(schema)
    unknown: list[str] = []
    node.prune(schema["default"], "", unknown)
    if unknown:
        yield invalid(path, schema["default"], "must not have unknown fields")
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


def _errors(schema: JsonObject, path: str, state: _WalkState, *, is_root: bool = False) -> Iterator[FieldError]:
    own_errors = [*_own_errors(schema, path, state), *_list_errors(schema, path), *_map_errors(schema, path)]
    yield from own_errors
    for child, child_path in _children(schema, path):
        yield from _errors(child, child_path, _child_state(schema, path, state, child_path, is_root=is_root))
    without_rules = replace(state, check_rules=False)
    for combinator in ("allOf", "oneOf", "anyOf"):
        for index, nested in enumerate(schema.get(combinator, ())):
            yield from _errors(nested, f"{path}.{combinator}[{index}]", without_rules)
    if isinstance(schema.get("not"), dict):
        yield from _errors(schema["not"], f"{path}.not", without_rules)
    yield from _rules_errors(schema, path, state, compile_rules=not own_errors)


def _child_state(schema: JsonObject, path: str, state: _WalkState, child_path: str, *, is_root: bool) -> _WalkState:
    atomic_list = child_path.endswith(".items") and schema.get("x-kubernetes-list-type") != "map"
    if not state.uncorrelated and (atomic_list or schema.get("x-kubernetes-map-type") == "atomic"):
        state = replace(state, uncorrelated=path)
    for name in _META if is_root else ():
        if child_path.endswith(f".properties[{name}]"):
            state = replace(state, defaults_forbidden=f"must not be set in top-level {name}")
    return state


def _own_errors(schema: JsonObject, path: str, state: _WalkState) -> Iterator[FieldError]:
    kind = schema.get("type", "")
    if kind and kind not in _TYPES:
        yield not_supported(f"{path}.type", kind, _TYPES)
    if schema.get("default") is not None and state.defaults_forbidden:
        yield forbidden(f"{path}.default", state.defaults_forbidden)
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
        yield invalid(f"{path}.x-kubernetes-preserve-unknown-fields", value=False, detail="must be true or undefined")


def _map_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    map_type, kind = schema.get("x-kubernetes-map-type"), schema.get("type", "")
    if map_type is None:
        return
    if kind != "object":
        detail = "must be object if x-kubernetes-map-type is specified"
        yield invalid(f"{path}.type", kind, detail) if kind else required(f"{path}.type", detail)
    if map_type not in ("atomic", "granular"):
        yield not_supported(f"{path}.x-kubernetes-map-type", map_type, ("atomic", "granular"))


def _list_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    list_type, kind = schema.get("x-kubernetes-list-type"), schema.get("type", "")
    if list_type is not None and kind != "array":
        detail = "must be array if x-kubernetes-list-type is specified"
        yield invalid(f"{path}.type", kind, detail) if kind else required(f"{path}.type", detail)
    if list_type not in (None, "atomic", "set", "map"):
        yield not_supported(f"{path}.x-kubernetes-list-type", list_type, ("atomic", "set", "map"))
    if schema.get("x-kubernetes-list-map-keys") and list_type != "map":
        detail = "must be map if x-kubernetes-list-map-keys is non-empty"
        field_path = f"{path}.x-kubernetes-list-type"
        yield invalid(field_path, list_type, detail) if list_type else required(field_path, detail)
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
        detail = "must be object if parent array's x-kubernetes-list-type is map"
        yield invalid(f"{path}.items.type", items.get("type", ""), detail)
        return
    for key in keys:
        yield from _key_errors(key, keys, items, path)


def _key_errors(key: str, keys: list[str], items: JsonObject, path: str) -> Iterator[FieldError]:
    key_schema = items.get("properties", {}).get(key)
    field_path = f"{path}.items.properties[{key}]"
    if key_schema is None:
        yield invalid(f"{path}.x-kubernetes-list-map-keys", keys, "entries must all be names of item properties")
        return
    if key_schema.get("type") in ("array", "object"):
        yield invalid(f"{field_path}.type", items.get("type"), "must be a scalar type if parent array's x-kubernetes-list-type is map")
    if key not in items.get("required", ()) and key_schema.get("default") is None:
        detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
        yield required(f"{field_path}.default", detail)
    if key_schema.get("nullable"):
        yield forbidden(f"{field_path}.nullable", "this property is in x-kubernetes-list-map-keys, so it cannot be nullable")


def _rules_errors(schema: JsonObject, path: str, state: _WalkState, *, compile_rules: bool) -> Iterator[FieldError]:
    for index, rule in enumerate(schema.get("x-kubernetes-validations", ())):
        field_path = f"{path}.x-kubernetes-validations[{index}]"
        errors = list(_rule_errors(rule, field_path))
        yield from errors
        if compile_rules and state.check_rules and not errors:
            yield from _expression_errors(rule, schema, field_path, state)


def _rule_errors(rule: JsonObject, field_path: str) -> Iterator[FieldError]:
    text, message = str(rule.get("rule", "")).strip(), str(rule.get("message", ""))
    if not text:
        yield required(f"{field_path}.rule", "rule is not specified")
    elif message and not message.strip():
        yield invalid(f"{field_path}.message", message, "must be non-empty if specified")
    elif "\n" in message.strip():
        yield invalid(f"{field_path}.message", message, "must not contain line breaks")
    elif "\n" in text and not message.strip():
        yield required(f"{field_path}.message", "message must be specified if rule contains line breaks")
    if rule.get("messageExpression") and not str(rule["messageExpression"]).strip():
        yield required(f"{field_path}.messageExpression", "messageExpression must be non-empty if specified")
    if rule.get("reason") is not None and rule["reason"] not in _REASONS:
        yield not_supported(f"{field_path}.reason", rule["reason"], _REASONS)


def _expression_errors(rule: JsonObject, schema: JsonObject, field_path: str, state: _WalkState) -> Iterator[FieldError]:
    node = SchemaNode(schema)
    for name, result in (("rule", "bool"), ("messageExpression", "string")):
        try:
            if rule.get(name):
                Expression(rule[name], node, result=result)
        except ExpressionError as error:
            yield invalid(f"{field_path}.{name}", _go_rule(rule), str(error))
            return
    uses_old = any(token.text == "oldSelf" for token in tokenize(rule["rule"]))
    if uses_old and state.uncorrelated:
        detail = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {state.uncorrelated}"
        yield invalid(f"{field_path}.rule", rule["rule"], detail)
    if not uses_old and rule.get("optionalOldSelf") is not None:
        yield invalid(f"{field_path}.optionalOldSelf", rule["optionalOldSelf"], "may not be set if oldSelf is not used in rule")


def _go_rule(rule: JsonObject) -> JsonObject:
    """A rule as kube-apiserver prints it."""
    return {
        "Rule": rule["rule"],
        "Message": rule.get("message", ""),
        "MessageExpression": rule.get("messageExpression", ""),
        "Reason": rule.get("reason"),
        "FieldPath": rule.get("fieldPath", ""),
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }
