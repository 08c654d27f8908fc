"""The reconcile loop: takes a key from the queue and runs one pass for its job.

There are three kinds of errors. User errors are part of the plan and become conditions. Cluster errors are retried with
back-off. Bugs are logged with a traceback and affect only the one job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import structlog
from structlog.contextvars import bound_contextvars

from dlop.api.cron import CRONS
from dlop.api.spec import SpecError
from dlop.controller.adoption import adopt
from dlop.controller.apply import Applier, ApplyResult, Requeue
from dlop.controller.autoscaler import Autoscaler
from dlop.controller.crons import CronReconciler
from dlop.controller.event_recorder import EventRecorder
from dlop.controller.host_ports import HostPorts
from dlop.controller.informer_set import InformerSet
from dlop.controller.job_freshness import JobFreshness
from dlop.controller.job_state import JobStates
from dlop.controller.kinds import JobKey, ManagedKind, ManagedKinds
from dlop.controller.metrics import ControllerMetrics, count_deletion, count_transitions
from dlop.controller.plans_without_job import finish_plans_without_job
from dlop.controller.snapshot_builder import build_snapshot
from dlop.controller.writer import Writer
from dlop.job import DLJob
from dlop.kube.cache import parse_resource_version
from dlop.kube.client import Client
from dlop.kube.errors import ConflictError, KubeError, NotFoundError, NotLeaderError
from dlop.kube.expectations import Expectations
from dlop.kube.objects import CustomObject, object_decoder
from dlop.kube.resources import Resource
from dlop.kube.workqueue import QueueShutDownError, WorkQueue
from dlop.reconcile.context import persisted_state
from dlop.reconcile.kueue import waits_in_queue
from dlop.reconcile.plan import Plan
from dlop.reconcile.snapshot import Snapshot

log = structlog.get_logger(__name__)

# Lower bound of a requeue delay. A deadline that has just passed, due to clock rounding, must not cause a hot loop.
_MIN_REQUEUE_SECONDS = 0.05
# Passes that only wait to write a status, per worker. They hold no slot, so that other jobs can be reconciled meanwhile.
_STATUS_WRITERS_PER_WORKER = 3
# Jobs of this size are planned in a thread. Planning takes about 15 ms for each 1,000 replicas.
_LARGE_JOB_REPLICAS = 1_000
# Steps of one pass: write the record, delete pods, create their replacements.
_MAX_STEPS = 3


_decode_job = object_decoder(CustomObject)


def max_concurrent_reconciles(workers: int) -> int:
    """Number of concurrent passes for this number of workers, including passes that only wait to write a status."""
    return workers * (1 + _STATUS_WRITERS_PER_WORKER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """Objects that all passes share."""

    client: Client
    queue: WorkQueue[JobKey]
    expectations: Expectations
    job_states: JobStates
    kinds: ManagedKinds
    events: EventRecorder
    metrics: ControllerMetrics
    clock: Callable[[], float]
    forget: Callable[[str], None]
    """Called with the uid of a deleted job."""
    max_parallel_writes: int
    """Maximum number of concurrent writes of one job."""
    host_ports: HostPorts
    watch: Callable[[Resource, JobKey], None]
    """Called with a resource that must be watched before a job can continue."""
    autoscaler: Autoscaler | None = None
    """None if it is disabled."""
    runs_all_kinds: bool = True
    """Whether no other operator runs the kinds of jobs that this one does not run."""


class Slot:
    """A worker slot. Released early, before the last status write of a pass, so that the next job can start."""

    def __init__(self, slots: asyncio.Semaphore) -> None:
        self._slots = slots
        self._is_held = False

    async def __aenter__(self) -> Self:
        await self._slots.acquire()
        self._is_held = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Release the slot. Idempotent."""
        if self._is_held:
            self._is_held = False
            self._slots.release()


