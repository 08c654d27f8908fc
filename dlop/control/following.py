"""Begins and ceases to look after kinds, as they are installed and removed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Protocol

import structlog

from dlop.control.definitions import Definitions
from dlop.control.kinds import Kind
from dlop.control.machinery import Machinery, Means
from dlop.kube.backoff import Backoff
from dlop.kube.errors import ForbiddenError, KubeError
from dlop.kube.informer import Informer

log = structlog.get_logger(__name__)


class Spawn(Protocol):
    """Runs something until the operator ends, or until it is cancelled."""

    def __call__(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        """Begin."""
        ...


class Following:
    """The kinds that are looked after, and the tasks that see to it."""

    def __init__(self, machinery: Machinery, means: Means, kinds: Iterable[Kind], *, spawn: Spawn) -> None:
        self._machinery = machinery
        self._client = means.reading
        self._rng = means.rng
        self._spawn = spawn
        self._refused: dict[Kind, asyncio.Event] = {}
        self._arrivals: dict[Kind, asyncio.Task[None]] = {}
        self._followers: dict[Kind, list[asyncio.Task[None]]] = {}
        self._definitions = Definitions(
            means.reading, kinds, rng=means.rng, pace=means.pace, arrived=self._arrived, departed=self._departed
        )

    async def run(self) -> None:
        """Follow the definitions; where they may not be watched, this ends soon."""
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

    async def _wait_arrived(self, kind: Kind, arrival: asyncio.Task[None]) -> None:
        """Wait until the jobs of a kind are known, or it has gone again, or it is clear that they may not be read."""
        refused = asyncio.ensure_future(self._refused[kind].wait())
        try:
            await asyncio.wait((arrival, refused), return_when=asyncio.FIRST_COMPLETED)
        finally:
            refused.cancel()

    def _arrived(self, kind: Kind) -> None:
        log.info("a kind is looked after", kind=kind.resource.qualified_name, version=kind.resource.version)
        self._refused[kind] = asyncio.Event()
        self._arrivals[kind] = self._spawn(self._look_after(kind), name=f"arrival of {kind.resource.qualified_name}")

    def _departed(self, kind: Kind) -> None:
        log.info("a kind is no longer served", kind=kind.resource.qualified_name, version=kind.resource.version)
        self._machinery.kinds.remove(kind)
        arrival = self._arrivals.pop(kind, None)
        for task in (*self._followers.pop(kind, ()), *(() if arrival is None else (arrival,))):
            task.cancel()
        for scope in self._machinery.scopes:
            for job in scope.cache(kind.resource) or ():
                self._machinery.forget(job.metadata.uid)
            scope.remove_jobs(kind)

    async def _look_after(self, kind: Kind) -> None:
        """What jobs own is known before the jobs are."""
        await self._until_allowed(kind)
        scopes = self._machinery.scopes
        others = [informer for scope in scopes for informer in scope.add_others(kind)]
        for informer in others:
            self._spawn(informer.run(), name=f"informer of {informer.resource.plural}")
        for informer in others:
            await informer.wait_synced()
        self._machinery.kinds.add(kind)
        jobs = [scope.add_jobs(kind) for scope in scopes]
        self._followers[kind] = [self._spawn(informer.run(), name=f"informer of {kind.resource.plural}") for informer in jobs]
        for informer in jobs:
            await informer.wait_synced()

    async def _until_allowed(self, kind: Kind) -> None:
        """Wait for the right to read a kind. Nobody else has to: a kind without rights is its own trouble."""
        backoff = Backoff(rng=self._rng, first_seconds=5.0, cap_seconds=60.0, reset_after_seconds=600.0)
        while (refusal := await self._refusal(kind)) is not None:
            log.error(
                "a kind may not be read: give the operator the rights that `dlop manifests` prints, or leave the kind out with --kinds",
                kind=kind.resource.qualified_name,
                error=str(refusal),
            )
            self._refused[kind].set()
            await asyncio.sleep(backoff.delay_seconds(now=asyncio.get_running_loop().time()))

    async def _refusal(self, kind: Kind) -> ForbiddenError | None:
        """Only a clear no is a no: a server that cannot be reached is waited for, by the informers."""
        try:
            for scope in self._machinery.scopes:
                for resource in (kind.resource, *kind.other_resources):
                    await self._client.call("GET", resource.path(namespace=scope.namespace), query=(("limit", "1"),))
        except ForbiddenError as error:
            return error
        except KubeError as error:
            log.info("a kind cannot be read yet", kind=kind.resource.qualified_name, error=str(error))
        return None
