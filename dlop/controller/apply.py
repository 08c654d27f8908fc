"""Applies a plan: reports to Kueue, deletes, patches, other children, services, pods, other reports, companions, the status, events.

Creates use slow start. They stop at the first rejected create, or after a few if each object is invalid on its own. The
rejections are recorded, creates back off, and the job is requeued at once so that its status shows the reason.

If a write failed, the status is left to the next pass, which sees the effect of the write. The first status of a new job has
low priority: if the job changes while the write is queued, the next pass writes it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

import structlog

from dlop.api.child_objects import Create
from dlop.api.constants import ATTEMPT_LABEL, JOB_UID_LABEL, Reason
from dlop.controller.event_recorder import EventRecorder
from dlop.controller.job_state import JobState, JobStates, RejectionBackoff
from dlop.controller.slow_start import INITIAL_BATCH_SIZE, slow_start_batch
from dlop.controller.writer import WriteOutcome, Writer, WriteResult
from dlop.job import DLJob
from dlop.kube.client import Propagation
from dlop.kube.errors import (
    AmbiguousWriteError,
    InvalidError,
    KubeError,
    NotFoundError,
    RequestCancelledError,
    RequestTooLargeError,
    StatusError,
)
from dlop.kube.merge_patch import merge_patch
from dlop.kube.resources import Resource
from dlop.reconcile.plan import Delete, Event, EventType, Patch, Plan, ReplicaCreate, Report
from dlop.reconcile.snapshot import RejectedWrite

log = structlog.get_logger(__name__)

Item = TypeVar("Item")

# Labels whose values differ between attempts or between jobs of the same name. Orphans are matched without them.
_VOLATILE_LABELS = (ATTEMPT_LABEL, JOB_UID_LABEL)
# Above this size no more creates are started at once. A request takes several times the memory of its body.
_MAX_BYTES_IN_FLIGHT = 2 << 20
# Events that are published only if every create succeeded.
_CREATE_REASONS = (Reason.CREATED_PODS, Reason.CREATED_SERVICES)


class Requeue(StrEnum):
    """When to reconcile the job again. The values are the `result` labels of controller-runtime's metrics."""

    NONE = "success"
    """On the next watch event or deadline."""
    NOW = "requeue"
    BACKOFF = "error"


