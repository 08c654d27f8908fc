"""Validation rules that do not break objects that are already stored.

A job may be older than a rule of its CRD: another operator or an older dlop may have created it. The API server evaluates
the rules of the whole object even if only the status is written, so the status of such a job could not be updated. Ratcheting
in the API server does not help, because it cannot compare pod templates, which the schema describes only partially.
Therefore each rule is written twice:

    on the whole object, unless it has a status     a new job must satisfy the rule
    on the field, with oldSelf                      an update must not break a rule that was satisfied before
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dlop.kube.types import JsonObject

_RULES = "x-kubernetes-validations"
_SELF = re.compile(r"\bself\b")


def with_ratcheting(schema: JsonObject) -> JsonObject:
    """The schema of a custom resource with the rules of its spec, and of the roles in it, replaced as described above."""
    spec = schema["properties"]["spec"]
    fields = spec.get("properties", {})
    roles = {name: field for name, field in fields.items() if _RULES in field and "additionalProperties" in field}
    creation_rules = [*_creation_rules(spec, "self.spec", ".spec")]
    for name, field in roles.items():
        creation_rules += _creation_rules(field, f"self.spec.{name}", f".spec.{name}", guard=f"!has(self.spec.{name}) || ")
    if not creation_rules:
        return schema
    ratcheted = {name: _with_transition_rules(field) for name, field in roles.items()}
    spec = _with_transition_rules({**spec, "properties": {**fields, **ratcheted}} if ratcheted else spec)
    return {**schema, "properties": {**schema["properties"], "spec": spec}, _RULES: creation_rules}


def _creation_rules(field: JsonObject, value: str, path: str, *, guard: str = "") -> Iterator[JsonObject]:
    """The rules of a field as rules of the whole object that hold until it has a status."""
    for rule in field.get(_RULES, ()):
        if not _is_transition_rule(rule):
            expression = f"has(self.status) || {guard}({_SELF.sub(value, rule['rule'])})"
            message = {name: _SELF.sub(value, text) for name, text in rule.items() if name == "messageExpression"}
            yield {**rule, **message, "rule": expression, "fieldPath": path + rule.get("fieldPath", "")}


def _with_transition_rules(field: JsonObject) -> JsonObject:
    """A copy of a field whose rules hold only if the old value satisfied them."""
    rules = [
        rule if _is_transition_rule(rule) else {**rule, "rule": f"!({_SELF.sub('oldSelf', rule['rule'])}) || ({rule['rule']})"}
        for rule in field.get(_RULES, ())
    ]
    return {**field, _RULES: rules} if rules else field


def _is_transition_rule(rule: JsonObject) -> bool:
    return "oldSelf" in rule["rule"]
