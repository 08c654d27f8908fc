"""Which pod is which replica's: by its name, or by its labels where somebody else has named it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from dlop.kube.objects import Pod

Replica = TypeVar("Replica")


def by_replica(pods: Iterable[Pod], names: Mapping[str, Replica], labels: Callable[[Replica], Mapping[str, str]]) -> dict[str, Pod]:
    """Pods by the names that the pods of their replicas are to have; one that is nobody's keeps its own.

    `names` are the replicas by these names, `labels` tells one of them from all others. A pod of another name that bears them is
    that replica's too, unless there is one of the right name.
    """
    found = {pod.metadata.name: pod for pod in pods}
    if found.keys() <= names.keys():
        return found  # as nearly always
    vacant = {frozenset(labels(replica).items()): name for name, replica in names.items() if name not in found}
    kinds = {frozenset(label for label, _ in marks) for marks in vacant}
    return {name if name in names else _claimed(pod, vacant, kinds): pod for name, pod in found.items()}


def _claimed(pod: Pod, vacant: dict[frozenset[tuple[str, str]], str], kinds: Iterable[frozenset[str]]) -> str:
    """The name of the replica that a pod is by its labels. No other pod is that one then."""
    return next((vacant.pop(marks) for marks in _marks(pod, kinds) if marks in vacant), pod.metadata.name)


def _marks(pod: Pod, kinds: Iterable[frozenset[str]]) -> Iterator[frozenset[tuple[str, str]]]:
    labels = pod.metadata.labels
    for kind in kinds:
        yield frozenset((label, labels[label]) for label in kind if label in labels)
