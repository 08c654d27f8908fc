"""All parts of the loop, put together: queue, expectations, scopes, workers, events."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from dlop.controller.controller import Controller, Dependencies, passes_at_once
from dlop.controller.event_handlers import EventHandlers
from dlop.controller.event_recorder import EventRecorder
from dlop.controller.informer_set import InformerSet
from dlop.controller.job_state import JobStates
from dlop.controller.kinds import JobKey, ManagedKinds
from dlop.controller.metrics import ControllerMetrics
from dlop.kube.client import Client
from dlop.kube.errors import NotFoundError
from dlop.kube.expectations import Child, Expectations, Resolved
from dlop.kube.informer import Informer, InformerTimings
from dlop.kube.metrics import Metrics
from dlop.kube.workqueue import WorkQueue

QUEUE_NAME = "dlop"
# How long an operator that stops goes on telling what it has done.
_LAST_WORDS_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """What of the operator's settings concerns the controller."""

    namespaces: tuple[str, ...] = ()
    """Namespaces to watch; empty watches all."""
    workers: int = 128
    """Jobs reconciled at once."""
    writes_in_flight: int = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """What the loop works with."""

    reading: Client
    """For informers: goes on without leadership."""
    writing: Client
    telling: Client
    """For events, with places of its own: real writes never wait for them."""
    clock: Callable[[], float]
    rng: Random
    identity: str
    pace: InformerTimings
    metrics: Metrics


class ControllerManager:
    """The loop of one operator."""

    def __init__(self, config: ControllerConfig, means: Clients) -> None:
        self.queue: WorkQueue[JobKey] = WorkQueue(rng=means.rng, observer=means.metrics.queue(QUEUE_NAME))
        self.kinds = ManagedKinds()
        self._writing = means.writing
        self._memories = JobStates()
        self._expectations = Expectations(look=self._look, on_resolved=self._resolved)
        self._events = EventRecorder(means.telling, instance=means.identity, clock=means.clock, rng=means.rng)
        counts = self.metrics = ControllerMetrics(
            workers=passes_at_once(config.workers), dropped_events=lambda: self._events.counts.dropped
        )
        means.metrics.registry.register(counts)
        self.controller = self._make_controller(config, means, counts)
        self.scopes = self._make_scopes(config, means)
        self.controller.watch_over(self.scopes)

    def background(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Everything that goes on beside the workers, with its name. To be run from the beginning to the end."""
        yield "expectations", self._expectations.run()
        yield "events", self._events.run()
        for scope in self.scopes:
            yield "gate", scope.gate.run()
            for informer in scope.informers:
                yield f"informer of {informer.resource.plural}", informer.run()

    async def say_the_rest(self) -> None:
        """Send the events that still wait. To be called when the workers have ended, and before leadership does."""
        await self._events.drain(within_seconds=_LAST_WORDS_SECONDS)

    def forget(self, uid: str) -> None:
        """A job is gone."""
        self._expectations.forget(uid)
        self._memories.forget(uid)
        for scope in self.scopes:
            scope.gate.forget(uid)
            scope.hindsight.forget(uid)

    @property
    def remembered_jobs(self) -> int:
        """How many jobs something is kept in memory for, besides the caches."""
        return max(len(self._memories), len(self._expectations), *(len(scope.gate) for scope in self.scopes))

    def informers(self) -> list[Informer[Any]]:
        """All informers, as of now."""
        return [informer for scope in self.scopes for informer in scope.informers]

    # --- wiring ------------------------------------------------------------------------------------------------------

    def _make_controller(self, config: ControllerConfig, means: Clients, counts: ControllerMetrics) -> Controller:
        around = Dependencies(
            client=means.writing,
            queue=self.queue,
            expectations=self._expectations,
            memories=self._memories,
            kinds=self.kinds,
            events=self._events,
            metrics=counts,
            clock=means.clock,
            forget=self.forget,
            parallel=config.writes_in_flight,
        )
        return Controller(around, workers=config.workers)

    def _make_scopes(self, config: ControllerConfig, means: Clients) -> list[InformerSet]:
        arrivals = EventHandlers(
            self.queue,
            expectations=self._expectations,
            memories=self._memories,
            kinds=self.kinds,
            forget=self.forget,
            deleted=self.controller.note_deleted,
        )
        namespaces: tuple[str | None, ...] = config.namespaces or (None,)
        return [
            InformerSet(
                means.reading,
                namespace=namespace,
                rng=means.rng,
                pace=means.pace,
                on_child=arrivals.of_children,
                on_job=arrivals.of_jobs,
                relisted=arrivals.relisted,
            )
            for namespace in namespaces
        ]

    # --- doubts ------------------------------------------------------------------------------------------------------

    async def _look(self, child: Child) -> str | None:
        try:
            found = await self._writing.get(child.resource, child.name, namespace=child.namespace)
        except NotFoundError:
            return None
        return str(found["metadata"]["resourceVersion"])

    def _resolved(self, resolved: Resolved) -> None:
        memory = self._memories.find(resolved.owner_uid)
        if memory is None:
            return
        if resolved.resource_version is not None:
            for scope in self.scopes:
                if scope.namespace in (None, resolved.child.namespace):
                    scope.gate.wrote(resolved.owner_uid, resolved.child.resource, resolved.resource_version)
        self.queue.add(memory.key)
