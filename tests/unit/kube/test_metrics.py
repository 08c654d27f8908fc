"""Metrics: names and labels of client-go, and correct values."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from dlop.kube.errors import AmbiguousWriteError, TransportError
from dlop.kube.metrics import InstrumentedTransport, Metrics
from dlop.kube.transport import Request, Response, StreamResponse
from dlop.kube.workqueue import WorkQueue
from dlop.testing.virtual_time import virtual_time


def value(metrics: Metrics, sample: str, /, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(sample, labels)


def queue_labels(**more: str) -> dict[str, str]:
    return {"name": "jobs", "controller": "jobs", **more}


@virtual_time
async def test_queue_metrics_have_the_names_of_client_go() -> None:
    metrics = Metrics()
    queue: WorkQueue[str] = WorkQueue(rng=random.Random(0), observer=metrics.queue("jobs"))
    queue.add("a")
    queue.add("a")
    queue.add("b", initial=True)
    queue.add_after("c", 60)
    await asyncio.sleep(3)
    assert value(metrics, "workqueue_adds_total", **queue_labels()) == 2
    assert value(metrics, "workqueue_retries_total", **queue_labels()) == 1
    assert value(metrics, "workqueue_depth", **queue_labels(priority="0")) == 1
    assert value(metrics, "workqueue_depth", **queue_labels(priority="-100")) == 1

    await queue.get()
    await asyncio.sleep(5)
    await queue.get()
    await asyncio.sleep(1)
    assert value(metrics, "workqueue_depth", **queue_labels(priority="0")) == 0
    assert value(metrics, "workqueue_queue_duration_seconds_count", **queue_labels()) == 2
    assert value(metrics, "workqueue_queue_duration_seconds_sum", **queue_labels()) == 3 + 8
    assert value(metrics, "workqueue_unfinished_work_seconds", **queue_labels()) == 6 + 1
    assert value(metrics, "workqueue_longest_running_processor_seconds", **queue_labels()) == 6

    queue.done("a")
    assert value(metrics, "workqueue_work_duration_seconds_count", **queue_labels()) == 1
    assert value(metrics, "workqueue_work_duration_seconds_sum", **queue_labels()) == 6
    assert value(metrics, "workqueue_work_duration_seconds_bucket", **queue_labels(le="1.0")) == 0
    assert value(metrics, "workqueue_work_duration_seconds_bucket", **queue_labels(le="10.0")) == 1
    assert value(metrics, "workqueue_work_duration_seconds_bucket", **queue_labels(le="+Inf")) == 1
    assert value(metrics, "workqueue_unfinished_work_seconds", **queue_labels()) == 2 - 1


def test_leadership_is_read_at_the_time_of_the_scrape() -> None:
    metrics = Metrics()
    is_leader = False
    metrics.register_leadership("dlop", lambda: is_leader)
    assert value(metrics, "leader_election_master_status", name="dlop") == 0
    is_leader = True
    assert value(metrics, "leader_election_master_status", name="dlop") == 1


def test_the_exposition_can_be_parsed() -> None:
    metrics = Metrics()
    metrics.queue("jobs").on_get(waited_seconds=0.5)
    metrics.requests.record(method="GET", host="server", code="200", seconds=0.1)
    families = {family.name for family in text_string_to_metric_families(generate_latest(metrics.registry).decode())}
    assert {"workqueue_adds", "workqueue_queue_duration_seconds", "rest_client_requests", "leader_election_master_status"} <= families


class FixedResultTransport:
    """Returns a status or raises an error after one second."""

    def __init__(self, result: int | Exception) -> None:
        self._result = result

    async def send(self, request: Request, *, timeout_seconds: float) -> Response:
        await asyncio.sleep(1)
        return Response(self._status(), {}, b"{}")

    @asynccontextmanager
    async def stream(self, request: Request, *, idle_timeout_seconds: float) -> AsyncIterator[StreamResponse]:
        await asyncio.sleep(1)
        yield StreamResponse(self._status(), {}, _no_chunks())

    async def refresh_credentials(self) -> str:
        raise AssertionError

    async def close(self) -> None:
        raise AssertionError

    def _status(self) -> int:
        if isinstance(self._result, Exception):
            raise self._result
        return self._result


async def _no_chunks() -> AsyncIterator[bytes]:
    for chunk in list[bytes]():
        yield chunk


@pytest.mark.parametrize("status", [200, 404, 503])
def test_requests_are_counted_by_status_method_and_host(status: int) -> None:
    @virtual_time
    async def check() -> None:
        metrics = Metrics()
        transport = InstrumentedTransport(FixedResultTransport(status), metrics=metrics.requests, host="server:6443")
        await transport.send(Request("PUT", "/"), timeout_seconds=5)
        assert value(metrics, "rest_client_requests_total", code=str(status), method="PUT", host="server:6443") == 1
        assert value(metrics, "rest_client_request_duration_seconds_sum", verb="PUT", host="server:6443") == 1

    check()


@pytest.mark.parametrize("error", [TransportError("no"), AmbiguousWriteError("maybe")])
def test_a_request_without_a_response_is_counted_as_an_error(error: Exception) -> None:
    @virtual_time
    async def check() -> None:
        metrics = Metrics()
        transport = InstrumentedTransport(FixedResultTransport(error), metrics=metrics.requests, host="server")
        with pytest.raises(type(error)):
            await transport.send(Request("PUT", "/"), timeout_seconds=5)
        assert value(metrics, "rest_client_requests_total", code="<error>", method="PUT", host="server") == 1

    check()


@virtual_time
async def test_a_watch_is_counted_once_and_timed_until_it_opens() -> None:
    metrics = Metrics()
    transport = InstrumentedTransport(FixedResultTransport(200), metrics=metrics.requests, host="server")
    async with transport.stream(Request("GET", "/"), idle_timeout_seconds=5):
        await asyncio.sleep(600)
    assert value(metrics, "rest_client_requests_total", code="200", method="GET", host="server") == 1
    assert value(metrics, "rest_client_request_duration_seconds_sum", verb="GET", host="server") == 1


@virtual_time
async def test_a_watch_that_does_not_open_is_counted_as_an_error() -> None:
    metrics = Metrics()
    transport = InstrumentedTransport(FixedResultTransport(TransportError("no")), metrics=metrics.requests, host="server")
    with pytest.raises(TransportError):
        async with transport.stream(Request("GET", "/"), idle_timeout_seconds=5):
            raise AssertionError
    assert value(metrics, "rest_client_requests_total", code="<error>", method="GET", host="server") == 1
