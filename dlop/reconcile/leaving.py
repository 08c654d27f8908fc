"""Objects on their way out that have a name which the job needs: those of a deleted job of the same name, and its own last group.

Most are gone in a moment. Of one that is not, it is told what holds it, and what to do about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dlop.api.constants import Reason
from dlop.api.record import Blocked
from dlop.kube.resources import PODS, Resource
from dlop.reconcile.context import Case
from dlop.reconcile.snapshot import Leftover
from dlop.reconcile.times import earliest, written

PATIENCE_SECONDS = 30
"""How long something is waited for before anybody is told. Most things take a moment only, and nobody wants to hear of that."""


def left_over(case: Case) -> Iterator[Blocked]:
    """What a deleted job of the same name has left behind, and should be gone by now."""
    for each in _in_the_way(case):
        if case.now >= _told_at(each):
            what = f"{each.resource.kind.lower()} {each.name}"
            message = f"{what} of the deleted {each.owner} {why_still_there(each.resource, each.finalizers, is_leaving=each.is_leaving)}"
            yield Blocked(object=what, reason=Reason.BEING_DELETED, message=message, since=written(case.now))


def told_next(case: Case) -> float | None:
    """When that is to be told."""
    return earliest(*(_told_at(each) for each in _in_the_way(case) if case.now < _told_at(each)))


def why_still_there(resource: Resource, finalizers: Sequence[str], *, is_leaving: bool = True) -> str:
    """What holds an object, and what to do about it, as the rest of a sentence that begins with its name."""
    if not is_leaving:
        return "is still there: delete it, or wait for the garbage collector"
    if finalizers:
        return f"is still being deleted: finalizers {', '.join(finalizers)}; remove them, or wait"
    if resource == PODS:
        return "is still being deleted: its node has not let go of it; delete it by force, or wait"
    return "is still being deleted: wait"


def _in_the_way(case: Case) -> Iterator[Leftover]:
    return (each for each in case.snapshot.leftovers if case.is_asked_for(each.resource, each.name))


def _told_at(leftover: Leftover) -> float:
    return leftover.since + PATIENCE_SECONDS
