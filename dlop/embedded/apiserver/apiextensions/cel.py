"""CEL validation rules (`x-kubernetes-validations`), compiled once per schema.

A rule that uses `oldSelf` only runs if there is an old value, unless `optionalOldSelf` is set. Expressions are evaluated
by the CEL library.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import cel

from dlop.embedded.apiserver.api_errors import OMITTED, FieldError, FieldErrorType
from dlop.embedded.apiserver.apiextensions.cel_functions import FUNCTIONS
from dlop.embedded.apiserver.apiextensions.cel_parser import ExpressionError, check_expression, has_optionals, rewrite, tokenize
from dlop.embedded.apiserver.apiextensions.cel_values import ToCelValue, cel_converter
from dlop.embedded.apiserver.apiextensions.schema import MISSING, SchemaNode
from dlop.kube.types import JsonObject

_STEP = re.compile(r"\.([^.\[\]]+)|\['([^']*)'\]")
_REASONS = {
    "FieldValueForbidden": FieldErrorType.FORBIDDEN,
    "FieldValueRequired": FieldErrorType.REQUIRED,
    "FieldValueDuplicate": FieldErrorType.DUPLICATE,
}


class Expression:
    """A compiled CEL expression."""

    def __init__(self, source: str, node: SchemaNode, *, result: str = "bool") -> None:
        """`result` is the required CEL type of the result.

        Raises:
            ExpressionError: the expression does not compile.
        """
        if not has_optionals(source):
            _compile(source)
        check_expression(source, node, result=result)
        self._program = _compile(rewrite(source))
        called = set(self._program.functions())
        self._functions = {name: function for name, function in FUNCTIONS.items() if name.rpartition(".")[2] in called}
        self.uses_old = any(token.text == "oldSelf" and token.kind == "name" for token in tokenize(source))

    def evaluate(self, value: Any, old: Any) -> Any:
        """Evaluate the expression for a value and its old value, which may be MISSING.

        Raises:
            EvaluationError: the evaluation fails.
        """
        context: dict[str, Any] = {**self._functions, "self": value}
        if old is not MISSING:
            context["oldSelf"] = old
        try:
            return self._program.execute(context)
        except KeyError as error:
            raise EvaluationError(f"no such key: {error.args[0]}") from error
        except ZeroDivisionError as error:
            raise EvaluationError("division by zero") from error
        except TypeError as error:
            raise EvaluationError("no such overload") from error
        except (IndexError, OverflowError, RuntimeError, ValueError) as error:
            raise EvaluationError(str(error)) from error


class EvaluationError(Exception):
    """The evaluation of an expression failed."""


def _compile(source: str) -> Any:
    try:
        return cel.compile(source)
    except ValueError as error:
        _, _, message = str(error).partition(f"'{source}': ")
        raise ExpressionError(f"compilation failed: {message}".replace("\n|", "\n |")) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationRule:
    expression: Expression
    message_expression: Expression | None
    message: str
    text: str
    reason: FieldErrorType
    field_path: str
    optional_old: bool


def compile_rule(rule: JsonObject, node: SchemaNode) -> ValidationRule:
    """Compile a validation rule.

    Raises:
        ExpressionError: an expression does not compile.
    """
    message = str(rule.get("message", "")).strip()
    text = str(rule["rule"]).strip()
    message_expression = rule.get("messageExpression")
    return ValidationRule(
        expression=Expression(rule["rule"], node),
        message_expression=Expression(message_expression, node, result="string") if message_expression else None,
        message=message or f"failed rule: {text}",
        text=message or text,
        reason=_REASONS.get(rule.get("reason", ""), FieldErrorType.INVALID),
        field_path=_field_path(str(rule.get("fieldPath", "")).strip(), node),
        optional_old=bool(rule.get("optionalOldSelf")),
    )


class RuleTree:
    """The rules of a schema node and its descendants."""

    def __init__(self, node: SchemaNode) -> None:
        self._node = node
        self._rules = _rules(node)
        self._to_cel: ToCelValue | None = cel_converter(node) if self._rules else None
        self._type = str(node.schema.get("type", ""))
        self._properties = {name: tree for name, child in node.properties.items() if (tree := rule_tree(child)) is not None}
        self._items = rule_tree(node.items) if node.items is not None else None
        self._additional = rule_tree(node.additional) if node.additional is not None else None

    @property
    def is_empty(self) -> bool:
        """Whether neither the node nor a descendant has rules."""
        return not self._rules and not self._properties and self._items is None and self._additional is None

    def check(self, value: Any, old: Any, path: str, errors: list[FieldError], *, unchanged: bool = False) -> None:
        """Append an error for each violated rule. Unchanged values are not validated again (ratcheting)."""
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
        cel_value = value if self._to_cel is None else self._to_cel(value)
        old_cel_value = MISSING if not has_old else old if self._to_cel is None else self._to_cel(old)
        for rule in self._rules:
            if rule.expression.uses_old:
                if not has_old and not rule.optional_old:
                    continue
            elif unchanged:
                continue
            before = _optional(old_cel_value) if rule.optional_old else old_cel_value
            error = self._evaluate(rule, cel_value, before, value, path)
            if error is not None:
                errors.append(error)

    def _evaluate(self, rule: ValidationRule, cel_value: Any, old: Any, value: Any, path: str) -> FieldError | None:
        try:
            if rule.expression.evaluate(cel_value, old) is True:
                return None
        except EvaluationError as error:
            return FieldError(FieldErrorType.INVALID, path or "<nil>", _evaluation_message(error, rule), self._type)
        if rule.field_path:
            path = f"{path}.{rule.field_path}" if path else rule.field_path
        detail = "" if rule.reason is FieldErrorType.DUPLICATE else _message(rule, cel_value, old)
        shown_value = OMITTED if self._type in ("object", "array") else value
        return FieldError(rule.reason, path or "<nil>", detail, shown_value)


def _is_same(node: SchemaNode | None, value: Any, old: Any) -> bool:
    """Whether the values are equal. As in kube-apiserver, fields outside the schema count as changed."""
    if isinstance(value, dict) and isinstance(old, dict) and node is not None:
        if value.keys() != old.keys():
            return False
        children = ((node.properties.get(name) or node.additional, name) for name in value)
        return all(child is not None and _is_same(child, value[name], old[name]) for child, name in children)
    if isinstance(value, list) and isinstance(old, list) and node is not None and node.list_type == "map":
        pairs = zip(value, node.old_items(value, old), strict=True)
        return len(value) == len(old) and all(before is not MISSING and _is_same(node.items, item, before) for item, before in pairs)
    return bool(value == old)


def rule_tree(node: SchemaNode) -> RuleTree | None:
    """The rules of a schema; None if it has none."""
    tree = RuleTree(node)
    return None if tree.is_empty else tree


def _rules(node: SchemaNode) -> tuple[ValidationRule, ...]:
    nested = [rule for nested_schema in node.schema.get("allOf", ()) for rule in nested_schema.get("x-kubernetes-validations", ())]
    return tuple(compile_rule(rule, node) for rule in [*node.schema.get("x-kubernetes-validations", ()), *nested])


def _field_path(path: str, node: SchemaNode) -> str:
    """The fieldPath of a rule in error format: fields after a dot, map keys in brackets."""
    steps: list[str] = []
    current: SchemaNode | None = node
    for name, key in _STEP.findall(path):
        step = name or key
        is_field = current is None or step in current.properties or current.additional is None
        steps.append(f".{step}" if is_field else f"[{step}]")
        current = current and (current.properties.get(step) or current.additional)
    return "".join(steps).removeprefix(".")


def _optional(old: Any) -> Any:
    return cel.OptionalValue.none() if old is MISSING else cel.OptionalValue.of(old)


def _evaluation_message(error: EvaluationError, rule: ValidationRule) -> str:
    if str(error) == "no such overload":
        message = "call arguments did not match a supported operator, function or macro signature for rule"
        return f"'{error}': {message}: {rule.text}"
    return f"{error} evaluating rule: {rule.text}"


def _message(rule: ValidationRule, cel_value: Any, old: Any) -> str:
    if rule.message_expression is None:
        return rule.message
    try:
        text = rule.message_expression.evaluate(cel_value, old)
    except EvaluationError:
        return rule.message
    usable = isinstance(text, str) and text.strip() and "\n" not in text.strip()
    return text.strip() if usable else rule.message
