"""CEL validation rules: evaluation, errors and compilation."""

from __future__ import annotations

from typing import Any

import pytest

from dlop.embedded.apiserver.api_errors import FieldError
from dlop.embedded.apiserver.apiextensions.cel import Expression, rule_tree
from dlop.embedded.apiserver.apiextensions.cel_parser import ExpressionError
from dlop.embedded.apiserver.apiextensions.schema import MISSING, SchemaNode
from dlop.kube.types import JsonObject

_PROPERTIES: JsonObject = {
    "replicas": {"type": "integer"},
    "size": {"type": "number"},
    "name": {"type": "string"},
    "names": {"type": "array", "items": {"type": "string"}},
    "when": {"type": "string", "format": "date-time"},
    "namespace": {"type": "string"},
    "a-b.c": {"type": "string"},
    "items": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
    "port": {"x-kubernetes-int-or-string": True},
}


def violations(schema: JsonObject, value: Any, old: Any = MISSING) -> list[str]:
    """The errors of the rules of a schema for a root value."""
    tree = rule_tree(SchemaNode(schema))
    errors: list[FieldError] = []
    assert tree is not None
    tree.check(value, old, "", errors)
    return [f"{error.path}: {error.message}" for error in errors]


def spec(*rules: JsonObject, **more: Any) -> JsonObject:
    """A schema with rules on its spec."""
    inner = {"type": "object", "properties": _PROPERTIES, "x-kubernetes-validations": list(rules), **more}
    return {"type": "object", "properties": {"spec": inner}}


def holds(rule: str, **fields: Any) -> bool:
    return violations(spec({"rule": rule}), {"spec": fields}) == []


@pytest.mark.parametrize(
    "rule",
    [
        "self.replicas <= 3 && has(self.name)",
        "!has(self.size) || self.size > 0.5",
        "self.names.all(n, n.startsWith('a'))",
        "self.names.exists(n, n == 'ab') && self.names.size() == 2",
        "size(self.name) == 3",
        "self.labels.all(key, self.labels[key] != '')",
        "['aa', 'ab'].all(wanted, self.names.exists(n, n == wanted))",
        "self.names.filter(n, n != 'ab').all(n, n == 'aa')",
        "'app' in self.labels",
        "self.when > timestamp('2020-01-01T00:00:00Z')",
        "self.__namespace__ == 'here' && self.a__dash__b__dot__c == 'odd'",
        "self.?name.orValue('none') == 'äöü' && self.?port.hasValue() == false",
        "'ÄB'.lowerAscii() == 'Äb' && self.names.exists_one(n, n == 'ab')",
        "isURL('https://a.b:80/c?d=e') && isURL('/c') && !isURL('c')",
        "self.name.matches('^\\\\w*.*$')",
    ],
)
def test_expressions_evaluate_as_in_kube_apiserver(rule: str) -> None:
    fields: JsonObject = {"replicas": 2, "size": 1, "name": "äöü", "names": ["aa", "ab"], "when": "2024-01-01T00:00:00Z"}
    fields |= {"namespace": "here", "a-b.c": "odd", "labels": {"app": "x"}}
    assert holds(rule, **fields)


def test_a_violated_rule_is_reported_with_its_message_and_without_the_value() -> None:
    schema = spec({"rule": "self.replicas <= 5", "message": "too many"})
    assert violations(schema, {"spec": {"replicas": 6}}) == ["spec: Invalid value: too many"]
    assert violations(schema, {"spec": {"replicas": 5}}) == []


def test_without_a_message_the_error_shows_the_rule() -> None:
    assert violations(spec({"rule": " self.replicas <= 5 "}), {"spec": {"replicas": 6}}) == [
        "spec: Invalid value: failed rule: self.replicas <= 5"
    ]


def test_a_message_expression_overrides_the_message_which_is_its_fallback() -> None:
    rule = {"rule": "self.replicas <= 5", "message": "too many", "messageExpression": "'not ' + string(self.replicas)"}
    assert violations(spec(rule), {"spec": {"replicas": 6}}) == ["spec: Invalid value: not 6"]
    rule["messageExpression"] = "self.name"
    assert violations(spec(rule), {"spec": {"replicas": 6}}) == ["spec: Invalid value: too many"]


