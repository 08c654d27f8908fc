"""A laptop cluster inside of the test's own process, so that what it holds can be counted."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from dlop.frameworks.registry import Registry, load_registry
from dlop.jobs.list_watch import WatchScope, follow
from dlop.jobs.lookup import JobHandle
from dlop.jobs.wait import Goal, wait_for
from dlop.kube.client import Client
from dlop.kube.objects import Pod
from dlop.kube.resources import PODS
from dlop.kube.types import JsonObject
from dlop.local.cluster import LocalCluster
from dlop.local.options import Machine
from dlop.local.workdir import using_folder

PATIENCE_SECONDS = 90.0


@dataclass(frozen=True)
class LaptopWorld:
    """A laptop cluster, and short ways to use it."""

    client: Client
    folder: Path
    registry: Registry

    async def submit(self, body: JsonObject) -> JobHandle:
        """Create a job."""
        kind = self.registry.get(body["apiVersion"], body["kind"])
        created = await self.client.create(kind.job_type.resource, body, namespace="default")
        return JobHandle.read(kind, msgspec.json.encode(created))

    async def succeeds(self, job: JobHandle) -> JobHandle:
        """Wait until a job has succeeded."""
        return await wait_for(self.client, job, Goal.SUCCEEDED, timeout_seconds=PATIENCE_SECONDS)

    async def delete(self, job: JobHandle) -> None:
        """Delete a job, and wait until its pods are gone too."""
        await self.client.delete(job.resource, job.name, namespace=job.namespace)
        scope, left = WatchScope(resource=PODS, namespace=job.namespace), set[str]()
        async with asyncio.timeout(PATIENCE_SECONDS), aclosing(follow(self.client, scope, Pod)) as all_news:
            async for news in all_news:
                left = (left | {pod.metadata.uid for pod in news.there}) - {pod.metadata.uid for pod in news.gone}
                if not left:
                    return


@asynccontextmanager
async def laptop_world(folder: Path, **machine: Any) -> AsyncIterator[LaptopWorld]:
    """A laptop cluster in a folder, with room for any number of pods."""
    registry = Registry(load_registry())
    with using_folder(folder, keep=False) as used:
        async with LocalCluster(registry, folder=used, machine=Machine(**{"cpus": 1000, **machine})) as laptop:
            yield LaptopWorld(laptop.client, used.path, registry)


# --- counting -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Held:
    """What this process has open and what runs below it."""

    files: int
    sockets: int
    processes: int
    stored: int
    """What the cluster's folder has of pods: their files, their logs."""


def held(folder: Path) -> Held:
    """Count it."""
    targets = [_target(place) for place in Path("/proc/self/fd").iterdir()]
    return Held(
        files=sum(not target.startswith("socket:") for target in targets),
        sockets=sum(target.startswith("socket:") for target in targets),
        processes=len(descendants(os.getpid())),
        stored=sum(1 for _ in (folder / "node").glob("*/*")),
    )


def _target(place: Path) -> str:
    try:
        return str(place.readlink())
    except OSError:
        return "gone"  # the one that listed the folder


def descendants(pid: int) -> set[int]:
    """The processes that a process started, and those that these started."""
    children: dict[int, list[int]] = {}
    for place in Path("/proc").iterdir():
        if place.name.isdecimal():
            try:
                words = (place / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(words[1]), []).append(int(place.name))
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            found.add(child)
            waiting.append(child)
    return found


async def comes_true(claim: Callable[[], bool], *, what: Callable[[], object]) -> None:
    """Wait for something that nobody tells: what a process holds is only known by looking."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS / 3):
            while not claim():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"it never came true: {what()}") from None
