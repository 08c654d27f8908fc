"""The operator: the loop, the kinds and the lease, in one task group.

It needs a transport and nothing else of the outer world: no sockets, signals or threads. `dlop.operator.main` gives it those.
A standby has warm caches and writes nothing. When leadership is lost the workers are cancelled at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from random import Random
from typing import Any

import structlog

from dlop.api.gang import POD_GROUPS, group_resource
from dlop.api.types import Options
from dlop.compat.kubeflow.metrics import KubeflowMetrics
from dlop.controller.kind_manager import KindManager
from dlop.controller.kinds import ManagedKind
from dlop.controller.manager import Clients, ControllerConfig, ControllerManager
from dlop.frameworks.registry import Registry
from dlop.job import DLJob
from dlop.kube.client import Client, Limits
from dlop.kube.informer import Informer, InformerTimings
from dlop.kube.leader_election import Elector, LeaseTiming
from dlop.kube.metrics import MeasuredTransport, Metrics
from dlop.kube.rate_limit import PacedTransport, Rate, TokenBucket
from dlop.kube.resources import PRIORITY_CLASSES, Resource
from dlop.kube.transport import Transport
from dlop.operator.gc import give_back_memory
from dlop.operator.settings import Settings

log = structlog.get_logger(__name__)

_EVENT_LIMITS = Limits(timeout_seconds=10.0, writes_in_flight=1, reads_in_flight=1)
# The part of the time between the end of leadership and the end of the lease after which patience is over.
_LAST_RESORT = 0.8
_LEADERSHIP_LOST = 1
# How much may go out at once where only the rate is given: client-go's 20 a second went with 30.
_BURST_SECONDS = 1.5


class Operator:
    """One operator. Made and run on one event loop, once."""

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
        pace: InformerTimings = InformerTimings(),  # noqa: B008
        metrics: Metrics | None = None,
        exit_process: Callable[[int], None] | None = None,
    ) -> None:
        """`namespace` is where the operator itself lives; `host` names the API server in the metrics.

        `exit_process` is called as a last resort, when work goes on after leadership was lost.
        """
        self.metrics = metrics or Metrics()
        self._settings = settings
        self._exit_process = exit_process
        rng = rng or Random()  # noqa: S311 - jitter and names of events
        transport = MeasuredTransport(transport, metrics=self.metrics.requests, host=host)
        self._elector = _elector(settings, transport, identity=identity, namespace=namespace, rng=rng, clock=clock)
        if self._elector is not None:
            self.metrics.leadership(settings.lease_name, self._elector.is_leader)
        transport = _paced(transport, settings)
        reading = Client(transport, limits=Limits(writes_in_flight=settings.writes_in_flight, reads_in_flight=settings.reads_in_flight))
        means = Clients(
            reading=reading,
            writing=self._guarded(reading),
            telling=self._guarded(Client(transport, limits=_EVENT_LIMITS)),
            clock=clock,
            rng=rng,
            identity=identity,
            pace=pace,
            metrics=self.metrics,
        )
        config = ControllerConfig(namespaces=settings.namespaces, workers=settings.workers, writes_in_flight=settings.writes_in_flight)
        self._machinery = ControllerManager(config, means)
        labels = self._machinery.kinds.framework_labels
        self.metrics.registry.register(KubeflowMetrics(self._machinery.metrics, framework_labels=labels))
        kinds = [_kind(job_class, options or Options()) for job_class in _wanted(job_classes, settings.kinds)]
        self._following = KindManager(self._machinery, means, kinds, spawn=self._spawn)
        self._group = asyncio.TaskGroup()
        self._tasks: list[asyncio.Task[None]] = []
        self._synced = asyncio.Event()
        self._stopping = asyncio.Event()
        self._is_working = False
        self._started_at = asyncio.get_running_loop().time()

    # --- asking ------------------------------------------------------------------------------------------------------

    @property
    def is_synced(self) -> bool:
        """Whether every cache shows what the server has."""
        return self._synced.is_set()

    @property
    def is_working(self) -> bool:
        """Whether this one, and not another, looks after the jobs."""
        return self._is_working

    @property
    def remembered_jobs(self) -> int:
        """How many jobs something is kept in memory for, besides the caches."""
        return self._machinery.remembered_jobs

    async def wait_synced(self) -> None:
        """Wait until `is_synced`."""
        await self._synced.wait()

    def watch_age_seconds(self) -> float:
        """How long ago the server was last heard of by the watch that has heard of it least."""
        since_start = asyncio.get_running_loop().time() - self._started_at
        ages = [informer.last_contact_seconds_ago for informer in self._informers()]
        return max((since_start if age is None else age for age in ages), default=0.0)

    def complaints(self) -> list[str]:
        """Why caches are not in step with the server, as sentences."""
        return [informer.last_error for informer in self._informers() if informer.last_error]

    def _informers(self) -> list[Informer[Any]]:
        return [*self._following.informers(), *self._machinery.informers()]

    # --- running -----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Finish what is under way, tell of it, give the lease back, and end."""
        self._stopping.set()

    async def run(self) -> None:
        """Look after jobs until stopped or cancelled.

        Raises:
            LeadershipLostError: another one leads now, and all work here has ended.
        """
        try:
            async with self._group:
                for name, work in (*self._machinery.background(), ("definitions", self._following.run())):
                    self._spawn(work, name=name)
                try:
                    await self._until_stopped()
                finally:
                    for task in self._tasks:
                        task.cancel()
        except BaseExceptionGroup as errors:
            if len(errors.exceptions) == 1:
                raise errors.exceptions[0] from None
            raise

    async def _until_stopped(self) -> None:
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
            await _cancelled(stopping)
            await _cancelled(leading)

    async def _drain(self, leading: asyncio.Task[None]) -> None:
        log.info("stopping", working=self._is_working)
        self._machinery.controller.stop()
        if self._is_working:
            await asyncio.wait((leading,), timeout=self._settings.drain_seconds)
        if not leading.done():
            leading.cancel()

    async def _lead(self) -> None:
        for scope in self._machinery.scopes:
            await scope.wait_synced()
        await self._following.wait_synced()
        self._synced.set()
        give_back_memory()
        log.info("caches are in step with the server", kinds=self._following.kinds)
        if self._elector is None:
            await self._work()
        else:
            await self._elector.run(self._work)

    async def _work(self) -> None:
        self._is_working = True
        last_resort: asyncio.TimerHandle | None = None
        working = asyncio.create_task(self._machinery.controller.run(), name="workers")
        try:
            await asyncio.shield(working)
            await self._machinery.say_the_rest()
        except asyncio.CancelledError:
            last_resort = self._arm_last_resort()
            await _cancelled(working)
            raise
        finally:
            self._is_working = False
            if last_resort is not None:
                last_resort.cancel()

    def _arm_last_resort(self) -> asyncio.TimerHandle | None:
        """Work that does not end when it is cancelled must not outlive the lease."""
        if self._exit_process is None or self._elector is None or self._elector.is_leader():
            return None
        left = self._settings.lease_duration_seconds - self._settings.renew_deadline_seconds
        return asyncio.get_running_loop().call_later(left * _LAST_RESORT, self._exit_process, _LEADERSHIP_LOST)

    def _guarded(self, client: Client) -> Client:
        return client if self._elector is None else client.guarded(self._elector.is_leader)

    def _spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        task = self._group.create_task(work, name=name)
        self._tasks.append(task)
        task.add_done_callback(self._tasks.remove)
        return task


