"""The page on one job: what it is, what happened in order, what it waits for and why, how it failed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dlop.api.record import describe_failure
from dlop.console.duration import between
from dlop.console.tables import duration, plain_lines, replicas_table
from dlop.jobs.history import Happening
from dlop.jobs.log_lines import LogLine
from dlop.jobs.view import JobView

HEADING = "heading"
PLAIN = "plain"
WARNING = "warning"

Line = tuple[str, str]
"""A style and a text."""

_MOST_HAPPENINGS = 200


def page(view: JobView, *, log_tail: Sequence[LogLine] = (), now: float) -> list[Line]:
    """All lines of the page. `log_tail` is the end of the log of the replica that failed."""
    return [
        *_facts(view, now=now),
        *_section("Waits for", [(WARNING, sentence) for sentence in view.waits_for]),
        *_section("Last failure", _failure(view, log_tail)),
        *_section("Replicas", [(PLAIN, line) for line in plain_lines(replicas_table(view))] if view.replicas else []),
        *_section("History", list(_history(view.history, now=now))),
    ]


def _facts(view: JobView, *, now: float) -> Iterator[Line]:
    yield HEADING, f"{view.kind} {view.name}"
    roles = ", ".join(f"{role.wanted} {role.name}" for role in view.roles)
    facts = {
        "Kind": f"{view.api_version} {view.kind}",
        "Namespace": view.namespace,
        "Phase": f"{view.phase}, being deleted" if view.is_leaving else view.phase,
        "Message": view.message,
        "Roles": roles,
        "Progress": _progress(view),
        "Created": _ago(view.created_at, now=now),
        "Started": _ago(view.started_at, now=now),
        "Finished": _ago(view.finished_at, now=now),
        "Duration": duration(view, now=now),
        "Attempt": str(view.attempt + 1) if view.attempt else "",
        "Restarts": _counted(view.restarts, {role.name: role.restarts for role in view.roles}),
        "Disruptions": _counted(view.disruptions, {role.name: role.disruptions for role in view.roles}),
    }
    yield from ((PLAIN, f"  {name + ':':<13} {value}") for name, value in facts.items() if value)


def _progress(view: JobView) -> str:
    parts = []
    for role in view.roles:
        counts = {"running": role.running, "succeeded": role.succeeded, "failed": role.failed, "waiting": role.pending}
        said = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        parts.append(f"{role.name}: {said or 'none'}")
    return "; ".join(parts)


def _counted(total: int, by_role: dict[str, int]) -> str:
    said = ", ".join(f"{name} {count}" for name, count in by_role.items() if count)
    return f"{total} ({said})" if total and said else str(total) if total else ""


def _ago(moment: str, *, now: float) -> str:
    return f"{moment} ({between(moment, None, now=now)} ago)" if moment else ""


def _failure(view: JobView, log_tail: Sequence[LogLine]) -> list[Line]:
    failure = view.last_failure
    if failure is None:
        return []
    signal = f", signal {failure.signal}" if failure.signal else ""
    lines = [(WARNING, f"{describe_failure(failure)}{signal}{f', at {failure.time}' if failure.time else ''}")]
    written = [line for line in log_tail if not line.is_note]
    notes = [line for line in log_tail if line.is_note]
    if written:
        lines.append((PLAIN, f"the last {len(written)} lines of its log:" if len(written) > 1 else "the last line of its log:"))
        lines += [(PLAIN, f"    {line.text}") for line in written]
    lines += [(PLAIN, f"({line.pod}: {line.text})") for line in notes]
    return lines


def _history(happenings: Sequence[Happening], *, now: float) -> Iterator[Line]:
    left_out = len(happenings) - _MOST_HAPPENINGS
    if left_out > 0:
        yield PLAIN, f"({left_out} earlier ones are left out)"
    for each in happenings[-_MOST_HAPPENINGS:]:
        age = between(each.at, None, now=now) or "?"
        times = f" ({each.times} times)" if each.times > 1 else ""
        subject = "" if each.subject == "job" else f"{each.subject}: "
        text = f"{age + ' ago':<12} {each.reason:<18} {subject}{' '.join(each.message.split())}{times}"
        yield (WARNING if each.is_warning else PLAIN), text.rstrip()


def _section(title: str, lines: Iterable[Line]) -> list[Line]:
    found = list(lines)
    return [(PLAIN, ""), (HEADING, title), *((style, f"  {text}".rstrip()) for style, text in found)] if found else []
