"""The operator: controller manager, kinds and leader election in one task group.

It needs a transport only, and no sockets, signals or threads; `dlop.operator.main` adds those. A standby keeps its caches
synced and writes nothing. When leadership is lost, the workers are cancelled at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from random import Random
from typing import Any

import structlog

from dlop.api.cron import CRONS
from dlop.api.gang import POD_GROUPS, gang_api
from dlop.api.types import ForceDeletion, Options
from dlop.compat.kubedl.metrics import GROUP as KUBEDL_GROUP
from dlop.compat.kubedl.metrics import JobGauges, KubeDLMetrics
from dlop.compat.kubeflow.metrics import KubeflowMetrics
from dlop.controller.kind_manager import KindManager
from dlop.controller.kinds import ManagedKind
from dlop.controller.manager import Clients, ControllerConfig, ControllerManager
from dlop.frameworks.registry import Registry
from dlop.job import DLJob
from dlop.kube.client import Client, ClientLimits
from dlop.kube.informer import Informer, InformerTimings
from dlop.kube.leader_election import LeaderElector, LeadershipLostError, LeaseTiming
from dlop.kube.metrics import InstrumentedTransport, Metrics
from dlop.kube.rate_limit import RateLimit, RateLimitedTransport, TokenBucket
from dlop.kube.resources import NODES, PRIORITY_CLASSES, Resource
from dlop.kube.transport import Transport
from dlop.operator.gc import release_free_memory
from dlop.operator.settings import Settings

log = structlog.get_logger(__name__)

_EVENT_LIMITS = ClientLimits(timeout_seconds=10.0, writes_in_flight=1, reads_in_flight=1)
# Fraction of the time between the renew deadline and the end of the lease after which the process is killed.
_FORCED_EXIT_FRACTION = 0.8
_LEADERSHIP_LOST_EXIT_CODE = 1
# Default burst in seconds of the rate. client-go's defaults in controller-runtime are 20 per second with a burst of 30.
_BURST_SECONDS = 1.5


class Operator:
    """One operator. Create it on a running event loop, and run it once on that loop."""

    def __init__(
        self,
        settings: Settings,
        job_classes: Iterable[type[DLJob]],
        *,
        transport: Transport,
        options: Options | None = None,
        clock: Callable[[], float] = time.time,
        rng: Random | None = None,
        identity: str = "dlop",
        namespace: str = "default",
        host: str = "",
        timings: InformerTimings = InformerTimings(),  # noqa: B008
        metrics: Metrics | None = None,
        exit_process: Callable[[int], None] | None = None,
    ) -> None:
        """`namespace` is the operator's own namespace; `host` names the API server in the metrics.

        `exit_process` is called as a last resort, if workers do not stop in time after leadership is lost.
        """
        self.metrics = metrics or Metrics()
        self._settings = settings
        self._exit_process = exit_process
        options = options or Options()
        rng = rng or Random()  # noqa: S311 - jitter and names of events
        transport = InstrumentedTransport(transport, metrics=self.metrics.requests, host=host)
        self._elector = _make_elector(settings, transport, identity=identity, namespace=namespace, rng=rng, clock=clock)
        if self._elector is not None:
            self.metrics.register_leadership(settings.lease_name, self._elector.is_leader)
        transport = _with_rate_limit(transport, settings)
        limits = ClientLimits(writes_in_flight=settings.writes_in_flight, reads_in_flight=settings.reads_in_flight)
        read_client = Client(transport, limits=limits)
        clients = Clients(
            read=read_client,
            write=self._guarded(read_client),
            events=self._guarded(Client(transport, limits=_EVENT_LIMITS)),
            clock=clock,
            rng=rng,
            identity=identity,
            timings=timings,
            metrics=self.metrics,
        )
        gauges = JobGauges()
        kinds = [_make_kind(job_class, options, gauges) for job_class in _select(job_classes, settings.kinds)]
        config = ControllerConfig(
            namespaces=settings.namespaces,
            workers=settings.workers,
            writes_in_flight=settings.writes_in_flight,
            host_port_range=settings.host_ports,
            autoscaler_max_load=settings.autoscaler_max_load if options.autoscaler else None,
            runs_all_kinds=not settings.kinds,
            member_labels=tuple(kind.members.name_label for kind in kinds if kind.members is not None),
        )
        self._manager = ControllerManager(config, clients)
        labels = self._manager.kinds.metric_labels
        self.metrics.registry.register(KubeflowMetrics(self._manager.metrics, metric_labels=labels))
        kubedl_kinds = {kind.resource.qualified_name: kind.resource.kind for kind in kinds if kind.resource.group == KUBEDL_GROUP}
        self.metrics.registry.register(KubeDLMetrics(self._manager.metrics, gauges, kinds=kubedl_kinds))
        self._kind_manager = KindManager(self._manager, clients, [*kinds, ManagedKind(resource=CRONS, make_job=None)], spawn=self._spawn)
        self._group = asyncio.TaskGroup()
        self._tasks: list[asyncio.Task[None]] = []
        self._synced = asyncio.Event()
        self._stopping = asyncio.Event()
        self._is_leading = False

    # --- state -------------------------------------------------------------------------------------------------------

    @property
    def is_synced(self) -> bool:
        """Whether all caches have been synced."""
        return self._synced.is_set()

    @property
    def is_leading(self) -> bool:
        """Whether this operator reconciles jobs: it holds the lease, or leader election is off."""
        return self._is_leading

    @property
    def tracked_jobs(self) -> int:
        """Number of jobs with in-process state outside the caches."""
        return self._manager.tracked_jobs

    async def wait_synced(self) -> None:
        await self._synced.wait()

    def stuck_informers(self, *, limit_seconds: float) -> list[str]:
        """Resources whose informers have made no progress for longer than the limit.

        An informer that retries makes progress, even if the API server does not answer.
        """
        stuck = (informer.resource.qualified_name for informer in self._informers() if informer.overdue_seconds > limit_seconds)
        return list(dict.fromkeys(stuck))

    def sync_errors(self) -> list[str]:
        """The last errors of informers that are not in sync."""
        return [informer.last_error for informer in self._informers() if informer.last_error]

    def _informers(self) -> list[Informer[Any]]:
        return [*self._kind_manager.informers(), *self._manager.informers()]

    # --- running -----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop gracefully: finish running passes, send queued events and release the lease. `run` then returns."""
        self._stopping.set()

    async def run(self) -> None:
        """Reconcile jobs until stopped or cancelled."""
        try:
            async with self._group:
                for name, work in (*self._manager.background_tasks(), ("kinds", self._kind_manager.run())):
                    self._spawn(work, name=name)
                try:
                    await self._run_until_stopped()
                finally:
                    for task in self._tasks:
                        task.cancel()
        except BaseExceptionGroup as errors:
            if len(errors.exceptions) == 1:
                raise errors.exceptions[0] from None
            raise

    async def _run_until_stopped(self) -> None:
        leading = asyncio.create_task(self._lead(), name="lead")
        stopping = asyncio.create_task(self._stopping.wait(), name="stop")
        try:
            await asyncio.wait((leading, stopping), return_when=asyncio.FIRST_COMPLETED)
            if self._stopping.is_set():
                await self._drain(leading)
            await leading
        except asyncio.CancelledError:
            if not self._stopping.is_set():
                raise
        finally:
            await _cancel(stopping)
            await _cancel(leading)

    async def _drain(self, leading: asyncio.Task[None]) -> None:
        log.info("stopping", leading=self._is_leading)
        self._manager.controller.stop()
        if self._is_leading:
            await asyncio.wait((leading,), timeout=self._settings.drain_seconds)
        if not leading.done():
            leading.cancel()

    async def _lead(self) -> None:
        """Sync the caches, then run the workers while this operator is the leader."""
        for informers in self._manager.informer_sets:
            await informers.wait_synced()
        await self._kind_manager.wait_synced()
        self._synced.set()
        release_free_memory()
        log.info("caches synced", kinds=self._kind_manager.kind_names)
        if self._elector is None:
            await self._run_workers()
        else:
            await self._lead_by_election(self._elector)

    async def _lead_by_election(self, elector: LeaderElector) -> None:
        """Run the workers whenever this operator holds the lease. Between two terms the caches are kept up to date."""
        while True:
            try:
                await elector.run(self._run_workers)
                return
            except LeadershipLostError as error:
                log.warning("lost leadership; stopped all workers", error=str(error))
            # Passes were cancelled in the middle of their writes, and another leader may have changed any job.
            self._manager.forget_interrupted_passes()
            self._kind_manager.enqueue_all_jobs()

    async def _run_workers(self) -> None:
        self._is_leading = True
        forced_exit: asyncio.TimerHandle | None = None
        workers = asyncio.create_task(self._manager.controller.run(), name="workers")
        try:
            await asyncio.shield(workers)
            await self._manager.flush_events()
        except asyncio.CancelledError:
            forced_exit = self._schedule_forced_exit()
            await _cancel(workers)
            raise
        finally:
            self._is_leading = False
            if forced_exit is not None:
                forced_exit.cancel()

    def _schedule_forced_exit(self) -> asyncio.TimerHandle | None:
        """After leadership is lost, exit the process before the lease expires if the workers have not stopped by then."""
        if self._exit_process is None or self._elector is None or self._elector.is_leader():
            return None
        remaining = self._settings.lease_duration_seconds - self._settings.renew_deadline_seconds
        loop = asyncio.get_running_loop()
        return loop.call_later(remaining * _FORCED_EXIT_FRACTION, self._exit_process, _LEADERSHIP_LOST_EXIT_CODE)

    def _guarded(self, client: Client) -> Client:
        """A client that writes only while this operator is the leader."""
        return client if self._elector is None else client.guarded(self._elector.is_leader)

    def _spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        task = self._group.create_task(work, name=name)
        self._tasks.append(task)
        task.add_done_callback(self._tasks.remove)
        return task


