"""Carries out a plan: deletions, changes, what the pods need, the pods, one status write, events. In this order.

Creates go out slowly at first. The first that is refused ends them, or the first few where each object was found
invalid by itself: the refusals are remembered, the job is looked at again at once so that its status tells why, and
creating is put off. When something could not be done, the status is left for the next pass, which knows more; so is that of a
job that has just begun, when it had to let others go first and is outdated.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

import structlog

from dlop.api.child_objects import Create
from dlop.api.constants import ATTEMPT_LABEL, JOB_UID_LABEL, Reason
from dlop.controller.event_recorder import EventRecorder
from dlop.controller.job_state import JobStates
from dlop.controller.slow_start import AT_FIRST, slowly_at_first
from dlop.controller.writer import Writer, WriteResult, Written
from dlop.job import DLJob
from dlop.kube.client import Propagation
from dlop.kube.errors import AmbiguousWriteError, InvalidError, KubeError, NotFoundError, OutdatedError, StatusError
from dlop.kube.merge_patch import merge_patch
from dlop.kube.resources import Resource
from dlop.reconcile.plan import Delete, Patch, Plan
from dlop.reconcile.snapshot import RejectedWrite

log = structlog.get_logger(__name__)

Item = TypeVar("Item")

# Labels that differ from one life of a job to the next.
_PASSING_LABELS = (ATTEMPT_LABEL, JOB_UID_LABEL)
# Events that would not be true if something was left out.
_ABOUT_CREATES = (Reason.CREATED_PODS, Reason.CREATED_SERVICES)


class Requeue(StrEnum):
    """When to look at the job again, apart from what will happen to it."""

    WHEN_SOMETHING_HAPPENS = "success"
    AT_ONCE = "requeue"
    AFTER_A_WHILE = "error"


@dataclass(slots=True)
class Applied:
    """What has come of a plan."""

    next: Requeue = Requeue.WHEN_SOMETHING_HAPPENS
    pause_seconds: float | None = None
    """When creating is to be tried again, if it was put off."""
    writes: int = 0
    """How many writes have changed something."""
    objects: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How many objects were created, deleted or refused, by resource."""
    left_out: int = 0
    """How many objects were not created because their names are taken."""
    is_made_good: bool = False
    """Whether all is there now that was refused before: the status, which tells of that, is for the next pass to write."""
    error: KubeError | None = None

    def count(self, what: str, resource: Resource) -> None:
        """An object was created, deleted or refused."""
        self.objects[what, resource.qualified_name] += 1

    def worsen(self, step: Requeue, error: KubeError | None) -> None:
        """Note what went wrong; the first error is the one to tell."""
        if self.next is not Requeue.AFTER_A_WHILE:
            self.next = step
        self.error = self.error or error