@dataclass(slots=True)
class ApplyResult:
    requeue: Requeue = Requeue.NONE
    retry_after_seconds: float | None = None
    """Remaining back-off of rejected creates; None if there is none."""
    retry_companions_after_seconds: float | None = None
    """The same for companions, which delay nothing else."""
    retries_quota_reports: bool = False
    """Whether reports about the Workload have failed, which delay nothing else."""
    writes: int = 0
    """Number of writes that changed an object."""
    bytes_in_flight: int = 0
    """Size of the objects that are being created."""
    object_counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Number of objects by operation (created, deleted, rejected) and resource."""
    skipped_creates: int = 0
    """Number of objects not created because of a name conflict."""
    recovered: bool = False
    """All previously rejected creates succeeded. The next pass writes the status."""
    written_job: bytes | None = None
    """The job after the status write, as JSON; None if no status was written."""
    error: KubeError | None = None
    render_error: Exception | None = None
    """The exception of a framework that failed to render an object."""

    def count(self, operation: str, resource: Resource) -> None:
        self.object_counts[operation, resource.qualified_name] += 1

    def escalate(self, requeue: Requeue, error: KubeError | None) -> None:
        """Requeue the job. BACKOFF overrides NOW, and the first error is kept."""
        if self.requeue is not Requeue.BACKOFF:
            self.requeue = requeue
        self.error = self.error or error


@dataclass(frozen=True, slots=True)
class Applier:
    """Applies the plan of one job: `execute` first, then `publish`."""

    writer: Writer
    job: DLJob
    job_states: JobStates
    events: EventRecorder
    parallel: int
    """Maximum number of concurrent writes."""
    is_outdated: Callable[[], bool] | None
    """Returns whether the job changed since the plan was made. If given, an outdated status write is skipped."""
    result: ApplyResult = field(default_factory=ApplyResult)

    async def execute(self, plan: Plan) -> None:
        """Delete, patch and create the children. Errors of writes go to `result`.

        Raises:
            Exception: the framework failed to render an object.
        """
        for report in plan.quota_reports:
            await self._report_quota(report)
        if self._clear_obsolete_rejections(plan):
            return
        if plan.deletes or plan.creates or plan.companions:
            self._get_or_create_state()  # needed to requeue the job when an uncertain expectation is resolved
        if plan.deletes:
            await self._run_batch(plan.deletes, self._delete)
        if plan.patches and not await self._patch_all(plan.patches):
            return
        if plan.creates:
            await self._create_all(plan)
        if self.result.render_error is not None:
            raise self.result.render_error
        if plan.reports and not self._has_failed:
            await self._run_batch(plan.reports, self._report)
        if plan.companions and not self._has_failed:
            await self._create_companions(plan.companions)

    async def publish(self, plan: Plan) -> None:
        """Write the status and record the events, if `execute` succeeded.

        Raises:
            KubeError: the status could not be written, or the job could not be deleted.
        """
        if self.result.recovered:
            self._record_events(plan)
        if self.result.requeue is not Requeue.NONE:
            return
        if plan.delete_job:
            await self._delete_job()
        elif plan.status is not None:
            await self._write_status(plan)
        self._record_events(plan)

    def shows_effects(self, plan: Plan) -> bool:
        """Whether the responses show all effects of the plan, so that the next step need not wait for the caches.

        A plan that settles has no next step. Created pods change too soon to rely on the responses.
        """
        if plan.settles or plan.delete_job or plan.patches or plan.creates or plan.companions or plan.reports or plan.quota_reports:
            return False
        if self.result.requeue is not Requeue.NONE:
            return False
        return bool(plan.status or plan.deletes) and all(delete.uid in self.writer.removed for delete in plan.deletes)

    async def _run_batch(
        self, items: Sequence[Item], call: Callable[[Item], Awaitable[bool]], *, initial: int = INITIAL_BATCH_SIZE
    ) -> bool:
        return await slow_start_batch(items, call, initial=initial, parallel=self.parallel, may_grow=self._may_grow)

    def _may_grow(self) -> bool:
        """Whether another request would be sent without waiting, nothing was rejected yet, and the requests in flight are small."""
        result = self.result
        has_room = result.bytes_in_flight < _MAX_BYTES_IN_FLIGHT and self.writer.client.has_free_write_slot
        return has_room and result.retry_after_seconds is None

    def _get_or_create_state(self) -> JobState:
        return self.job_states.get_or_create(self.writer.uid, self.writer.key)

    def _clear_obsolete_rejections(self, plan: Plan) -> bool:
        """Clear the rejections and requeue the job, if the plan has none of the rejected writes. Returns whether it did.

        A plan that finishes the job, or reports about scale plans, is kept. It may do so because of the rejections.
        """
        state = self.job_states.get(self.writer.uid)
        if state is None or not state.rejected_writes:
            return False
        planned = {(create.resource, create.name) for create in plan.creates} | {(patch.resource, patch.name) for patch in plan.patches}
        if not planned.isdisjoint(state.rejected_writes) or self._finishes_job(plan):
            return False
        state.clear_rejections()
        if plan.reports:
            return False
        self.result.escalate(Requeue.NOW, None)
        return True

    def _finishes_job(self, plan: Plan) -> bool:
        phase = None if plan.status is None else self.job.status.read_phase(plan.status)
        return phase is not None and phase.is_finished

    # --- deletes -----------------------------------------------------------------------------------------------------

    async def _delete(self, delete: Delete) -> bool:
        outcome = await self.writer.delete(delete)
        if outcome.result is WriteResult.DONE:
            self.result.writes += 1
            self.result.count("deleted", delete.resource)
            return True
        if delete.is_retry and outcome.result is WriteResult.STALE:
            return True  # the first delete has completed in the meantime
        self.result.escalate(Requeue.BACKOFF, outcome.error)
        return outcome.result is WriteResult.STALE

    async def _delete_job(self) -> None:
        key = self.writer.key
        try:
            await self.writer.client.delete(
                key.resource, key.name, namespace=key.namespace, uid=self.writer.uid, propagation=Propagation.BACKGROUND
            )
        except NotFoundError:
            return

    # --- patches -----------------------------------------------------------------------------------------------------

    async def _patch_all(self, patches: Sequence[Patch]) -> bool:
        """Returns whether to continue with creates. Rejected patches are skipped during the back-off."""
        state = self.job_states.get(self.writer.uid)
        delay = None if state is None else state.backoff.remaining_seconds(now=asyncio.get_running_loop().time())
        if state is not None and delay is not None:
            self.result.retry_after_seconds = delay
            patches = [patch for patch in patches if (patch.resource, patch.name) not in state.rejected_writes]
        return await self._run_batch(patches, self._patch)

    async def _patch(self, patch: Patch) -> bool:
        outcome = await self.writer.patch(patch)
        if outcome.result is WriteResult.REJECTED:
            self._handle_rejection(patch, outcome)
            return False
        if outcome.result not in (WriteResult.DONE, WriteResult.UNCHANGED):
            self.result.escalate(Requeue.BACKOFF, outcome.error)
            return False
        was_rejected = self._clear_rejection(patch)
        self.result.writes += 1 if outcome.result is WriteResult.DONE or was_rejected else 0
        return True

    def _clear_rejection(self, patch: Patch) -> bool:
        """Returns whether there was one. If so, the status still shows it."""
        state = self.job_states.get(self.writer.uid)
        if state is None or state.rejected_writes.pop((patch.resource, patch.name), None) is None:
            return False
        if not state.rejected_writes:
            state.clear_rejections()
        return True

    async def _report(self, report: Report) -> bool:
        outcome = await self.writer.report(report)
        if outcome.result is not WriteResult.DONE:
            self.result.escalate(Requeue.BACKOFF, outcome.error)
            return outcome.result is WriteResult.STALE
        self.result.writes += 1
        return True

    async def _report_quota(self, report: Report) -> None:
        """Errors delay nothing but the report, because the status of the job must be written although Kueue does not accept it."""
        outcome = await self.writer.report(report)
        if outcome.result is WriteResult.DONE:
            self.result.writes += 1
        else:
            log.info("failed to update workload, retrying", child=report.name, error=str(outcome.error))
            self.result.retries_quota_reports = True

    @property
    def _has_failed(self) -> bool:
        """Whether a write of this pass failed, was rejected or was skipped."""
        result = self.result
        return result.requeue is not Requeue.NONE or result.retry_after_seconds is not None or result.skipped_creates > 0

    # --- creates -----------------------------------------------------------------------------------------------------

    async def _create_all(self, plan: Plan) -> None:
        """Create other children, services and pods. Each group waits until the previous one is complete."""
        state = self._get_or_create_state()
        delay = state.backoff.remaining_seconds(now=asyncio.get_running_loop().time())
        if delay is not None:
            self.result.retry_after_seconds = delay
            return
        # After a rejection, a single create probes whether the cause is gone.
        initial = 1 if state.rejected_writes else INITIAL_BATCH_SIZE
        for creates in (plan.children, plan.services, plan.pods):
            if not await self._create_group(creates, initial=initial) or self.result.skipped_creates:
                return
        if state.rejected_writes:
            state.clear_rejections()
            self.result.recovered = True
            self.result.escalate(Requeue.NOW, None)

    async def _create_group(self, creates: Sequence[Create | ReplicaCreate], *, initial: int) -> bool:
        """Returns whether the group is complete."""
        return await self._run_batch(creates, self._create, initial=initial) and self.result.retry_after_seconds is None

    async def _create(self, create: Create | ReplicaCreate) -> bool:
        try:
            body = self.writer.encode(create)
        except Exception as error:  # noqa: BLE001 - raised by the framework; requests in flight must complete before it is reported
            self.result.render_error = error
            return False
        self.result.bytes_in_flight += len(body)
        try:
            outcome = await self.writer.create(create, body)
        finally:
            self.result.bytes_in_flight -= len(body)
        match outcome.result:
            case WriteResult.DONE:
                self.result.writes += 1
                self.result.count("created", create.resource)
                return True
            case WriteResult.REJECTED:
                self.result.count("rejected", create.resource)
                return self._handle_rejection(create, outcome)
            case WriteResult.CONFLICT:
                return self._handle_conflict(create)
            case WriteResult.SHARED:
                self._get_or_create_state().shared.add((create.resource, create.name))
                return True
            case _:
                self.result.escalate(Requeue.BACKOFF, outcome.error)
                return False

    async def _create_companions(self, creates: Sequence[Create]) -> None:
        """Create one after the other. A rejection is an event. It delays only the companions, as does any other error."""
        state, now = self._get_or_create_state(), asyncio.get_running_loop().time()
        self.result.retry_companions_after_seconds = state.companion_backoff.remaining_seconds(now=now)
        if self.result.retry_companions_after_seconds is not None:
            return
        for create in creates:
            outcome = await self.writer.create(create, self.writer.encode(create))
            match outcome.result:
                case WriteResult.DONE:
                    self.result.writes += 1
                    self.result.count("created", create.resource)
                case WriteResult.REJECTED:
                    self.result.count("rejected", create.resource)
                    self.result.retry_companions_after_seconds = state.companion_backoff.next_delay(now=now)
                    self._report_companion(create, str(outcome.error))
                    return
                case WriteResult.CONFLICT:
                    self.job_states.add_conflict(self.writer.uid, self.writer.key, create.resource, create.name, {})
                    self._report_companion(create, "the name is already used")
                    return
                case _:
                    # Without a status write, no lost replica would be replaced while the creates fail.
                    self.result.retry_companions_after_seconds = state.companion_backoff.next_delay(now=now)
                    log.info("failed to create companion, retrying", child=create.name, error=str(outcome.error))
                    return
        state.companion_backoff, state.companion_error = RejectionBackoff(), ""

    def _report_companion(self, create: Create, error: str) -> None:
        """Publish an event about a companion that was not created, once for each cause."""
        state, message = self._get_or_create_state(), f"{create.resource.kind.lower()} {create.name} could not be created: {error}"
        if state.companion_error != message:
            state.companion_error = message
            text = f"{message}; the job continues without it"
            self.events.record(self.writer.key, self.job.metadata, Event(EventType.WARNING, Reason.FAILED_CREATE, text))

    def _handle_rejection(self, write: Create | ReplicaCreate | Patch, outcome: WriteOutcome) -> bool:
        """Record a rejected write. Returns whether to continue: an invalid object says nothing about the next one, up to a limit."""
        state = self._get_or_create_state()
        error = outcome.error
        reason = error.status_reason if isinstance(error, StatusError) else ""
        log.warning("write rejected", resource=write.resource.qualified_name, child=write.name, error=str(error))
        if self.result.retry_after_seconds is None:  # otherwise a concurrent write of this pass was rejected first
            state.rejected_writes.clear()
            self.result.retry_after_seconds = state.backoff.next_delay(now=asyncio.get_running_loop().time())
        state.add_rejection(RejectedWrite(write.resource, write.name, reason, str(error)), generation=self.job.metadata.generation)
        self.result.escalate(Requeue.NOW, None)
        return isinstance(error, InvalidError) and len(state.rejected_writes) < INITIAL_BATCH_SIZE

    def _handle_conflict(self, create: Create | ReplicaCreate) -> bool:
        """Record a name conflict. Returns True, because other creates can continue."""
        self.result.skipped_creates += 1
        labels = create.body["metadata"].get("labels") or {}
        orphan_labels = {name: value for name, value in labels.items() if name not in _VOLATILE_LABELS}
        state = self._get_or_create_state()
        if (create.resource, create.name) not in state.name_conflicts:
            self.job_states.add_conflict(self.writer.uid, self.writer.key, create.resource, create.name, orphan_labels)
            self.result.escalate(Requeue.NOW, None)
        return True

    # --- status and events -------------------------------------------------------------------------------------------

    def _record_events(self, plan: Plan) -> None:
        """Record the events of the plan. Events about creates need all creates to be done, others need the status to be written."""
        result = self.result
        all_created = not result.skipped_creates and result.retry_after_seconds is None
        for event in plan.events:
            if all_created if event.reason in _CREATE_REASONS else result.requeue is not Requeue.NOW:
                self.events.record(self.writer.key, self.job.metadata, event)

    async def _write_status(self, plan: Plan) -> None:
        patch = merge_patch(self.job.stored_status, plan.status or {})
        if not patch:
            return
        try:
            with self._expected_echo(plan):
                self.result.written_job = await self.writer.patch_status(
                    patch, resource_version=self.job.metadata.resource_version, cancel_if=self.is_outdated
                )
            self.result.writes += 1
        except RequestCancelledError:
            self.result.escalate(Requeue.NOW, None)
        except RequestTooLargeError as error:
            self._handle_oversized_status(error)
        except NotFoundError as error:
            if not error.details.get("name"):
                log.error("failed to write status; does the CRD lack the status subresource?", error=str(error))
            raise
        except AmbiguousWriteError:
            state = self._get_or_create_state()
            state.last_counted_status = self.job.stored_status if state.last_counted_status is None else state.last_counted_status
            raise

    def _expected_echo(self, plan: Plan) -> AbstractContextManager[None]:
        needs_no_pass = plan.settles or self.shows_effects(plan)
        return self._get_or_create_state().expect_echo(plan.status) if needs_no_pass and plan.status is not None else nullcontext()

    def _handle_oversized_status(self, error: RequestTooLargeError) -> None:
        """Let the next pass report the error in a small status. If that is too large as well, only the event reports it."""
        log.error("the status is too large", error=str(error))
        state = self._get_or_create_state()
        if not state.rejected_status:
            state.reject_status(str(error), generation=self.job.metadata.generation)
            self.result.escalate(Requeue.NOW, None)
