"""Prometheus metrics of queues, requests and leadership, with the names of client-go, so that existing dashboards work.

Counters on hot paths are plain numbers. Metric families are built from them only during a scrape.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from dlop.kube.transport import Request, Response, StreamResponse, Transport
from dlop.kube.workqueue import QueueState

# 10 ns to 1000 s, as in client-go and controller-runtime.
QUEUE_BUCKETS = tuple(float(f"1e{exponent}") for exponent in range(-8, 4))
REQUEST_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
# client-go's value of the label `code` for a request without a response.
NO_RESPONSE = "<error>"

# controller-runtime's values of the label `priority`.
_PRIORITIES = {"0": False, "-100": True}


class Histogram:
    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def add_to(self, family: HistogramMetricFamily, labels: list[str]) -> None:
        """Add a sample with cumulative buckets to the family."""
        cumulative = 0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            cumulative += count
            buckets.append((_bucket_name(bound), cumulative))
        family.add_metric(labels, buckets, self._sum)


def _bucket_name(bound: float) -> str:
    return "+Inf" if bound == float("inf") else repr(bound)


class QueueMetrics:
    """Metrics of one work queue. It is a `QueueObserver`."""

    def __init__(self) -> None:
        self.adds = 0
        self.retries = 0
        self.waits = Histogram(QUEUE_BUCKETS)
        self.works = Histogram(QUEUE_BUCKETS)
        self.state: QueueState | None = None

    def attach(self, queue: QueueState) -> None:
        self.state = queue

    def on_add(self) -> None:
        self.adds += 1

    def on_get(self, *, waited_seconds: float) -> None:
        self.waits.observe(waited_seconds)

    def on_done(self, *, worked_seconds: float) -> None:
        self.works.observe(worked_seconds)

    def on_retry(self) -> None:
        self.retries += 1


class RequestMetrics:
    """Metrics of requests to API servers."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, str]] = Counter()
        self.durations: dict[tuple[str, str], Histogram] = {}

    def record(self, *, method: str, host: str, code: str, seconds: float) -> None:
        """Count a finished request. `code` is its status code or NO_RESPONSE."""
        self.requests[code, method, host] += 1
        histogram = self.durations.get((method, host))
        if histogram is None:
            histogram = self.durations[method, host] = Histogram(REQUEST_BUCKETS)
        histogram.observe(seconds)


class InstrumentedTransport:
    """A transport that counts and times requests."""

    def __init__(self, transport: Transport, *, metrics: RequestMetrics, host: str) -> None:
        self._transport = transport
        self._metrics = metrics
        self._host = host

    async def send(self, request: Request, *, timeout_seconds: float) -> Response:
        started_at = asyncio.get_running_loop().time()
        code = NO_RESPONSE
        try:
            response = await self._transport.send(request, timeout_seconds=timeout_seconds)
            code = str(response.status)
            return response
        finally:
            self._record(request, code, started_at)

    @asynccontextmanager
    async def stream(self, request: Request, *, idle_timeout_seconds: float) -> AsyncIterator[StreamResponse]:
        """Open a stream. It is counted and timed when it opens, because a watch may last for hours."""
        started_at = asyncio.get_running_loop().time()
        code = NO_RESPONSE
        try:
            async with self._transport.stream(request, idle_timeout_seconds=idle_timeout_seconds) as response:
                code = str(response.status)
                self._record(request, code, started_at)
                yield response
        finally:
            if code is NO_RESPONSE:
                self._record(request, code, started_at)

    async def refresh_credentials(self) -> str:
        return await self._transport.refresh_credentials()

    async def close(self) -> None:
        await self._transport.close()

    def _record(self, request: Request, code: str, started_at: float) -> None:
        seconds = asyncio.get_running_loop().time() - started_at
        self._metrics.record(method=request.method, host=self._host, code=code, seconds=seconds)


class Metrics(Collector):
    """All metrics of `dlop.kube`, in one registry."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.requests = RequestMetrics()
        self._queues: dict[str, QueueMetrics] = {}
        self._leaderships: dict[str, Callable[[], bool]] = {}
        self.registry.register(self)

    def queue(self, name: str) -> QueueMetrics:
        """The observer for the work queue with this name."""
        return self._queues.setdefault(name, QueueMetrics())

    def register_leadership(self, name: str, is_leader: Callable[[], bool]) -> None:
        """Export whether this process holds the lease with this name."""
        self._leaderships[name] = is_leader

    def collect(self) -> Iterator[Metric]:
        yield from _queue_counters(self._queues)
        yield from _queue_gauges(self._queues)
        yield from _request_families(self.requests)
        held = GaugeMetricFamily(
            "leader_election_master_status", "Whether this process is the leader: 1 if it holds the lease, 0 otherwise.", labels=["name"]
        )
        for name, is_leader in self._leaderships.items():
            held.add_metric([name], float(is_leader()))
        yield held


def _queue_counters(queues: dict[str, QueueMetrics]) -> Iterator[Metric]:
    labels = ["name", "controller"]
    adds = CounterMetricFamily("workqueue_adds", "Total number of adds handled by workqueue.", labels=labels)
    retries = CounterMetricFamily("workqueue_retries", "Total number of retries handled by workqueue.", labels=labels)
    waits = HistogramMetricFamily(
        "workqueue_queue_duration_seconds", "How long in seconds an item stays in workqueue before being requested.", labels=labels
    )
    works = HistogramMetricFamily(
        "workqueue_work_duration_seconds", "How long in seconds processing an item from workqueue takes.", labels=labels
    )
    for name, metrics in queues.items():
        adds.add_metric([name, name], metrics.adds)
        retries.add_metric([name, name], metrics.retries)
        metrics.waits.add_to(waits, [name, name])
        metrics.works.add_to(works, [name, name])
    yield from (adds, retries, waits, works)


def _queue_gauges(queues: dict[str, QueueMetrics]) -> Iterator[Metric]:
    labels = ["name", "controller"]
    depth = GaugeMetricFamily("workqueue_depth", "Current depth of workqueue, by priority.", labels=[*labels, "priority"])
    unfinished = GaugeMetricFamily(
        "workqueue_unfinished_work_seconds", "Seconds of work that is in progress, over all workers.", labels=labels
    )
    longest = GaugeMetricFamily(
        "workqueue_longest_running_processor_seconds", "How many seconds the longest running processor has been running.", labels=labels
    )
    for name, metrics in queues.items():
        if metrics.state is None:
            continue
        for priority, initial in _PRIORITIES.items():
            depth.add_metric([name, name, priority], metrics.state.depth(initial=initial))
        seconds = metrics.state.processing_seconds()
        unfinished.add_metric([name, name], sum(seconds))
        longest.add_metric([name, name], max(seconds, default=0.0))
    yield from (depth, unfinished, longest)


def _request_families(metrics: RequestMetrics) -> Iterator[Metric]:
    requests = CounterMetricFamily(
        "rest_client_requests", "Number of HTTP requests, by status code, method and host.", labels=["code", "method", "host"]
    )
    durations = HistogramMetricFamily(
        "rest_client_request_duration_seconds", "Request latency in seconds, by verb and host.", labels=["verb", "host"]
    )
    # Copies, because a scrape may run in another thread than the requests.
    for (code, method, host), count in list(metrics.requests.items()):
        requests.add_metric([code, method, host], count)
    for (verb, host), histogram in list(metrics.durations.items()):
        histogram.add_to(durations, [verb, host])
    yield from (requests, durations)
