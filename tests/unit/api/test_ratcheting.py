"""Rules are for new mistakes: whoever made one before there was a rule can still be told how things go."""

from __future__ import annotations

from dlop.api.ratcheting import lenient
from dlop.api.schema import rule, with_rules
from dlop.kube.types import JsonObject

RULES = "x-kubernetes-validations"


def schema(*rules: JsonObject, **fields: JsonObject) -> JsonObject:
    spec = {"type": "object", "properties": {"size": {"type": "integer"}, **fields}, **(with_rules(*rules) if rules else {})}
    return {"type": "object", "properties": {"spec": spec, "status": {"type": "object"}}}


def test_a_rule_is_said_of_new_objects_and_of_changes() -> None:
    found = lenient(schema(rule("has(self.size) && self.size < 3", "too many", field_path=".size")))
    [at_first] = found[RULES]
    [of_changes] = found["properties"]["spec"][RULES]
    assert at_first["rule"] == "has(self.status) || (has(self.spec.size) && self.spec.size < 3)"
    assert of_changes["rule"] == "!(has(oldSelf.size) && oldSelf.size < 3) || (has(self.size) && self.size < 3)"
    assert (at_first["fieldPath"], of_changes["fieldPath"]) == (".spec.size", ".size")
    assert at_first["message"] == of_changes["message"] == "too many"


def test_a_rule_of_roles_is_said_at_their_field() -> None:
    roles = {"type": "object", "additionalProperties": {"type": "object"}, **with_rules(rule("self.all(role, role == 'a')", "only a"))}
    found = lenient(schema(roles=roles))
    [at_first] = found[RULES]
    assert at_first["rule"] == "has(self.status) || !has(self.spec.roles) || (self.spec.roles.all(role, role == 'a'))"
    assert at_first["fieldPath"] == ".spec.roles"


def test_a_rule_of_changes_stays_as_it_is() -> None:
    whole = schema(rule("self == oldSelf", "never changes"))
    assert lenient(whole) == whole


def test_without_rules_nothing_is_added() -> None:
    assert RULES not in lenient(schema())


def test_a_spec_that_is_a_list_stays_one() -> None:
    spec = {"type": "array", "items": {"type": "integer"}, **with_rules(rule("self.all(n, n > 0)", "too few"))}
    found = lenient({"type": "object", "properties": {"spec": spec}})["properties"]["spec"]
    assert found.keys() == spec.keys()
