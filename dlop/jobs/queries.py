"""Read the views of jobs from the API server, once or after every change."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from dlop.api.constants import JOB_UID_LABEL
from dlop.api.tensorboard import COMPANION_LABEL
from dlop.job import DLJob
from dlop.jobs.errors import WaitFailedError
from dlop.jobs.history import KubeEvent
from dlop.jobs.list_watch import ChangeSet, WatchScope, list_and_watch, merge
from dlop.jobs.lookup import JobHandle
from dlop.jobs.view import JobView, build_view
from dlop.kube.client import Client
from dlop.kube.objects import CustomObject, Pod, T, object_decoder
from dlop.kube.resources import CORE_EVENTS, PODS

_REPLICAS = f"{JOB_UID_LABEL},!{COMPANION_LABEL}"
"""The label selector of the pods of all jobs, without TensorBoards."""


async def get_job_view(client: Client, job: JobHandle) -> JobView:
    """The view of one job with its history."""
    pods, events = await asyncio.gather(
        list_scope(client, _pod_scope(job), Pod),
        list_scope(client, _event_scope(job), KubeEvent),
    )
    return build_view(job, pods, events)


async def list_job_views(client: Client, jobs: Iterable[JobHandle], *, namespace: str | None) -> list[JobView]:
    """The views of many jobs, without their history."""
    job_list = list(jobs)
    pods = await list_scope(client, WatchScope(resource=PODS, namespace=namespace, label_selector=_REPLICAS), Pod) if job_list else []
    return build_views(job_list, pods)


def build_views(jobs: Iterable[JobHandle], pods: Iterable[Pod]) -> list[JobView]:
    """Views sorted by namespace and name. `pods` are the pods of all jobs."""
    by_job: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        by_job[_job_uid(pod)].append(pod)
    return _sorted(build_view(job, by_job[job.uid]) for job in jobs)


@asynccontextmanager
async def watch_job(client: Client, job: JobHandle) -> AsyncIterator[AsyncGenerator[JobView, None]]:
    """The view of a job, now and after every change of the job, its pods and their events.

    Iterating raises WaitFailedError when the job is deleted.
    """
    sources: tuple[AsyncGenerator[ChangeSet[Any], None], ...] = (
        list_and_watch(client, job_scope(job), CustomObject),
        list_and_watch(client, _pod_scope(job), Pod),
        list_and_watch(client, _event_scope(job), KubeEvent),
    )
    async with merge(*sources) as changes:
        yield _job_views(job, changes)


async def _job_views(job: JobHandle, changes: AsyncGenerator[tuple[int, ChangeSet[Any]], None]) -> AsyncGenerator[JobView, None]:
    known: tuple[dict[str, Any], dict[str, Any], dict[str, Any]] = ({}, {}, {})
    listed: set[int] = set()
    async for source, change_set in changes:
        listed.add(source)
        for item in change_set.deleted:
            known[source].pop(item.metadata.uid, None)
        known[source].update({item.metadata.uid: item for item in change_set.upserted})
        jobs, pods, events = known
        if job.uid not in jobs and 0 in listed:
            raise WaitFailedError(f"{job} was deleted.")
        # Before the pods are listed, the job would seem to have none.
        if len(listed) == len(known):
            yield build_view(JobHandle(job.kind, jobs[job.uid]), pods.values(), events.values())


@dataclass(frozen=True, slots=True)
class ViewChanges:
    """Views sorted by namespace and name."""

    changed: list[JobView]
    """Of new jobs, and of jobs that changed or whose pods changed."""
    deleted: list[JobView]
    """The last views of deleted jobs."""


@asynccontextmanager
async def watch_jobs(
    client: Client, kinds: Iterable[type[DLJob]], *, namespace: str | None, name: str | None = None
) -> AsyncIterator[AsyncGenerator[ViewChanges, None]]:
    """The views of all jobs of these kinds, if there are any, then the changes. Builds only the views of jobs that changed."""
    kinds = list(kinds)
    selector = None if name is None else f"metadata.name={name}"
    jobs = [WatchScope(resource=kind.job_type.resource, namespace=namespace, field_selector=selector) for kind in kinds]
    pods = WatchScope(resource=PODS, namespace=namespace, label_selector=_REPLICAS)
    sources: list[AsyncGenerator[ChangeSet[Any], None]] = [list_and_watch(client, scope, CustomObject) for scope in jobs]
    async with merge(*sources, list_and_watch(client, pods, Pod)) as changes:
        yield _view_changes(kinds, changes)


async def _view_changes(
    kinds: list[type[DLJob]], changes: AsyncGenerator[tuple[int, ChangeSet[Any]], None]
) -> AsyncGenerator[ViewChanges, None]:
    views = _JobViews()
    listed: set[int] = set()
    async for source, change_set in changes:
        listed.add(source)
        if source < len(kinds):
            views.update_jobs(kinds[source], change_set)
        else:
            views.update_pods(change_set)
        # Before the pods are listed, the jobs would seem to have none.
        if len(listed) > len(kinds):
            view_changes = views.rebuild()
            if view_changes.changed or view_changes.deleted:
                yield view_changes


class _JobViews:
    """The views of all jobs. Remembers which of them are stale."""

    def __init__(self) -> None:
        self._jobs: dict[str, JobHandle] = {}
        self._pods: dict[str, Pod] = {}
        self._pods_by_job: dict[str, dict[str, Pod]] = defaultdict(dict)
        self._views: dict[str, JobView] = {}
        self._stale: set[str] = set()
        """UIDs of jobs whose views must be built again."""

    def update_jobs(self, kind: type[DLJob], change_set: ChangeSet[CustomObject]) -> None:
        for item in change_set.deleted:
            self._jobs.pop(item.metadata.uid, None)
            self._stale.add(item.metadata.uid)
        for item in change_set.upserted:
            known = self._jobs.get(item.metadata.uid)
            if known is None or known.metadata.resource_version != item.metadata.resource_version:
                self._jobs[item.metadata.uid] = JobHandle(kind, item)
                self._stale.add(item.metadata.uid)

    def update_pods(self, change_set: ChangeSet[Pod]) -> None:
        for pod in change_set.deleted:
            self._remove_pod(pod.metadata.uid)
        for pod in change_set.upserted:
            known = self._pods.get(pod.metadata.uid)
            if known is None or known.metadata.resource_version != pod.metadata.resource_version:
                self._remove_pod(pod.metadata.uid)
                self._pods[pod.metadata.uid] = pod
                self._pods_by_job[_job_uid(pod)][pod.metadata.uid] = pod
                self._stale.add(_job_uid(pod))

    def _remove_pod(self, uid: str) -> None:
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        job_uid = _job_uid(pod)
        self._stale.add(job_uid)
        del self._pods_by_job[job_uid][uid]
        if not self._pods_by_job[job_uid]:
            del self._pods_by_job[job_uid]

    def rebuild(self) -> ViewChanges:
        """Build the stale views again."""
        changed, deleted = [], []
        for uid in self._stale:
            job, last_view = self._jobs.get(uid), self._views.pop(uid, None)
            if job is not None:
                self._views[uid] = build_view(job, self._pods_by_job.get(uid, {}).values())
                changed.append(self._views[uid])
            elif last_view is not None:
                deleted.append(last_view)
        self._stale.clear()
        return ViewChanges(_sorted(changed), _sorted(deleted))


def _job_uid(pod: Pod) -> str:
    return pod.metadata.labels.get(JOB_UID_LABEL, "")


def _sorted(views: Iterable[JobView]) -> list[JobView]:
    return sorted(views, key=lambda view: (view.namespace, view.name, view.reference))


def job_scope(job: JobHandle) -> WatchScope:
    return WatchScope(resource=job.resource, namespace=job.namespace, field_selector=f"metadata.name={job.name}")


def _pod_scope(job: JobHandle) -> WatchScope:
    return WatchScope(resource=PODS, namespace=job.namespace, label_selector=f"{JOB_UID_LABEL}={job.uid},!{COMPANION_LABEL}")


def _event_scope(job: JobHandle) -> WatchScope:
    # No field selector matches the events of a job together with those of its pods.
    return WatchScope(resource=CORE_EVENTS, namespace=job.namespace)


async def list_scope(client: Client, scope: WatchScope, kind: type[T]) -> list[T]:
    read = object_decoder(kind)
    pages = client.pages(
        scope.resource, namespace=scope.namespace, label_selector=scope.label_selector, field_selector=scope.field_selector
    )
    return [read(item) async for page in pages for item in page.items]


async def list_pods(client: Client, job: JobHandle) -> list[Pod]:
    return await list_scope(client, _pod_scope(job), Pod)


def watch_pods(client: Client, job: JobHandle) -> AsyncGenerator[ChangeSet[Pod], None]:
    return list_and_watch(client, _pod_scope(job), Pod)