async def _cancel(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait until it is done. Does not raise its exception."""
    task.cancel()
    await asyncio.wait((task,))


def _select(job_classes: Iterable[type[DLJob]], names: tuple[str, ...]) -> Iterable[type[DLJob]]:
    registry = Registry(job_classes)
    return registry.select(names) if names else registry


def _make_kind(job_class: type[DLJob], options: Options, gauges: JobGauges) -> ManagedKind:
    pod_groups, children = _pod_group_resources(options), job_class.all_children()
    resource = job_class.job_type.resource
    return ManagedKind(
        resource=resource,
        make_job=lambda job_object: job_class(job_object, options=options),
        child_resources=tuple(dict.fromkeys((*(resource for child in children for resource in child.resources), *pod_groups))),
        ephemeral_resources=tuple(resource for child in children if child.is_ephemeral for resource in child.resources),
        on_demand_resources=tuple(resource for child in children if child.on_demand for resource in child.resources + child.reads),
        resources_read_for_children=tuple(resource for child in children for resource in child.reads),
        legacy_resources=tuple(resource for resource in POD_GROUPS if resource not in pod_groups),
        read_only_resources=tuple(_read_only_resources(options)),
        members=job_class.members,
        job_handlers=(gauges.handler(resource.qualified_name),) if resource.group == KUBEDL_GROUP else (),
        metric_label=job_class.status.metric_label,
    )


def _read_only_resources(options: Options) -> Iterator[Resource]:
    if options.gang_scheduler_name:
        yield PRIORITY_CLASSES
    if options.autoscaler or options.force_deletion is ForceDeletion.NODE_DOWN:
        yield NODES


def _pod_group_resources(options: Options) -> tuple[Resource, ...]:
    return (gang_api(options.gang_scheduler_name).resource,) if options.gang_scheduler_name else ()


def _with_rate_limit(transport: Transport, settings: Settings) -> Transport:
    """Apply `--kube-api-qps`. Leader election is not limited, because a late renewal loses the lease."""
    if settings.kube_api_qps <= 0:
        return transport
    burst = settings.kube_api_burst or max(1, round(_BURST_SECONDS * settings.kube_api_qps))
    return RateLimitedTransport(transport, bucket=TokenBucket(RateLimit(settings.kube_api_qps, burst)))


def _make_elector(
    settings: Settings, transport: Transport, *, identity: str, namespace: str, rng: Random, clock: Callable[[], float]
) -> LeaderElector | None:
    if not settings.leader_election:
        return None
    return LeaderElector(
        transport,
        namespace=settings.lease_namespace or namespace,
        name=settings.lease_name,
        identity=identity,
        rng=rng,
        timing=LeaseTiming(
            lease_duration_seconds=settings.lease_duration_seconds,
            renew_deadline_seconds=settings.renew_deadline_seconds,
            retry_period_seconds=settings.retry_period_seconds,
        ),
        wall_clock=clock,
    )
