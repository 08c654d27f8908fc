"""Rewrites CEL expressions for the CEL library and checks them against the schema.

kube-apiserver type-checks expressions when a CRD is created. This module only detects common errors: fields that are
not in the schema, unknown names and functions, and comparisons with a literal of the wrong type.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import cel

from dlop.embedded.apiserver.apiextensions.cel_functions import FUNCTIONS
from dlop.embedded.apiserver.apiextensions.schema import SchemaNode
from dlop.embedded.apiserver.apiextensions.schema_formats import go_pattern

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
      |(?P<string>[bBrR]{0,2}(?:\"\"\"(?:.|\n)*?\"\"\"|'''(?:.|\n)*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
      |(?P<number>\d+\.\d+(?:[eE][+-]?\d+)?|0x[0-9a-fA-F]+u?|\d+[eE][+-]?\d+|\d+u?)
      |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
      |(?P<symbol>\.\?|\[\?|==|!=|<=|>=|&&|\|\||.)""",
    re.VERBOSE | re.DOTALL,
)
_MACROS = frozenset({"has", "all", "exists", "exists_one", "map", "filter"})
_STANDARD_FUNCTIONS = frozenset(
    {
        "size",
        "contains",
        "startsWith",
        "endsWith",
        "matches",
        "int",
        "uint",
        "double",
        "string",
        "bytes",
        "bool",
        "timestamp",
        "duration",
        "type",
        "dyn",
        "getFullYear",
        "getMonth",
        "getDate",
        "getDayOfMonth",
        "getDayOfWeek",
        "getDayOfYear",
        "getHours",
        "getMinutes",
        "getSeconds",
        "getMilliseconds",
        "optional.of",
        "optional.none",
        "optional.ofNonZeroValue",
        "hasValue",
        "value",
        "orValue",
        "or",
    }
)
_FUNCTION_NAMES = frozenset(FUNCTIONS) | _STANDARD_FUNCTIONS | _MACROS
_VARIABLES = frozenset(
    {
        "self",
        "oldSelf",
        "true",
        "false",
        "null",
        "in",
        "int",
        "uint",
        "double",
        "bool",
        "string",
        "bytes",
        "list",
        "map",
        "type",
        "null_type",
    }
)
_NAMESPACES = frozenset(name.partition(".")[0] for name in _FUNCTION_NAMES if "." in name)
_RESERVED = frozenset(
    {
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    }
)
_CEL_TYPES = {"integer": "int", "number": "double", "string": "string", "boolean": "bool"}


@dataclass(frozen=True, slots=True)
class CelToken:
    kind: str
    text: str
    start: int


class ExpressionError(Exception):
    """The expression does not compile. The message is that of the CEL compiler."""


def tokenize(expression: str) -> list[CelToken]:
    """The tokens of an expression, without whitespace and comments."""
    tokens = (CelToken(str(match.lastgroup), match.group(), match.start()) for match in _TOKEN.finditer(expression))
    return [token for token in tokens if token.kind != "space"]


