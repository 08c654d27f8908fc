"""`x-kubernetes-validations`: the rules of a schema, compiled once and run on every object.

Rules stand at any depth. A rule that speaks of `oldSelf` runs only where there is an earlier value to compare with.
Nothing is ever evaluated as Python: expressions go to the CEL library alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import cel

from dlop.embedded.apiserver.api_errors import OMITTED, FieldError, FieldErrorType
from dlop.embedded.apiserver.apiextensions.cel_functions import FUNCTIONS
from dlop.embedded.apiserver.apiextensions.cel_parser import ExpressionError, check, has_optionals, read, rewritten
from dlop.embedded.apiserver.apiextensions.cel_values import Shape, shape_of
from dlop.embedded.apiserver.apiextensions.schema import MISSING, Node
from dlop.kube.types import JsonObject

_STEP = re.compile(r"\.([^.\[\]]+)|\['([^']*)'\]")
_REASONS = {
    "FieldValueForbidden": FieldErrorType.FORBIDDEN,
    "FieldValueRequired": FieldErrorType.REQUIRED,
    "FieldValueDuplicate": FieldErrorType.DUPLICATE,
}


class Expression:
    """One CEL expression."""

    def __init__(self, source: str, node: Node, *, result: str = "bool") -> None:
        """Compile it; `result` is the CEL type that it must have.

        Raises:
            ExpressionError: when it can never work.
        """
        if not has_optionals(source):
            _compiled(source)
        check(source, node, result=result)
        self._program = _compiled(rewritten(source))
        called = set(self._program.functions())
        self._functions = {name: function for name, function in FUNCTIONS.items() if name.rpartition(".")[2] in called}
        self.uses_old = any(token.text == "oldSelf" and token.kind == "name" for token in read(source))

    def evaluate(self, value: Any, old: Any) -> Any:
        """The result for a value and its earlier state.

        Raises:
            EvaluationError: when there is none; the text says why.
        """
        context: dict[str, Any] = {**self._functions, "self": value}
        if old is not MISSING:
            context["oldSelf"] = old
        try:
            return self._program.execute(context)
        except KeyError as problem:
            raise EvaluationError(f"no such key: {problem.args[0]}") from problem
        except ZeroDivisionError as problem:
            raise EvaluationError("division by zero") from problem
        except TypeError as problem:
            raise EvaluationError("no such overload") from problem
        except (IndexError, OverflowError, RuntimeError, ValueError) as problem:
            raise EvaluationError(str(problem)) from problem


class EvaluationError(Exception):
    """An expression could not be evaluated."""


def _compiled(source: str) -> Any:
    try:
        return cel.compile(source)
    except ValueError as problem:
        _, _, words = str(problem).partition(f"'{source}': ")
        raise ExpressionError(f"compilation failed: {words}".replace("\n|", "\n |")) from problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule: what must hold, and what is said when it does not."""

    expression: Expression
    message_expression: Expression | None
    message: str
    text: str
    reason: FieldErrorType
    field_path: str
    optional_old: bool


def compile_rule(rule: JsonObject, node: Node) -> Rule:
    """A rule of a schema, ready to run.

    Raises:
        ExpressionError: when its expression can never work.
    """
    message = str(rule.get("message", "")).strip()
    text = str(rule["rule"]).strip()
    asked = rule.get("messageExpression")
    return Rule(
        expression=Expression(rule["rule"], node),
        message_expression=Expression(asked, node, result="string") if asked else None,
        message=message or f"failed rule: {text}",
        text=message or text,
        reason=_REASONS.get(rule.get("reason", ""), FieldErrorType.INVALID),
        field_path=_field_path(str(rule.get("fieldPath", "")).strip(), node),
        optional_old=bool(rule.get("optionalOldSelf")),
    )


