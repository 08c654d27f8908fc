"""Rules that do not punish what is stored already.

A job may have been stored before its definition had a rule: by another operator, or by an older dlop. The API server checks the rules
of the whole object also when only the status is written, so such a job could never be told how it goes. (It lets pass what has
not changed, but it cannot compare pod templates, which are described in part only.) Therefore each rule is said twice:

    of the whole object, as long as nobody has looked at it     a new job must keep to the rule
    of what has changed                                         who kept to the rule must go on doing so
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dlop.kube.types import JsonObject

_RULES = "x-kubernetes-validations"
_SELF = re.compile(r"\bself\b")


def lenient(schema: JsonObject) -> JsonObject:
    """The schema of a custom resource with such rules in place of those of its spec, and of the roles in it."""
    spec = schema["properties"]["spec"]
    fields = spec.get("properties", {})
    roles = {name: field for name, field in fields.items() if _RULES in field and "additionalProperties" in field}
    at_first = [*_of_new(spec, "self.spec", ".spec")]
    for name, field in roles.items():
        at_first += _of_new(field, f"self.spec.{name}", f".spec.{name}", guard=f"!has(self.spec.{name}) || ")
    if not at_first:
        return schema
    changed = {name: _of_changes(field) for name, field in roles.items()}
    spec = _of_changes({**spec, "properties": {**fields, **changed}} if changed else spec)
    return {**schema, "properties": {**schema["properties"], "spec": spec}, _RULES: at_first}


def _of_new(place: JsonObject, value: str, path: str, *, guard: str = "") -> Iterator[JsonObject]:
    """The rules of a place as rules of the whole object."""
    for rule in place.get(_RULES, ()):
        if not _is_of_changes(rule):
            expression = f"has(self.status) || {guard}({_SELF.sub(value, rule['rule'])})"
            told = {name: _SELF.sub(value, text) for name, text in rule.items() if name == "messageExpression"}
            yield {**rule, **told, "rule": expression, "fieldPath": path + rule.get("fieldPath", "")}


def _of_changes(place: JsonObject) -> JsonObject:
    """A place whose rules hold for those who kept to them before."""
    rules = place.get(_RULES, ())
    changed = [
        rule if _is_of_changes(rule) else {**rule, "rule": f"!({_SELF.sub('oldSelf', rule['rule'])}) || ({rule['rule']})"} for rule in rules
    ]
    return {**place, _RULES: changed} if changed else place


def _is_of_changes(rule: JsonObject) -> bool:
    return "oldSelf" in rule["rule"]
