"""Tables as plain data, drawn by rich on a terminal and in aligned columns elsewhere.

Jobs and replicas as tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlop.api.phase import Phase
from dlop.console.duration import between
from dlop.jobs.view import JobView, RoleView

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


def jobs_table(views: Sequence[JobView], *, now: float, with_namespace: bool = False) -> Table:
    """One row a job, whatever its kind. The group of a kind shows where another one has the same name."""
    headers = ("NAME", "KIND", "PHASE", "REPLICAS", "RESTARTS", "AGE", "DURATION", "WAITS FOR")
    kinds = {view.kind: {each.api_version for each in views if each.kind == view.kind} for view in views}
    rows = [_job_row(view, now=now, with_group=len(kinds[view.kind]) > 1) for view in views]
    if not with_namespace:
        return Table(headers, tuple(rows))
    return Table(("NAMESPACE", *headers), tuple((view.namespace, *row) for view, row in zip(views, rows, strict=True)))


def _job_row(view: JobView, *, now: float, with_group: bool) -> tuple[str, ...]:
    return (
        view.name,
        f"{view.kind}.{view.api_version.partition('/')[0]}" if with_group else view.kind,
        "Terminating" if view.is_leaving else view.phase,
        " ".join(role_summary(role) for role in view.roles),
        str(view.restarts) if not view.disruptions else f"{view.restarts}+{view.disruptions}",
        between(view.created_at, None, now=now),
        duration(view, now=now),
        view.waits_for[0] if view.waits_for else "",
    )


def duration(view: JobView, *, now: float) -> str:
    """How long it took, or takes; empty for a suspended job: nothing of it runs, and it starts anew when it goes on."""
    return "" if view.phase == Phase.SUSPENDED else between(view.started_at, view.finished_at, now=now)


def role_summary(role: RoleView) -> str:
    """`Worker 2/3`: how many run or are done, of how many that there are to be."""
    return f"{role.name} {role.running + role.succeeded}/{role.wanted}"


def replicas_table(view: JobView) -> Table:
    """One row a replica."""
    headers = ("ROLE", "INDEX", "STATE", "RESTARTS", "ADDRESS", "EXIT CODE", "NODE", "POD", "REASON")
    rows = tuple(
        (
            each.role,
            str(each.index) if each.index >= 0 else "",
            each.state,
            str(each.restarts),
            each.address,
            "" if each.exit_code is None else str(each.exit_code),
            each.node,
            each.pod,
            each.reason,
        )
        for each in view.replicas
    )
    return Table(headers, rows)
