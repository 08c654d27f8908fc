"""Label and field selectors: read from a query as the real server reads them, and put to objects.

The sentences for what cannot be read are the real server's: `kubectl` shows them to people as they are.
"""

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


class Operator(StrEnum):
    """How a requirement compares; equality is membership in a set of one."""

    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    DOES_NOT_EXIST = "!"
    GREATER = "gt"
    LESS = "lt"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term of a label selector."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels satisfies the term."""
        value = labels.get(self.key)
        if self.operator is Operator.IN:
            return value is not None and value in self.values
        if self.operator is Operator.NOT_IN:
            return value is None or value not in self.values
        if self.operator is Operator.EXISTS:
            return value is not None
        if self.operator is Operator.DOES_NOT_EXIST:
            return value is None
        return self._compares(value)

    def _compares(self, value: str | None) -> bool:
        if value is None or not _INTEGER.fullmatch(value):
            return False
        (bound,) = self.values
        return int(value) > int(bound) if self.operator is Operator.GREATER else int(value) < int(bound)


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One term of a field selector: the field at `path` has, or has not, this value."""

    path: tuple[str, ...]
    value: str
    equal: bool

    def matches(self, body: JsonObject) -> bool:
        """Whether the object satisfies the term; a field that is not there counts as empty."""
        found: Any = body
        for step in self.path:
            found = found.get(step) if isinstance(found, dict) else None
        return (_as_text(found) == self.value) is self.equal


@dataclass(frozen=True, slots=True)
class Selector:
    """All terms of a request; an object is selected when it satisfies every one."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[FieldTerm, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether every object is selected."""
        return not self.labels and not self.fields

    def matches(self, body: JsonObject) -> bool:
        """Whether the object is selected."""
        if self.labels:
            labels = body["metadata"].get("labels") or _NO_LABELS
            if not all(requirement.matches(labels) for requirement in self.labels):
                return False
        return all(term.matches(body) for term in self.fields)


EVERYTHING = Selector()


def parse_selector(type: ResourceType, *, labels: str, fields: str) -> Selector:
    """The selector that a query asks for.

    Raises:
        BadRequestError: when it cannot be read, or names a field that the type does not select by.
    """
    if not labels and not fields:
        return EVERYTHING
    return Selector(tuple(_Parser(labels).requirements()), _field_terms(type, fields))


# --- labels ----------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(r"\s*(==|!=|[=!<>(),]|[^\s=!<>(),]+)")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_SYMBOLS = frozenset({"==", "!=", "=", "!", "<", ">", "(", ")", ","})
_OPERATORS = {
    "in": Operator.IN,
    "=": Operator.IN,
    "==": Operator.IN,
    "notin": Operator.NOT_IN,
    "!=": Operator.NOT_IN,
    ">": Operator.GREATER,
    "<": Operator.LESS,
}
_END = ""


class _Parser:
    """Reads a label selector token by token, one token ahead."""

    def __init__(self, text: str) -> None:
        self._tokens = [match.group(1) for match in _TOKEN.finditer(text)]
        self._position = 0

    def requirements(self) -> list[Requirement]:
        found: list[Requirement] = []
        if self._next() == _END:
            return found
        if not self._at_requirement():
            raise bad_request(f"found '{self._next()}', expected: !, identifier, or 'end of string'")
        while True:
            found.append(self._requirement())
            word = self._take()
            if word == _END:
                return found
            if word != ",":
                raise bad_request(f"found '{word}', expected: ',' or 'end of string'")
            if not self._at_requirement():
                raise bad_request(f"found '{self._next()}', expected: identifier after ','")

    def _requirement(self) -> Requirement:
        negated = self._next() == "!"
        if negated:
            self._take()
        key = self._identifier()
        _check_key(key)
        if negated:
            return Requirement(key, Operator.DOES_NOT_EXIST)
        if self._next() in (_END, ","):
            return Requirement(key, Operator.EXISTS)
        operator = self._operator()
        values = self._values() if self._spelled_as_word else {self._exact_value()}
        _check_values(key, operator, values)
        return Requirement(key, operator, frozenset(values))

    def _operator(self) -> Operator:
        word = self._take()
        self._spelled_as_word = word in ("in", "notin")
        operator = _OPERATORS.get(word)
        if operator is None:
            raise _unreadable(f"found '{word}', expected: in, notin, =, ==, !=, gt, lt")
        return operator

    def _values(self) -> set[str]:
        opening = self._take()
        if opening != "(":
            raise _unreadable(f"found '{opening}' expected: '('")
        values = {self._listed_value()}
        while self._next() == ",":
            self._take()
            values.add(self._listed_value())
        closing = self._take()
        if closing != ")":
            raise _unreadable(f"found '{closing}', expected: ',' or ')'")
        return values

    def _listed_value(self) -> str:
        return "" if self._next() in (",", ")", _END) else self._identifier()

    def _exact_value(self) -> str:
        return "" if self._next() in (",", _END) else self._identifier()

    def _identifier(self) -> str:
        word = self._take()
        if word == _END or word in _SYMBOLS:
            raise _unreadable(f"found '{word}', expected: identifier")
        return word

    def _at_requirement(self) -> bool:
        word = self._next()
        return word == "!" or (word != _END and word not in _SYMBOLS)

    def _next(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else _END

    def _take(self) -> str:
        word = self._next()
        self._position += 1
        return word


def _unreadable(why: str) -> Exception:
    return bad_request(f"unable to parse requirement: {why}")


def _check_key(key: str) -> None:
    errors = qualified_name_errors(key)
    if errors:
        raise _unreadable(f'<nil>: Invalid value: "{key}": {"; ".join(errors)}')


def _check_values(key: str, operator: Operator, values: set[str]) -> None:
    for position, value in enumerate(sorted(values)):
        if operator in (Operator.GREATER, Operator.LESS) and not _INTEGER.fullmatch(value):
            raise _unreadable(f"values[{position}]: Invalid value: \"{value}\": for 'Gt', 'Lt' operators, the value must be an integer")
        errors = label_value_errors(value)
        if errors:
            raise _unreadable(f'values[{position}][{key}]: Invalid value: "{value}": {"; ".join(errors)}')


# --- fields ----------------------------------------------------------------------------------------------------------

# Terms are split at commas and operators that no backslash stands before.
_TERMS = re.compile(r"(?:[^,\\]|\\.)+")
_TERM = re.compile(r"((?:[^=!\\]|\\.)*)(!=|==|=)((?:[^=\\]|\\.)*)")
_ESCAPED = re.compile(r"\\([\\,=])")
_COMMON_FIELDS: Mapping[str, tuple[str, ...]] = {
    "metadata.name": ("metadata", "name"),
    "metadata.namespace": ("metadata", "namespace"),
}


def _field_terms(type: ResourceType, text: str) -> tuple[FieldTerm, ...]:
    terms = []
    for part in _TERMS.findall(text):
        match = _TERM.fullmatch(part)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        label, operator, value = match.groups()
        path = type.fields.get(label) or _COMMON_FIELDS.get(label)
        if path is None:
            raise bad_request(_unknown_field_sentence(type, label))
        terms.append(FieldTerm(path, _ESCAPED.sub(r"\1", value), operator != "!="))
    return tuple(terms)


def _unknown_field_sentence(type: ResourceType, label: str) -> str:
    # The real server has two sentences: one for built-in types without fields of their own, one for all others.
    if type.merge_schema is not None and not type.fields:
        return f'"{label}" is not a known field selector: only "metadata.name", "metadata.namespace"'
    return f"field label not supported: {label}"


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
