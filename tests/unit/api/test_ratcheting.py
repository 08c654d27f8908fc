"""Validation rules apply to new objects and to changes, but do not block status updates of objects that violated them before."""

from __future__ import annotations

from dlop.api.ratcheting import with_ratcheting
from dlop.api.structural_schema import rule, with_rules
from dlop.kube.types import JsonObject

RULES = "x-kubernetes-validations"


def schema(*rules: JsonObject, **fields: JsonObject) -> JsonObject:
    spec = {"type": "object", "properties": {"size": {"type": "integer"}, **fields}, **(with_rules(*rules) if rules else {})}
    return {"type": "object", "properties": {"spec": spec, "status": {"type": "object"}}}


def test_a_rule_applies_to_new_objects_and_to_changes() -> None:
    ratcheted = with_ratcheting(schema(rule("has(self.size) && self.size < 3", "too many", field_path=".size")))
    [on_creation] = ratcheted[RULES]
    [on_change] = ratcheted["properties"]["spec"][RULES]
    assert on_creation["rule"] == "has(self.status) || (has(self.spec.size) && self.spec.size < 3)"
    assert on_change["rule"] == "!(has(oldSelf.size) && oldSelf.size < 3) || (has(self.size) && self.size < 3)"
    assert (on_creation["fieldPath"], on_change["fieldPath"]) == (".spec.size", ".size")
    assert on_creation["message"] == on_change["message"] == "too many"


def test_a_rule_on_roles_is_reported_at_their_field() -> None:
    roles = {"type": "object", "additionalProperties": {"type": "object"}, **with_rules(rule("self.all(role, role == 'a')", "only a"))}
    ratcheted = with_ratcheting(schema(roles=roles))
    [on_creation] = ratcheted[RULES]
    assert on_creation["rule"] == "has(self.status) || !has(self.spec.roles) || (self.spec.roles.all(role, role == 'a'))"
    assert on_creation["fieldPath"] == ".spec.roles"


def test_a_transition_rule_is_kept() -> None:
    original = schema(rule("self == oldSelf", "never changes"))
    assert with_ratcheting(original) == original


def test_without_rules_nothing_is_added() -> None:
    assert RULES not in with_ratcheting(schema())


def test_a_spec_that_is_a_list_stays_one() -> None:
    spec = {"type": "array", "items": {"type": "integer"}, **with_rules(rule("self.all(n, n > 0)", "too few"))}
    ratcheted = with_ratcheting({"type": "object", "properties": {"spec": spec}})["properties"]["spec"]
    assert ratcheted.keys() == spec.keys()
