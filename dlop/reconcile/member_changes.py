"""From a scale plan to the members that are created and removed, given the existing ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dlop.api.constants import REQUESTS_ANNOTATION, Reason
from dlop.api.parsing import MAX_REPLICAS
from dlop.api.pod_resources import Requests, parse_quantities, pod_requests, sum_requests
from dlop.api.record import format_counts, parse_counts
from dlop.api.scale_plan import Member, MemberRequest, MembersRecord, RoleTarget, ScaleRequest
from dlop.api.spec import Problem, SpecError
from dlop.kube.objects import Pod
from dlop.policies.members import Members
from dlop.reconcile.context import ReconcileContext


@dataclass(frozen=True, slots=True)
class Remark:
    """Why a plan is not executed completely."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberChanges:
    """What a scale plan changes."""

    creates: tuple[Member, ...]
    removes: tuple[str, ...]
    """Names of pods."""
    counts: Mapping[str, tuple[int, int]]
    """By role, the number of members before and after the plan."""
    relaunches: dict[str, dict[str, str]]
    hosts: tuple[str, ...]
    limits: dict[str, int]
    remarks: tuple[Remark, ...] = ()
    is_empty: bool = False
    """Whether nothing changes, not even what is stored."""


def find_changes(
    context: ReconcileContext, policy: Members[Any], record: MembersRecord, request: ScaleRequest, *, carried: Sequence[Member] = ()
) -> MemberChanges:
    """What a scale plan changes. `carried` are members that an earlier plan could not create."""
    return _Changes(context, policy, record, request, carried).find()


@dataclass(slots=True)
class _Role:
    """The members of one role. All methods take constant time on average, because a plan can create thousands of members."""

    alive: dict[int, Member] = field(default_factory=dict)
    """Existing ones and those to create, by ID, without those to remove."""
    staying: set[int] = field(default_factory=set)
    """IDs of those that are alive and that the plan does not remove by name."""
    ids: set[int] = field(default_factory=set)
    """IDs of all pods, alive or not."""
    next_id: int = 0
    _ranks: Counter[int] = field(default_factory=Counter)
    """How many members that are alive have a rank."""
    _lowest_rank: int = 0
    """All ranks below this one are taken."""

    def add_id(self, member_id: int) -> None:
        self.ids.add(member_id)
        self.next_id = max(self.next_id, member_id + 1)

    def add(self, member: Member, *, is_staying: bool) -> None:
        """Add a member that is alive. It replaces one with the same ID."""
        self.remove(member.id)
        self.alive[member.id] = member
        self._ranks[member.rank] += 1
        if is_staying:
            self.staying.add(member.id)

    def remove(self, member_id: int) -> None:
        """Remove a member, if it is alive."""
        member = self.alive.pop(member_id, None)
        if member is not None:
            self.staying.discard(member_id)
            self._ranks[member.rank] -= 1
            self._lowest_rank = min(self._lowest_rank, member.rank)

    def free_rank(self) -> int:
        """The lowest rank that no member has."""
        while self._ranks[self._lowest_rank]:
            self._lowest_rank += 1
        return self._lowest_rank


