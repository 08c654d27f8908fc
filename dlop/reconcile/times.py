"""Moments as Kubernetes writes them, and as the engine reckons with them: seconds since the epoch."""

from __future__ import annotations

from datetime import datetime

from dlop.kube.timestamps import to_the_second


def written(moment: float) -> str:
    """A moment as text, to the second, which is as fine as Kubernetes writes it."""
    return to_the_second(moment)


def read(text: object) -> float | None:
    """The moment that a text tells; None when it tells none."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.timestamp() if moment.tzinfo is not None else None


def earliest(*moments: float | None) -> float | None:
    """The first of these moments, leaving out those that never come."""
    return min((moment for moment in moments if moment is not None), default=None)
