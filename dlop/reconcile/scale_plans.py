"""Scale plans: what the next one changes. They are executed one at a time, in their order.

1. A plan is started: what it creates and removes is computed from the existing members and stored in the record. Nothing else happens in
   this pass, so a plan that is interrupted later is continued and not computed again.
2. Its members are created and removed. Then the status of the plan says that it has succeeded.
3. The plan is deleted, so that a master that was started again can use its name. Its effects are in `status.dlop.scaleRecords`.

A plan that cannot be executed fails, and the next one is started. Members that could not be created, for example because of a quota, are
created with the next plan. The operator does not replace members: the master does, with a further plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import msgspec

from dlop.api.constants import Reason
from dlop.api.record import ScaleReason, ScaleRecord
from dlop.api.scale_plan import Member, MembersRecord, ScaleRequest, expand_members, group_members
from dlop.api.spec import Problem, SpecError
from dlop.kube.objects import CustomObject
from dlop.kube.resources import PODS, SERVICES
from dlop.kube.timestamps import format_time
from dlop.kube.types import JsonObject
from dlop.policies.members import Members
from dlop.reconcile.context import ReconcileContext
from dlop.reconcile.creation import exceeded_member_size_limit
from dlop.reconcile.elastic import MAX_SCALE_RECORDS
from dlop.reconcile.member_changes import MemberChanges, find_changes
from dlop.reconcile.plan import Delete, Event, EventType, ReplicaCreate, Report
from dlop.reconcile.snapshot import NameConflict, RejectedWrite

_INVALID = "Invalid"
"""The reason of a rejected write that would be rejected again."""
_MAX_RECORD_BYTES = 800_000
"""Of the record about members. An object cannot exceed 1.5 MiB."""
_MAX_MESSAGE_LENGTH = 1_000
"""Of a failed plan. A plan can have thousands of problems."""


class PlanPhase(StrEnum):
    """The phase of a scale plan."""

    SCALING = "Scaling"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleStep:
    """What one pass does for the scale plans of a job."""

    services: tuple[ReplicaCreate, ...] = ()
    pods: tuple[ReplicaCreate, ...] = ()
    deletes: tuple[Delete, ...] = ()
    reports: tuple[Report, ...] = ()
    events: tuple[Event, ...] = ()
    is_unfinished: bool = False
    """Whether a plan has been started and not finished."""


def plan_status(plan: CustomObject) -> JsonObject:
    """The status of a scale plan; empty if it has none."""
    status = msgspec.json.decode(plan.status)
    return status if isinstance(status, dict) else {}


def is_finished(plan: CustomObject) -> bool:
    """Whether a scale plan has succeeded or failed."""
    return plan_status(plan).get("phase") in (PlanPhase.SUCCEEDED, PlanPhase.FAILED)


def job_uids(plan: CustomObject, *, kind: str, name: str) -> frozenset[str]:
    """The UIDs of the jobs in the owner references of a plan. The master may write their kind in lower case. Other owners are ignored."""
    owners = plan.metadata.owner_references
    return frozenset(owner.uid for owner in owners if (owner.kind.lower(), owner.name) == (kind.lower(), name))


def next_scale_step(context: ReconcileContext, policy: Members[Any]) -> tuple[ReconcileContext, ScaleStep]:
    """Start the next plan, or continue the last one. If a plan is started, the context has the record that must be stored first."""
    return _ScalePlans(context, policy).next_step()


def plans_of_deleted_master(context: ReconcileContext) -> tuple[Delete, ...]:
    """Deletes for the plans of the master of a suspended job. The next master starts over."""
    policy = context.job.members
    if policy is None:
        return ()  # the common case
    return _deletes(policy, [*filter(policy.is_automatic, context.snapshot.scale_plans), *context.snapshot.failed_scale_plans])


def last_scale_step(context: ReconcileContext) -> ScaleStep:
    """The step of a finished job: the plans of its master are deleted, and those of users fail."""
    policy, snapshot = context.job.members, context.snapshot
    if policy is None:
        return ScaleStep()  # the common case
    automatic = [plan for plan in snapshot.scale_plans if policy.is_automatic(plan) or is_finished(plan)]
    waiting = [plan for plan in snapshot.scale_plans if plan not in automatic]
    reports = (report_plan(context, policy, plan, PlanPhase.FAILED, "the job has finished") for plan in waiting)
    return ScaleStep(deletes=_deletes(policy, [*automatic, *snapshot.failed_scale_plans]), reports=tuple(reports))


def report_plan(context: ReconcileContext, policy: Members[Any], plan: CustomObject, phase: PlanPhase, message: str = "") -> Report:
    """The new status of a plan."""
    now, known = format_time(context.now), plan_status(plan)
    status: JsonObject = {"phase": phase.value, "createTime": known.get("createTime") or now}
    if phase is not PlanPhase.SCALING:
        status["finishTime"] = now
    if message or known.get("message"):
        status["message"] = message
    return Report(policy.plan_type.resource, plan.metadata.name, plan.metadata.uid, status)


class _ScalePlans:
    def __init__(self, context: ReconcileContext, policy: Members[Any]) -> None:
        self._context = context
        self._policy = policy
        self._record = context.stored.record.members or MembersRecord()

    def next_step(self) -> tuple[ReconcileContext, ScaleStep]:
        deletes = _deletes(self._policy, self._obsolete_plans())
        waiting = [plan for plan in self._context.snapshot.scale_plans if not is_finished(plan) and not self._is_of_earlier_job(plan)]
        if self._policy.is_held(self._context.job):
            waiting = []
        current = next((plan for plan in waiting if plan.metadata.uid == self._record.plan_uid), None)
        if current is None:
            context, step = self._start_first(waiting)
        else:
            context, step = self._continue_or_give_up(current, [plan for plan in waiting if plan is not current])
        return replace(context, is_scaling=step.is_unfinished), replace(step, deletes=step.deletes + deletes)

    # --- starting a plan -----------------------------------------------------------------------------------------------------

    def _start_first(self, waiting: Iterable[CustomObject], carried: Sequence[Member] = ()) -> tuple[ReconcileContext, ScaleStep]:
        """Start the first plan that changes something. Finish the ones before it."""
        reports: list[Report] = []
        events: list[Event] = []
        for plan in waiting:
            try:
                request = self._policy.read_plan(self._context.job, plan)
                changes = find_changes(self._context, self._policy, self._record, request, carried=carried)
                is_empty = changes.is_empty and not carried
                started = self._context if is_empty else self._with_started_plan(plan, request, changes)
            except SpecError as error:
                message = _shorten(str(error))
                reports.append(self._report(plan, PlanPhase.FAILED, message))
                events.append(_failure_event(plan, message))
                continue
            message = "; ".join(remark.message for remark in changes.remarks)
            events += [_remark_event(plan, remark.reason, remark.message) for remark in changes.remarks]
            if is_empty:
                reports.append(self._report(plan, PlanPhase.SUCCEEDED, message))
                continue
            reports.append(self._report(plan, PlanPhase.SCALING, message))
            return started, ScaleStep(reports=tuple(reports), events=tuple(events), is_unfinished=True)
        return self._context, ScaleStep(reports=tuple(reports), events=tuple(events))

    def _with_started_plan(self, plan: CustomObject, request: ScaleRequest, changes: MemberChanges) -> ReconcileContext:
        """Raises SpecError if the record or the pods would be too large."""
        members = MembersRecord(
            plan=plan.metadata.name,
            plan_uid=plan.metadata.uid,
            creates=group_members(changes.creates),
            removes=changes.removes,
            relaunches=changes.relaunches,
            counts={role: after for role, (_, after) in changes.counts.items() if after},
            hosts=changes.hosts,
            limits=changes.limits,
        )
        reason = ScaleReason.MANUAL_SCALE_PLAN if request.is_manual else ScaleReason.SCALE_PLAN
        time, name = format_time(self._context.now), plan.metadata.name
        created = Counter(member.role for member in changes.creates)
        scaled = tuple(
            ScaleRecord(
                time=time,
                role=role,
                replicas=after,
                change=after - before,
                replaced=created[role] - max(after - before, 0),
                reason=reason,
                plan=name,
            )
            for role, (before, after) in changes.counts.items()
            if before != after or created[role]
        )
        record = self._context.stored.record
        records = [*record.scale_records, *scaled][-MAX_SCALE_RECORDS:]
        started = self._context.with_record(msgspec.structs.replace(record, members=members, scale_records=records), scaling=scaled)
        if error := _exceeded_record_size(members) or exceeded_member_size_limit(started, changes.creates, members.counts):
            raise error
        return started

    # --- continuing a plan ---------------------------------------------------------------------------------------------------

    def _continue_or_give_up(self, plan: CustomObject, others: Sequence[CustomObject]) -> tuple[ReconcileContext, ScaleStep]:
        missing = self._missing_members()
        rejected = self._rejected_writes(missing)
        is_invalid = any(write.reason == _INVALID for write in rejected)
        if not rejected or not (others or is_invalid):
            return self._continue(plan, missing)
        # The plan must not block the next one.
        end = "" if is_invalid else "; they are created with the next scale plan"
        count = f"{len(missing)} {'pod' if len(missing) == 1 else 'pods'}"
        message = _shorten(f"{count} could not be created: {rejected[0].message}{end}")
        context, step = self._start_first(others, () if is_invalid else missing)
        if not step.is_unfinished and not is_invalid:
            return context, replace(step, is_unfinished=True)  # no other plan creates the missing members
        reports = (self._report(plan, PlanPhase.FAILED, message), *step.reports)
        return context, replace(step, reports=reports, events=(_failure_event(plan, message), *step.events), is_unfinished=True)

    def _continue(self, plan: CustomObject, missing: Sequence[Member]) -> tuple[ReconcileContext, ScaleStep]:
        """Create and remove what is left. The plan has succeeded when these writes have.

        While some of its members cannot be created, those that exist are removed from the record. They are not created again if they are
        deleted.
        """
        replicas = [replica for member in missing if (replica := self._context.job.member(member)) is not None]
        existing = self._context.existing_services
        services = {replica.service_name: replica for replica in replicas if replica.service_name not in existing}
        removed = (self._context.members[name].pod for name in self._record.removes if name in self._context.members)
        step = ScaleStep(
            services=tuple(ReplicaCreate(SERVICES, name, replica) for name, replica in services.items() if name is not None),
            pods=tuple(ReplicaCreate(PODS, replica.name, replica) for replica in replicas),
            deletes=tuple(Delete(PODS, pod.metadata.name, pod.metadata.uid) for pod in removed if pod.metadata.deletion_timestamp is None),
            reports=(self._report(plan, PlanPhase.SUCCEEDED),),
            is_unfinished=True,
        )
        return self._without_existing_members(missing) if self._is_blocked else self._context, step

    def _without_existing_members(self, missing: Sequence[Member]) -> ReconcileContext:
        members = msgspec.structs.replace(self._record, creates=group_members(missing))
        context = self._context.with_record(msgspec.structs.replace(self._context.stored.record, members=members))
        # The missing members may be created before the record is stored.
        return replace(context, must_store_record=self._context.must_store_record)

    @property
    def _is_blocked(self) -> bool:
        """Whether creates of the job have been rejected, or other objects have their names."""
        snapshot = self._context.snapshot
        return bool(snapshot.rejected_writes or snapshot.name_conflicts or snapshot.terminating_conflicts)

    def _missing_members(self) -> list[Member]:
        """Members of the current plan that have no pod yet."""
        job, existing = self._context.job, self._context.members
        return [
            member for member in expand_members(self._record.creates) if self._policy.pod_name(job, member.role, member.id) not in existing
        ]

    def _rejected_writes(self, missing: Iterable[Member]) -> list[RejectedWrite]:
        """Creates of the current plan that the API server has rejected, or whose names objects of other owners have."""
        rejected = (*self._context.snapshot.rejected_writes, *map(_rejected_name, self._context.snapshot.name_conflicts))
        if not rejected:
            return []
        replicas = [replica for member in missing if (replica := self._context.job.member(member)) is not None]
        names = {(PODS, replica.name) for replica in replicas} | {(SERVICES, replica.service_name) for replica in replicas}
        return [write for write in rejected if (write.resource, write.name) in names]

    # --- plans as objects ----------------------------------------------------------------------------------------------------

    def _obsolete_plans(self) -> list[CustomObject]:
        """Plans that have succeeded, plans for an earlier job of the same name, and failed ones of an earlier master."""
        context, snapshot = self._context, self._context.snapshot
        times = (pod.metadata.creation_timestamp for name, pod in context.pods.items() if name in context.desired_pods)
        master_created_at = max((time for time in times if time is not None), default=None)
        return [
            *(plan for plan in snapshot.scale_plans if is_finished(plan) or self._is_of_earlier_job(plan)),
            *(
                plan
                for plan in snapshot.failed_scale_plans
                if master_created_at is not None
                and plan.metadata.creation_timestamp is not None
                # Times have no fractions of a second. A master needs longer to start, and a plan of an earlier one would keep its name.
                and plan.metadata.creation_timestamp <= master_created_at
            ),
        ]

    def _is_of_earlier_job(self, plan: CustomObject) -> bool:
        job = self._context.job
        uids = job_uids(plan, kind=job.job_type.kind, name=job.metadata.name)
        return bool(uids) and job.metadata.uid not in uids

    def _report(self, plan: CustomObject, phase: PlanPhase, message: str = "") -> Report:
        return report_plan(self._context, self._policy, plan, phase, message)


def _rejected_name(conflict: NameConflict) -> RejectedWrite:
    owner = f" by {conflict.owner}" if conflict.owner else ""
    message = f"the name of {conflict.resource.kind.lower()} {conflict.name} is already used{owner}: delete that object or rename the job"
    return RejectedWrite(conflict.resource, conflict.name, _INVALID, message)


def _deletes(policy: Members[Any], plans: Iterable[CustomObject]) -> tuple[Delete, ...]:
    """Deletes for these scale plans, except those that are terminating. A plan that was deleted meanwhile causes no error."""
    resource = policy.plan_type.resource
    existing = (plan.metadata for plan in plans if plan.metadata.deletion_timestamp is None)
    return tuple(Delete(resource, metadata.name, metadata.uid, is_retry=True) for metadata in existing)


def _exceeded_record_size(members: MembersRecord) -> SpecError | None:
    size = len(msgspec.json.encode(members))
    if size <= _MAX_RECORD_BYTES:
        return None
    message = f"needs {size:,} bytes in the status of the job, more than the limit of {_MAX_RECORD_BYTES:,}; change fewer pods at once"
    return SpecError((Problem("spec", message),))


def _shorten(message: str) -> str:
    return message if len(message) <= _MAX_MESSAGE_LENGTH else f"{message[: _MAX_MESSAGE_LENGTH - 3]}..."


def _failure_event(plan: CustomObject, message: str) -> Event:
    return Event(EventType.WARNING, Reason.SCALE_PLAN_FAILED, f"scale plan {plan.metadata.name} failed: {message}")


def _remark_event(plan: CustomObject, reason: str, message: str) -> Event:
    return Event(EventType.WARNING, reason, f"scale plan {plan.metadata.name}: {message}")
