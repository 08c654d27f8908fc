"""Looks at jobs on the server: once, or again with every change."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from dlop.api.constants import JOB_UID_LABEL
from dlop.job import DLJob
from dlop.jobs.errors import OutOfReachError
from dlop.jobs.history import KubeEvent
from dlop.jobs.list_watch import News, WatchScope, follow, merged
from dlop.jobs.lookup import JobHandle
from dlop.jobs.view import JobView, view_of
from dlop.kube.client import Client
from dlop.kube.objects import CustomObject, Pod, T, reader
from dlop.kube.resources import CORE_EVENTS, PODS


async def look_at_job(client: Client, found: JobHandle) -> JobView:
    """One job with its pods and all that was told about it."""
    pods, events = await asyncio.gather(
        _all(client, _pods_of(found), Pod),
        _all(client, _events_around(found), KubeEvent),
    )
    return view_of(found, pods, events)


async def look_at_jobs(client: Client, jobs: Iterable[JobHandle], *, namespace: str | None) -> list[JobView]:
    """Many jobs with their pods; their history is left out."""
    chosen = list(jobs)
    pods = await _all(client, WatchScope(resource=PODS, namespace=namespace, label_selector=JOB_UID_LABEL), Pod) if chosen else []
    return views_of(chosen, pods)


def views_of(jobs: Iterable[JobHandle], pods: Iterable[Pod]) -> list[JobView]:
    """The views of jobs, given the pods of all of them, in the order of their namespaces and names."""
    by_job: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        by_job[pod.metadata.labels.get(JOB_UID_LABEL, "")].append(pod)
    views = [view_of(job, by_job[job.uid]) for job in jobs]
    return sorted(views, key=lambda view: (view.namespace, view.name, view.reference))


@asynccontextmanager
async def watch_job(client: Client, found: JobHandle) -> AsyncIterator[AsyncGenerator[JobView, None]]:
    """A job as it is, and again after every change of it, of its pods and of what is told about them.

    Reading raises OutOfReachError when the job is deleted.
    """
    sources: tuple[AsyncGenerator[News[Any], None], ...] = (
        follow(client, scope_of(found), CustomObject),
        follow(client, _pods_of(found), Pod),
        follow(client, _events_around(found), KubeEvent),
    )
    async with merged(*sources) as news:
        yield _views(found, news)


async def _views(found: JobHandle, news: AsyncGenerator[tuple[int, News[Any]], None]) -> AsyncGenerator[JobView, None]:
    known: tuple[dict[str, Any], dict[str, Any], dict[str, Any]] = ({}, {}, {})
    heard: set[int] = set()
    async for number, change in news:
        heard.add(number)
        for each in change.gone:
            known[number].pop(each.metadata.uid, None)
        known[number].update({each.metadata.uid: each for each in change.there})
        jobs, pods, events = known
        if found.uid not in jobs and 0 in heard:
            raise OutOfReachError(f"{found} was deleted.")
        # The first look is a whole one: a job whose pods are not known yet would seem to have none.
        if len(heard) == len(known):
            yield view_of(JobHandle(found.kind, jobs[found.uid]), pods.values(), events.values())


@asynccontextmanager
async def watch_jobs(
    client: Client, kinds: Iterable[type[DLJob]], *, namespace: str | None, name: str | None = None
) -> AsyncIterator[AsyncGenerator[list[JobView], None]]:
    """All jobs of some kinds, and all of them again after every change."""
    chosen = list(kinds)
    selector = None if name is None else f"metadata.name={name}"
    jobs = [WatchScope(resource=kind.job_type.resource, namespace=namespace, field_selector=selector) for kind in chosen]
    pods = WatchScope(resource=PODS, namespace=namespace, label_selector=JOB_UID_LABEL)
    sources: list[AsyncGenerator[News[Any], None]] = [follow(client, scope, CustomObject) for scope in jobs]
    async with merged(*sources, follow(client, pods, Pod)) as news:
        yield _lists(chosen, news)


async def _lists(kinds: list[type[DLJob]], news: AsyncGenerator[tuple[int, News[Any]], None]) -> AsyncGenerator[list[JobView], None]:
    known: dict[str, JobHandle] = {}
    pods: dict[str, Pod] = {}
    heard: set[int] = set()
    async for number, change in news:
        heard.add(number)
        for each in change.gone:
            known.pop(each.metadata.uid, None)
            pods.pop(each.metadata.uid, None)
        for each in change.there:
            if number < len(kinds):
                known[each.metadata.uid] = JobHandle(kinds[number], each)
            else:
                pods[each.metadata.uid] = each
        if len(heard) == len(kinds) + 1:
            yield views_of(known.values(), pods.values())


def scope_of(found: JobHandle) -> WatchScope:
    """The job itself, for who wants to follow it."""
    return WatchScope(resource=found.resource, namespace=found.namespace, field_selector=f"metadata.name={found.name}")


def _pods_of(found: JobHandle) -> WatchScope:
    return WatchScope(resource=PODS, namespace=found.namespace, label_selector=f"{JOB_UID_LABEL}={found.uid}")


def _events_around(found: JobHandle) -> WatchScope:
    """All of the namespace: there is no selector for this job's and its pods'."""
    return WatchScope(resource=CORE_EVENTS, namespace=found.namespace)


async def _all(client: Client, scope: WatchScope, kind: type[T]) -> list[T]:
    read = reader(kind)
    pages = client.pages(
        scope.resource, namespace=scope.namespace, label_selector=scope.label_selector, field_selector=scope.field_selector
    )
    return [read(item) async for page in pages for item in page.items]


async def pods_of(client: Client, found: JobHandle) -> list[Pod]:
    """The pods of a job."""
    return await _all(client, _pods_of(found), Pod)


def follow_pods(client: Client, found: JobHandle) -> AsyncGenerator[News[Pod], None]:
    """The pods of a job, and every change to them."""
    return follow(client, _pods_of(found), Pod)