async def _cancelled(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for its end. What it raised is for whoever awaits it."""
    task.cancel()
    await asyncio.wait((task,))


def _wanted(job_classes: Iterable[type[DLJob]], names: tuple[str, ...]) -> Iterable[type[DLJob]]:
    registry = Registry(job_classes)
    return registry.select(names) if names else registry


def _kind(job_class: type[DLJob], options: Options) -> ManagedKind:
    return ManagedKind(
        resource=job_class.job_type.resource,
        make_job=lambda found: job_class(found, options=options),
        other_resources=job_class.other_resources + _groups(options),
        passing_resources=job_class.passing_resources,
        former_resources=tuple(each for each in POD_GROUPS if each not in _groups(options)),
        seen_resources=(PRIORITY_CLASSES,) if options.gang_scheduler_name else (),
        framework_label=job_class.framework_label,
    )


def _groups(options: Options) -> tuple[Resource, ...]:
    """What the jobs of every kind own where their pods are placed together."""
    return (group_resource(options.gang_scheduler_name),) if options.gang_scheduler_name else ()


def _paced(transport: Transport, settings: Settings) -> Transport:
    """Within the limit on requests a second, if there is one. The lease has none: who is late with it loses it."""
    if settings.kube_api_qps <= 0:
        return transport
    burst = settings.kube_api_burst or max(1, round(_BURST_SECONDS * settings.kube_api_qps))
    return PacedTransport(transport, bucket=TokenBucket(Rate(settings.kube_api_qps, burst)))


def _elector(
    settings: Settings, transport: Transport, *, identity: str, namespace: str, rng: Random, clock: Callable[[], float]
) -> Elector | None:
    if not settings.leader_election:
        return None
    return Elector(
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