class Controller:
    def __init__(self, deps: Dependencies, *, workers: int) -> None:
        self._deps = deps
        self._max_passes = max_concurrent_reconciles(workers)
        self._slots = asyncio.Semaphore(workers)
        self._informer_sets: dict[str | None, InformerSet] = {}
        self._is_stopping = False
        self._is_running = False
        self._freshness = JobFreshness(deps.client)
        self._crons = CronReconciler(
            deps.client,
            queue=deps.queue,
            expectations=deps.expectations,
            job_states=deps.job_states,
            kinds=deps.kinds,
            events=deps.events,
            metrics=deps.metrics,
            freshness=self._freshness,
            clock=deps.clock,
            runs_all_kinds=deps.runs_all_kinds,
        )
        # A planning thread and the event loop take turns every 5 ms. With several threads the loop would wait for each of them.
        self._planning_thread = asyncio.Lock()

    def set_informer_sets(self, informer_sets: Sequence[InformerSet]) -> None:
        self._informer_sets = {informers.namespace: informers for informers in informer_sets}

    async def run(self) -> None:
        """Reconcile jobs until stopped or cancelled."""
        self._is_running = True
        self._freshness.start_term()
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self._max_passes):
                    group.create_task(self._work(), name=f"worker {number}")
        finally:
            self._is_running = False

    def stop(self) -> None:
        """Let running passes finish and start no more. `run` then returns."""
        self._is_stopping = True
        self._deps.queue.shutdown()

    def on_job_deleted(self, resource: Resource, last: CustomObject) -> None:
        """Count a deleted job, given its last cached state. A standby does not count, because the leader does."""
        kind = self._deps.kinds.by_resource(resource)
        if self._is_running and kind is not None and kind.make_job is not None:
            count_deletion(self._deps.metrics, resource, kind.make_job(last))

    # --- workers -----------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        queue, metrics = self._deps.queue, self._deps.metrics
        loop = asyncio.get_running_loop()
        while True:
            async with Slot(self._slots) as slot:
                try:
                    key = await queue.get()
                except QueueShutDownError:
                    return
                started_at = loop.time()
                metrics.active += 1
                try:
                    if not self._is_stopping:
                        result = await self._reconcile_safely(key, slot)
                        metrics.observe_pass(key.resource, result, seconds=loop.time() - started_at)
                finally:
                    metrics.active -= 1
                    queue.done(key)

    async def _reconcile_safely(self, key: JobKey, slot: Slot) -> str:
        with bound_contextvars(kind=key.resource.kind, namespace=key.namespace, job=key.name):
            try:
                return await self._reconcile(key, slot)
            except NotLeaderError:
                return Requeue.NOW.value  # the new leader reconciles the job
            except NotFoundError as error:
                log.info("object not found, retrying", error=str(error))
            except ConflictError as error:
                log.info("job was modified, retrying", error=str(error))
            except KubeError as error:
                log.warning("API request failed, retrying", error=str(error))
            except Exception:  # a bug that one job triggers must not affect other jobs
                log.exception("reconcile failed; this is a bug in dlop or in the framework")
            self._deps.queue.add_rate_limited(key)
            return Requeue.BACKOFF.value

    # --- one pass ----------------------------------------------------------------------------------------------------

    async def _reconcile(self, key: JobKey, slot: Slot) -> str:
        """Check that the caches are fresh enough, then run a pass. Returns the `result` label of the metrics."""
        informers, kind, job_object = self._find(key)
        if informers is None or kind is None or job_object is None:
            if informers is not None and key.resource == CRONS:
                await self._crons.reconcile_missing(key, informers)
            elif informers is not None and kind is not None:
                await finish_plans_without_job(self._deps.client, informers, kind, key, now=self._deps.clock())
            self._deps.queue.forget(key)
            return "success"
        deps, uid = self._deps, job_object.metadata.uid
        if not deps.expectations.satisfied(uid):
            deps.job_states.get_or_create(uid, key).dirty = True  # the event that satisfies them enqueues the job again
            return "success"
        if not informers.gate.ready(uid, wake=lambda: deps.queue.add(key)):
            return "success"
        if not informers.record_gate.ready(job_object, wake=lambda: deps.queue.add(key)):
            return "success"
        try:
            if kind.make_job is None:
                return await self._crons.reconcile(key, informers, job_object)
            return await self._run_pass(key, informers, kind, kind.make_job, job_object, slot)
        finally:
            # The delete handler may have run during the pass, before the pass added expectations and state.
            if not _exists(informers, key, uid):
                deps.forget(uid)

    async def _run_pass(
        self,
        key: JobKey,
        informers: InformerSet,
        kind: ManagedKind,
        make_job: Callable[[CustomObject], DLJob],
        job_object: CustomObject,
        slot: Slot,
    ) -> str:
        """Plan and apply, in several steps if each follows from the responses to the writes of the previous one.

        For example, a failed pod is recorded, deleted and replaced in one pass, without waiting for the caches in between.
        """
        deps, uid = self._deps, job_object.metadata.uid
        state = deps.job_states.get(uid)
        if state is not None:
            state.begin_pass(generation=job_object.metadata.generation)
        # Objects that an earlier pass has deleted stay deleted for this pass, although the caches may still show them.
        known_deletes = set() if state is None else set(state.known_deletes)
        writer = Writer(deps.client, deps.expectations, informers, key, uid, removed=known_deletes)
        for remaining_steps in reversed(range(_MAX_STEPS)):
            job, now = make_job(job_object), deps.clock()
            snapshot, orphans = build_snapshot(
                informers,
                kind,
                job_object,
                job_states=deps.job_states,
                removed=writer.removed,
            )
            snapshot = await self._with_host_ports(key, job, snapshot)
            if orphans and await adopt(writer, job_object, orphans):
                deps.queue.add(key)
                return Requeue.NOW.value
            plan = await self._plan(job, snapshot, now)
            for resource in plan.watch:
                deps.watch(resource, key)
            changes_children = plan.creates or plan.companions or plan.deletes or plan.patches or plan.quota_reports
            if changes_children and not await self._is_current(informers, key, job_object, plan):
                log.info("job cache is stale, retrying")
                deps.queue.add_rate_limited(key)
                return Requeue.BACKOFF.value
            self._update_pod_counts(key, job, snapshot, plan)
            is_outdated = self._outdated_check(key) if _can_delay_status(job, snapshot, plan) else None
            applier = Applier(writer, job, deps.job_states, deps.events, deps.max_parallel_writes, is_outdated)
            shows_effects = await self._apply(applier, plan, slot)
            next_object = _newest(informers, key, job_object, applier.result.written_job) if shows_effects and remaining_steps else None
            if next_object is None:
                break
            count_transitions(deps.metrics, deps.job_states, key=key, job=job, snapshot=snapshot, plan=plan, now=now)
            deps.job_states.get_or_create(uid, key).known_deletes |= writer.cached_uids(plan.deletes)
            job_object = next_object
        return self._requeue(key, job, snapshot, plan, applier.result, now)

    async def _is_current(self, informers: InformerSet, key: JobKey, job_object: CustomObject, plan: Plan) -> bool:
        """Whether the cached job is new enough to act on it. It need not be the newest one, but the job must exist."""
        if not await self._freshness.is_current(informers, key, job_object):
            return False
        state = self._deps.job_states.get(job_object.metadata.uid)
        if plan.pods and state is not None and state.lost_new_pods:
            if not await self._freshness.exists(key, job_object.metadata.uid):
                return False
            state.lost_new_pods = False
        return True

    async def _with_host_ports(self, key: JobKey, job: DLJob, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the first port of a job that needs ports of the host network now, if enough are free.

        Raises:
            KubeError: it is not known which ports earlier leaders have assigned.
        """
        try:
            count = job.spec.host_ports
        except SpecError:
            return snapshot
        if not count or job.spec.run_policy.suspend or job.managed_by_other:
            return snapshot  # a suspended job keeps the ports that it has
        phase = persisted_state(job).phase
        if (phase is not None and phase.is_finished) or waits_in_queue(job, snapshot):
            return snapshot
        uid, ports = job.metadata.uid, self._deps.host_ports
        if ports.find(uid, count) is None:
            kinds = [kind.resource for kind in self._deps.kinds if kind.make_job is not None]
            for informers in self._informer_sets.values():
                await self._freshness.catch_up(informers, kinds)
        return replace(snapshot, assigned_host_port=ports.assign(uid, key, count))

    async def _plan(self, job: DLJob, snapshot: Snapshot, now: float) -> Plan:
        """Plan a step. A large job is planned in a thread, so that it does not block the event loop.

        The thread shares no mutable state with the loop: planning is pure, the job belongs to this pass, and cached objects are replaced
        and not changed. The job has parsed its spec before, because parsed specs are in a cache that all passes use.
        """
        if not _is_large(job, snapshot):
            return job.reconcile(snapshot, now)
        async with self._planning_thread:
            return await asyncio.to_thread(job.reconcile, snapshot, now)

    async def _apply(self, applier: Applier, plan: Plan, slot: Slot) -> bool:
        """Apply a plan. Returns whether the responses show all its effects."""
        try:
            await applier.execute(plan)
        finally:
            self._deps.metrics.count_objects(applier.result.object_counts)
        if not applier.shows_effects(plan):
            slot.release()
        await applier.publish(plan)
        return applier.shows_effects(plan) and (plan.status is None or applier.result.written_job is not None)

    def _update_pod_counts(self, key: JobKey, job: DLJob, snapshot: Snapshot, plan: Plan) -> None:
        """Count the pods of a job, so that the last pod to enter a phase is recognized."""
        uid = job.metadata.uid
        phase = job.status.read_phase(job.stored_status)
        is_active = plan.pods or (snapshot.pods and (phase is None or not phase.is_finished))
        if is_active or self._deps.job_states.get(uid) is not None:
            phases = [pod.status.phase for pod in snapshot.pods]
            self._deps.job_states.get_or_create(uid, key).update_pod_counts(phases, created=len(plan.pods), settles=plan.settles)

    def _outdated_check(self, key: JobKey) -> Callable[[], bool]:
        return lambda: not self._is_stopping and self._deps.queue.is_requeued(key)

    def _find(self, key: JobKey) -> tuple[InformerSet | None, ManagedKind | None, CustomObject | None]:
        informers = self._informer_sets.get(key.namespace) or self._informer_sets.get(None)
        kind = self._deps.kinds.by_resource(key.resource)
        job_object = None if informers is None else informers.job(key.resource, namespace=key.namespace, name=key.name)
        return informers, kind, job_object

    def _requeue(self, key: JobKey, job: DLJob, snapshot: Snapshot, plan: Plan, result: ApplyResult, now: float) -> str:
        deps, queue = self._deps, self._deps.queue
        if result.requeue is Requeue.BACKOFF:
            log.info("plan not fully applied, retrying", error=str(result.error))
            queue.add_rate_limited(key)
            return result.requeue.value
        if result.retries_quota_reports:
            queue.add_rate_limited(key)
        else:
            queue.forget(key)
        if deps.autoscaler is not None:
            deps.autoscaler.update(key, job.metadata.uid, plan.demand)
        if result.requeue is Requeue.NOW:
            queue.add(key)
            return result.requeue.value
        if (result.writes and not plan.settles) or self._is_dirty(job.metadata.uid):
            self._schedule_follow_up(key, job.metadata.uid)
        count_transitions(deps.metrics, deps.job_states, key=key, job=job, snapshot=snapshot, plan=plan, now=now)
        if not plan.companions:
            self._forget_if_finished(job)
        delays = [] if plan.requeue_at is None else [max(_MIN_REQUEUE_SECONDS, plan.requeue_at - deps.clock())]
        delays += [seconds for seconds in (result.retry_after_seconds, result.retry_companions_after_seconds) if seconds is not None]
        if not delays:
            return result.requeue.value
        queue.add_after(key, min(delays))
        return "requeue_after"

    def _is_dirty(self, uid: str) -> bool:
        state = self._deps.job_states.get(uid)
        return state is not None and state.dirty

    def _schedule_follow_up(self, key: JobKey, uid: str) -> None:
        """Make sure that another pass runs once the caches show the writes of this one."""
        if self._deps.expectations.satisfied(uid):
            self._deps.queue.add(key)
        else:
            self._deps.job_states.get_or_create(uid, key).dirty = True

    def _forget_if_finished(self, job: DLJob) -> None:
        phase = job.status.read_phase(job.stored_status)
        if phase is not None and phase.is_finished and self._deps.expectations.satisfied(job.metadata.uid):
            self._deps.job_states.forget(job.metadata.uid)


def _is_large(job: DLJob, snapshot: Snapshot) -> bool:
    try:
        replicas = job.total_replicas
    except SpecError:
        replicas = 0
    return max(replicas, len(snapshot.pods)) >= _LARGE_JOB_REPLICAS


def _can_delay_status(job: DLJob, snapshot: Snapshot, plan: Plan) -> bool:
    """Whether the status only says that the job started, so that a later pass may write it together with what follows.

    Once a job has pods, its status may be the only record of what happened to them.
    """
    has_started = bool(snapshot.pods) or job.status.read_phase(job.stored_status) is not None
    return bool(plan.pods) and not (has_started or plan.children or plan.deletes or plan.patches)


def _newest(informers: InformerSet, key: JobKey, job_object: CustomObject, written: bytes | None) -> CustomObject | None:
    """The newest known state of a job: as it was read, as this pass has written it, or as the cache shows it. None if it was deleted."""
    job_object = job_object if written is None else _decode_job(written)
    cached = informers.job(key.resource, namespace=key.namespace, name=key.name)
    if cached is None or cached.metadata.uid != job_object.metadata.uid:
        return None
    versions = [parse_resource_version(each.metadata.resource_version) for each in (cached, job_object)]
    return cached if versions[0] > versions[1] else job_object


def _exists(informers: InformerSet, key: JobKey, uid: str) -> bool:
    job_object = informers.job(key.resource, namespace=key.namespace, name=key.name)
    return job_object is not None and job_object.metadata.uid == uid
