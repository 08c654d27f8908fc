"""Passes over Crons, which create jobs on a schedule.

A Cron has a key in the queue of jobs, and its pass has the same steps as that of a job: the caches are read once, a pure function plans,
the plan is executed, and one status write ends the pass. Its jobs are its children: their changes enqueue it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import structlog

from dlop.api.child_objects import Create
from dlop.api.constants import CRON_PERMISSIONS, Reason, rbac_hint
from dlop.api.cron import CRON_NAME_LABEL, SCHEDULED_TIME_ANNOTATION, CronSpec, read_cron_spec
from dlop.api.names import format_selector, label_value
from dlop.api.record import Blocked
from dlop.api.spec import Problem, SpecError
from dlop.controller.event_recorder import EventRecorder
from dlop.controller.informer_set import InformerSet
from dlop.controller.job_crons import JobCrons
from dlop.controller.job_freshness import JobFreshness
from dlop.controller.job_state import JobStates
from dlop.controller.kinds import JobKey, ManagedKind, ManagedKinds
from dlop.controller.metrics import ControllerMetrics
from dlop.controller.writer import WriteOutcome, Writer, WriteResult
from dlop.job import DLJob
from dlop.kube.client import Client
from dlop.kube.errors import ForbiddenError
from dlop.kube.expectations import Expectations
from dlop.kube.merge_patch import merge_patch
from dlop.kube.objects import CustomObject, ObjectMeta
from dlop.kube.types import JsonObject
from dlop.kube.workqueue import WorkQueue
from dlop.reconcile.cron import CreatedJob, CronPlan, CronSnapshot, finish_pass, plan_cron, read_status

log = structlog.get_logger(__name__)

_MIN_REQUEUE_SECONDS = 0.05
_TEMPLATE = "spec.template"


class CronReconciler:
    def __init__(
        self,
        client: Client,
        *,
        queue: WorkQueue[JobKey],
        expectations: Expectations,
        job_states: JobStates,
        kinds: ManagedKinds,
        events: EventRecorder,
        metrics: ControllerMetrics,
        freshness: JobFreshness,
        clock: Callable[[], float],
        runs_all_kinds: bool,
    ) -> None:
        """With `runs_all_kinds`, a job of a kind that this operator does not run is an error. Otherwise another operator runs it."""
        self._client = client
        self._queue = queue
        self._expectations = expectations
        self._job_states = job_states
        self._kinds = kinds
        self._events = events
        self._metrics = metrics
        self._freshness = freshness
        self._clock = clock
        self._runs_all_kinds = runs_all_kinds
        self._job_crons = JobCrons(client, kinds=kinds, events=events)

    async def reconcile_missing(self, key: JobKey, informers: InformerSet) -> None:
        """Run a pass over a Cron that does not exist. Creates it if a job has asked for it.

        Raises:
            KubeError: the Cron was not created.
        """
        await self._job_crons.create(key, informers)
        self._queue.forget(key)

    async def reconcile(self, key: JobKey, informers: InformerSet, cron: CustomObject) -> str:
        """Run one pass. Returns the `result` label of the metrics.

        Raises:
            KubeError: the Cron or its status could not be written.
        """
        if await self._job_crons.update(key, informers, cron):
            return "success"  # the watch event of the update enqueues the Cron
        uid, now = cron.metadata.uid, self._clock()
        self._begin_pass(uid, generation=cron.metadata.generation)
        snapshot = self._build_snapshot(informers, cron)
        if snapshot is None:
            self._queue.forget(key)
            return "success"
        plan = plan_cron(snapshot, now=now)
        if (plan.deletes or plan.create is not None) and not await self._is_fresh(informers, key, snapshot):
            log.info("caches are stale, retrying")
            return self._retry(key)
        writer = Writer(self._client, self._expectations, informers, key, uid)
        result = await self._execute(writer, plan, cron.metadata)
        if result is None:
            return self._retry(key)
        status, events = finish_pass(cron, plan, created=result.created, rejection=result.rejection, now=now)
        patch = merge_patch(read_status(cron), status)
        if patch:
            await writer.patch_status(patch, resource_version=cron.metadata.resource_version, cancel_if=None)
        for event in events:
            self._events.record(key, cron.metadata, event)
        return self._retry(key) if result.backs_off else self._requeue(key, plan)

    def _begin_pass(self, uid: str, *, generation: int) -> None:
        state = self._job_states.get(uid)
        if state is not None:
            state.begin_pass(generation=generation)
            for resource, name in tuple(state.name_conflicts):
                self._job_states.clear_conflict(uid, resource, name)

    def _requeue(self, key: JobKey, plan: CronPlan) -> str:
        """The status write and the changes of the jobs enqueue the Cron, too."""
        self._queue.forget(key)
        if plan.requeue_at is None:
            return "success"
        self._queue.add_after(key, max(_MIN_REQUEUE_SECONDS, plan.requeue_at - self._clock()))
        return "requeue_after"

    def _retry(self, key: JobKey) -> str:
        self._queue.add_rate_limited(key)
        return "error"

    # --- the snapshot ------------------------------------------------------------------------------------------------

    def _build_snapshot(self, informers: InformerSet, cron: CustomObject) -> CronSnapshot | None:
        """What the caches show; None if another operator runs the Cron, or if the jobs of its kind are not known yet."""
        watched = [kind for kind in self._kinds if kind.make_job is not None and informers.is_synced(kind.resource)]
        jobs = tuple(job for kind in watched for job in _created_jobs(informers, kind, cron.metadata))
        groups_and_kinds = frozenset((kind.resource.group, kind.resource.kind) for kind in watched)
        try:
            spec = read_cron_spec(msgspec.json.decode(cron.spec), namespace=cron.metadata.namespace)
        except SpecError as error:
            return CronSnapshot(cron=cron, spec=None, problems=error.problems, jobs=jobs, watched=groups_and_kinds)
        template = spec.template
        kind = self._kinds.by_owner(api_version=template.api_version, kind=template.kind)
        if kind is None or kind.make_job is None:
            if not self._runs_all_kinds:
                return None
            problem = Problem(
                f"{_TEMPLATE}.kind",
                f"must be a kind of job that the operator runs and whose CRD is installed, got {template.api_version} {template.kind}",
            )
            return CronSnapshot(cron=cron, spec=spec, problems=(problem,), jobs=jobs, watched=groups_and_kinds)
        if kind not in watched:
            return None  # the end of the list enqueues the Cron
        problems = _check_template(kind.make_job(_template_object(spec, cron)), template.api_version)
        return CronSnapshot(cron=cron, spec=spec, problems=problems, job_resource=kind.resource, jobs=jobs, watched=groups_and_kinds)

    async def _is_fresh(self, informers: InformerSet, key: JobKey, snapshot: CronSnapshot) -> bool:
        """Whether the caches show all that an earlier leader has written about the Cron and its jobs."""
        if not await self._freshness.is_current(informers, key, snapshot.cron):
            return False
        resource = snapshot.job_resource
        if resource is None or await self._freshness.has_caught_up(informers, resource):
            return True
        # Where jobs rarely change, the version of their cache rises only once a minute.
        selector = format_selector({CRON_NAME_LABEL: label_value(key.name)})
        live = await self._client.list(resource, namespace=key.namespace, label_selector=selector)
        known = {job.uid for job in snapshot.jobs}
        return all(job["metadata"]["uid"] in known for job in live["items"] if _is_owned(job, snapshot.cron.metadata.uid))

    # --- effects -----------------------------------------------------------------------------------------------------

    async def _execute(self, writer: Writer, plan: CronPlan, cron: ObjectMeta) -> _Result | None:
        """Delete and create the jobs of a plan. None if the outcome of a write is unknown or the caches are stale."""
        for delete in plan.deletes:
            outcome = await writer.delete(delete)
            if outcome.result is not WriteResult.DONE:
                log.info("failed to delete job, retrying", name=delete.name, error=str(outcome.error))
                return None
            self._metrics.count_objects(Counter({("deleted", delete.resource.qualified_name): 1}))
        return _Result() if plan.create is None else await self._create_job(writer, plan, plan.create, cron)

    async def _create_job(self, writer: Writer, plan: CronPlan, create: Create, cron: ObjectMeta) -> _Result | None:
        outcome = await writer.create(create, msgspec.json.encode(create.body))
        if outcome.result is WriteResult.DONE:
            self._metrics.count_objects(Counter({("created", create.resource.qualified_name): 1}))
            for event in plan.create_events:
                self._events.record(writer.key, cron, event)
            return _Result(created=True)
        if outcome.result is WriteResult.STALE and outcome.error is None:
            return _Result(created=True)  # by an earlier pass
        if outcome.result is WriteResult.REJECTED:
            return _Result(rejection=_describe_rejection(outcome, create, namespace=writer.key.namespace), backs_off=True)
        if outcome.result is WriteResult.CONFLICT:
            # The deletion of the other object enqueues the Cron.
            self._job_states.add_conflict(writer.uid, writer.key, create.resource, create.name, {})
            message = f"{create.resource.kind} {create.name} exists and does not belong to this Cron; delete it"
            return _Result(rejection=Blocked(reason=Reason.NAME_CONFLICT, message=message))
        log.info("failed to create job, retrying", error=str(outcome.error))
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    """What became of a plan."""

    created: bool = False
    """Whether the job to create exists."""
    rejection: Blocked | None = None
    """Why it does not exist."""
    backs_off: bool = False
    """Whether to try again after a back-off."""


def _is_owned(job: JsonObject, uid: str) -> bool:
    return any(owner.get("uid") == uid for owner in job["metadata"].get("ownerReferences") or ())


def _created_jobs(informers: InformerSet, kind: ManagedKind, cron: ObjectMeta) -> list[CreatedJob]:
    cache = informers.cache(kind.resource)
    if cache is None or kind.make_job is None:
        return []
    return [_created_job(kind.make_job(job_object), cron) for job_object in cache.owned_by(cron.uid)]


def _created_job(job: DLJob, cron: ObjectMeta) -> CreatedJob:
    metadata, status = job.metadata, job.stored_status
    # Jobs that KubeDL has created have the time only in their name.
    scheduled_at = metadata.annotations.get(SCHEDULED_TIME_ANNOTATION) or metadata.name.removeprefix(f"{cron.name}-")
    finished_at = job.status.read_finish_time(status)
    return CreatedJob(
        resource=job.job_type.resource,
        name=metadata.name,
        uid=metadata.uid,
        created_at=0.0 if metadata.creation_timestamp is None else metadata.creation_timestamp.timestamp(),
        scheduled_at=float(scheduled_at) if _is_time(scheduled_at) else None,
        phase=job.status.read_phase(status),
        finished_at=finished_at if isinstance(finished_at, str) else "",
        is_terminating=metadata.deletion_timestamp is not None,
    )


def _is_time(text: str) -> bool:
    """Whether a text is a number of seconds before the year 9999."""
    return text.isascii() and text.isdecimal() and len(text) <= 11


def _template_object(spec: CronSpec, cron: CustomObject) -> CustomObject:
    """A job as the template describes it."""
    template = spec.template
    annotations = template.metadata.get("annotations") or {}
    metadata = ObjectMeta(name=template.name or cron.metadata.name, namespace=cron.metadata.namespace, annotations=annotations)
    raw_spec = msgspec.Raw(msgspec.json.encode(template.spec))
    return CustomObject(api_version=template.api_version, kind=template.kind, metadata=metadata, spec=raw_spec)


def _check_template(job: DLJob, api_version: str) -> tuple[Problem, ...]:
    if api_version not in job.job_type.api_versions:
        return (Problem(f"{_TEMPLATE}.apiVersion", f"must be {' or '.join(job.job_type.api_versions)}, got {api_version}"),)
    try:
        job.spec  # noqa: B018 - parsed only to validate it
    except SpecError as error:
        return tuple(Problem(f"{_TEMPLATE}.workload.{problem.path}", problem.message) for problem in error.problems)
    return ()


def _describe_rejection(outcome: WriteOutcome, create: Create, *, namespace: str) -> Blocked:
    message = f"cannot create {create.resource.kind} {create.name}: {outcome.error}"
    if isinstance(outcome.error, ForbiddenError):
        return Blocked(reason=Reason.FORBIDDEN, message=f"{message}; {rbac_hint(CRON_PERMISSIONS, namespace=namespace)}")
    return Blocked(reason=Reason.FAILED_CREATE, message=message)
