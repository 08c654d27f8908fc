"""The result of planning. `dlop.controller` executes it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from dlop.api.child_objects import Create
from dlop.kube.resources import PODS, Resource
from dlop.kube.types import JsonObject
from dlop.replica import Replica

if TYPE_CHECKING:
    from dlop.reconcile.elastic import JobDemand


class EventType(StrEnum):
    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class ReplicaCreate:
    """The pod or service of a replica to create.

    It is rendered when it is sent. The bodies of all pods of a large job would need hundreds of megabytes.
    """

    resource: Resource
    name: str
    replica: Replica
    allow_existing: ClassVar[bool] = False

    @property
    def body(self) -> JsonObject:
        """The rendered object. Not cached."""
        body = self.replica.pod() if self.resource == PODS else self.replica.service()
        if body is None:
            raise ValueError(f"the replica {self.replica.name} has no service")
        return body


@dataclass(frozen=True, slots=True)
class Patch:
    """A merge patch of an object, with its UID as a precondition."""

    resource: Resource
    uid: str
    body: JsonObject

    @property
    def name(self) -> str:
        name: str = self.body["metadata"]["name"]
        return name


@dataclass(frozen=True, slots=True)
class Report:
    """A merge patch of the status of a scale plan or a Workload, with its UID as a precondition."""

    resource: Resource
    name: str
    uid: str
    status: JsonObject
    resource_version: str | None = None
    """A further precondition; None means none."""


@dataclass(frozen=True, slots=True)
class Delete:
    """The deletion of an object, with its UID as a precondition."""

    resource: Resource
    name: str
    uid: str
    grace_seconds: int | None = None
    """0 force-deletes the object without waiting for its node; None uses the default of the object."""
    resource_version: str | None = None
    """A further precondition; None means none."""
    is_retry: bool = False
    """Whether an earlier delete of the object was interrupted. It is not reported again."""
    cause: str = ""
    """Why the object is force-deleted."""
    down_node: str = ""
    """The node that must be down when the object is deleted; empty if its state does not matter."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the job. It is published after the status that it explains is written.

    Events about created objects are published even if the status write is delayed.
    """

    type: EventType
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All actions of one pass over one job.

    Deletes and creates are independent of each other. Actions that have to wait for others are left to a later pass.
    """

    deletes: tuple[Delete, ...] = ()
    patches: tuple[Patch, ...] = ()
    """Executed before the creates, because a pod may read a patched object."""
    services: tuple[ReplicaCreate, ...] = ()
    """Created before the pods."""
    pods: tuple[ReplicaCreate, ...] = ()
    children: tuple[Create, ...] = ()
    """Other child objects, created before services and pods."""
    companions: tuple[Create, ...] = ()
    """The objects of the TensorBoard. Created last, and without consequences for the job if they are rejected."""
    reports: tuple[Report, ...] = ()
    """About scale plans. Executed after the creates, because they say that a plan is executed."""
    quota_reports: tuple[Report, ...] = ()
    """About the Workload. A report that fails is retried and delays nothing else."""
    watch: tuple[Resource, ...] = ()
    """Resources that the operator must watch before the job can continue."""
    status: JsonObject | None = None
    """The complete new status; None if it is unchanged."""
    events: tuple[Event, ...] = ()
    delete_job: bool = False
    requeue_at: float | None = None
    """The next deadline, in seconds since the epoch; None if there is none."""
    demand: JobDemand | None = None
    """What the autoscaler has to know about the job; None if it need not know it."""
    settles: bool = False
    """Whether nothing is left to plan after this pass. Watch events caused by its own writes then need no further pass."""

    @property
    def creates(self) -> tuple[Create | ReplicaCreate, ...]:
        """All creates, in the order of execution."""
        return (*self.children, *self.services, *self.pods)
