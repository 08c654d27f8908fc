"""Scale plans: requests for pods that a job has in addition to the replicas of its spec. The master of the job or a user writes them.

These pods are the members of the job. Each has an ID that is unique in its role, and a rank that its replacement takes over. The operator
creates and deletes members for scale plans, and does not restart them: that is the decision of the master.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby

import msgspec


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One member of a job: an existing pod, or one that a scale plan asks for."""

    role: str
    id: int
    rank: int
    relaunch_count: int = 0
    """How many members with this role and rank it replaces."""
    resources: Mapping[str, str] = field(default_factory=dict)
    """Requests and limits of the main container; empty for those of the pod template."""
    service: str = ""
    """The name of the service of this rank; empty for the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleTarget:
    """The number of members of a role."""

    replicas: int
    resources: Mapping[str, str] = field(default_factory=dict)
    """Of new members."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRequest:
    """A member to create."""

    role: str
    id: int | None = None
    """None for the next one."""
    rank: int | None = None
    """None for the lowest one that is free."""
    resources: Mapping[str, str] = field(default_factory=dict)
    service: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """A member to replace by one with other resources."""

    pod: str
    resources: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleRequest:
    """What a scale plan asks for."""

    targets: Mapping[str, RoleTarget] = field(default_factory=dict)
    """By role."""
    creates: tuple[MemberRequest, ...] = ()
    removes: tuple[str, ...] = ()
    """Names of pods."""
    migrations: tuple[Migration, ...] = ()
    hosts: tuple[str, ...] = ()
    """Addresses of all parameter servers; empty if they have not changed."""
    is_manual: bool = False
    """Whether a user wrote the plan."""


class PlannedMembers(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Members of one role that differ only in ID and rank."""

    role: str
    runs: tuple[tuple[int, int, int], ...]
    """First ID, first rank, and number of members with consecutive IDs and ranks."""
    relaunch_count: int = 0
    resources: dict[str, str] = {}
    service: str = ""


class MembersRecord(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What the record stores about members: the last scale plan that was started, and what outlives it."""

    plan: str = ""
    """The name of the last plan."""
    plan_uid: str = ""
    creates: tuple[PlannedMembers, ...] = ()
    """Members that the plan asks for."""
    removes: tuple[str, ...] = ()
    """Names of pods that the plan removes."""
    relaunches: dict[str, dict[str, str]] = {}
    """By role, the relaunch count of the next replacement of each rank, as ranges. See `dlop.api.record.Counts`."""
    counts: dict[str, int] = {}
    """Number of members by role, after the plan."""
    hosts: tuple[str, ...] = ()
    """Addresses of the parameter servers."""
    limits: dict[str, int] = {}
    """By role, the maximum that a manual plan has set. The master does not know it."""


def group_members(members: Iterable[Member]) -> tuple[PlannedMembers, ...]:
    """Members in a compact form. `expand_members` is the reverse."""

    def alike(member: Member) -> tuple[str, int, tuple[tuple[str, str], ...], str]:
        return member.role, member.relaunch_count, tuple(sorted(member.resources.items())), member.service

    ordered = sorted(members, key=lambda member: (alike(member), member.id))
    return tuple(
        PlannedMembers(role=role, runs=tuple(_runs(group)), relaunch_count=relaunch_count, resources=dict(resources), service=service)
        for (role, relaunch_count, resources, service), group in groupby(ordered, key=alike)
    )


def expand_members(planned: Iterable[PlannedMembers]) -> Iterator[Member]:
    """The members, in the order of their IDs within each group."""
    for group in planned:
        for first_id, first_rank, count in group.runs:
            for offset in range(count):
                yield Member(
                    role=group.role,
                    id=first_id + offset,
                    rank=first_rank + offset,
                    relaunch_count=group.relaunch_count,
                    resources=group.resources,
                    service=group.service,
                )


def _runs(members: Iterable[Member]) -> Iterator[tuple[int, int, int]]:
    run: tuple[int, int, int] | None = None
    for member in members:
        if run is not None and (member.id, member.rank) == (run[0] + run[2], run[1] + run[2]):
            run = (run[0], run[1], run[2] + 1)
            continue
        if run is not None:
            yield run
        run = (member.id, member.rank, 1)
    if run is not None:
        yield run
