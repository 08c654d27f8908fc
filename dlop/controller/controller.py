"""The loop: a key comes off the queue, and one pass is made for its job.

Three kinds of errors have three fates. A user's mistake is in the plan already, as a condition. A hiccup of the cluster
is tried again, ever more patiently. Our own mistake is logged with its traceback, and stays this one job's trouble.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import structlog
from structlog.contextvars import bound_contextvars

from dlop.controller.adoption import adopt
from dlop.controller.apply import Applied, Applier, Requeue
from dlop.controller.event_recorder import EventRecorder
from dlop.controller.informer_set import InformerSet
from dlop.controller.job_state import JobStates
from dlop.controller.kinds import JobKey, ManagedKind, ManagedKinds
from dlop.controller.metrics import ControllerMetrics, note_deletion, note_milestones
from dlop.controller.snapshot_builder import gather
from dlop.controller.writer import Writer
from dlop.job import DLJob
from dlop.kube.client import Client
from dlop.kube.errors import ConflictError, KubeError, NotFoundError, NotLeaderError
from dlop.kube.expectations import Expectations
from dlop.kube.objects import CustomObject
from dlop.kube.resources import Resource
from dlop.kube.workqueue import QueueShutDownError, WorkQueue
from dlop.reconcile.plan import Plan
from dlop.reconcile.snapshot import Snapshot

log = structlog.get_logger(__name__)

# A moment that has passed already, by the rounding of a clock, must not make a hot loop.
_SOONEST_SECONDS = 0.05
# A job that has all it needs, and waits for its status to be written, keeps no other from being worked on: for each job
# that is worked on there may be three of them besides.
_TOLD_BESIDES = 3


def passes_at_once(workers: int) -> int:
    """How many passes may be under way when so many jobs may be worked on at once."""
    return workers * (1 + _TOLD_BESIDES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """What all passes share."""

    client: Client
    queue: WorkQueue[JobKey]
    expectations: Expectations
    memories: JobStates
    kinds: ManagedKinds
    events: EventRecorder
    metrics: ControllerMetrics
    clock: Callable[[], float]
    forget: Callable[[str], None]
    """Called with the uid of a job that is gone."""
    parallel: int
    """How many writes one job may have under way."""


class Slot:
    """Where a job is worked on. It is left to the next job as soon as all is done that the job needs: telling needs no desk."""

    def __init__(self, desks: asyncio.Semaphore) -> None:
        self._desks = desks
        self._is_taken = False

    async def __aenter__(self) -> Self:
        await self._desks.acquire()
        self._is_taken = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Leave the desk, if that has not happened yet."""
        if self._is_taken:
            self._is_taken = False
            self._desks.release()


