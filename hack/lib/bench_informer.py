"""Measures an informer in a process of its own: CPU per event, the longest stall of the loop, memory per cached pod.

Called as a program with the name of the measure, a kubeconfig, the number of pods and of changes; prints the figures.
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
from dlop.operator.gc import tune_garbage_collection

_TICK_SECONDS = 0.001


class _Counter:
    """Counts changes, and says when there have been enough."""

    def __init__(self, wanted: int) -> None:
        self.left = wanted
        self.done = asyncio.Event()

    def __call__(self, change: CacheChange[Pod]) -> None:
        self.left -= 1
        if self.left == 0:
            self.done.set()


class _Stalls:
    """A task that wants to run every millisecond, and remembers how long it once had to wait.

    `busy_seconds` is the part of the longest wait that this process was at work itself. The rest was taken by others
    on the machine.
    """

    def __init__(self) -> None:
        self.longest_seconds = 0.0
        self.busy_seconds = 0.0

    async def run(self) -> None:
        while True:
            before, busy_before = time.monotonic(), time.thread_time()
            await asyncio.sleep(_TICK_SECONDS)
            self.longest_seconds = max(self.longest_seconds, time.monotonic() - before - _TICK_SECONDS)
            self.busy_seconds = max(self.busy_seconds, time.thread_time() - busy_before)


@contextlib.asynccontextmanager
async def _client(kubeconfig: Path) -> AsyncIterator[Client]:
    client = Client(await connect(kubeconfig))
    try:
        # The first call loads code and opens a connection, which is no part of any figure.
        await client.call("GET", PODS.path(), query=(("limit", "1"),))
        tune_garbage_collection()  # as the operator does
        yield client
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def _following(client: Client, handler: _Counter) -> AsyncIterator[Informer[Pod]]:
    informer = Informer(client, PODS, Pod, rng=Random(1), labels=("training.kubeflow.org/job-name",), handlers=[handler])
    running = asyncio.create_task(informer.run())
    try:
        yield informer
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def cpu(client: Client, *, pods: int, changes: int) -> list[float]:
    """Microseconds of CPU for each change that a watch brings, everything in this process included."""
    counter = _Counter(pods + changes)
    async with _following(client, counter) as informer:
        await informer.wait_synced()
        before, to_come = time.process_time(), counter.left
        await counter.done.wait()
        return [(time.process_time() - before) * 1e6 / to_come]


async def stall(client: Client, *, pods: int, changes: int) -> list[float]:
    """Milliseconds that another task had to wait at most, during the first list and all later ones: by the clock, and in CPU."""
    counter, stalls = _Counter(pods + changes), _Stalls()
    watching = asyncio.create_task(stalls.run())
    async with _following(client, counter):
        await counter.done.wait()
    watching.cancel()
    return [stalls.longest_seconds * 1e3, stalls.busy_seconds * 1e3]


async def memory(client: Client, *, pods: int, changes: int) -> list[float]:
    """Kilobytes by which this process has grown for each pod in the cache."""
    gc.collect()
    before = _resident_kilobytes()
    async with _following(client, _Counter(pods + changes)) as informer:
        await informer.wait_synced()
        gc.collect()
        return [(_resident_kilobytes() - before) / pods]


async def figures(measure: str, kubeconfig: Path, *, pods: int, changes: int) -> list[float]:
    """What one of the three measures gives."""
    async with _client(kubeconfig) as client:
        return await {"cpu": cpu, "stall": stall, "memory": memory}[measure](client, pods=pods, changes=changes)


def _resident_kilobytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024


if __name__ == "__main__":
    # Standard output belongs to the figures. The first line ever logged loads a lot of code: it is no part of any figure.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    structlog.get_logger().debug("measuring", what=sys.argv[1])
    print(*uvloop.run(figures(sys.argv[1], Path(sys.argv[2]), pods=int(sys.argv[3]), changes=int(sys.argv[4]))))
