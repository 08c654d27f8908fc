"""Output to a terminal with colors, or to a pipe or file as plain text."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from dlop.console.describe_page import HEADING, WARNING, Line
from dlop.console.tables import Table, format_table, rich_table

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {HEADING: "bold", WARNING: "yellow"}


class Output:
    """An output stream. `rich` is imported only for a terminal, because the import is slow."""

    def __init__(self, stream: TextIO | None = None, *, is_terminal: bool | None = None) -> None:
        self.stream = sys.stdout if stream is None else stream
        self.is_terminal = self.stream.isatty() if is_terminal is None else is_terminal
        self._console: Console | None = None

    @property
    def console(self) -> Console:
        """The rich console. It respects NO_COLOR and TERM."""
        if self._console is None:
            from rich.console import Console  # noqa: PLC0415

            self._console = Console(file=self.stream, force_terminal=self.is_terminal or None, highlight=False)
        return self._console

    def line(self, text: str, *, style: str = "") -> None:
        """Print one line without interpreting markup. The style applies to terminals only."""
        if self.is_terminal and style:
            self.console.print(text, style=style, markup=False, soft_wrap=True)
        else:
            self.stream.write(f"{text}\n")
            self.stream.flush()

    def lines(self, lines: Iterable[Line]) -> None:
        for style, text in lines:
            self.line(text, style=_STYLES.get(style, ""))

    def table(self, table: Table) -> None:
        if self.is_terminal:
            self.console.print(rich_table(table))
        else:
            for line in format_table(table):
                self.line(line)

    def json(self, value: Any, *, on_one_line: bool = False) -> None:
        data = msgspec.json.encode(value)
        self.line((data if on_one_line else msgspec.json.format(data)).decode())