def test_reason_and_field_path_set_the_type_and_path_of_the_error() -> None:
    rule = {"rule": "has(self.name)", "message": "name it", "reason": "FieldValueRequired", "fieldPath": ".name"}
    assert violations(spec(rule), {"spec": {}}) == ["spec.name: Required value: name it"]
    rule |= {"reason": "FieldValueForbidden"}
    assert violations(spec(rule), {"spec": {}}) == ["spec.name: Forbidden: name it"]


@pytest.mark.parametrize("path", [".roles.Master.replicas", ".roles['Master'].replicas"])
def test_a_field_path_shows_the_keys_of_maps_in_brackets(path: str) -> None:
    role = {"type": "object", "properties": {"replicas": {"type": "integer"}}}
    roles = {"type": "object", "properties": {"roles": {"type": "object", "additionalProperties": role}}}
    rule = {"rule": "self.roles['Master'].replicas == 1", "message": "must be 1", "fieldPath": path}
    schema = {**roles, "x-kubernetes-validations": [rule]}
    assert violations(schema, {"roles": {"Master": {"replicas": 2}}}) == ["roles[Master].replicas: Invalid value: must be 1"]


def test_fields_after_a_computed_index_are_checked() -> None:
    items = {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}}
    role = {"type": "object", "properties": {"containers": items}}
    rule = {"rule": "self.all(role, self[role].containers.exists(c, c.name == 'a'))", "message": "no a"}
    schema = {"type": "object", "additionalProperties": role, "x-kubernetes-validations": [rule]}
    assert violations(schema, {"Master": {"containers": [{"name": "a"}]}}) == []
    assert violations(schema, {"Master": {"containers": [{"name": "b"}]}}) == ["<nil>: Invalid value: no a"]
    with pytest.raises(ExpressionError, match="undefined field 'nam'"):
        Expression("self.all(role, self[role].containers.exists(c, c.nam == 'a'))", SchemaNode(schema))


def test_a_rule_on_a_scalar_shows_the_value() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "x-kubernetes-validations": [{"rule": "self != 'b'", "message": "no"}]}},
    }
    assert violations(schema, {"a": "b"}) == ['a: Invalid value: "b": no']


def test_a_transition_rule_runs_only_with_an_old_value() -> None:
    schema = spec({"rule": "self.name == oldSelf.name", "message": "immutable"})
    assert violations(schema, {"spec": {"name": "b"}}) == []
    assert violations(schema, {"spec": {"name": "b"}}, {"spec": {"name": "a"}}) == ["spec: Invalid value: immutable"]
    assert violations(schema, {"spec": {"name": "a"}}, {"spec": {"name": "a"}}) == []


def test_a_rule_with_optional_old_self_runs_on_create() -> None:
    rule = {"rule": "oldSelf.hasValue() || self.replicas == 0", "message": "start at zero", "optionalOldSelf": True}
    assert violations(spec(rule), {"spec": {"replicas": 1}}) == ["spec: Invalid value: start at zero"]
    assert violations(spec(rule), {"spec": {"replicas": 1}}, {"spec": {"replicas": 0}}) == []


def test_rules_run_inside_lists_and_maps_with_the_right_paths() -> None:
    rule = {"x-kubernetes-validations": [{"rule": "self.n > 0", "message": "positive"}]}
    item = {"type": "object", "properties": {"n": {"type": "integer"}}, **rule}
    schema = {
        "type": "object",
        "properties": {"list": {"type": "array", "items": item}, "map": {"type": "object", "additionalProperties": item}},
    }
    body = {"list": [{"n": 1}, {"n": 0}], "map": {"k": {"n": -1}}}
    assert violations(schema, body) == ["list[1]: Invalid value: positive", "map[k]: Invalid value: positive"]


