"""What the loop needs to know of a kind of job, and of one job. `dlop.job.DLJob` is behind both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from dlop.job import DLJob
from dlop.kube.objects import CustomObject, OwnerReference
from dlop.kube.resources import Resource


class JobKey(NamedTuple):
    """Which job to look at: the key of the work queue."""

    resource: Resource
    namespace: str
    name: str

    def is_named_by(self, owner: OwnerReference) -> bool:
        """Whether an owner reference names this job, or one that had its name before."""
        group = owner.api_version.rpartition("/")[0]
        return (group, owner.kind, owner.name) == (self.resource.group, self.resource.kind, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedKind:
    """One kind of job."""

    resource: Resource
    make_job: Callable[[CustomObject], DLJob]
    """Makes a job of what the cache holds. Never fails because of what a user wrote."""
    other_resources: tuple[Resource, ...] = ()
    """What its jobs own besides pods and services. Such objects bear the label JOB_UID_LABEL, by which they are watched."""
    passing_resources: tuple[Resource, ...] = ()
    """Those of these that go before the job does. They are watched whoever made them: another operator puts no label on them."""
    seen_resources: tuple[Resource, ...] = ()
    """What its jobs look at and do not own. Where it cannot be read they go on without."""
    former_resources: tuple[Resource, ...] = ()
    """What its jobs may own from a time when the operator was set up otherwise. It is looked for where it can be read, and only goes."""
    framework_label: str = ""
    """Under which name the counters of Kubeflow's operator count its jobs; empty: they do not."""

    @property
    def all_others(self) -> tuple[Resource, ...]:
        """Whatever has to be known besides pods, services and the jobs themselves."""
        return self.other_resources + self.seen_resources


class ManagedKinds:
    """The kinds that are looked after now."""

    def __init__(self) -> None:
        self._by_resource: dict[Resource, ManagedKind] = {}
        self._by_group_and_kind: dict[tuple[str, str], ManagedKind] = {}
        self.framework_labels: dict[str, str] = {}
        """By the name of the resource. What was counted stays counted when a kind is looked after no more."""

    def add(self, kind: ManagedKind) -> None:
        """Look after this kind from now on."""
        self._by_resource[kind.resource] = kind
        self._by_group_and_kind[kind.resource.group, kind.resource.kind] = kind
        if kind.framework_label:
            self.framework_labels[kind.resource.qualified_name] = kind.framework_label

    def remove(self, kind: ManagedKind) -> None:
        """Look after this kind no more."""
        self._by_resource.pop(kind.resource, None)
        self._by_group_and_kind.pop((kind.resource.group, kind.resource.kind), None)

    def of_resource(self, resource: Resource) -> ManagedKind | None:
        """The kind whose objects are this resource."""
        return self._by_resource.get(resource)

    def of_owner(self, *, api_version: str, kind: str) -> ManagedKind | None:
        """The kind that an owner reference names, whatever version it was written with."""
        return self._by_group_and_kind.get((api_version.rpartition("/")[0], kind))
