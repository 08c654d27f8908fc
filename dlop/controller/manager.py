"""Wires the parts of the controller: queue, expectations, informers, workers and events."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from dlop.controller.autoscaler import Autoscaler
from dlop.controller.controller import Controller, Dependencies, max_concurrent_reconciles
from dlop.controller.event_handlers import EventHandlers
from dlop.controller.event_recorder import EventRecorder
from dlop.controller.host_ports import DEFAULT_HOST_PORTS, HostPortRange, HostPorts
from dlop.controller.informer_set import InformerSet
from dlop.controller.job_state import JobStates
from dlop.controller.kinds import JobKey, ManagedKind, ManagedKinds
from dlop.controller.metrics import ControllerMetrics
from dlop.controller.on_demand import OnDemandInformers
from dlop.kube.client import Client
from dlop.kube.errors import NotFoundError
from dlop.kube.expectations import Child, Expectations, ResolvedExpectation
from dlop.kube.informer import Handler, Informer, InformerTimings
from dlop.kube.metrics import Metrics
from dlop.kube.objects import CustomObject
from dlop.kube.resources import Resource
from dlop.kube.workqueue import WorkQueue

QUEUE_NAME = "dlop"
# How long a stopping operator keeps sending queued events.
_EVENT_DRAIN_SECONDS = 2.0
# After an outage of the API server, all jobs whose passes failed are retried within this time.
_RETRY_SPREAD_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """The part of the operator's settings that the controller uses."""

    namespaces: tuple[str, ...] = ()
    """Namespaces to watch; all if empty."""
    workers: int = 128
    """Maximum number of jobs reconciled concurrently."""
    writes_in_flight: int = 64
    host_port_range: HostPortRange = DEFAULT_HOST_PORTS
    autoscaler_max_load: float | None = None
    """The fraction of the cluster's resources up to which elastic jobs grow; None disables the autoscaler."""
    runs_all_kinds: bool = True
    """Whether no other operator runs the kinds of jobs that this one does not run."""
    member_labels: tuple[str, ...] = ()
    """Labels with the name of the job, on pods that the masters of jobs create."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """Clients of the API server, and what else the controller needs from its environment."""

    read: Client
    """Used by informers. Works without leadership."""
    write: Client
    events: Client
    """Has its own in-flight limit, so that events never delay other writes."""
    clock: Callable[[], float]
    rng: Random
    identity: str
    timings: InformerTimings
    metrics: Metrics


class ControllerManager:
    def __init__(self, config: ControllerConfig, clients: Clients) -> None:
        self.queue: WorkQueue[JobKey] = WorkQueue(rng=clients.rng, observer=clients.metrics.queue(QUEUE_NAME))
        self.kinds = ManagedKinds()
        self._client = clients.write
        self._job_states = JobStates()
        self._expectations = Expectations(lookup=self._get_resource_version, on_resolved=self._on_resolved, rng=clients.rng)
        self._events = EventRecorder(clients.events, instance=clients.identity, clock=clients.clock, rng=clients.rng)
        self.metrics = ControllerMetrics(
            workers=max_concurrent_reconciles(config.workers), dropped_events=lambda: self._events.counts.dropped
        )
        clients.metrics.registry.register(self.metrics)
        self._host_ports = HostPorts(config.host_port_range, on_free=self.queue.add)
        self.autoscaler = self._make_autoscaler(config)
        self.controller = self._make_controller(config, clients)
        self.informer_sets = self._make_informer_sets(config, clients)
        self.controller.set_informer_sets(self.informer_sets)
        self._on_demand = OnDemandInformers(clients.read, self.informer_sets, enqueue=self.queue.add, rng=clients.rng)

    def background_tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Names and coroutines to run for the lifetime of the operator, in addition to the workers."""
        yield "expectations", self._expectations.run()
        yield "events", self._events.run()
        yield "retries after outages", self._retry_after_outages()
        yield "informers on demand", self._on_demand.run()
        if self.autoscaler is not None:
            yield "autoscaler", self.autoscaler.run(self.informer_sets[0])
        for informers in self.informer_sets:
            yield "gate", informers.gate.run()
            for informer in informers:
                yield f"informer of {informer.resource.plural}", informer.run()

    async def flush_events(self) -> None:
        """Send the queued events. Call it after the workers have stopped and before leadership is released."""
        await self._events.drain(within_seconds=_EVENT_DRAIN_SECONDS)

    def forget_interrupted_passes(self) -> None:
        """Drop the in-process state of all jobs, after workers were cancelled in the middle of their writes."""
        self._expectations.clear()
        self._job_states.clear()
        if self.autoscaler is not None:
            self.autoscaler.clear()

    def forget(self, uid: str) -> None:
        """Drop all in-process state of a deleted job."""
        self._expectations.forget(uid)
        self._job_states.forget(uid)
        if self.autoscaler is not None:
            self.autoscaler.forget(uid)
        for informers in self.informer_sets:
            informers.gate.forget(uid)
            informers.record_gate.forget(uid)

    @property
    def tracked_jobs(self) -> int:
        """Number of jobs with in-process state outside the caches."""
        return max(len(self._job_states), len(self._expectations), *(len(informers.gate) for informers in self.informer_sets))

    def informers(self) -> list[Informer[Any]]:
        return [informer for informers in self.informer_sets for informer in informers]

    # --- wiring ------------------------------------------------------------------------------------------------------

    def _make_autoscaler(self, config: ControllerConfig) -> Autoscaler | None:
        """The autoscaler needs the pods of all namespaces."""
        if config.autoscaler_max_load is None or config.namespaces:
            return None
        return Autoscaler(queue=self.queue, job_states=self._job_states, max_load=config.autoscaler_max_load)

    def _make_controller(self, config: ControllerConfig, clients: Clients) -> Controller:
        deps = Dependencies(
            client=clients.write,
            queue=self.queue,
            expectations=self._expectations,
            job_states=self._job_states,
            kinds=self.kinds,
            events=self._events,
            metrics=self.metrics,
            clock=clients.clock,
            forget=self.forget,
            max_parallel_writes=config.writes_in_flight,
            host_ports=self._host_ports,
            watch=self._watch,
            autoscaler=self.autoscaler,
            runs_all_kinds=config.runs_all_kinds,
        )
        return Controller(deps, workers=config.workers)

    def _make_informer_sets(self, config: ControllerConfig, clients: Clients) -> list[InformerSet]:
        handlers = EventHandlers(
            self.queue,
            expectations=self._expectations,
            job_states=self._job_states,
            kinds=self.kinds,
            forget=self.forget,
            on_job_deleted=self.controller.on_job_deleted,
        )
        namespaces: tuple[str | None, ...] = config.namespaces or (None,)
        return [
            InformerSet(
                clients.read,
                namespace=namespace,
                rng=clients.rng,
                timings=clients.timings,
                child_handler=handlers.child_handler,
                job_handlers=lambda kind: self._job_handlers(kind, handlers),
                on_relist=handlers.on_relist,
                plan_changed=lambda kind, owner: self.queue.add(JobKey(kind.resource, *owner)),
                orphan_labels=config.member_labels,
                capacity=None if self.autoscaler is None else self.autoscaler.capacity,
            )
            for namespace in namespaces
        ]

    def _watch(self, resource: Resource, key: JobKey) -> None:
        self._on_demand.request(resource, key)

    def _job_handlers(self, kind: ManagedKind, handlers: EventHandlers) -> list[Handler[CustomObject]]:
        # A Cron may own jobs, and a job may have a Cron.
        of_crons: list[Handler[CustomObject]] = []
        if kind.make_job is not None:
            of_crons = [handlers.child_handler(kind.resource), handlers.cron_handler]
        return [self._host_ports.on_job, *kind.job_handlers, *of_crons, handlers.job_handler(kind.resource)]

    async def _retry_after_outages(self) -> None:
        """Whenever the API server is back, retry the jobs whose passes failed. Their back-off has grown during the outage."""
        while await self._client.contact.wait_for_recovery():
            self.queue.end_backoff(within_seconds=_RETRY_SPREAD_SECONDS)

    # --- uncertain expectations --------------------------------------------------------------------------------------

    async def _get_resource_version(self, child: Child) -> str | None:
        try:
            live = await self._client.get(child.resource, child.name, namespace=child.namespace)
        except NotFoundError:
            return None
        return str(live["metadata"]["resourceVersion"])

    def _on_resolved(self, resolved: ResolvedExpectation) -> None:
        state = self._job_states.get(resolved.owner_uid)
        if state is None:
            return
        if resolved.resource_version is not None:
            for informers in self.informer_sets:
                if informers.namespace in (None, resolved.child.namespace):
                    informers.gate.record_write(resolved.owner_uid, resolved.child.resource, resolved.resource_version)
        self.queue.add(state.key)
