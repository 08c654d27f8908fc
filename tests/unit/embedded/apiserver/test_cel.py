"""Rules of schemas: when they run, what they see, and what is said when they are broken."""

from __future__ import annotations

from typing import Any

import pytest

from dlop.embedded.apiserver.api_errors import FieldError
from dlop.embedded.apiserver.apiextensions.cel import Expression, rule_tree
from dlop.embedded.apiserver.apiextensions.cel_parser import ExpressionError
from dlop.embedded.apiserver.apiextensions.schema import MISSING, Node
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


def broken(schema: JsonObject, value: Any, old: Any = MISSING) -> list[str]:
    """What the rules of a schema say about a value at the root."""
    tree = rule_tree(Node(schema))
    errors: list[FieldError] = []
    assert tree is not None
    tree.check(value, old, "", errors)
    return [f"{error.path}: {error.message}" for error in errors]


def spec(*rules: JsonObject, **more: Any) -> JsonObject:
    """A schema with these rules on its spec."""
    inner = {"type": "object", "properties": _PROPERTIES, "x-kubernetes-validations": list(rules), **more}
    return {"type": "object", "properties": {"spec": inner}}


def holds(rule: str, **fields: Any) -> bool:
    """Whether a rule on spec holds for these fields."""
    return broken(spec({"rule": rule}), {"spec": fields}) == []


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
        "self.names.isSorted() && self.names.join('-') == 'aa-ab'",
        "self.name.upperAscii() == 'äöü' && ' x '.trim() == 'x'",
        "'a,b'.split(',')[1] == 'b' && 'abc'.substring(1, 2) == 'b' && 'abc'.indexOf('c') == 2",
        "'a1b22'.find('[0-9]+') == '1' && 'a1b22'.findAll('[0-9]+').size() == 2",
        "[1, 2, 3].sum() == 6 && [1, 3].max() == 3 && [1, 3].min() == 1",
        "quantity('1Gi').isGreaterThan(quantity('1000M')) && isQuantity('2') && !isQuantity('two')",
        "isURL('https://a.b:80/c?d=e') && url('https://a.b:80/c').getHost() == 'a.b:80' && url('https://a.b:80/c').getPort() == '80'",
        "sets.contains(self.names, ['aa']) && math.greatest(1, 2) == 2",
        "self.name.matches('^\\\\w*.*$')",
        "'%s-%d'.format(['a', 3]) == 'a-3'",
    ],
)
def test_expressions_of_kubernetes_evaluate_as_on_the_real_server(rule: str) -> None:
    fields: JsonObject = {"replicas": 2, "size": 1, "name": "äöü", "names": ["aa", "ab"], "when": "2024-01-01T00:00:00Z"}
    fields |= {"namespace": "here", "a-b.c": "odd", "labels": {"app": "x"}}
    assert holds(rule, **fields)


def test_a_broken_rule_is_reported_with_its_message_and_without_the_object() -> None:
    schema = spec({"rule": "self.replicas <= 5", "message": "too many"})
    assert broken(schema, {"spec": {"replicas": 6}}) == ["spec: Invalid value: too many"]
    assert broken(schema, {"spec": {"replicas": 5}}) == []


def test_without_a_message_the_rule_itself_is_shown() -> None:
    assert broken(spec({"rule": " self.replicas <= 5 "}), {"spec": {"replicas": 6}}) == [
        "spec: Invalid value: failed rule: self.replicas <= 5"
    ]


def test_a_message_expression_wins_over_the_message_and_falls_back_on_it() -> None:
    rule = {"rule": "self.replicas <= 5", "message": "too many", "messageExpression": "'not ' + string(self.replicas)"}
    assert broken(spec(rule), {"spec": {"replicas": 6}}) == ["spec: Invalid value: not 6"]
    rule["messageExpression"] = "self.name"
    assert broken(spec(rule), {"spec": {"replicas": 6}}) == ["spec: Invalid value: too many"]


def test_reason_and_field_path_shape_the_error() -> None:
    rule = {"rule": "has(self.name)", "message": "name it", "reason": "FieldValueRequired", "fieldPath": ".name"}
    assert broken(spec(rule), {"spec": {}}) == ["spec.name: Required value: name it"]
    rule |= {"reason": "FieldValueForbidden"}
    assert broken(spec(rule), {"spec": {}}) == ["spec.name: Forbidden: name it"]


@pytest.mark.parametrize("path", [".roles.Master.replicas", ".roles['Master'].replicas"])
def test_a_field_path_shows_the_keys_of_maps_in_brackets(path: str) -> None:
    role = {"type": "object", "properties": {"replicas": {"type": "integer"}}}
    roles = {"type": "object", "properties": {"roles": {"type": "object", "additionalProperties": role}}}
    rule = {"rule": "self.roles['Master'].replicas == 1", "message": "must be 1", "fieldPath": path}
    schema = {**roles, "x-kubernetes-validations": [rule]}
    assert broken(schema, {"roles": {"Master": {"replicas": 2}}}) == ["roles[Master].replicas: Invalid value: must be 1"]


