"""Begins and ceases to look after kinds, as they are installed and removed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from typing import Any, Protocol

import structlog

from dlop.api.constants import JOB_UID_LABEL
from dlop.controller.crd_watch import Definitions
from dlop.controller.informer_set import InformerSet
from dlop.controller.kinds import JobKey, ManagedKind
from dlop.controller.manager import Clients, ControllerManager
from dlop.kube.backoff import Backoff
from dlop.kube.errors import ForbiddenError, KubeError, NotFoundError
from dlop.kube.informer import Informer
from dlop.kube.resources import Resource

log = structlog.get_logger(__name__)


class Spawn(Protocol):
    """Runs something until the operator ends, or until it is cancelled."""

    def __call__(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        """Begin."""
        ...


class KindManager:
    """The kinds that are looked after, and the tasks that see to it."""

    def __init__(self, machinery: ControllerManager, means: Clients, kinds: Iterable[ManagedKind], *, spawn: Spawn) -> None:
        self._machinery = machinery
        self._client = means.reading
        self._rng = means.rng
        self._spawn = spawn
        kinds = tuple(kinds)
        self._former = tuple({resource: None for kind in kinds for resource in kind.former_resources})
        self._refused: dict[ManagedKind, asyncio.Event] = {}
        self._arrivals: dict[ManagedKind, asyncio.Task[None]] = {}
        self._followers: dict[ManagedKind, list[asyncio.Task[None]]] = {}
        self._definitions = Definitions(
            means.reading, kinds, rng=means.rng, pace=means.pace, arrived=self._arrived, departed=self._departed
        )

    async def run(self) -> None:
        """Follow the definitions; where they may not be watched, this ends soon."""
        for scope in self._machinery.scopes:
            for resource in self._former:
                self._spawn(self._follow_former(scope, resource), name=f"informer of former {resource.plural}")
        await self._definitions.run()

    @property
    def kinds(self) -> list[str]:
        """The names of the kinds that are looked after."""
        return [kind.resource.qualified_name for kind in self._arrivals]

    async def wait_synced(self) -> None:
        """Wait until all jobs of the kinds that are installed now are known."""
        await self._definitions.wait_known()
        await asyncio.gather(*(self._wait_arrived(kind, arrival) for kind, arrival in self._arrivals.items()))

    def informers(self) -> list[Informer[Any]]:
        """The informer of definitions, if they may be watched."""
        return [self._definitions.informer] if self._definitions.is_watching else []

    async def _wait_arrived(self, kind: ManagedKind, arrival: asyncio.Task[None]) -> None:
        """Wait until the jobs of a kind are known, or it has gone again, or it is clear that they may not be read."""
        refused = asyncio.ensure_future(self._refused[kind].wait())
        try:
            await asyncio.wait((arrival, refused), return_when=asyncio.FIRST_COMPLETED)
        finally:
            refused.cancel()

    def _arrived(self, kind: ManagedKind) -> None:
        log.info("a kind is looked after", kind=kind.resource.qualified_name, version=kind.resource.version)
        self._refused[kind] = asyncio.Event()
        self._arrivals[kind] = self._spawn(self._look_after(kind), name=f"arrival of {kind.resource.qualified_name}")

    def _departed(self, kind: ManagedKind) -> None:
        log.info("a kind is no longer served", kind=kind.resource.qualified_name, version=kind.resource.version)
        self._machinery.kinds.remove(kind)
        arrival = self._arrivals.pop(kind, None)
        for task in (*self._followers.pop(kind, ()), *(() if arrival is None else (arrival,))):
            task.cancel()
        for scope in self._machinery.scopes:
            for job in scope.cache(kind.resource) or ():
                self._machinery.forget(job.metadata.uid)
            scope.remove_jobs(kind)

    async def _look_after(self, kind: ManagedKind) -> None:
        """What jobs own is known before the jobs are."""
        await self._until_allowed(kind)
        missing = await self._follow_others(kind)
        self._machinery.kinds.add(kind)
        jobs = [scope.add_jobs(kind) for scope in self._machinery.scopes]
        self._followers[kind] = [self._spawn(informer.run(), name=f"informer of {kind.resource.plural}") for informer in jobs]
        for informer in jobs:
            await informer.wait_synced()
        if missing:
            await self._until_all_is_seen(kind, missing)

    async def _until_allowed(self, kind: ManagedKind) -> None:
        """Wait for the right to read a kind. Nobody else has to: a kind without rights is its own trouble."""
        pauses = self._pauses()
        while (refusal := await self._refusal(kind, kind.resource)) is not None:
            log.error(
                "a kind may not be read: give the operator the rights that `dlop manifests` prints, or leave the kind out with --kinds",
                kind=kind.resource.qualified_name,
                error=str(refusal),
            )
            self._refused[kind].set()
            await asyncio.sleep(next(pauses))

    async def _until_all_is_seen(self, kind: ManagedKind, missing: list[str]) -> None:
        """Wait until what the jobs of a kind need besides can be read. Those that cannot do without say so, the others go on."""
        self._refused[kind].set()
        pauses = self._pauses()
        told: list[str] = []
        while missing:
            if missing != told:
                log.warning("not all that jobs of a kind need can be read", kind=kind.resource.qualified_name, errors=missing)
                told = missing
            await asyncio.sleep(next(pauses))
            missing = await self._follow_others(kind)
            if missing != told:
                self._look_at_all_jobs(kind)

    def _look_at_all_jobs(self, kind: ManagedKind) -> None:
        for scope in self._machinery.scopes:
            for job in scope.cache(kind.resource) or ():
                self._machinery.queue.add(JobKey(kind.resource, job.metadata.namespace, job.metadata.name))

    async def _follow_others(self, kind: ManagedKind) -> list[str]:
        """Follow what the jobs of a kind need to know besides, as far as it can be read; says what the server says to the rest."""
        refusals = {resource: await self._refusal(kind, resource) for resource in kind.all_others}
        missing = {resource: refusal for resource, refusal in refusals.items() if refusal is not None}
        for scope in self._machinery.scopes:
            unserved = (resource for resource, refusal in missing.items() if isinstance(refusal, NotFoundError))
            scope.note_unserved(unserved, of=refusals)
            for informer in scope.add_others(kind, without=missing):
                self._spawn(informer.run(), name=f"informer of {informer.resource.plural}")
        for scope in self._machinery.scopes:
            await scope.wait_synced(kind.all_others)
        return [f"{resource.qualified_name}: {refusal}" for resource, refusal in missing.items()]

    async def _follow_former(self, scope: InformerSet, resource: Resource) -> None:
        """Follow what jobs own from an earlier time, until the operator ends. Where there is nothing, nothing will come."""
        if await self._has_any(scope, resource):
            await scope.add_former(resource).run()

    async def _has_any(self, scope: InformerSet, resource: Resource) -> bool:
        """Whether jobs own such objects. What is not served or may not be read is for nobody here to remove."""
        for pause in self._pauses():
            try:
                found = await self._client.list(resource, namespace=scope.namespace, label_selector=JOB_UID_LABEL)
                return bool(found["items"])
            except (ForbiddenError, NotFoundError):
                return False
            except KubeError as error:
                log.info("the server cannot be asked yet", resource=resource.qualified_name, error=str(error))
                await asyncio.sleep(pause)
        return False

    def _pauses(self) -> Iterator[float]:
        backoff = Backoff(rng=self._rng, first_seconds=5.0, cap_seconds=60.0, reset_after_seconds=600.0)
        while True:
            yield backoff.delay_seconds(now=asyncio.get_running_loop().time())

    async def _refusal(self, kind: ManagedKind, resource: Resource) -> KubeError | None:
        """Only a clear no is a no: a server that cannot be reached is waited for, by the informers."""
        try:
            for scope in self._machinery.scopes:
                await self._client.call("GET", scope.path(resource), query=(("limit", "1"),))
        except ForbiddenError as error:
            return error
        except KubeError as error:
            # That the kind itself is served, its definition says.
            if isinstance(error, NotFoundError) and resource != kind.resource:
                return error
            log.info("a kind cannot be read yet", kind=kind.resource.qualified_name, error=str(error))
        return None
