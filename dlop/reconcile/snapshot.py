"""The input of a pass: the children of one job as the caches show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dlop.kube.objects import CustomObject, PartialObject, Pod, ResourceFlavor, Service
from dlop.kube.resources import Resource
from dlop.reconcile.autoscaler import ScaleDecision


@dataclass(frozen=True, slots=True)
class RejectedWrite:
    """A create or patch that the API server rejected in an earlier pass, for example because of a quota or a webhook."""

    resource: Resource
    name: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class NameConflict:
    """An object of another owner with a name that the job needs."""

    resource: Resource
    name: str
    owner: str
    """Kind and name of the owner; empty if the object has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminatingConflict:
    """An object of a deleted job of the same name, with a name that the job needs. It is expected to disappear."""

    resource: Resource
    name: str
    owner: str
    """Kind and name of the deleted job."""
    uid: str = ""
    finalizers: tuple[str, ...] = ()
    grace_seconds: int | None = None
    """Its grace period, if it is terminating."""
    is_terminating: bool = True
    """Whether the object has a deletion timestamp already."""
    since: float
    """The time at which it could have been gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The children of one job. They belong to it by UID, except for `name_conflicts`, `terminating_conflicts` and `shared`."""

    pods: tuple[Pod, ...] = ()
    """Without the companion."""
    companion: Pod | None = None
    """The pod of the TensorBoard of the job."""
    pods_version: str = ""
    """The resource version of the pod cache; empty if it is unknown."""
    services: tuple[Service, ...] = ()
    children: tuple[tuple[Resource, PartialObject], ...] = ()
    """Children other than pods and services."""
    name_conflicts: tuple[NameConflict, ...] = ()
    terminating_conflicts: tuple[TerminatingConflict, ...] = ()
    shared: frozenset[tuple[Resource, str]] = frozenset()
    """Existing objects of other owners that the job uses (`Create.allow_existing`)."""
    rejected_writes: tuple[RejectedWrite, ...] = ()
    scale_plans: tuple[CustomObject, ...] = ()
    """The first scale plans of the job in the order of execution, including those that have been executed."""
    failed_scale_plans: tuple[CustomObject, ...] = ()
    """Some of the scale plans of the master that have failed."""
    rejected_status: str = ""
    """Why the API server rejected the status of the job as too large; empty if it did not."""
    forbidden: tuple[Resource, ...] = ()
    """Resources that the operator is not allowed to read. It is unknown whether the job has such objects."""
    not_installed: tuple[Resource, ...] = ()
    """Resources that the cluster does not serve."""
    unwatched: tuple[Resource, ...] = ()
    """Resources of child objects that the operator watches on demand and does not watch yet."""
    priorities: Mapping[str, int] = field(default_factory=dict)
    """Values of priority classes by name, if the operator reads them."""
    workload_priorities: Mapping[str, int] = field(default_factory=dict)
    """The same for the WorkloadPriorityClasses of Kueue."""
    flavors: Mapping[str, ResourceFlavor] = field(default_factory=dict)
    """The ResourceFlavors of the job's Workload by name, without those that are not in the cache yet."""
    assigned_host_port: int | None = None
    """The first of the ports that the operator assigns to the job; None if it needs none, has them, or all are in use."""
    scale_decision: ScaleDecision | None = None
    """The last decision of the autoscaler about the job."""
    down_nodes: Mapping[str, str] = field(default_factory=dict)
    """What is wrong with the nodes of terminating pods, by node name. Without nodes that are ready or cannot be read."""

    @property
    def all_pods(self) -> tuple[Pod, ...]:
        """The pods and the companion."""
        return self.pods if self.companion is None else (*self.pods, self.companion)
