"""The output of `dlop describe`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from dlop.api.record import describe_failure
from dlop.console.duration import format_duration, format_elapsed, format_until
from dlop.console.tables import duration, format_table, replicas_table
from dlop.jobs.history import JOB, HistoryEntry, HistoryGroup, group_history
from dlop.jobs.log_lines import LogLine
from dlop.jobs.view import JobView, RoleView

if TYPE_CHECKING:
    from dlop.jobs.crons import JobCronView
    from dlop.jobs.tensorboard import TensorBoardView

HEADING = "heading"
PLAIN = "plain"
WARNING = "warning"

Line = tuple[str, str]
"""Style and text."""

_MAX_HISTORY = 200


def render_page(
    view: JobView,
    *,
    cron: JobCronView | None = None,
    tensorboard: TensorBoardView | None = None,
    log_tail: Sequence[LogLine] = (),
    now: float,
) -> list[Line]:
    """`log_tail` is the end of the failed replica's log."""
    return [
        *_facts(view, cron, now=now),
        *_section("Waiting", [(WARNING, sentence) for sentence in view.pending_reasons]),
        *_section("Last failure", _failure(view, log_tail)),
        *_section("Replicas", [(PLAIN, line) for line in format_table(replicas_table(view))] if view.replicas else []),
        *_section("TensorBoard", [] if tensorboard is None else _tensorboard(tensorboard, now=now)),
        *_section("History", list(_history(view.history, now=now))),
    ]


def _facts(view: JobView, cron: JobCronView | None, *, now: float) -> Iterator[Line]:
    yield HEADING, f"{view.kind} {view.name}"
    roles = ", ".join(map(_describe_role, view.roles))
    facts = {
        "Kind": f"{view.api_version} {view.kind}",
        "Namespace": view.namespace,
        "Phase": f"{view.phase} (terminating)" if view.is_terminating else view.phase,
        "Message": view.message,
        "Roles": roles,
        "Spot": "; ".join(_describe_spot(role) for role in view.roles if role.spot_replicas or role.spot_disruptions),
        "Code": "; ".join(view.code),
        "Progress": _progress(view),
        "Cron": "" if cron is None else _describe_cron(cron, now=now),
        "Created": _format_time(view.created_at, now=now),
        "Started": _format_time(view.started_at, now=now),
        "Finished": _format_time(view.finished_at, now=now),
        "Duration": duration(view, now=now),
        "Attempt": str(view.attempt + 1) if view.attempt else "",
        "Restarts": _format_counts_by_role(view.restarts, {role.name: role.restarts for role in view.roles}),
        "Disruptions": _format_counts_by_role(view.disruptions, {role.name: role.disruptions for role in view.roles}),
    }
    yield from ((PLAIN, f"  {line}") for line in format_facts(facts))


def format_facts(facts: Mapping[str, str]) -> Iterator[str]:
    """One line for each value that is not empty."""
    return (f"{name + ':':<13} {value}" for name, value in facts.items() if value)


def _describe_cron(cron: JobCronView, *, now: float) -> str:
    scheduled = f" for {cron.scheduled_at}" if cron.scheduled_at else ""
    origin = f"{cron.name} ({f'created this job{scheduled}' if cron.has_created_job else 'from cronPolicy'})"
    if cron.is_suspended:
        return f"{origin}; suspended"
    next_run = cron.next_scheduled_at and f"next run {cron.next_scheduled_at} ({format_until(cron.next_scheduled_at, now=now)})"
    return "; ".join(filter(None, (origin, cron.problem, next_run))) if cron.problem or next_run else f"{origin}; no next run"


def _tensorboard(view: TensorBoardView, *, now: float) -> Iterator[Line]:
    end = "the end of the job" if view.ttl_seconds == 0 else f"{format_duration(view.ttl_seconds)} after the end of the job"
    facts = {
        "State": "ready" if view.is_ready else f"not ready: {view.message}",
        "Pod": view.pod,
        "Open": view.command,
        "Address": f"{view.address}{f' ({view.ingress_problem})' if view.ingress_problem else ''}",
        "Kept until": f"{view.deleted_at} ({format_until(view.deleted_at, now=now)})" if view.deleted_at else end,
    }
    return ((PLAIN, line) for line in format_facts(facts))


def _describe_role(role: RoleView) -> str:
    limits = f" ({role.minimum} to {role.maximum})" if role.minimum < role.maximum else ""
    return f"{role.desired} {role.name}{limits}"


def _describe_spot(role: RoleView) -> str:
    count, disruptions = role.spot_replicas, role.spot_disruptions
    text = f"{count} {role.name}, {disruptions} disruption{'' if disruptions == 1 else 's'}"
    return f"{text}, now created on demand" if role.is_on_demand else text


def _progress(view: JobView) -> str:
    summaries = []
    for role in view.roles:
        counts = {"running": role.running, "succeeded": role.succeeded, "failed": role.failed, "waiting": role.pending}
        counts_text = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        summaries.append(f"{role.name}: {counts_text or 'none'}")
    return "; ".join(summaries)


def _format_counts_by_role(total: int, by_role: dict[str, int]) -> str:
    counts = ", ".join(f"{name} {count}" for name, count in by_role.items() if count)
    return f"{total} ({counts})" if total and counts else str(total) if total else ""


def _format_time(time: str, *, now: float) -> str:
    return f"{time} ({format_elapsed(time, None, now=now)} ago)" if time else ""


def _failure(view: JobView, log_tail: Sequence[LogLine]) -> list[Line]:
    failure = view.last_failure
    if failure is None:
        return []
    signal = f", signal {failure.signal}" if failure.signal else ""
    lines = [(WARNING, f"{describe_failure(failure)}{signal}{f', at {failure.time}' if failure.time else ''}")]
    log_lines = [line for line in log_tail if not line.is_note]
    notes = [line for line in log_tail if line.is_note]
    if log_lines:
        lines.append((PLAIN, f"the last {len(log_lines)} lines of its log:" if len(log_lines) > 1 else "the last line of its log:"))
        lines += [(PLAIN, f"    {line.text}") for line in log_lines]
    lines += [(PLAIN, f"({line.pod}: {line.text})") for line in notes]
    return lines


def _history(entries: Sequence[HistoryEntry], *, now: float) -> Iterator[Line]:
    groups = group_history(entries)
    omitted = len(groups) - _MAX_HISTORY
    if omitted > 0:
        yield PLAIN, f"({omitted} earlier entries omitted)"
    for group in groups[-_MAX_HISTORY:]:
        age = format_elapsed(group.at, None, now=now) or "?"
        count = f" ({group.count} times)" if group.count > len(group.subjects) else ""
        text = f"{age + ' ago':<12} {group.reason:<18} {_subject(group)}{' '.join(group.message.split())}{count}"
        yield (WARNING if group.is_warning else PLAIN), text.rstrip()


def _subject(group: HistoryGroup) -> str:
    if len(group.subjects) > 1:
        return f"{len(group.subjects)} pods: "
    return "" if group.subjects[0] == JOB else f"{group.subjects[0]}: "


def _section(title: str, lines: Iterable[Line]) -> list[Line]:
    content = list(lines)
    return [(PLAIN, ""), (HEADING, title), *((style, f"  {text}".rstrip()) for style, text in content)] if content else []