class RuleTree:
    """The rules of one place of a schema and of everything below it."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._rules = _rules(node)
        self._shape: Shape | None = shape_of(node) if self._rules else None
        self._type = str(node.schema.get("type", ""))
        self._properties = {name: tree for name, child in node.properties.items() if (tree := rule_tree(child)) is not None}
        self._items = rule_tree(node.items) if node.items is not None else None
        self._additional = rule_tree(node.additional) if node.additional is not None else None

    @property
    def is_empty(self) -> bool:
        """Whether there is no rule here or below."""
        return not self._rules and not self._properties and self._items is None and self._additional is None

    def check(self, value: Any, old: Any, path: str, errors: list[FieldError], *, unchanged: bool = False) -> None:
        """Add the errors of every rule that the value breaks; what has not changed since `old` is forgiven."""
        if value is None:
            return
        unchanged = unchanged or (old is not MISSING and _is_same(self._node, value, old))
        if self._rules:
            self._run(value, old, path, errors, unchanged=unchanged)
        if isinstance(value, dict) and (self._properties or self._additional is not None):
            self._check_fields(value, old, path, errors, unchanged=unchanged)
        elif isinstance(value, list) and self._items is not None:
            for index, (item, old_item) in enumerate(zip(value, self._node.old_items(value, old), strict=True)):
                self._items.check(item, old_item, f"{path}[{index}]", errors, unchanged=unchanged)

    def _check_fields(self, value: JsonObject, old: Any, path: str, errors: list[FieldError], *, unchanged: bool) -> None:
        for name, child in value.items():
            old_child = self._node.old_child(old, name)
            if name in self._properties:
                self._properties[name].check(child, old_child, f"{path}.{name}" if path else name, errors, unchanged=unchanged)
            elif self._additional is not None and name not in self._node.properties:
                self._additional.check(child, old_child, f"{path}[{name}]", errors, unchanged=unchanged)

    def _run(self, value: Any, old: Any, path: str, errors: list[FieldError], *, unchanged: bool) -> None:
        has_old = old is not MISSING and old is not None
        seen = value if self._shape is None else self._shape(value)
        old_seen = MISSING if not has_old else old if self._shape is None else self._shape(old)
        for rule in self._rules:
            if rule.expression.uses_old:
                if not has_old and not rule.optional_old:
                    continue
            elif unchanged:
                continue
            before = _optional(old_seen) if rule.optional_old else old_seen
            error = self._broken(rule, seen, before, value, path)
            if error is not None:
                errors.append(error)

    def _broken(self, rule: Rule, seen: Any, old: Any, value: Any, path: str) -> FieldError | None:
        try:
            if rule.expression.evaluate(seen, old) is True:
                return None
        except EvaluationError as problem:
            return FieldError(FieldErrorType.INVALID, path or "<nil>", _failure_words(problem, rule), self._type)
        if rule.field_path:
            path = f"{path}.{rule.field_path}" if path else rule.field_path
        detail = "" if rule.reason is FieldErrorType.DUPLICATE else _message(rule, seen, old)
        shown = OMITTED if self._type in ("object", "array") else value
        return FieldError(rule.reason, path or "<nil>", detail, shown)


def _is_same(node: Node | None, value: Any, old: Any) -> bool:
    """Whether nothing has changed, as far as the schema can tell. The real server takes fields that it does not describe for changed."""
    if isinstance(value, dict) and isinstance(old, dict) and node is not None:
        if value.keys() != old.keys():
            return False
        children = ((node.properties.get(name) or node.additional, name) for name in value)
        return all(child is not None and _is_same(child, value[name], old[name]) for child, name in children)
    if isinstance(value, list) and isinstance(old, list) and node is not None and node.list_type == "map":
        pairs = zip(value, node.old_items(value, old), strict=True)
        return len(value) == len(old) and all(before is not MISSING and _is_same(node.items, item, before) for item, before in pairs)
    return bool(value == old)


def rule_tree(node: Node) -> RuleTree | None:
    """The rules of a schema; None when it has none."""
    tree = RuleTree(node)
    return None if tree.is_empty else tree


def _rules(node: Node) -> tuple[Rule, ...]:
    nested = [rule for one in node.schema.get("allOf", ()) for rule in one.get("x-kubernetes-validations", ())]
    return tuple(compile_rule(rule, node) for rule in [*node.schema.get("x-kubernetes-validations", ()), *nested])


def _field_path(given: str, node: Node) -> str:
    """The path of a rule as errors show it: names of fields after a dot, keys of maps in brackets."""
    steps: list[str] = []
    place: Node | None = node
    for name, key in _STEP.findall(given):
        step = name or key
        is_field = place is None or step in place.properties or place.additional is None
        steps.append(f".{step}" if is_field else f"[{step}]")
        place = place and (place.properties.get(step) or place.additional)
    return "".join(steps).removeprefix(".")


def _optional(old: Any) -> Any:
    return cel.OptionalValue.none() if old is MISSING else cel.OptionalValue.of(old)


def _failure_words(problem: EvaluationError, rule: Rule) -> str:
    if str(problem) == "no such overload":
        words = "call arguments did not match a supported operator, function or macro signature for rule"
        return f"'{problem}': {words}: {rule.text}"
    return f"{problem} evaluating rule: {rule.text}"


def _message(rule: Rule, seen: Any, old: Any) -> str:
    if rule.message_expression is None:
        return rule.message
    try:
        text = rule.message_expression.evaluate(seen, old)
    except EvaluationError:
        return rule.message
    usable = isinstance(text, str) and text.strip() and "\n" not in text.strip()
    return text.strip() if usable else rule.message
