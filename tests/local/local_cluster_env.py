"""A local cluster in the process of the test, so that its resources can be counted."""

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
from dlop.jobs.list_watch import WatchScope, list_and_watch
from dlop.jobs.lookup import JobHandle
from dlop.jobs.wait import WaitCondition, wait_for_job
from dlop.kube.client import Client
from dlop.kube.objects import Pod
from dlop.kube.resources import PODS
from dlop.kube.types import JsonObject
from dlop.local.cluster import LocalCluster
from dlop.local.options import NodeOptions
from dlop.local.workdir import open_workdir

TIMEOUT_SECONDS = 90.0


@dataclass(frozen=True)
class LocalClusterEnv:
    """A local cluster with helpers."""

    client: Client
    folder: Path
    registry: Registry

    async def submit(self, body: JsonObject) -> JobHandle:
        kind = self.registry.get(body["apiVersion"], body["kind"])
        created = await self.client.create(kind.job_type.resource, body, namespace="default")
        return JobHandle.decode(kind, msgspec.json.encode(created))

    async def wait_until_succeeded(self, job: JobHandle) -> JobHandle:
        return await wait_for_job(self.client, job, WaitCondition.SUCCEEDED, timeout_seconds=TIMEOUT_SECONDS)

    async def delete(self, job: JobHandle) -> None:
        """Delete a job and wait until its pods are deleted."""
        await self.client.delete(job.resource, job.name, namespace=job.namespace)
        scope, remaining = WatchScope(resource=PODS, namespace=job.namespace), set[str]()
        async with asyncio.timeout(TIMEOUT_SECONDS), aclosing(list_and_watch(self.client, scope, Pod)) as changes:
            async for change_set in changes:
                remaining |= {pod.metadata.uid for pod in change_set.upserted}
                remaining -= {pod.metadata.uid for pod in change_set.deleted}
                if not remaining:
                    return


@asynccontextmanager
async def local_cluster_env(folder: Path, *, registry: Registry | None = None, **node_options: Any) -> AsyncIterator[LocalClusterEnv]:
    """A local cluster with enough CPUs for any number of pods. `registry` defaults to the installed kinds."""
    registry = Registry(load_registry()) if registry is None else registry
    with open_workdir(folder, keep=False) as workdir:
        async with LocalCluster(registry, workdir=workdir, node=NodeOptions(**{"cpus": 1000, **node_options})) as cluster:
            yield LocalClusterEnv(cluster.client, workdir.path, registry)


# --- resources ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ResourceUsage:
    """Open files, sockets and child processes of this process."""

    files: int
    sockets: int
    processes: int
    pod_files: int
    """Files and logs of pods in the working directory."""


def resource_usage(folder: Path) -> ResourceUsage:
    targets = [_target(path) for path in Path("/proc/self/fd").iterdir()]
    return ResourceUsage(
        files=sum(not target.startswith("socket:") for target in targets),
        sockets=sum(target.startswith("socket:") for target in targets),
        processes=len(descendants(os.getpid())),
        pod_files=sum(1 for _ in (folder / "node").glob("*/*")),
    )


def _target(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return "closed"  # the descriptor of the listed directory


def descendants(pid: int) -> set[int]:
    """All child processes of a process, recursively."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            try:
                fields = (path / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(path.name))
    descendant_pids: set[int] = set()
    pending = [pid]
    while pending:
        for child in children.get(pending.pop(), ()):
            descendant_pids.add(child)
            pending.append(child)
    return descendant_pids


async def eventually(condition: Callable[[], bool], *, details: Callable[[], object]) -> None:
    """Poll until a condition holds. There are no events for the resources of a process."""
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS / 3):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"the condition was never met: {details()}") from None
