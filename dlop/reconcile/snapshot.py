"""What is known of one job's children at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dlop.kube.objects import PartialObject, Pod, Service
from dlop.kube.resources import Resource


@dataclass(frozen=True, slots=True)
class RejectedWrite:
    """A create that the server refused in an earlier pass: a quota, a webhook, missing rights."""

    resource: Resource
    name: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class NameConflict:
    """An object that has a name which the job needs, and belongs to somebody else."""

    resource: Resource
    name: str
    owner: str
    """Who it belongs to, as a person would say it; empty when to nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminatingConflict:
    """An object that has a name which the job needs, and belongs to a deleted job of the same name: it is about to go."""

    resource: Resource
    name: str
    owner: str
    """Who it belonged to, as a person would say it."""
    finalizers: tuple[str, ...] = ()
    """What keeps it from going."""
    is_leaving: bool = True
    """Whether it is being deleted already."""
    since: float
    """From when on it could be gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The children of one job as the caches show them. Everything here belongs to the job by uid, save `foreign`, `leftovers`, `lent`."""

    pods: tuple[Pod, ...] = ()
    services: tuple[Service, ...] = ()
    others: tuple[tuple[Resource, PartialObject], ...] = ()
    foreign: tuple[NameConflict, ...] = ()
    leftovers: tuple[TerminatingConflict, ...] = ()
    lent: frozenset[tuple[Resource, str]] = frozenset()
    """Objects of somebody else that the job uses."""
    refusals: tuple[RejectedWrite, ...] = ()
    unreadable: tuple[Resource, ...] = ()
    """What the operator cannot read: nobody knows whether the job has such objects."""
    unserved: tuple[Resource, ...] = ()
    """Those of these that the cluster does not have at all."""
    priorities: Mapping[str, int] = field(default_factory=dict)
    """The values of the priority classes by name, as far as somebody may ask for them."""
