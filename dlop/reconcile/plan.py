"""What a pass has decided: carried out by `dlop.controller`, in the order of the fields."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from dlop.api.child_objects import Create
from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject


class EventType(StrEnum):
    """How an event is to be taken."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Patch:
    """An object to change, if it is still the one with this uid, so that it is made of this body."""

    resource: Resource
    uid: str
    body: JsonObject

    @property
    def name(self) -> str:
        """The name of the object."""
        name: str = self.body["metadata"]["name"]
        return name


@dataclass(frozen=True, slots=True)
class Delete:
    """An object to delete, if it is still the one with this uid."""

    resource: Resource
    name: str
    uid: str
    grace_seconds: int | None = None
    """0 removes it without waiting for its node, which may be gone for ever."""
    resource_version: str | None = None
    """Where given, it is deleted only if nothing about it has changed since."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something to tell the people who look at the job, after the status that it explains has been written.

    What was created is told also when that status comes later.
    """

    type: EventType
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that one pass does for one job.

    Deletions and creations do not depend on each other. What must wait for something else is left to a later pass.
    """

    deletions: tuple[Delete, ...] = ()
    changes: tuple[Patch, ...] = ()
    """Made before anything is created: a pod may read what is changed."""
    services: tuple[Create, ...] = ()
    """Created before the pods."""
    pods: tuple[Create, ...] = ()
    others: tuple[Create, ...] = ()
    """Whatever else the kind needs, created before services and pods."""
    status: JsonObject | None = None
    """The whole new status; None leaves it as it is."""
    events: tuple[Event, ...] = ()
    delete_job: bool = False
    look_again_at: float | None = None
    """When the next deadline is, in seconds since the epoch; None: nothing happens by itself."""
    is_complete: bool = False
    """Once all of this is done there is nothing more to plan, until something else happens: seeing it done is no news."""

    @property
    def creations(self) -> tuple[Create, ...]:
        """All that is created, in the order in which it is."""
        return self.others + self.services + self.pods

    def without_creations(self) -> Plan:
        """What is left when all is created."""
        return replace(self, others=(), services=(), pods=()) if self.creations else self