@dataclass(frozen=True, slots=True)
class Applier:
    """Carries out the plan of one job."""

    writer: Writer
    job: DLJob
    memories: JobStates
    events: EventRecorder
    parallel: int
    is_outdated: Callable[[], bool] | None
    """Whether something has happened to the job since the plan was made; None: whatever happens, its status is to be written."""
    applied: Applied = field(default_factory=Applied)

    async def carry_out(self, plan: Plan) -> None:
        """Do what the plan says, apart from telling."""
        if self._is_refused_no_more(plan):
            return
        if plan.deletions or plan.creations:
            self.memories.of(self.writer.uid, self.writer.key)  # so that whoever resolves a doubt finds the job
        if plan.deletions:
            await self._call_for(plan.deletions, self._delete)
        if plan.changes and not await self._change_all(plan.changes):
            return
        if plan.creations:
            await self._create_all(plan)

    async def tell(self, plan: Plan) -> None:
        """Write the status and tell the events of a plan, if all went well so far.

        Raises:
            KubeError: the status could not be written, or the job not deleted.
        """
        if self.applied.is_made_good:
            self._tell_events(plan)
        if self.applied.next is not Requeue.WHEN_SOMETHING_HAPPENS:
            return
        if plan.delete_job:
            await self._delete_job()
        elif plan.status is not None:
            await self._write_status(plan)
        self._tell_events(plan)

    async def _call_for(self, items: Sequence[Item], call: Callable[[Item], Awaitable[bool]], *, first: int = AT_FIRST) -> bool:
        return await slowly_at_first(items, call, first=first, parallel=self.parallel, may_grow=self._may_grow)

    def _may_grow(self) -> bool:
        """Whether more at once would be sent at once, and nothing was refused yet."""
        return self.applied.pause_seconds is None and self.writer.client.has_room_for_writes

    def _is_refused_no_more(self, plan: Plan) -> bool:
        """Whether nothing is asked for any more of what was refused: then the plan is to be made anew, without that."""
        memory = self.memories.find(self.writer.uid)
        if memory is None or not memory.refusals:
            return False
        places = {(each.resource, each.name) for each in plan.creations} | {(each.resource, each.name) for each in plan.changes}
        if not places.isdisjoint(memory.refusals) or self._is_end(plan):
            return False
        memory.forget_refusals()
        self.applied.worsen(Requeue.AT_ONCE, None)
        return True

    def _is_end(self, plan: Plan) -> bool:
        """Whether the job ends here. It may do so because of what was refused: made anew without that, it would not."""
        phase = None if plan.status is None else self.job.phase_in(plan.status)
        return phase is not None and phase.is_end

    # --- deleting ----------------------------------------------------------------------------------------------------

    async def _delete(self, deletion: Delete) -> bool:
        written = await self.writer.delete(deletion)
        if written.result is WriteResult.DONE:
            self.applied.writes += 1
            self.applied.count("deleted", deletion.resource)
            return True
        self.applied.worsen(Requeue.AFTER_A_WHILE, written.error)
        return written.result is WriteResult.STALE

    async def _delete_job(self) -> None:
        key = self.writer.key
        try:
            await self.writer.client.delete(
                key.resource, key.name, namespace=key.namespace, uid=self.writer.uid, propagation=Propagation.BACKGROUND
            )
        except NotFoundError:
            return

    # --- changing ----------------------------------------------------------------------------------------------------

    async def _change_all(self, changes: Sequence[Patch]) -> bool:
        """Says whether to go on. What was refused is told, and tried again when creating is."""
        memory = self.memories.find(self.writer.uid)
        now = asyncio.get_running_loop().time()
        if memory is not None and now < memory.try_again_at:
            self.applied.pause_seconds = memory.try_again_at - now
            changes = [change for change in changes if (change.resource, change.name) not in memory.refusals]
        return await self._call_for(changes, self._change)

    async def _change(self, change: Patch) -> bool:
        written = await self.writer.change(change)
        if written.result is WriteResult.REFUSED:
            self._refused(change, written)
            return False
        if written.result not in (WriteResult.DONE, WriteResult.SAME):
            self.applied.worsen(Requeue.AFTER_A_WHILE, written.error)
            return False
        is_refused_no_more = self._forget_refusal(change)
        self.applied.writes += 1 if written.result is WriteResult.DONE or is_refused_no_more else 0
        return True

    def _forget_refusal(self, change: Patch) -> bool:
        """Says whether there was one: then the status still tells of it."""
        memory = self.memories.find(self.writer.uid)
        if memory is None or memory.refusals.pop((change.resource, change.name), None) is None:
            return False
        if not memory.refusals:
            memory.forget_refusals()
        return True

    # --- creating ----------------------------------------------------------------------------------------------------

    async def _create_all(self, plan: Plan) -> None:
        """Others, services, pods: each lot only when the one before it is complete."""
        memory = self.memories.of(self.writer.uid, self.writer.key)
        now = asyncio.get_running_loop().time()
        if now < memory.try_again_at:
            self.applied.pause_seconds = memory.try_again_at - now
            return
        # After a refusal, one create finds out whether anything has changed.
        first = 1 if memory.refusals else AT_FIRST
        for lot in (plan.others, plan.services, plan.pods):
            if not await self._create_lot(lot, first=first) or self.applied.left_out:
                return
        if memory.refusals:
            memory.forget_refusals()
            self.applied.is_made_good = True
            self.applied.worsen(Requeue.AT_ONCE, None)

    async def _create_lot(self, lot: Sequence[Create], *, first: int) -> bool:
        """Says whether the lot is complete."""
        return await self._call_for(lot, self._create, first=first) and self.applied.pause_seconds is None

    async def _create(self, creation: Create) -> bool:
        written = await self.writer.create(creation)
        match written.result:
            case WriteResult.DONE:
                self.applied.writes += 1
                self.applied.count("created", creation.resource)
                return True
            case WriteResult.REFUSED:
                self.applied.count("refused", creation.resource)
                return self._refused(creation, written)
            case WriteResult.TAKEN:
                return self._taken(creation)
            case WriteResult.LENT:
                self.memories.of(self.writer.uid, self.writer.key).lent.add((creation.resource, creation.name))
                return True
            case _:
                self.applied.worsen(Requeue.AFTER_A_WHILE, written.error)
                return False

    def _refused(self, wanted: Create | Patch, written: Written) -> bool:
        """Says whether to go on with the others: what is wrong with one object need not be with the next. A few show it."""
        memory = self.memories.of(self.writer.uid, self.writer.key)
        error = written.error
        reason = error.status_reason if isinstance(error, StatusError) else ""
        log.warning("the server refuses an object", resource=wanted.resource.qualified_name, child=wanted.name, error=str(error))
        if self.applied.pause_seconds is None:  # else another one that was under way with it was refused before
            memory.refusals.clear()
            self.applied.pause_seconds = memory.put_off(now=asyncio.get_running_loop().time())
        memory.refuse(RejectedWrite(wanted.resource, wanted.name, reason, str(error)), generation=self.job.metadata.generation)
        self.applied.worsen(Requeue.AT_ONCE, None)
        return isinstance(error, InvalidError) and len(memory.refusals) < AT_FIRST

    def _taken(self, creation: Create) -> bool:
        """Somebody else's object is in the way of this one, and not of the others."""
        self.applied.left_out += 1
        labels = creation.body["metadata"].get("labels") or {}
        own = {name: value for name, value in labels.items() if name not in _PASSING_LABELS}
        memory = self.memories.of(self.writer.uid, self.writer.key)
        if (creation.resource, creation.name) not in memory.taken:
            self.memories.take_note(self.writer.uid, self.writer.key, creation.resource, creation.name, own)
            self.applied.worsen(Requeue.AT_ONCE, None)
        return True

    # --- telling -----------------------------------------------------------------------------------------------------

    def _tell_events(self, plan: Plan) -> None:
        """Tell what has happened: not of creates where some were left out or put off, and of nothing else where the status was."""
        applied = self.applied
        is_created = not applied.left_out and applied.pause_seconds is None
        for event in plan.events:
            if is_created if event.reason in _ABOUT_CREATES else applied.next is not Requeue.AT_ONCE:
                self.events.tell(self.writer.key, self.job.metadata, event)

    async def _write_status(self, plan: Plan) -> None:
        patch = merge_patch(self.job.stored_status, plan.status or {})
        if not patch:
            return
        memory = self.memories.find(self.writer.uid)
        if memory is not None and plan.is_complete:
            memory.said = plan.status
        try:
            await self.writer.patch_status(patch, resource_version=self.job.metadata.resource_version, unless=self.is_outdated)
            self.applied.writes += 1
        except OutdatedError:
            if memory is not None:
                memory.said = None
            self.applied.worsen(Requeue.AT_ONCE, None)
        except NotFoundError as error:
            if not error.details.get("name"):
                log.error("the status cannot be written: has the custom resource definition no status subresource?", error=str(error))
            raise
        except AmbiguousWriteError:
            memory = self.memories.of(self.writer.uid, self.writer.key)
            memory.uncounted = self.job.stored_status if memory.uncounted is None else memory.uncounted
            raise