def test_a_chain_goes_on_behind_an_index_that_is_worked_out() -> None:
    items = {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}}
    role = {"type": "object", "properties": {"containers": items}}
    rule = {"rule": "self.all(role, self[role].containers.exists(c, c.name == 'a'))", "message": "no a"}
    schema = {"type": "object", "additionalProperties": role, "x-kubernetes-validations": [rule]}
    assert broken(schema, {"Master": {"containers": [{"name": "a"}]}}) == []
    assert broken(schema, {"Master": {"containers": [{"name": "b"}]}}) == ["<nil>: Invalid value: no a"]
    with pytest.raises(ExpressionError, match="undefined field 'nam'"):
        Expression("self.all(role, self[role].containers.exists(c, c.nam == 'a'))", Node(schema))


def test_a_rule_on_a_plain_value_shows_the_value() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "x-kubernetes-validations": [{"rule": "self != 'b'", "message": "no"}]}},
    }
    assert broken(schema, {"a": "b"}) == ['a: Invalid value: "b": no']


def test_a_transition_rule_runs_only_when_there_is_an_earlier_value() -> None:
    schema = spec({"rule": "self.name == oldSelf.name", "message": "immutable"})
    assert broken(schema, {"spec": {"name": "b"}}) == []
    assert broken(schema, {"spec": {"name": "b"}}, {"spec": {"name": "a"}}) == ["spec: Invalid value: immutable"]
    assert broken(schema, {"spec": {"name": "a"}}, {"spec": {"name": "a"}}) == []


def test_an_optional_old_self_is_there_even_on_create() -> None:
    rule = {"rule": "oldSelf.hasValue() || self.replicas == 0", "message": "start at zero", "optionalOldSelf": True}
    assert broken(spec(rule), {"spec": {"replicas": 1}}) == ["spec: Invalid value: start at zero"]
    assert broken(spec(rule), {"spec": {"replicas": 1}}, {"spec": {"replicas": 0}}) == []


def test_rules_run_inside_lists_and_maps_with_the_right_paths() -> None:
    rule = {"x-kubernetes-validations": [{"rule": "self.n > 0", "message": "positive"}]}
    item = {"type": "object", "properties": {"n": {"type": "integer"}}, **rule}
    schema = {
        "type": "object",
        "properties": {"list": {"type": "array", "items": item}, "map": {"type": "object", "additionalProperties": item}},
    }
    body = {"list": [{"n": 1}, {"n": 0}], "map": {"k": {"n": -1}}}
    assert broken(schema, body) == ["list[1]: Invalid value: positive", "map[k]: Invalid value: positive"]


def test_items_of_a_keyed_list_are_compared_with_their_own_past() -> None:
    rule = [{"rule": "self.n >= oldSelf.n", "message": "only up"}]
    item = {"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "integer"}}, "x-kubernetes-validations": rule}
    listed = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": item}
    schema = {"type": "object", "properties": {"list": listed}}
    old = {"list": [{"name": "a", "n": 1}, {"name": "b", "n": 5}]}
    assert broken(schema, {"list": [{"name": "b", "n": 4}, {"name": "a", "n": 2}, {"name": "c", "n": 0}]}, old) == [
        "list[0]: Invalid value: only up"
    ]


def test_what_has_not_changed_is_forgiven_unless_the_rule_speaks_of_the_past() -> None:
    schema = spec({"rule": "self.replicas < 5", "message": "small"})
    assert broken(schema, {"spec": {"replicas": 9}}, {"spec": {"replicas": 9}}) == []
    assert broken(schema, {"spec": {"replicas": 9}}, {"spec": {"replicas": 8}}) == ["spec: Invalid value: small"]


def test_a_rule_that_cannot_be_evaluated_is_an_error_that_says_why() -> None:
    assert broken(spec({"rule": "self.replicas > 1"}), {"spec": {}}) == [
        'spec: Invalid value: "object": no such key: replicas evaluating rule: self.replicas > 1'
    ]
    assert broken(spec({"rule": "self.names[3] == ''"}), {"spec": {"names": []}}) == [
        "spec: Invalid value: \"object\": index out of bounds: 3 evaluating rule: self.names[3] == ''"
    ]


@pytest.mark.parametrize(
    ("rule", "words"),
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
def test_an_expression_that_can_never_work_is_refused_where_the_mistake_is(rule: str, words: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        Expression(rule, Node({"type": "object", "properties": _PROPERTIES}))
    assert str(caught.value) == f"compilation failed: ERROR: {words}"


def test_a_rule_must_be_true_or_false() -> None:
    with pytest.raises(ExpressionError, match="cel expression must evaluate to a bool"):
        Expression("self.replicas", Node({"type": "object", "properties": _PROPERTIES}))


@pytest.mark.parametrize("source", ["__import__('os').system('true')", "self.__class__ == 1", "open('/etc/passwd') == ''"])
def test_nothing_of_python_can_be_reached(source: str) -> None:
    with pytest.raises(ExpressionError):
        Expression(source, Node({"type": "object", "properties": _PROPERTIES}))