class _Changes:
    def __init__(
        self, context: ReconcileContext, policy: Members[Any], record: MembersRecord, request: ScaleRequest, carried: Sequence[Member]
    ) -> None:
        self._context = context
        self._policy = policy
        self._record = record
        self._request = request
        self._roles = {role: _Role() for role in policy.roles}
        self._pods: dict[str, tuple[Member, Pod]] = {}
        """Existing members that are not being deleted, by the names of their pods."""
        self._creates: dict[str, Member] = {}
        """By the names of their pods."""
        self._removes: dict[str, None] = {}
        self._removed_names = frozenset(request.removes)
        self._migrated: dict[str, str] = {}
        """Names of the pods that are replaced, by those of their replacements."""
        self._left_out: Counter[tuple[str, str, str]] = Counter()
        """Number of members that are not created, by reason, role and explanation."""
        self._relaunches = {role: parse_counts(record.relaunches.get(role, {})) for role in policy.roles}
        self._limits = {role: limit for role, limit in record.limits.items() if role not in request.targets}
        if request.is_manual:
            self._limits |= {role: target.replicas for role, target in request.targets.items()}
        for name, existing in context.members.items():
            self._observe(name, existing.member, existing.pod, is_alive=existing.is_alive)
        self._before = {role: len(members.alive) for role, members in self._roles.items()}
        for member in carried:
            self._add(member)

    def find(self) -> MemberChanges:
        self._check_names()
        for role, target in self._request.targets.items():
            if role in self._roles:
                self._scale(role, target)
        for wanted in self._request.creates:
            if wanted.role in self._roles:
                self._create(wanted)
        for name in self._request.removes:
            self._remove(name)
        for migration in self._request.migrations:
            self._migrate(migration.pod, migration.resources)
        self._enforce_resource_limits()
        self._check_numbers()
        if self._request.is_manual:
            if self._removes and self._policy.replaces_removed(self._context.job):
                raise SpecError((Problem("spec", "removes pods, and the master of this job would create them again; delete this plan"),))
            # The master asks for them again in further plans.
            removed = {self._pods[name][0].role for name in self._removes}
            self._limits |= {role: len(self._roles[role].alive) for role in removed}
        for member in self._creates.values():
            self._count_relaunch(member)
        relaunches = {role: format_counts(counts) for role, counts in self._relaunches.items() if any(counts.values())}
        hosts = self._request.hosts or self._record.hosts
        return MemberChanges(
            creates=tuple(self._creates.values()),
            removes=tuple(self._removes),
            counts={role: (self._before[role], len(members.alive)) for role, members in self._roles.items()},
            relaunches=relaunches,
            hosts=hosts,
            limits=self._limits,
            remarks=tuple(
                Remark(reason, f"{count} {role} {'pod is' if count == 1 else 'pods are'} not created, because {text}")
                for (reason, role, text), count in self._left_out.items()
            ),
            is_empty=not self._creates and not self._removes and hosts == self._record.hosts and self._limits == self._record.limits,
        )

    def _check_names(self) -> None:
        """A user may have misspelt a name. The master may name a pod that is gone already."""
        named = {"removePods": self._request.removes, "migratePods": [migration.pod for migration in self._request.migrations]}
        problems = [
            Problem(f"spec.{field}", f"names {name}, and the job has no such pod")
            for field, names in named.items()
            for name in names
            if self._request.is_manual and name not in self._pods
        ]
        if problems:
            raise SpecError(tuple(problems))

    def _check_numbers(self) -> None:
        """Each plan may create the maximum, but no role may have more members."""
        numbers = {role: len(members.alive) for role, members in self._roles.items() if len(members.alive) > MAX_REPLICAS}
        if numbers and self._creates:
            raise SpecError(
                tuple(
                    Problem("spec", f"asks for {number} {role} pods, and a job can have {MAX_REPLICAS}") for role, number in numbers.items()
                )
            )

    def _observe(self, name: str, member: Member, pod: Pod, *, is_alive: bool) -> None:
        role = self._roles.get(member.role)
        if role is None:
            return
        role.add_id(member.id)
        self._count_relaunch(member)
        if pod.metadata.deletion_timestamp is None:
            self._pods[name] = member, pod
        if is_alive:
            role.add(member, is_staying=name not in self._removed_names)

    def _count_relaunch(self, member: Member) -> None:
        """The next member of its rank replaces this one."""
        counts = self._relaunches[member.role]
        counts[member.rank] = max(counts.get(member.rank, 0), member.relaunch_count + 1)

    def _add(self, member: Member) -> None:
        role, name = self._roles[member.role], self._pod_name(member.role, member.id)
        role.add_id(member.id)
        role.add(member, is_staying=name not in self._removed_names)
        self._creates[name] = member

    # --- the parts of a plan -------------------------------------------------------------------------------------------------

    def _scale(self, name: str, target: RoleTarget) -> None:
        """Add members with the next IDs and the lowest free ranks, or remove those with the highest IDs that have not succeeded."""
        role = self._roles[name]
        missing = target.replicas - len(role.alive)
        for _ in range(missing):
            self._add(Member(role=name, id=role.next_id, rank=role.free_rank(), resources=target.resources))
        removable = sorted((member.id for member in role.alive.values() if not self._has_succeeded(member)), reverse=True)
        for member_id in removable[: max(0, -missing)]:
            self._remove(self._pod_name(name, member_id))

    def _create(self, wanted: MemberRequest) -> None:
        role = self._roles[wanted.role]
        if wanted.id is not None and wanted.id in role.ids:
            return  # it exists
        rank = role.free_rank() if wanted.rank is None else wanted.rank
        limit = None if self._request.is_manual else self._limits.get(wanted.role)
        if limit is not None and len(role.staying) >= limit:
            self._left_out[Reason.SCALED, wanted.role, f"a manual plan limits their number to {limit}"] += 1
            return
        self._add(
            Member(
                role=wanted.role,
                id=role.next_id if wanted.id is None else wanted.id,
                rank=rank,
                relaunch_count=self._relaunches[wanted.role].get(rank, 0),
                resources=wanted.resources,
                service=wanted.service,
            )
        )

    def _remove(self, name: str) -> None:
        """Remove a member, or do not create one that the plan or an earlier one asks for."""
        planned = self._creates.pop(name, None)
        if planned is not None:
            self._roles[planned.role].remove(planned.id)
        elif name in self._pods:
            member, _ = self._pods[name]
            self._removes[name] = None
            self._roles[member.role].remove(member.id)

    def _migrate(self, name: str, resources: Mapping[str, str]) -> None:
        """Replace a member by one of the same rank, unless it is replaced or removed already."""
        if name in self._pods and name not in self._removes:
            member, _ = self._pods[name]
            self._migrated[self._pod_name(member.role, self._roles[member.role].next_id)] = name
            self._remove(name)
            self._create(MemberRequest(role=member.role, rank=member.rank, resources=resources))

    def _leave_out(self, member: Member) -> None:
        """Do not create a member. If it would replace another one, that one stays."""
        name = self._pod_name(member.role, member.id)
        self._remove(name)
        replaced = self._migrated.get(name)
        if replaced is not None:
            del self._removes[replaced]
            self._roles[member.role].add(self._pods[replaced][0], is_staying=True)

    def _has_succeeded(self, member: Member) -> bool:
        existing = self._pods.get(self._pod_name(member.role, member.id))
        return existing is not None and existing[1].status.phase == "Succeeded"

    def _pod_name(self, role: str, member_id: int) -> str:
        return self._policy.pod_name(self._context.job, role, member_id)

    # --- resource limits -----------------------------------------------------------------------------------------------------

    def _enforce_resource_limits(self) -> None:
        """Leave out members that would exceed the limits of the job, those with the highest IDs first."""
        limits = parse_quantities(self._policy.resource_limits(self._context.job))
        if not limits or not self._creates:
            return
        used = sum_requests(_requests_of(pod) for pod in self._staying_pods())
        rendered: dict[tuple[str, frozenset[tuple[str, str]]], Requests] = {}
        for member in list(self._creates.values()):
            key = member.role, frozenset(member.resources.items())
            if key not in rendered:
                rendered[key] = self._planned_requests(member)
            requests = rendered[key]
            total = sum_requests((used, requests))
            exceeded = next((name for name, limit in limits.items() if name in requests and total[name].value > limit.value), None)
            if exceeded is None:
                used = total
                continue
            self._leave_out(member)
            text = f"spec.resourceLimits allows {limits[exceeded]} of {exceeded} for all pods of the job"
            self._left_out[Reason.RESOURCE_LIMIT_EXCEEDED, member.role, text] += 1

    def _staying_pods(self) -> Iterator[Pod]:
        for name, (member, pod) in self._pods.items():
            if name not in self._removes and member.id in self._roles[member.role].alive:
                yield pod

    def _planned_requests(self, member: Member) -> Requests:
        replica = self._context.job.member(member)
        return {} if replica is None else pod_requests(replica.pod()["spec"])


def _requests_of(pod: Pod) -> Requests:
    """The requests of a member that the operator has created."""
    entries = (entry.partition("=") for entry in pod.metadata.annotations.get(REQUESTS_ANNOTATION, "").split(","))
    return parse_quantities({name: amount for name, _, amount in entries})
