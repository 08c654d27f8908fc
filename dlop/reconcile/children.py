"""Other objects that are kept up with their job: a list of the pods that run, the right to reach them.

What they were made of is noted on them as a hash. So nobody has to keep their contents, and one look tells whether they are up to date.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from dlop.api.child_objects import Create
from dlop.api.constants import RENDERED_ANNOTATION
from dlop.api.progress import Progress
from dlop.api.template_hash import read_stamp, stamped_object
from dlop.kube.objects import ObjectMeta
from dlop.kube.types import JsonObject
from dlop.reconcile.context import ReconcileContext
from dlop.reconcile.plan import Patch


def as_of_now(case: ReconcileContext, progress: Progress, creations: Iterable[Create]) -> tuple[Create, ...]:
    """These creations, each as it is to be now."""
    creations = tuple(creations)
    if not creations:
        return creations
    current = {(each.resource, each.name): each for each in _current(case, progress)}
    return tuple(current.get((each.resource, each.name), each) for each in creations)


def to_change(case: ReconcileContext, progress: Progress) -> tuple[Patch, ...]:
    """Objects that are there and would be made of something else now."""
    if not case.snapshot.others:
        return ()
    there = {(resource, found.metadata.name): found.metadata for resource, found in case.snapshot.others}
    kept = ((each, there.get((each.resource, each.name))) for each in _current(case, progress))
    return tuple(Patch(each.resource, found.uid, each.body) for each, found in kept if found is not None and _is_outdated(found, each.body))


def _current(case: ReconcileContext, progress: Progress) -> Iterator[Create]:
    generation = case.job.metadata.generation
    for each in case.job.changing_objects(progress):
        yield replace(each, body=stamped_object(each.body, generation=generation))


def _is_outdated(found: ObjectMeta, body: JsonObject) -> bool:
    """Only the hash counts: a new generation need not make a difference."""
    stamp = found.annotations.get(RENDERED_ANNOTATION, "")
    return found.deletion_timestamp is None and read_stamp(stamp)[1] != read_stamp(body["metadata"]["annotations"][RENDERED_ANNOTATION])[1]