class Controller:
    """The workers and their passes."""

    def __init__(self, around: Dependencies, *, workers: int) -> None:
        self._around = around
        self._passes = passes_at_once(workers)
        self._desks = asyncio.Semaphore(workers)
        self._scopes: dict[str | None, InformerSet] = {}
        self._is_stopping = False
        self._is_working = False

    def watch_over(self, scopes: Sequence[InformerSet]) -> None:
        """What there is to look at."""
        self._scopes = {scope.namespace: scope for scope in scopes}

    async def run(self) -> None:
        """Make passes until stopped or cancelled."""
        self._is_working = True
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self._passes):
                    group.create_task(self._work(), name=f"worker {number}")
        finally:
            self._is_working = False

    def stop(self) -> None:
        """Finish the passes under way and begin no more; `run` then ends."""
        self._is_stopping = True
        self._around.queue.shutdown()

    def note_deleted(self, resource: Resource, last: CustomObject) -> None:
        """A job is gone, and this is the last that was seen of it. Who only stands by leaves counting to the one who leads."""
        kind = self._around.kinds.of_resource(resource)
        if self._is_working and kind is not None:
            note_deletion(self._around.metrics, resource, kind.make_job(last))

    # --- one worker --------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        queue, metrics = self._around.queue, self._around.metrics
        loop = asyncio.get_running_loop()
        while True:
            async with Slot(self._desks) as desk:
                try:
                    key = await queue.get()
                except QueueShutDownError:
                    return
                began = loop.time()
                metrics.active += 1
                try:
                    if not self._is_stopping:
                        result = await self._safely(key, desk)
                        metrics.passed(key.resource, result, seconds=loop.time() - began)
                finally:
                    metrics.active -= 1
                    queue.done(key)

    async def _safely(self, key: JobKey, desk: Slot) -> str:
        with bound_contextvars(kind=key.resource.kind, namespace=key.namespace, job=key.name):
            try:
                return await self._pass(key, desk)
            except NotLeaderError:
                return Requeue.AT_ONCE.value  # whoever leads now will see to it
            except NotFoundError as error:
                log.info("the job is gone", error=str(error))
            except ConflictError as error:
                log.info("the job has changed meanwhile", error=str(error))
            except KubeError as error:
                log.warning("the server has trouble with the job; it is tried again", error=str(error))
            except Exception:  # one job's trouble must not become everybody's
                log.exception("a pass failed: this is a mistake in dlop or in the framework")
            self._around.queue.add_rate_limited(key)
            return Requeue.AFTER_A_WHILE.value

    # --- one pass ----------------------------------------------------------------------------------------------------

    async def _pass(self, key: JobKey, desk: Slot) -> str:
        scope, kind, found = self._find(key)
        if scope is None or kind is None or found is None:
            self._around.queue.forget(key)
            return "success"
        around, uid = self._around, found.metadata.uid
        if not around.expectations.are_met(uid):
            around.memories.of(uid, key).has_news = True  # whatever settles them brings the job up again
            return "success"
        if not scope.gate.ready(uid, wake=lambda: around.queue.add(key)):
            return "success"
        if not scope.hindsight.ready(found, wake=lambda: around.queue.add(key)):
            return "success"
        try:
            return await self._look_at(key, scope, kind, found, desk)
        finally:
            # Who was told that the job is gone did not know of what was still being asked for.
            if not _is_there(scope, key, uid):
                around.forget(uid)

    async def _look_at(self, key: JobKey, scope: InformerSet, kind: ManagedKind, found: CustomObject, desk: Slot) -> str:
        around, uid = self._around, found.metadata.uid
        memory = around.memories.find(uid)
        if memory is not None:
            memory.begin_pass(generation=found.metadata.generation)
        writer = Writer(around.client, around.expectations, scope, key, uid)
        gathered = gather(scope, kind, found, memories=around.memories)
        if gathered.orphans and await adopt(writer, found, gathered.orphans):
            around.queue.add(key)
            return Requeue.AT_ONCE.value
        job = kind.make_job(found)
        now = around.clock()
        plan = job.reconcile(gathered.snapshot, now)
        if plan.pods or memory is not None:
            phases = [pod.status.phase for pod in gathered.snapshot.pods]
            around.memories.of(uid, key).take_stock(phases, created=len(plan.pods))
        is_outdated = self._outdated(key) if _can_be_put_off(job, gathered.snapshot, plan) else None
        applier = Applier(writer, job, around.memories, around.events, around.parallel, is_outdated)
        try:
            await applier.carry_out(plan)
        finally:
            around.metrics.objects(applier.applied.objects)
        plan = plan.without_creations()  # whole pods are nothing to hold on to until the status has its turn
        desk.leave()
        await applier.tell(plan)
        return self._after(key, job, gathered.snapshot, plan, applier.applied, now)

    def _outdated(self, key: JobKey) -> Callable[[], bool]:
        return lambda: not self._is_stopping and self._around.queue.is_due_again(key)

    def _find(self, key: JobKey) -> tuple[InformerSet | None, ManagedKind | None, CustomObject | None]:
        scope = self._scopes.get(key.namespace) or self._scopes.get(None)
        kind = self._around.kinds.of_resource(key.resource)
        found = None if scope is None else scope.job(key.resource, namespace=key.namespace, name=key.name)
        return scope, kind, found

    def _after(self, key: JobKey, job: DLJob, snapshot: Snapshot, plan: Plan, applied: Applied, now: float) -> str:
        around, queue = self._around, self._around.queue
        if applied.next is Requeue.AFTER_A_WHILE:
            log.info("something could not be done; it is tried again", error=str(applied.error))
            queue.add_rate_limited(key)
            return applied.next.value
        queue.forget(key)
        if applied.next is Requeue.AT_ONCE:
            queue.add(key)
            return applied.next.value
        if (applied.writes and not plan.is_complete) or self._has_news(job.metadata.uid):
            self._follow_up(key, job.metadata.uid)
        note_milestones(around.metrics, around.memories, key=key, job=job, snapshot=snapshot, plan=plan, now=now)
        self._forget_if_ended(job)
        waits = [] if plan.look_again_at is None else [max(_SOONEST_SECONDS, plan.look_again_at - around.clock())]
        waits += [] if applied.pause_seconds is None else [applied.pause_seconds]
        if not waits:
            return applied.next.value
        queue.add_after(key, min(waits))
        return "requeue_after"

    def _has_news(self, uid: str) -> bool:
        """Whether something was put off in this pass until all that was expected has shown, or was found not to come."""
        memory = self._around.memories.find(uid)
        return memory is not None and memory.has_news

    def _follow_up(self, key: JobKey, uid: str) -> None:
        """See to it that another pass is made when the caches show what was done in this one."""
        if self._around.expectations.are_met(uid):
            self._around.queue.add(key)
        else:
            self._around.memories.of(uid, key).has_news = True

    def _forget_if_ended(self, job: DLJob) -> None:
        phase = job.phase_in(job.stored_status)
        if phase is not None and phase.is_end and self._around.expectations.are_met(job.metadata.uid):
            self._around.memories.forget(job.metadata.uid)


def _can_be_put_off(job: DLJob, snapshot: Snapshot, plan: Plan) -> bool:
    """Whether the status only tells that a job has begun: others may go first, and a later one may tell it with what follows.

    Of a job that had pods already, a status may be the only witness of what has become of them.
    """
    has_begun = bool(snapshot.pods) or job.phase_in(job.stored_status) is not None
    return bool(plan.pods) and not (has_begun or plan.others or plan.deletions or plan.changes)


def _is_there(scope: InformerSet, key: JobKey, uid: str) -> bool:
    found = scope.job(key.resource, namespace=key.namespace, name=key.name)
    return found is not None and found.metadata.uid == uid
