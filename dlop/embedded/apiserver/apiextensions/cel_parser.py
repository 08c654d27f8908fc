"""Reading CEL expressions: what the library cannot parse is rewritten, and what cannot work is found before it runs.

The real server type-checks expressions when a CRD is written. Here a reader of tokens finds the mistakes that people
make: a field that the schema does not have, an unknown name or function, a comparison with the wrong kind of literal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import cel

from dlop.embedded.apiserver.apiextensions.cel_functions import FUNCTIONS
from dlop.embedded.apiserver.apiextensions.schema import Node
from dlop.embedded.apiserver.apiextensions.schema_formats import go_pattern

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
      |(?P<string>[bBrR]{0,2}(?:\"\"\"(?:.|\n)*?\"\"\"|'''(?:.|\n)*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
      |(?P<number>\d+\.\d+(?:[eE][+-]?\d+)?|0x[0-9a-fA-F]+u?|\d+[eE][+-]?\d+|\d+u?)
      |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
      |(?P<mark>\.\?|\[\?|==|!=|<=|>=|&&|\|\||.)""",
    re.VERBOSE | re.DOTALL,
)
_MACROS = frozenset({"has", "all", "exists", "exists_one", "map", "filter"})
_BUILT_IN = frozenset(
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
        "min",
        "max",
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
_CALLABLE = frozenset(FUNCTIONS) | _BUILT_IN | _MACROS
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
_NAMESPACES = frozenset(name.partition(".")[0] for name in _CALLABLE if "." in name)
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
class Token:
    """One word of an expression."""

    kind: str
    text: str
    start: int


class ExpressionError(Exception):
    """The expression can never work; the text is what the real compiler says."""


def read(expression: str) -> list[Token]:
    """The tokens of an expression, without white space and comments."""
    found = (Token(str(match.lastgroup), match.group(), match.start()) for match in _TOKEN.finditer(expression))
    return [token for token in found if token.kind != "space"]


def escaped(name: str) -> str:
    """A property name as an expression writes it."""
    if name in _RESERVED:
        return f"__{name}__"
    for mark, word in (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__")):
        name = name.replace(mark, word)
    return name


def has_optionals(expression: str) -> bool:
    """Whether the expression uses `.?` or `[?`, which the library cannot parse."""
    return any(token.text in (".?", "[?") for token in read(expression))


def rewritten(expression: str) -> str:
    """The expression in the words of the library.

    `a.?b` becomes `a.optionalField("b")` (and plain selections behind it too, as they stay optional), `size` becomes a
    function that counts characters and not bytes.
    """
    tokens = read(expression)
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
            pieces.append(f".optionalField({rewritten(expression[token.start + 2 : tokens[closing].start])})")
            optional, position = True, closing + 1
        else:
            optional = False
            pieces.append("characters" if token.text == "size" and following == "(" else token.text)
            pieces.append(expression[token.start + len(token.text) : _start(tokens, position + 1, expression)])
            position += 1
    return "".join(pieces)


def check(expression: str, node: Node, *, result: str = "bool") -> None:
    """Find mistakes in an expression about values of `node` whose result is to be of the CEL type `result`.

    Raises:
        ExpressionError: for the first mistake.
    """
    _Reader(expression, node, result).read_all()


class _Reader:
    """Walks the tokens once, following chains like `self.a.items.all(x, x.b)` through the schema."""

    def __init__(self, expression: str, node: Node, result: str) -> None:
        self._result = result
        self._expression = expression
        self._tokens = read(expression)
        self._known: dict[str, Node | None] = {"self": node, "oldSelf": node}
        self._position = 0

    def read_all(self) -> None:
        self._read_until(len(self._tokens))

    def _read_until(self, end: int) -> None:
        while self._position < end:
            token = self._tokens[self._position]
            self._position += 1
            if token.kind == "name" and _text(self._tokens, self._position - 2) not in (".", ".?"):
                self._read_chain(token)
            elif token.text in ("]", ")") and _text(self._tokens, self._position) == ".":
                self._follow(None)  # of a list that stands there, or of what was called

    def _read_chain(self, first: Token) -> None:
        following = _text(self._tokens, self._position)
        if following == "(":
            self._expect_callable(first.text, first.start + len(first.text))
            return
        if first.text in _NAMESPACES and following == ".":
            name = f"{first.text}.{_text(self._tokens, self._position + 1)}"
            self._expect_callable(name, self._tokens[self._position].start)
            self._position += 2
            return
        if first.text not in _VARIABLES and first.text not in self._known:
            raise self._error(first.start, f"undeclared reference to '{first.text}' (in container '')")
        node = self._follow(self._known.get(first.text))
        self._expect_comparable(node)
        is_whole = self._position == len(self._tokens) and first is self._tokens[0]
        if is_whole and node is not None and _cel_type(node) not in (None, self._result):
            raise ExpressionError(f"cel expression must evaluate to a {self._result}")

    def _follow(self, node: Node | None) -> Node | None:
        while True:
            mark = _text(self._tokens, self._position)
            if mark in (".", ".?"):
                selected = self._tokens[self._position + 1] if self._position + 1 < len(self._tokens) else None
                if selected is None or selected.kind != "name":
                    return None
                if _text(self._tokens, self._position + 2) == "(":
                    self._read_call(selected, node)
                    return None
                node = self._select(node, selected.text, self._tokens[self._position].start)
                self._position += 2
                if mark == ".?":
                    return None
            elif mark == "[":
                closing = _closing(self._tokens, self._position)
                self._position += 1
                self._read_until(closing)
                node, self._position = node and (node.items or node.additional), closing + 1
            else:
                return node

    def _read_call(self, method: Token, node: Node | None) -> None:
        dot = self._tokens[self._position].start
        self._position += 3
        if method.text in _MACROS:
            variable = self._tokens[self._position] if self._position < len(self._tokens) else None
            if variable is not None and _text(self._tokens, self._position + 1) == ",":
                self._known[variable.text] = node.items if node is not None else None
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

    def _select(self, node: Node | None, name: str, place: int) -> Node | None:
        if node is None or node.additional is not None:
            return node.additional if node is not None else None
        for property_name, child in node.properties.items():
            if escaped(property_name) == name:
                return child
        if name in ("apiVersion", "kind", "metadata", "name", "generateName") or _cel_type(node) is None:
            return None
        raise self._error(place, f"undefined field '{name}'")

    def _expect_callable(self, name: str, place: int) -> None:
        if name not in _CALLABLE and name.rpartition(".")[2] not in _CALLABLE:
            raise self._error(place, f"undeclared reference to '{name}' (in container '')")

    def _expect_comparable(self, node: Node | None) -> None:
        operator, literal = (self._tokens[at] if at < len(self._tokens) else None for at in (self._position, self._position + 1))
        if node is None or operator is None or literal is None or operator.text not in ("==", "!="):
            return
        left, right = _cel_type(node), _literal_type(literal)
        if _text(self._tokens, self._position + 2) in ("", "&&", "||", ")") and left in _CEL_TYPES.values() and right not in (None, left):
            raise self._error(operator.start, f"found no matching overload for '_{operator.text}_' applied to '({left}, {right})'")

    def _error(self, place: int, words: str) -> ExpressionError:
        before = self._expression[:place]
        line = before.count("\n")
        column = place - (before.rfind("\n") + 1)
        text = self._expression.split("\n")[line]
        return ExpressionError(f"compilation failed: ERROR: <input>:{line + 1}:{column + 1}: {words}\n | {text}\n | {'.' * column}^")


def _cel_type(node: Node) -> str | None:
    """None: anything is possible."""
    if node.schema.get("x-kubernetes-int-or-string"):
        return None
    if node.schema.get("format") in ("date", "date-time", "datetime", "duration", "byte"):
        return "time"
    return _CEL_TYPES.get(node.schema.get("type", ""), node.schema.get("type"))


def _literal_type(token: Token) -> str | None:
    if token.kind == "string":
        return "string"
    if token.kind == "number":
        return "double" if "." in token.text else "uint" if token.text.endswith("u") else "int"
    return "bool" if token.text in ("true", "false") else None


def _text(tokens: list[Token], position: int) -> str:
    return tokens[position].text if 0 <= position < len(tokens) else ""


def _start(tokens: list[Token], position: int, expression: str) -> int:
    return tokens[position].start if position < len(tokens) else len(expression)


def _closing(tokens: list[Token], opening: int) -> int:
    depth = 0
    for position in range(opening, len(tokens)):
        depth += {"[": 1, "[?": 1, "]": -1}.get(tokens[position].text, 0)
        if depth == 0:
            return position
    return len(tokens) - 1
