"""Crons of jobs with a `cronPolicy`: created with the name of the job, and updated when the job is edited.

A Cron that a user has created is never changed. Jobs that a Cron has created have no Crons of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import structlog

from dlop.api.constants import CRON_PERMISSIONS, Reason, rbac_hint
from dlop.api.cron import CRONS, SOURCE_ANNOTATION
from dlop.api.fields import ManifestField
from dlop.api.spec import SpecError
from dlop.controller.event_recorder import EventRecorder
from dlop.controller.informer_set import InformerSet
from dlop.controller.kinds import JobKey, ManagedKind, ManagedKinds, cron_key
from dlop.job import DLJob
from dlop.kube.client import Client, PatchType
from dlop.kube.errors import AlreadyExistsError, ForbiddenError, NotFoundError
from dlop.kube.merge_patch import merge_patch
from dlop.kube.objects import CustomObject
from dlop.reconcile.cron import cron_manifest, source_of
from dlop.reconcile.plan import Event, EventType

log = structlog.get_logger(__name__)


class JobCrons:
    """Writes the Crons of jobs."""

    def __init__(self, client: Client, *, kinds: ManagedKinds, events: EventRecorder) -> None:
        self._client = client
        self._kinds = kinds
        self._events = events

    async def create(self, key: JobKey, informers: InformerSet) -> None:
        """Create a Cron that does not exist, if a job of its name has a schedule.

        Raises:
            KubeError: the Cron was not created.
        """
        job = next(iter(self._jobs(key, informers)), None)
        policy = None if job is None else job.spec.run_policy.cron_policy
        if job is None or policy is None:
            return
        if self._kinds.by_resource(CRONS) is None:
            message = f"cronPolicy has no effect: the cluster does not serve {CRONS.qualified_name}; `dlop install` installs the CRD"
            self._record(job, EventType.WARNING, Reason.CRD_NOT_INSTALLED, message)
            return
        if not await self._is_current(job):
            return  # the change of the job enqueues the Cron
        try:
            await self._client.create(CRONS, cron_manifest(job, policy), namespace=key.namespace)
        except AlreadyExistsError:
            return  # the cache is going to show it
        except ForbiddenError as error:
            self._report_forbidden(job, "create", error)
            raise
        self._record(job, EventType.NORMAL, Reason.CREATED, f"created Cron {key.name}")

    async def update(self, key: JobKey, informers: InformerSet, cron: CustomObject) -> bool:
        """Update a Cron whose job was edited. Returns whether it was changed.

        Raises:
            KubeError: the Cron was not updated.
        """
        if cron.metadata.deletion_timestamp is not None:
            return False
        source, is_changed = cron.metadata.annotations.get(SOURCE_ANNOTATION), False
        for job in self._jobs(key, informers):
            if source is None or not _creates_kind(cron, job):
                message = f"cronPolicy has no effect: Cron {key.name} exists and was not created for this job; delete or rename one of them"
                self._record(job, EventType.WARNING, Reason.NAME_CONFLICT, message)
            elif source != source_of(job) and await self._is_current(job):
                await self._patch(key, cron, job)
                is_changed = True
        return is_changed

    async def _patch(self, key: JobKey, cron: CustomObject, job: DLJob) -> None:
        spec = cron_manifest(job, job.spec.run_policy.cron_policy or {})["spec"]
        version = {"uid": cron.metadata.uid, "resourceVersion": cron.metadata.resource_version}
        metadata = {**version, "annotations": {SOURCE_ANNOTATION: source_of(job)}}
        patch = {"metadata": metadata, **merge_patch({"spec": msgspec.json.decode(cron.spec)}, {"spec": spec})}
        try:
            await self._client.patch(CRONS, key.name, patch, patch_type=PatchType.MERGE, namespace=key.namespace)
        except ForbiddenError as error:
            self._report_forbidden(job, "update", error)
            raise

    async def _is_current(self, job: DLJob) -> bool:
        """Whether the server has this generation of a job.

        With a stale cache, a Cron that a user has deleted after its job would come back, and a newer Cron would get an old schedule.
        """
        metadata = job.metadata
        try:
            live = await self._client.get(job.job_type.resource, metadata.name, namespace=metadata.namespace)
        except NotFoundError:
            return False
        return (live["metadata"]["uid"], live["metadata"]["generation"]) == (metadata.uid, metadata.generation)

    def _jobs(self, key: JobKey, informers: InformerSet) -> Iterator[DLJob]:
        """The jobs with a schedule and the name of this Cron: at most one of each kind."""
        jobs = (_scheduled_job(kind, informers.job(kind.resource, namespace=key.namespace, name=key.name)) for kind in self._kinds)
        return (job for job in jobs if job is not None)

    def _report_forbidden(self, job: DLJob, verb: str, error: ForbiddenError) -> None:
        hint = rbac_hint(CRON_PERMISSIONS, namespace=job.metadata.namespace)
        message = f"cannot {verb} Cron {job.metadata.name} for cronPolicy: {error}; {hint}"
        self._record(job, EventType.WARNING, Reason.FORBIDDEN, message)

    def _record(self, job: DLJob, event_type: EventType, reason: str, message: str) -> None:
        key = JobKey(job.job_type.resource, job.metadata.namespace, job.metadata.name)
        self._events.record(key, job.metadata, Event(event_type, reason, message))


def _creates_kind(cron: CustomObject, job: DLJob) -> bool:
    """Whether a Cron creates jobs of the kind of this one, in any version."""
    template = ManifestField("spec", msgspec.json.decode(cron.spec)).get("template")
    group = str(template.get("apiVersion").value).rpartition("/")[0]
    return (group, template.get("kind").value) == (job.job_type.group, job.job_type.kind)


def _scheduled_job(kind: ManagedKind, job_object: CustomObject | None) -> DLJob | None:
    """A job that is valid, has a schedule, and is not deleted or managed by another controller."""
    if job_object is None or kind.make_job is None or job_object.metadata.deletion_timestamp is not None or cron_key(job_object) is None:
        return None
    job = kind.make_job(job_object)
    try:
        is_scheduled = job.spec.run_policy.cron_policy is not None
    except SpecError:
        return None  # the status of the job says what is wrong
    return job if is_scheduled and not job.managed_by_other else None
