"""Tables as plain data, drawn by rich on a terminal and in aligned columns elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table as RichTable

_GAP = "   "
STYLES = {
    "Running": "cyan",
    "Succeeded": "green",
    "Failed": "bold red",
    "Invalid": "bold red",
    "Disrupted": "yellow",
    "Restarting": "yellow",
    "Terminating": "yellow",
    "Suspended": "magenta",
    "Pending": "yellow",
    "Missing": "dim",
    "Gone": "dim",
    "Unseen": "dim",
}
"""How phases and states are coloured."""


@dataclass(frozen=True, slots=True)
class Table:
    """Headers, and rows of as many texts."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def plain_lines(table: Table) -> list[str]:
    """Columns that scripts can cut: no lines, no colours, and a dash where nothing is known."""
    rows = [table.headers, *(tuple(_cell(cell) for cell in row) for row in table.rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(table.headers))]
    return [_GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def rich_table(table: Table) -> RichTable:
    """The same for a terminal."""
    from rich.table import Table as RichTable  # noqa: PLC0415

    drawn = RichTable(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for header in table.headers:
        drawn.add_column(header, overflow="fold")
    for row in table.rows:
        drawn.add_row(*_coloured(row))
    return drawn


def _coloured(row: Sequence[str]) -> list[str]:
    from rich.markup import escape  # noqa: PLC0415

    return [f"[{STYLES[cell]}]{escape(cell)}[/]" if cell in STYLES else escape(_cell(cell)) for cell in row]


def _cell(text: str) -> str:
    return " ".join(text.split()) or "-"
