"""What Prometheus is told: queues, requests and leadership, under client-go's names, so that existing dashboards work.

Counting happens on hot paths, so it is plain arithmetic on plain numbers; families are made of them only when
somebody scrapes. Only this module knows prometheus_client.
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

# Ten nanoseconds to a quarter of an hour: client-go's and controller-runtime's own steps.
QUEUE_BUCKETS = tuple(float(f"1e{exponent}") for exponent in range(-8, 4))
REQUEST_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
# What client-go says instead of a status code when no answer came.
NO_ANSWER = "<error>"

# controller-runtime's numbers for the two priorities.
_PRIORITIES = {"0": False, "-100": True}


class Histogram:
    """A histogram in the making."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def add_to(self, family: HistogramMetricFamily, labels: list[str]) -> None:
        """Show what was counted, as Prometheus wants it: each bucket with all that are below it."""
        running = 0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            running += count
            buckets.append((_bucket_name(bound), running))
        family.add_metric(labels, buckets, self._sum)


def _bucket_name(bound: float) -> str:
    return "+Inf" if bound == float("inf") else repr(bound)


class QueueMetrics:
    """Counts one work queue: its `observer`."""

    def __init__(self) -> None:
        self.adds = 0
        self.retries = 0
        self.waits = Histogram(QUEUE_BUCKETS)
        self.works = Histogram(QUEUE_BUCKETS)
        self.state: QueueState | None = None

    def attach(self, queue: QueueState) -> None:
        """The queue whose depth and unfinished work are shown."""
        self.state = queue

    def added(self) -> None:
        """A key became ready."""
        self.adds += 1

    def handed_out(self, *, waited_seconds: float) -> None:
        """A worker took a key."""
        self.waits.observe(waited_seconds)

    def finished(self, *, worked_seconds: float) -> None:
        """A worker is done with a key."""
        self.works.observe(worked_seconds)

    def retried(self) -> None:
        """A key was put off to a later time."""
        self.retries += 1


class RequestMetrics:
    """Counts the requests to API servers."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, str]] = Counter()
        self.durations: dict[tuple[str, str], Histogram] = {}

    def answered(self, *, method: str, host: str, code: str, seconds: float) -> None:
        """A request has come to its end, with a status code or with NO_ANSWER."""
        self.requests[code, method, host] += 1
        tally = self.durations.get((method, host))
        if tally is None:
            tally = self.durations[method, host] = Histogram(REQUEST_BUCKETS)
        tally.observe(seconds)


class MeasuredTransport:
    """A transport that counts what goes through it."""

    def __init__(self, transport: Transport, *, metrics: RequestMetrics, host: str) -> None:
        self._transport = transport
        self._metrics = metrics
        self._host = host

    async def send(self, request: Request, *, timeout_seconds: float) -> Response:
        """Send a request and read the whole answer."""
        began = asyncio.get_running_loop().time()
        code = NO_ANSWER
        try:
            response = await self._transport.send(request, timeout_seconds=timeout_seconds)
            code = str(response.status)
            return response
        finally:
            self._note(request, code, began)

    @asynccontextmanager
    async def stream(self, request: Request, *, idle_timeout_seconds: float) -> AsyncIterator[StreamResponse]:
        """Open a request whose answer is read piece by piece. It is counted when it opens: a watch lasts as long as it lasts."""
        began = asyncio.get_running_loop().time()
        code = NO_ANSWER
        try:
            async with self._transport.stream(request, idle_timeout_seconds=idle_timeout_seconds) as response:
                code = str(response.status)
                self._note(request, code, began)
                yield response
        finally:
            if code is NO_ANSWER:
                self._note(request, code, began)

    async def refresh_credentials(self) -> str:
        """Read the credentials anew; says where they are from."""
        return await self._transport.refresh_credentials()

    async def close(self) -> None:
        """Release every connection."""
        await self._transport.close()

    def _note(self, request: Request, code: str, began: float) -> None:
        seconds = asyncio.get_running_loop().time() - began
        self._metrics.answered(method=request.method, host=self._host, code=code, seconds=seconds)


class Metrics(Collector):
    """Everything that `dlop.kube` counts, in one registry."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self.requests = RequestMetrics()
        self._queues: dict[str, QueueMetrics] = {}
        self._leaderships: dict[str, Callable[[], bool]] = {}
        self.registry.register(self)

    def queue(self, name: str) -> QueueMetrics:
        """The observer for the work queue of that name."""
        return self._queues.setdefault(name, QueueMetrics())

    def leadership(self, name: str, is_leader: Callable[[], bool]) -> None:
        """Show whether this process holds the lease of that name."""
        self._leaderships[name] = is_leader

    def collect(self) -> Iterator[Metric]:
        """The families, as of now."""
        yield from _queue_counts(self._queues)
        yield from _queue_gauges(self._queues)
        yield from _request_families(self.requests)
        held = GaugeMetricFamily("leader_election_master_status", "Whether this process holds the lease (1) or not (0).", labels=["name"])
        for name, is_leader in self._leaderships.items():
            held.add_metric([name], float(is_leader()))
        yield held


def _queue_counts(queues: dict[str, QueueMetrics]) -> Iterator[Metric]:
    labels = ["name", "controller"]
    adds = CounterMetricFamily("workqueue_adds", "How many keys became ready.", labels=labels)
    retries = CounterMetricFamily("workqueue_retries", "How many keys were put off to a later time.", labels=labels)
    waits = HistogramMetricFamily("workqueue_queue_duration_seconds", "How long keys were ready before a worker took them.", labels=labels)
    works = HistogramMetricFamily("workqueue_work_duration_seconds", "How long workers took for a key.", labels=labels)
    for name, metrics in queues.items():
        adds.add_metric([name, name], metrics.adds)
        retries.add_metric([name, name], metrics.retries)
        metrics.waits.add_to(waits, [name, name])
        metrics.works.add_to(works, [name, name])
    yield from (adds, retries, waits, works)


def _queue_gauges(queues: dict[str, QueueMetrics]) -> Iterator[Metric]:
    labels = ["name", "controller"]
    depth = GaugeMetricFamily("workqueue_depth", "How many keys are ready for a worker.", labels=[*labels, "priority"])
    unfinished = GaugeMetricFamily("workqueue_unfinished_work_seconds", "Seconds of work in progress, all workers together.", labels=labels)
    longest = GaugeMetricFamily(
        "workqueue_longest_running_processor_seconds", "Seconds that the longest work in progress has taken.", labels=labels
    )
    for name, metrics in queues.items():
        if metrics.state is None:
            continue
        for priority, initial in _PRIORITIES.items():
            depth.add_metric([name, name, priority], metrics.state.depth(initial=initial))
        seconds = metrics.state.working_seconds()
        unfinished.add_metric([name, name], sum(seconds))
        longest.add_metric([name, name], max(seconds, default=0.0))
    yield from (depth, unfinished, longest)


def _request_families(metrics: RequestMetrics) -> Iterator[Metric]:
    requests = CounterMetricFamily(
        "rest_client_requests", "How many requests were sent to the API server.", labels=["code", "method", "host"]
    )
    durations = HistogramMetricFamily(
        "rest_client_request_duration_seconds", "How long the API server took to answer.", labels=["verb", "host"]
    )
    # Copies: a scrape may run in another thread than the requests.
    for (code, method, host), count in list(metrics.requests.items()):
        requests.add_metric([code, method, host], count)
    for (verb, host), tally in list(metrics.durations.items()):
        tally.add_to(durations, [verb, host])
    yield from (requests, durations)
