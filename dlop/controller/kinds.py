"""Managed kinds, and the keys of jobs in the work queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from dlop.api.cron import CRONS
from dlop.job import DLJob
from dlop.kube.cache import CacheChange
from dlop.kube.objects import CustomObject, OwnerReference
from dlop.kube.resources import Resource
from dlop.policies.members import Members


class JobKey(NamedTuple):
    """Key of a job in the work queue."""

    resource: Resource
    namespace: str
    name: str

    def is_referenced_by(self, owner: OwnerReference) -> bool:
        """Whether an owner reference names this job or an earlier job of the same name."""
        group = owner.api_version.rpartition("/")[0]
        return (group, owner.kind, owner.name) == (self.resource.group, self.resource.kind, self.name)


_CRON_POLICY = b'"cronPolicy"'


def cron_key(job_object: CustomObject) -> JobKey | None:
    """The key of the Cron that a job asks for; None for a job without a `cronPolicy`, and for one that a Cron has created.

    Does not parse the spec.
    """
    owner = job_object.metadata.controller
    if _CRON_POLICY not in bytes(job_object.spec) or (owner is not None and owner.kind == CRONS.kind):
        return None
    return JobKey(CRONS, job_object.metadata.namespace, job_object.metadata.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedKind:
    resource: Resource
    make_job: Callable[[CustomObject], DLJob] | None
    """Makes a job from a cached object. Never raises because of user input. None for Crons, which create jobs and are not jobs."""
    child_resources: tuple[Resource, ...] = ()
    """Resources of children other than pods and services. They are watched by the label JOB_UID_LABEL."""
    ephemeral_resources: tuple[Resource, ...] = ()
    """Subset of `child_resources` that is deleted before the job. Watched without a label selector, because objects that
    another operator created do not have the label."""
    read_only_resources: tuple[Resource, ...] = ()
    """Resources that jobs read and do not own. Jobs run without them where the operator cannot read them."""
    on_demand_resources: tuple[Resource, ...] = ()
    """Resources that are watched from the first job on that needs them: some of `child_resources`, and `resources_read_for_children`."""
    resources_read_for_children: tuple[Resource, ...] = ()
    """Resources that jobs do not own, and without which some of their children cannot be created."""
    legacy_resources: tuple[Resource, ...] = ()
    """Resources of children left over from an earlier configuration of the operator. They are only deleted, and only
    where the operator can read them."""
    members: Members[Any] | None = None
    """Pods that the masters of jobs manage, and their scale plans."""
    job_handlers: tuple[Callable[[CacheChange[CustomObject]], None], ...] = ()
    """Are called with every change of a cached job, and when the kind is no longer served."""
    metric_label: str = ""
    """Value of the `framework` label of the Kubeflow-compatible counters; empty leaves the kind out of them."""

    @property
    def plan_resources(self) -> tuple[Resource, ...]:
        """The resource of scale plans; empty if the kind has none."""
        return () if self.members is None else (self.members.plan_type.resource,)

    @property
    def needed_resources(self) -> tuple[Resource, ...]:
        """Resources that jobs may need. A job that does is blocked where the operator cannot read them."""
        return self.child_resources + self.resources_read_for_children + self.plan_resources

    @property
    def extra_resources(self) -> tuple[Resource, ...]:
        """All resources to watch from the start, in addition to pods, services and the jobs themselves."""
        needed = tuple(resource for resource in self.needed_resources if resource not in self.on_demand_resources)
        return needed + self.read_only_resources


class ManagedKinds:
    """The kinds whose controllers are running."""

    def __init__(self) -> None:
        self._by_resource: dict[Resource, ManagedKind] = {}
        self._by_group_and_kind: dict[tuple[str, str], ManagedKind] = {}
        self.metric_labels: dict[str, str] = {}
        """Framework labels by qualified resource name. Entries outlive their kind, because counters must not disappear."""

    def add(self, kind: ManagedKind) -> None:
        self._by_resource[kind.resource] = kind
        self._by_group_and_kind[kind.resource.group, kind.resource.kind] = kind
        if kind.metric_label:
            self.metric_labels[kind.resource.qualified_name] = kind.metric_label

    def remove(self, kind: ManagedKind) -> None:
        self._by_resource.pop(kind.resource, None)
        self._by_group_and_kind.pop((kind.resource.group, kind.resource.kind), None)

    def __iter__(self) -> Iterator[ManagedKind]:
        return iter(tuple(self._by_resource.values()))

    def by_resource(self, resource: Resource) -> ManagedKind | None:
        return self._by_resource.get(resource)

    def by_owner(self, *, api_version: str, kind: str) -> ManagedKind | None:
        """The kind that an owner reference names, in any version of its group."""
        return self._by_group_and_kind.get((api_version.rpartition("/")[0], kind))
