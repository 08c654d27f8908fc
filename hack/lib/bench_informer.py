"""Measures an informer in a separate process: CPU time per event, the longest stall of the event loop, memory per cached pod.

Arguments: the measurement, a kubeconfig, the number of pods, the number of changes. Prints the results.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import structlog
import uvloop

from dlop.kube.cache import CacheChange
from dlop.kube.client import Client
from dlop.kube.http.transport import connect
from dlop.kube.informer import Informer
from dlop.kube.objects import Pod
from dlop.kube.resources import PODS
from dlop.operator.event_loop import EventLoopMonitor
from dlop.operator.gc import tune_garbage_collection

_INTERVAL_SECONDS = 0.001


class _Counter:
    """Counts down the expected changes and sets `done` after the last one."""

    def __init__(self, expected: int) -> None:
        self.left = expected
        self.done = asyncio.Event()

    def __call__(self, change: CacheChange[Pod]) -> None:
        self.left -= 1
        if self.left == 0:
            self.done.set()


@contextlib.asynccontextmanager
async def _client(kubeconfig: Path) -> AsyncIterator[Client]:
    client = Client(await connect(kubeconfig))
    try:
        # Exclude the loading of code and the connection setup from the results.
        await client.call("GET", PODS.path(), query=(("limit", "1"),))
        tune_garbage_collection()  # as the operator does
        yield client
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def _running_informer(client: Client, handler: _Counter) -> AsyncIterator[Informer[Pod]]:
    informer = Informer(client, PODS, Pod, rng=Random(1), labels=("training.kubeflow.org/job-name",), handlers=[handler])
    running = asyncio.create_task(informer.run())
    try:
        yield informer
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def cpu(client: Client, *, pods: int, changes: int) -> list[float]:
    """CPU time of this process per watch event, in microseconds."""
    counter = _Counter(pods + changes)
    async with _running_informer(client, counter) as informer:
        await informer.wait_synced()
        before, remaining = time.process_time(), counter.left
        await counter.done.wait()
        return [(time.process_time() - before) * 1e6 / remaining]


async def stall(client: Client, *, pods: int, changes: int) -> list[float]:
    """The longest delay of a timer during the initial list and all relists, in milliseconds of wall time and of CPU time."""
    counter, monitor = _Counter(pods + changes), EventLoopMonitor(interval_seconds=_INTERVAL_SECONDS)
    with monitor.running():
        async with _running_informer(client, counter):
            await counter.done.wait()
    return [monitor.longest_seconds * 1e3, monitor.longest_cpu_seconds * 1e3]


async def memory(client: Client, *, pods: int, changes: int) -> list[float]:
    """Growth of the resident memory per cached pod, in kilobytes."""
    gc.collect()
    before = _resident_kilobytes()
    async with _running_informer(client, _Counter(pods + changes)) as informer:
        await informer.wait_synced()
        gc.collect()
        return [(_resident_kilobytes() - before) / pods]


async def run_measurement(measure: str, kubeconfig: Path, *, pods: int, changes: int) -> list[float]:
    """The results of one measurement: `cpu`, `stall` or `memory`."""
    async with _client(kubeconfig) as client:
        return await {"cpu": cpu, "stall": stall, "memory": memory}[measure](client, pods=pods, changes=changes)


def _resident_kilobytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024


if __name__ == "__main__":
    # Log to standard error, because standard output is for the results. The first log line loads code; exclude it from the results.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    structlog.get_logger().debug("measuring", what=sys.argv[1])
    print(*uvloop.run(run_measurement(sys.argv[1], Path(sys.argv[2]), pods=int(sys.argv[3]), changes=int(sys.argv[4]))))
