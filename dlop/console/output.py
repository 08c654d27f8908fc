"""Where output goes: a terminal, which gets colours and live tables, or a pipe or a file, which get plain lines."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from dlop.console.describe_page import HEADING, WARNING, Line
from dlop.console.tables import Table, plain_lines, rich_table

if TYPE_CHECKING:
    from rich.console import Console

_STYLES = {HEADING: "bold", WARNING: "yellow"}


class Screen:
    """One place to write to. `rich` is imported only for a terminal."""

    def __init__(self, stream: TextIO | None = None, *, is_terminal: bool | None = None) -> None:
        self.stream = sys.stdout if stream is None else stream
        self.is_terminal = self.stream.isatty() if is_terminal is None else is_terminal
        self._console: Console | None = None

    @property
    def console(self) -> Console:
        """What draws on the terminal. It minds NO_COLOR and TERM."""
        if self._console is None:
            from rich.console import Console  # noqa: PLC0415

            self._console = Console(file=self.stream, force_terminal=self.is_terminal or None, highlight=False)
        return self._console

    def line(self, text: str, *, style: str = "") -> None:
        """One line; a style shows on a terminal only. Nothing in the text is taken for markup."""
        if self.is_terminal and style:
            self.console.print(text, style=style, markup=False, soft_wrap=True)
        else:
            self.stream.write(f"{text}\n")
            self.stream.flush()

    def lines(self, lines: Iterable[Line]) -> None:
        """The lines of a page."""
        for style, text in lines:
            self.line(text, style=_STYLES.get(style, ""))

    def table(self, table: Table) -> None:
        """A table."""
        if self.is_terminal:
            self.console.print(rich_table(table))
        else:
            for line in plain_lines(table):
                self.line(line)

    def json(self, value: Any, *, on_one_line: bool = False) -> None:
        """A value for machines: moments and names as Kubernetes writes them."""
        data = msgspec.json.encode(value)
        self.line((data if on_one_line else msgspec.json.format(data)).decode())