def test_items_of_a_map_list_are_compared_with_their_old_value() -> None:
    rule = [{"rule": "self.n >= oldSelf.n", "message": "only up"}]
    item = {"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "integer"}}, "x-kubernetes-validations": rule}
    listed = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": item}
    schema = {"type": "object", "properties": {"list": listed}}
    old = {"list": [{"name": "a", "n": 1}, {"name": "b", "n": 5}]}
    assert violations(schema, {"list": [{"name": "b", "n": 4}, {"name": "a", "n": 2}, {"name": "c", "n": 0}]}, old) == [
        "list[0]: Invalid value: only up"
    ]


def test_unchanged_values_are_not_validated_again() -> None:
    schema = spec({"rule": "self.replicas < 5", "message": "small"})
    assert violations(schema, {"spec": {"replicas": 9}}, {"spec": {"replicas": 9}}) == []
    assert violations(schema, {"spec": {"replicas": 9}}, {"spec": {"replicas": 8}}) == ["spec: Invalid value: small"]


def test_an_evaluation_error_is_reported() -> None:
    assert violations(spec({"rule": "self.replicas > 1"}), {"spec": {}}) == [
        'spec: Invalid value: "object": no such key: replicas evaluating rule: self.replicas > 1'
    ]
    assert violations(spec({"rule": "self.names[3] == ''"}), {"spec": {"names": []}}) == [
        "spec: Invalid value: \"object\": index out of bounds: 3 evaluating rule: self.names[3] == ''"
    ]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("self.foo == 1", "<input>:1:5: undefined field 'foo'\n | self.foo == 1\n | ....^"),
        ("self.items.all(i, i.m > 0)", "<input>:1:20: undefined field 'm'\n | self.items.all(i, i.m > 0)\n | ...................^"),
        ("other == 1", "<input>:1:1: undeclared reference to 'other' (in container '')\n | other == 1\n | ^"),
        ("nope(self.name)", "<input>:1:5: undeclared reference to 'nope' (in container '')\n | nope(self.name)\n | ....^"),
        (
            "self.replicas == 'a'",
            "<input>:1:15: found no matching overload for '_==_' applied to '(int, string)'\n | self.replicas == 'a'\n | ..............^",
        ),
        ("x y", "<input>:1:3: Syntax error: extraneous input 'y' expecting <EOF>\n | x y\n | ..^"),
        ("self.name.matches('[')", "<input>:1:19: invalid matches argument\n | self.name.matches('[')\n | ..................^"),
    ],
)
def test_an_invalid_expression_is_rejected_with_its_position(rule: str, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        Expression(rule, SchemaNode({"type": "object", "properties": _PROPERTIES}))
    assert str(caught.value) == f"compilation failed: ERROR: {message}"


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        ("self.name.trim() == ''", "trim"),
        ("' x '.trim() == 'x'", "trim"),
        ("'%s'.format(['a']) == 'a'", "format"),
        ("[1, 2].max() == 2", "max"),
        ("self.names.isSorted()", "isSorted"),
        ("self.names.filter(n, n != '').isSorted()", "isSorted"),
        ("isQuantity(self.name)", "isQuantity"),
        ("math.greatest(1, 2) == 2", "math"),
        ("sets.contains(self.names, ['a'])", "sets"),
    ],
)
def test_a_function_that_is_not_supported_is_rejected(rule: str, name: str) -> None:
    with pytest.raises(ExpressionError, match=f"undeclared reference to '{name}'"):
        Expression(rule, SchemaNode({"type": "object", "properties": _PROPERTIES}))


def test_a_rule_must_be_boolean() -> None:
    with pytest.raises(ExpressionError, match="cel expression must evaluate to a bool"):
        Expression("self.replicas", SchemaNode({"type": "object", "properties": _PROPERTIES}))


@pytest.mark.parametrize("source", ["__import__('os').system('true')", "self.__class__ == 1", "open('/etc/passwd') == ''"])
def test_python_is_not_reachable_from_expressions(source: str) -> None:
    with pytest.raises(ExpressionError):
        Expression(source, SchemaNode({"type": "object", "properties": _PROPERTIES}))
