"""How a job ended, in one line."""

from __future__ import annotations

from dlop.console.duration import between
from dlop.jobs.view import JobView


def verdict(view: JobView, *, now: float) -> str:
    """What, after how long, why, and the way to the logs."""
    took = between(view.started_at, view.finished_at, now=now)
    text = f"{view.kind} {view.name}: {view.phase}{f' after {took}' if took else ''}"
    if view.has_succeeded:
        return f"{text}."
    why = f": {view.message.rstrip('.')}" if view.message else ""
    return f"{text}{why}. `dlop describe {view.name} -n {view.namespace}` tells more, `dlop logs {view.name} -n {view.namespace}` all."
