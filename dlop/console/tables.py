"""Tables of jobs and replicas, drawn by rich on a terminal and as aligned columns elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlop.api.phase import Phase
from dlop.console.duration import format_elapsed
from dlop.jobs.view import JobView, RoleView

if TYPE_CHECKING:
    from rich.table import Table as RichTable

_GAP = "   "
_REASON_WIDTH = 60
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
    "NotReconciled": "dim",
}
"""Styles of phases and replica states."""


@dataclass(frozen=True, slots=True)
class Table:
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def format_table(table: Table) -> list[str]:
    """Aligned columns without lines and colors. An empty cell is a dash."""
    rows = [table.headers, *(tuple(_cell(cell) for cell in row) for row in table.rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(table.headers))]
    return [_GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def rich_table(table: Table) -> RichTable:
    from rich.table import Table as RichTable  # noqa: PLC0415

    result = RichTable(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for header in table.headers:
        result.add_column(header, overflow="fold")
    for row in table.rows:
        result.add_row(*_styled_cells(row))
    return result


def _styled_cells(row: Sequence[str]) -> list[str]:
    from rich.markup import escape  # noqa: PLC0415

    return [f"[{STYLES[cell]}]{escape(cell)}[/]" if cell in STYLES else escape(_cell(cell)) for cell in row]


def _cell(text: str) -> str:
    return " ".join(text.split()) or "-"


def jobs_table(views: Sequence[JobView], *, now: float, with_namespace: bool = False) -> Table:
    """One row per job of any kind. The kind includes its group if several groups have it."""
    headers = ("NAME", "KIND", "PHASE", "REPLICAS", "RESTARTS", "AGE", "DURATION", "REASON")
    versions = {view.kind: {other.api_version for other in views if other.kind == view.kind} for view in views}
    rows = [_job_row(view, now=now, with_group=len(versions[view.kind]) > 1) for view in views]
    if not with_namespace:
        return Table(headers, tuple(rows))
    return Table(("NAMESPACE", *headers), tuple((view.namespace, *row) for view, row in zip(views, rows, strict=True)))


def _job_row(view: JobView, *, now: float, with_group: bool) -> tuple[str, ...]:
    return (
        view.name,
        f"{view.kind}.{view.api_version.partition('/')[0]}" if with_group else view.kind,
        "Terminating" if view.is_terminating else view.phase,
        " ".join(role_summary(role) for role in view.roles),
        str(view.restarts) if not view.disruptions else f"{view.restarts}+{view.disruptions}",
        format_elapsed(view.created_at, None, now=now),
        duration(view, now=now),
        shorten(view.pending_reason, _REASON_WIDTH),
    )


def shorten(text: str, width: int) -> str:
    """Cut a text after the last word that fits. `dlop describe` shows the full text."""
    text = " ".join(text.split())
    if len(text) <= width:
        return text
    return f"{text[: width - 3].rsplit(' ', 1)[0].rstrip(' ,;:')}..."


def duration(view: JobView, *, now: float) -> str:
    """Empty for a suspended job, whose start time is reset when it is resumed."""
    return "" if view.phase == Phase.SUSPENDED else format_elapsed(view.started_at, view.finished_at, now=now)


def role_summary(role: RoleView) -> str:
    """`Worker 2/3`: running or succeeded replicas of the desired ones."""
    return f"{role.name} {role.running + role.succeeded}/{role.desired}"


def replicas_table(view: JobView) -> Table:
    """One row per replica."""
    headers = ("ROLE", "INDEX", "STATE", "RESTARTS", "ADDRESS", "EXIT CODE", "NODE", "POD", "REASON")
    rows = tuple(
        (
            replica.role,
            str(replica.index) if replica.index >= 0 else "",
            replica.state,
            str(replica.restarts),
            replica.address,
            "" if replica.exit_code is None else str(replica.exit_code),
            replica.node,
            replica.pod,
            replica.reason,
        )
        for replica in view.replicas
    )
    return Table(headers, rows)
