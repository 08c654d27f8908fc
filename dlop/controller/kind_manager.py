"""Starts and stops the controllers of kinds as their CRDs are installed and removed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from typing import Any, Protocol

import structlog

from dlop.api.constants import JOB_UID_LABEL
from dlop.controller.crd_watch import CrdWatcher
from dlop.controller.informer_set import InformerSet
from dlop.controller.kinds import JobKey, ManagedKind, cron_key
from dlop.controller.manager import Clients, ControllerManager
from dlop.controller.read_access import check_read_access
from dlop.kube.cache import CacheChange
from dlop.kube.errors import ForbiddenError, KubeError, NotFoundError, UnauthorizedError
from dlop.kube.informer import Informer
from dlop.kube.resources import Resource
from dlop.kube.retry_backoff import ExponentialBackoff

log = structlog.get_logger(__name__)

# How long the start of the operator waits for the caches of one kind. A kind that needs longer is started later.
_START_TIMEOUT_SECONDS = 30.0


class Spawn(Protocol):
    """Starts a task that runs until it ends, is cancelled or the operator stops."""

    def __call__(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]: ...


class KindManager:
    def __init__(self, manager: ControllerManager, clients: Clients, kinds: Iterable[ManagedKind], *, spawn: Spawn) -> None:
        self._manager = manager
        self._client = clients.read
        self._rng = clients.rng
        self._spawn = spawn
        kinds = tuple(kinds)
        self._legacy_resources = tuple({resource: None for kind in kinds for resource in kind.legacy_resources})
        self._start_tasks: dict[ManagedKind, asyncio.Task[None]] = {}
        self._informer_tasks: dict[ManagedKind, list[asyncio.Task[None]]] = {}
        self._degraded: dict[ManagedKind, asyncio.Event] = {}
        """Set for a kind that the operator cannot read completely. `wait_synced` does not wait for it."""
        self._crds = CrdWatcher(
            clients.read, kinds, rng=clients.rng, timings=clients.timings, on_served=self._on_served, on_removed=self._on_removed
        )

    async def run(self) -> None:
        """Watch CRDs until cancelled. Returns early where the operator may not watch them."""
        for informers in self._manager.informer_sets:
            for resource in self._legacy_resources:
                self._spawn(self._watch_legacy(informers, resource), name=f"informer of legacy {resource.plural}")
        await self._crds.run()

    @property
    def kind_names(self) -> list[str]:
        """Qualified names of the kinds whose controllers are started."""
        return [kind.resource.qualified_name for kind in self._start_tasks]

    async def wait_synced(self) -> None:
        """Wait until the caches of all kinds that are served now are synced, except for kinds that cannot be read in time."""
        await self._crds.wait_synced()
        await asyncio.gather(*(self._wait_started(kind, task) for kind, task in self._start_tasks.items()))

    def informers(self) -> list[Informer[Any]]:
        """The CRD informer, if it is running."""
        return [self._crds.informer] if self._crds.is_watching else []

    async def _wait_started(self, kind: ManagedKind, start_task: asyncio.Task[None]) -> None:
        """Wait until the kind is synced, removed or degraded, or until the timeout."""
        degraded = asyncio.ensure_future(self._degraded[kind].wait())
        try:
            done, _ = await asyncio.wait((start_task, degraded), timeout=_START_TIMEOUT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            degraded.cancel()
        if not done:
            log.warning("caches of kind not synced in time; starting the other kinds", kind=kind.resource.qualified_name)

    def _on_served(self, kind: ManagedKind) -> None:
        log.info("started controller", kind=kind.resource.qualified_name, version=kind.resource.version)
        self._degraded[kind] = asyncio.Event()
        self._start_tasks[kind] = self._spawn(self._start(kind), name=f"start {kind.resource.qualified_name}")

    def _on_removed(self, kind: ManagedKind) -> None:
        log.info("stopped controller, kind is no longer served", kind=kind.resource.qualified_name, version=kind.resource.version)
        self._manager.kinds.remove(kind)
        start_task = self._start_tasks.pop(kind, None)
        for task in (*self._informer_tasks.pop(kind, ()), *(() if start_task is None else (start_task,))):
            task.cancel()
        for informers in self._manager.informer_sets:
            for job in informers.cache(kind.resource) or ():
                self._manager.forget(job.metadata.uid)
                for handle in kind.job_handlers:
                    handle(CacheChange(job, None))
            informers.remove_job_informer(kind)

    async def _start(self, kind: ManagedKind) -> None:
        """Start the informers of a kind: first those of its children, then those of its jobs."""
        await self._wait_until_readable(kind)
        errors = await self._start_extra_informers(kind)
        self._manager.kinds.add(kind)
        job_informers = [informers.add_job_informer(kind) for informers in self._manager.informer_sets]
        self._informer_tasks[kind] = [self._spawn(informer.run(), name=f"informer of {kind.resource.plural}") for informer in job_informers]
        for informer in job_informers:
            await informer.wait_synced()
        self._enqueue_scaled_jobs(kind)
        self._enqueue_crons(kind)
        if errors:
            await self._retry_extra_informers(kind, errors)

    async def _wait_until_readable(self, kind: ManagedKind) -> None:
        """Wait for the permission to read a kind. Other kinds do not wait for it."""
        delays = self._backoff_delays()
        while (error := await self._check_access(kind, kind.resource)) is not None:
            log.error(
                "not allowed to read kind; grant the permissions that `dlop manifests` prints, or exclude the kind with --kinds",
                kind=kind.resource.qualified_name,
                error=str(error),
            )
            self._degraded[kind].set()
            await asyncio.sleep(next(delays))

    async def _retry_extra_informers(self, kind: ManagedKind, errors: list[str]) -> None:
        """Retry until all extra resources of a kind can be read. Meanwhile, jobs that need a missing resource are blocked."""
        self._degraded[kind].set()
        delays = self._backoff_delays()
        logged_errors: list[str] = []
        while errors:
            if errors != logged_errors:
                # Not a warning: permissions can be optional, and jobs that need them report it.
                log.info(
                    "cannot read all resources of kind; jobs that need them are blocked", kind=kind.resource.qualified_name, errors=errors
                )
                logged_errors = errors
            await asyncio.sleep(next(delays))
            errors = await self._start_extra_informers(kind)
            if errors != logged_errors:
                self._enqueue_all_jobs(kind)
                self._enqueue_scaled_jobs(kind)

    def enqueue_all_jobs(self) -> None:
        """Enqueue the jobs of all kinds."""
        for kind in self._informer_tasks:
            self._enqueue_all_jobs(kind)

    def _enqueue_scaled_jobs(self, kind: ManagedKind) -> None:
        """Enqueue the jobs that have scale plans. They may not exist, so that the list of jobs does not enqueue them."""
        for informers in self._manager.informer_sets:
            for resource in kind.plan_resources:
                queue = informers.scale_plans.get(resource)
                for owner in () if queue is None else queue.owners():
                    self._manager.queue.add(JobKey(kind.resource, *owner))

    def _enqueue_crons(self, started: ManagedKind) -> None:
        """Enqueue the Crons when a kind of jobs was started that they may create, and those of jobs when Crons were."""
        for kind in self._manager.kinds:
            if started.make_job is not None and kind.make_job is None:
                self._enqueue_all_jobs(kind)
            elif started.make_job is None and kind.make_job is not None:
                self._enqueue_crons_of_jobs(kind)

    def _enqueue_crons_of_jobs(self, kind: ManagedKind) -> None:
        for informers in self._manager.informer_sets:
            keys = (cron_key(job) for job in informers.cache(kind.resource) or ())
            for key in (key for key in keys if key is not None):
                self._manager.queue.add(key)

    def _enqueue_all_jobs(self, kind: ManagedKind) -> None:
        for informers in self._manager.informer_sets:
            for job in informers.cache(kind.resource) or ():
                self._manager.queue.add(JobKey(kind.resource, job.metadata.namespace, job.metadata.name))

    async def _start_extra_informers(self, kind: ManagedKind) -> list[str]:
        """Start and sync informers for the extra resources that can be read. Returns the errors of the others."""
        results = {resource: await self._check_access(kind, resource) for resource in kind.extra_resources}
        errors = {resource: error for resource, error in results.items() if error is not None}
        for informers in self._manager.informer_sets:
            not_installed = (resource for resource, error in errors.items() if isinstance(error, NotFoundError))
            informers.set_not_installed(not_installed, checked=results)
            for informer in informers.add_extra_informers(kind, without=errors):
                self._spawn(informer.run(), name=f"informer of {informer.resource.plural}")
        unsynced = await self._wait_extra_synced(kind)
        return [f"{resource.qualified_name}: {error}" for resource, error in errors.items()] + unsynced

    async def _wait_extra_synced(self, kind: ManagedKind) -> list[str]:
        """Wait for the caches of the extra resources. Returns an error if they are not synced in time."""
        try:
            async with asyncio.timeout(_START_TIMEOUT_SECONDS):
                for informers in self._manager.informer_sets:
                    await informers.wait_synced(kind.extra_resources)
        except TimeoutError:
            return [f"the caches of the resources of {kind.resource.qualified_name} are not synced in time"]
        return []

    async def _watch_legacy(self, informers: InformerSet, resource: Resource) -> None:
        """Watch leftover children of an earlier configuration, if there are any. New ones are never created."""
        if await self._has_legacy_children(informers, resource):
            await informers.add_legacy_informer(resource).run()

    async def _has_legacy_children(self, informers: InformerSet, resource: Resource) -> bool:
        """Whether jobs own objects of a resource. False if it is not served or cannot be read."""
        for delay in self._backoff_delays():
            try:
                objects = await self._client.list(resource, namespace=informers.namespace, label_selector=JOB_UID_LABEL)
                return bool(objects["items"])
            except (ForbiddenError, NotFoundError):
                return False
            except KubeError as error:
                log.info("failed to list legacy objects, retrying", resource=resource.qualified_name, error=str(error))
                await asyncio.sleep(delay)
        return False

    def _backoff_delays(self) -> Iterator[float]:
        backoff = ExponentialBackoff(rng=self._rng, first_seconds=5.0, cap_seconds=60.0, reset_after_seconds=600.0)
        while True:
            yield backoff.delay_seconds(now=asyncio.get_running_loop().time())

    async def _check_access(self, kind: ManagedKind, resource: Resource) -> KubeError | None:
        """Try to list and watch a resource. Returns the error if it is forbidden, or not found unless it is the kind itself.

        Other errors are transient: the informers retry.
        """
        try:
            for informers in self._manager.informer_sets:
                await self._try_read(resource, namespace=informers.namespace)
        except ForbiddenError as error:
            return error
        except KubeError as error:
            # The CRD says whether the kind itself is served.
            if isinstance(error, NotFoundError) and resource != kind.resource:
                return error
            log.info(
                "failed to list or watch resource", kind=kind.resource.qualified_name, resource=resource.qualified_name, error=str(error)
            )
        return None

    async def _try_read(self, resource: Resource, *, namespace: str | None) -> None:
        """Check the permissions. Retries while the server rejects the credentials (401), which says nothing about permissions."""
        for delay in self._backoff_delays():
            try:
                await check_read_access(self._client, resource, namespace=namespace)
            except UnauthorizedError as error:
                log.warning("credentials rejected, retrying", resource=resource.qualified_name, error=str(error))
                await asyncio.sleep(delay)
            else:
                return