def escape_name(name: str) -> str:
    """The escaped form of a property name in expressions."""
    if name in _RESERVED:
        return f"__{name}__"
    for symbol, replacement in (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__")):
        name = name.replace(symbol, replacement)
    return name


def has_optionals(expression: str) -> bool:
    """Whether the expression uses `.?` or `[?`, which the library cannot parse."""
    return any(token.text in (".?", "[?") for token in tokenize(expression))


def rewrite(expression: str) -> str:
    """Rewrite an expression for the CEL library.

    `a.?b` becomes `a.optionalField("b")`, as do selections after it, which stay optional. `size` becomes `characters`,
    which counts characters instead of bytes.
    """
    tokens = tokenize(expression)
    pieces: list[str] = []
    optional = False
    position = 0
    while position < len(tokens):
        token, following = tokens[position], _text(tokens, position + 1)
        if token.text == ".?" or (optional and token.text == "." and _text(tokens, position + 2) != "("):
            pieces.append(f'.optionalField("{following}")')
            optional, position = True, position + 2
        elif token.text == "[?":
            closing = _closing(tokens, position)
            pieces.append(f".optionalField({rewrite(expression[token.start + 2 : tokens[closing].start])})")
            optional, position = True, closing + 1
        else:
            optional = False
            pieces.append("characters" if token.text == "size" and following == "(" else token.text)
            pieces.append(expression[token.start + len(token.text) : _start(tokens, position + 1, expression)])
            position += 1
    return "".join(pieces)


def check_expression(expression: str, node: SchemaNode, *, result: str = "bool") -> None:
    """Check an expression on values of `node`. `result` is the required CEL type of the result.

    Raises:
        ExpressionError: the first error found.
    """
    _Checker(expression, node, result).check()


class _Checker:
    """Walks the tokens once and resolves chains like `self.a.items.all(x, x.b)` in the schema."""

    def __init__(self, expression: str, node: SchemaNode, result: str) -> None:
        self._result = result
        self._expression = expression
        self._tokens = tokenize(expression)
        self._variables: dict[str, SchemaNode | None] = {"self": node, "oldSelf": node}
        self._position = 0

    def check(self) -> None:
        self._check_until(len(self._tokens))

    def _check_until(self, end: int) -> None:
        while self._position < end:
            token = self._tokens[self._position]
            self._position += 1
            if token.kind == "name" and _text(self._tokens, self._position - 2) not in (".", ".?"):
                self._check_chain(token)
            elif (token.kind == "string" or token.text in ("]", ")", "}")) and _text(self._tokens, self._position) == ".":
                self._follow(None)  # of a literal or the result of a call

    def _check_chain(self, first: CelToken) -> None:
        following = _text(self._tokens, self._position)
        if following == "(":
            self._expect_callable(first.text, first.start + len(first.text))
            return
        if first.text in _NAMESPACES and following == ".":
            name = f"{first.text}.{_text(self._tokens, self._position + 1)}"
            self._expect_callable(name, self._tokens[self._position].start)
            self._position += 2
            return
        if first.text not in _VARIABLES and first.text not in self._variables:
            raise self._error(first.start, f"undeclared reference to '{first.text}' (in container '')")
        node = self._follow(self._variables.get(first.text))
        self._expect_comparable(node)
        is_single_chain = self._position == len(self._tokens) and first is self._tokens[0]
        if is_single_chain and node is not None and _cel_type(node) not in (None, self._result):
            raise ExpressionError(f"cel expression must evaluate to a {self._result}")

    def _follow(self, node: SchemaNode | None) -> SchemaNode | None:
        while True:
            symbol = _text(self._tokens, self._position)
            if symbol in (".", ".?"):
                selected = self._tokens[self._position + 1] if self._position + 1 < len(self._tokens) else None
                if selected is None or selected.kind != "name":
                    return None
                if _text(self._tokens, self._position + 2) == "(":
                    self._check_call(selected, node)
                    return None
                node = self._select(node, selected.text, self._tokens[self._position].start)
                self._position += 2
                if symbol == ".?":
                    return None
            elif symbol == "[":
                closing = _closing(self._tokens, self._position)
                self._position += 1
                self._check_until(closing)
                node, self._position = node and (node.items or node.additional), closing + 1
            else:
                return node

    def _check_call(self, method: CelToken, node: SchemaNode | None) -> None:
        dot = self._tokens[self._position].start
        self._position += 3
        if method.text in _MACROS:
            variable = self._tokens[self._position] if self._position < len(self._tokens) else None
            if variable is not None and _text(self._tokens, self._position + 1) == ",":
                self._variables[variable.text] = node.items if node is not None else None
                self._position += 2
            return
        self._expect_callable(method.text, dot + len(method.text) + 1)
        if method.text == "matches":
            self._expect_pattern()

    def _expect_pattern(self) -> None:
        token = self._tokens[self._position] if self._position < len(self._tokens) else None
        if token is None or token.kind != "string" or _text(self._tokens, self._position + 1) != ")":
            return
        try:
            go_pattern(str(cel.evaluate(token.text)))
        except (re.error, ValueError):
            raise self._error(token.start, "invalid matches argument") from None

    def _select(self, node: SchemaNode | None, name: str, position: int) -> SchemaNode | None:
        if node is None or node.additional is not None:
            return node.additional if node is not None else None
        for property_name, child in node.properties.items():
            if escape_name(property_name) == name:
                return child
        if name in ("apiVersion", "kind", "metadata", "name", "generateName") or _cel_type(node) is None:
            return None
        raise self._error(position, f"undefined field '{name}'")

    def _expect_callable(self, name: str, position: int) -> None:
        if name not in _FUNCTION_NAMES and name.rpartition(".")[2] not in _FUNCTION_NAMES:
            raise self._error(position, f"undeclared reference to '{name}' (in container '')")

    def _expect_comparable(self, node: SchemaNode | None) -> None:
        operator, literal = (self._tokens[index] if index < len(self._tokens) else None for index in (self._position, self._position + 1))
        if node is None or operator is None or literal is None or operator.text not in ("==", "!="):
            return
        left, right = _cel_type(node), _literal_type(literal)
        if _text(self._tokens, self._position + 2) in ("", "&&", "||", ")") and left in _CEL_TYPES.values() and right not in (None, left):
            raise self._error(operator.start, f"found no matching overload for '_{operator.text}_' applied to '({left}, {right})'")

    def _error(self, position: int, message: str) -> ExpressionError:
        before = self._expression[:position]
        line = before.count("\n")
        column = position - (before.rfind("\n") + 1)
        text = self._expression.split("\n")[line]
        return ExpressionError(f"compilation failed: ERROR: <input>:{line + 1}:{column + 1}: {message}\n | {text}\n | {'.' * column}^")


def _cel_type(node: SchemaNode) -> str | None:
    """The CEL type of a node; None if it is not known statically."""
    if node.schema.get("x-kubernetes-int-or-string"):
        return None
    if node.schema.get("format") in ("date", "date-time", "datetime", "duration", "byte"):
        return "time"
    return _CEL_TYPES.get(node.schema.get("type", ""), node.schema.get("type"))


def _literal_type(token: CelToken) -> str | None:
    if token.kind == "string":
        return "string"
    if token.kind == "number":
        return "double" if "." in token.text else "uint" if token.text.endswith("u") else "int"
    return "bool" if token.text in ("true", "false") else None


def _text(tokens: list[CelToken], position: int) -> str:
    return tokens[position].text if 0 <= position < len(tokens) else ""


def _start(tokens: list[CelToken], position: int, expression: str) -> int:
    return tokens[position].start if position < len(tokens) else len(expression)


def _closing(tokens: list[CelToken], opening: int) -> int:
    depth = 0
    for position in range(opening, len(tokens)):
        depth += {"[": 1, "[?": 1, "]": -1}.get(tokens[position].text, 0)
        if depth == 0:
            return position
    return len(tokens) - 1
