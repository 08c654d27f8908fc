"""Parses and evaluates label and field selectors, with the error messages of kube-apiserver."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dlop.embedded.apiserver.api_errors import bad_request
from dlop.embedded.apiserver.name_validation import label_value_errors, qualified_name_errors
from dlop.embedded.apiserver.resource_type import ResourceType
from dlop.kube.types import JsonObject

_NO_LABELS: Mapping[str, str] = {}


class SelectorOperator(StrEnum):
    """Operator of a label requirement. Equality is `IN` with one value."""

    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    DOES_NOT_EXIST = "!"
    GREATER = "gt"
    LESS = "lt"


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    key: str
    operator: SelectorOperator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        if self.operator is SelectorOperator.IN:
            return value is not None and value in self.values
        if self.operator is SelectorOperator.NOT_IN:
            return value is None or value not in self.values
        if self.operator is SelectorOperator.EXISTS:
            return value is not None
        if self.operator is SelectorOperator.DOES_NOT_EXIST:
            return value is None
        return self._compares(value)

    def _compares(self, value: str | None) -> bool:
        if value is None or not _INTEGER.fullmatch(value):
            return False
        (bound,) = self.values
        return int(value) > int(bound) if self.operator is SelectorOperator.GREATER else int(value) < int(bound)


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    """One term of a field selector. `equal` is False for `!=`."""

    path: tuple[str, ...]
    value: str
    equal: bool

    def matches(self, body: JsonObject) -> bool:
        """Whether the object satisfies the term. A missing field counts as empty."""
        value: Any = body
        for step in self.path:
            value = value.get(step) if isinstance(value, dict) else None
        return (_as_text(value) == self.value) is self.equal


@dataclass(frozen=True, slots=True)
class Selector:
    """The label and field requirements of a request. An object matches if it satisfies all of them."""

    labels: tuple[LabelRequirement, ...] = ()
    fields: tuple[FieldRequirement, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.labels and not self.fields

    def matches(self, body: JsonObject) -> bool:
        if self.labels:
            labels = body["metadata"].get("labels") or _NO_LABELS
            if not all(requirement.matches(labels) for requirement in self.labels):
                return False
        return all(term.matches(body) for term in self.fields)


EVERYTHING = Selector()


def parse_selector(type: ResourceType, *, labels: str, fields: str) -> Selector:
    """Parse the selectors of a query.

    Raises:
        BadRequestError: a selector is malformed, or the type does not support the field.
    """
    if not labels and not fields:
        return EVERYTHING
    return Selector(tuple(_Parser(labels).requirements()), _field_terms(type, fields))


# --- labels ----------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(r"\s*(==|!=|[=!<>(),]|[^\s=!<>(),]+)")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_SYMBOLS = frozenset({"==", "!=", "=", "!", "<", ">", "(", ")", ","})
_OPERATORS = {
    "in": SelectorOperator.IN,
    "=": SelectorOperator.IN,
    "==": SelectorOperator.IN,
    "notin": SelectorOperator.NOT_IN,
    "!=": SelectorOperator.NOT_IN,
    ">": SelectorOperator.GREATER,
    "<": SelectorOperator.LESS,
}
_END = ""


class _Parser:
    """Label selector parser with one token of lookahead."""

    def __init__(self, text: str) -> None:
        self._tokens = [match.group(1) for match in _TOKEN.finditer(text)]
        self._position = 0

    def requirements(self) -> list[LabelRequirement]:
        requirements: list[LabelRequirement] = []
        if self._peek() == _END:
            return requirements
        if not self._at_requirement():
            raise bad_request(f"found '{self._peek()}', expected: !, identifier, or 'end of string'")
        while True:
            requirements.append(self._requirement())
            word = self._take()
            if word == _END:
                return requirements
            if word != ",":
                raise bad_request(f"found '{word}', expected: ',' or 'end of string'")
            if not self._at_requirement():
                raise bad_request(f"found '{self._peek()}', expected: identifier after ','")

    def _requirement(self) -> LabelRequirement:
        negated = self._peek() == "!"
        if negated:
            self._take()
        key = self._identifier()
        _check_key(key)
        if negated:
            return LabelRequirement(key, SelectorOperator.DOES_NOT_EXIST)
        if self._peek() in (_END, ","):
            return LabelRequirement(key, SelectorOperator.EXISTS)
        operator = self._operator()
        values = self._values() if self._spelled_as_word else {self._exact_value()}
        _check_values(key, operator, values)
        return LabelRequirement(key, operator, frozenset(values))

    def _operator(self) -> SelectorOperator:
        word = self._take()
        self._spelled_as_word = word in ("in", "notin")
        operator = _OPERATORS.get(word)
        if operator is None:
            raise _parse_error(f"found '{word}', expected: in, notin, =, ==, !=, gt, lt")
        return operator

    def _values(self) -> set[str]:
        opening = self._take()
        if opening != "(":
            raise _parse_error(f"found '{opening}' expected: '('")
        values = {self._listed_value()}
        while self._peek() == ",":
            self._take()
            values.add(self._listed_value())
        closing = self._take()
        if closing != ")":
            raise _parse_error(f"found '{closing}', expected: ',' or ')'")
        return values

    def _listed_value(self) -> str:
        return "" if self._peek() in (",", ")", _END) else self._identifier()

    def _exact_value(self) -> str:
        return "" if self._peek() in (",", _END) else self._identifier()

    def _identifier(self) -> str:
        word = self._take()
        if word == _END or word in _SYMBOLS:
            raise _parse_error(f"found '{word}', expected: identifier")
        return word

    def _at_requirement(self) -> bool:
        word = self._peek()
        return word == "!" or (word != _END and word not in _SYMBOLS)

    def _peek(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else _END

    def _take(self) -> str:
        word = self._peek()
        self._position += 1
        return word


def _parse_error(reason: str) -> Exception:
    return bad_request(f"unable to parse requirement: {reason}")


def _check_key(key: str) -> None:
    errors = qualified_name_errors(key)
    if errors:
        raise _parse_error(f'<nil>: Invalid value: "{key}": {"; ".join(errors)}')


def _check_values(key: str, operator: SelectorOperator, values: set[str]) -> None:
    for position, value in enumerate(sorted(values)):
        if operator in (SelectorOperator.GREATER, SelectorOperator.LESS) and not _INTEGER.fullmatch(value):
            raise _parse_error(f"values[{position}]: Invalid value: \"{value}\": for 'Gt', 'Lt' operators, the value must be an integer")
        errors = label_value_errors(value)
        if errors:
            raise _parse_error(f'values[{position}][{key}]: Invalid value: "{value}": {"; ".join(errors)}')


# --- fields ----------------------------------------------------------------------------------------------------------

# Commas and operators can be escaped by a backslash.
_TERMS = re.compile(r"(?:[^,\\]|\\.)+")
_TERM = re.compile(r"((?:[^=!\\]|\\.)*)(!=|==|=)((?:[^=\\]|\\.)*)")
_ESCAPED = re.compile(r"\\([\\,=])")
_COMMON_FIELDS: Mapping[str, tuple[str, ...]] = {
    "metadata.name": ("metadata", "name"),
    "metadata.namespace": ("metadata", "namespace"),
}


def _field_terms(type: ResourceType, text: str) -> tuple[FieldRequirement, ...]:
    terms = []
    for part in _TERMS.findall(text):
        match = _TERM.fullmatch(part)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        label, operator, value = match.groups()
        path = type.fields.get(label) or _COMMON_FIELDS.get(label)
        if path is None:
            raise bad_request(_unknown_field_message(type, label))
        terms.append(FieldRequirement(path, _ESCAPED.sub(r"\1", value), operator != "!="))
    return tuple(terms)


def _unknown_field_message(type: ResourceType, label: str) -> str:
    # kube-apiserver has a different message for built-in types without additional fields.
    if type.merge_schema is not None and not type.fields:
        return f'"{label}" is not a known field selector: only "metadata.name", "metadata.namespace"'
    return f"field label not supported: {label}"


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
