"""Begins and ceases to look after kinds, as they are installed and removed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Protocol

import structlog

from dlop.control.definitions import Definitions
from dlop.control.kinds import Kind
from dlop.control.machinery import Machinery, Means
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
        self._spawn = spawn
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
        arriving = tuple(self._arrivals.values())
        if arriving:
            await asyncio.wait(arriving)  # one that is cancelled is a kind that has gone again

    def informers(self) -> list[Informer[Any]]:
        """The informer of definitions, if they may be watched."""
        return [self._definitions.informer] if self._definitions.is_watching else []

    def _arrived(self, kind: Kind) -> None:
        log.info("a kind is looked after", kind=kind.resource.qualified_name, version=kind.resource.version)
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
