"""How Crons look in a terminal: a table, and the output of `dlop describe`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dlop.console.describe_page import HEADING, PLAIN, WARNING, Line, format_facts
from dlop.console.duration import format_elapsed, format_until
from dlop.console.tables import Table, format_table, shorten
from dlop.jobs.crons import CronView

_REASON_WIDTH = 60


def crons_table(views: Sequence[CronView], *, now: float, with_namespace: bool = False) -> Table:
    """One row per Cron."""
    headers = ("NAME", "KIND", "SCHEDULE", "ACTIVE", "LAST RUN", "NEXT RUN", "AGE", "REASON")
    rows = [_row(view, now=now) for view in views]
    if not with_namespace:
        return Table(headers, tuple(rows))
    return Table(("NAMESPACE", *headers), tuple((view.namespace, *row) for view, row in zip(views, rows, strict=True)))


def _row(view: CronView, *, now: float) -> tuple[str, ...]:
    last = format_elapsed(view.last_scheduled_at, None, now=now)
    return (
        view.name,
        "Cron",
        f"{view.schedule} {view.time_zone}".strip(),
        str(len(view.active)),
        f"{last} ago" if last else "",
        "Suspended" if view.is_suspended else format_until(view.next_scheduled_at, now=now),
        format_elapsed(view.created_at, None, now=now),
        shorten(view.problem, _REASON_WIDTH),
    )


def render_cron_page(view: CronView, *, now: float) -> list[Line]:
    """The output of `dlop describe` for a Cron."""
    lines = [*_facts(view, now=now)]
    if view.problem:
        lines += [(PLAIN, ""), (HEADING, "Waiting"), (WARNING, f"  {view.problem}")]
    if view.history:
        rows = tuple((entry.job, entry.status, entry.created, entry.finished) for entry in view.history)
        table = format_table(Table(("JOB", "STATUS", "CREATED", "FINISHED"), rows))
        lines += [(PLAIN, ""), (HEADING, "Jobs"), *((PLAIN, f"  {line}") for line in table)]
    return lines


def _facts(view: CronView, *, now: float) -> Iterator[Line]:
    yield HEADING, f"Cron {view.name}"
    next_run = (
        "suspended"
        if view.is_suspended
        else view.next_scheduled_at and f"{view.next_scheduled_at} ({format_until(view.next_scheduled_at, now=now)})"
    )
    last_run = view.last_scheduled_at and f"{view.last_scheduled_at} ({format_elapsed(view.last_scheduled_at, None, now=now)} ago)"
    facts = {
        "Namespace": view.namespace,
        "Creates": view.job_kind,
        "Schedule": f"{view.schedule} {view.time_zone or 'UTC'}",
        "Concurrency": view.concurrency_policy,
        "Deadline": view.deadline,
        "Created": view.created_at,
        "Last run": last_run,
        "Next run": next_run or "none",
        "Active": ", ".join(view.active) or "none",
    }
    yield from ((PLAIN, f"  {line}") for line in format_facts(facts))
