"""The load: it makes namespaces and jobs, follows what becomes of them, and plays the kubelet. It runs in the bench's own process."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec
from bench_operator_jobs import JobBody, MeasuredKind
from bench_operator_process import Operator, running_operator
from bench_rows import MeasureError

from dlop.api.crd import definitions
from dlop.deploy.apply import apply
from dlop.kube.client import Client, PatchType
from dlop.kube.objects import PartialObject, Pod, reader
from dlop.kube.resources import NAMESPACES, PODS, Resource
from dlop.kube.timestamps import to_the_second
from dlop.kube.watch import WatchEvent
from dlop.testing.pod_status import finished_status, running_status

IN_FLIGHT = 50
WITHIN_SECONDS = 120.0

Item = TypeVar("Item")
Told = Callable[[WatchEvent], None]
_read_partial = reader(PartialObject)


@dataclass(frozen=True)
class Place:
    """Where everything happens, and to jobs of which kind."""

    client: Client
    kubeconfig: Path
    folder: Path
    bare: subprocess.Popen[str]
    kind: MeasuredKind

    async def install(self) -> None:
        """Let the server know the kind."""
        await apply(self.client, definitions([self.kind.job]), say=lambda _: None)
        await self.client.list(self.kind.resource)  # for a moment a server asks everybody to come back later, and the client does

    async def make_namespace(self, name: str) -> str:
        """A new namespace, so that nothing of earlier rounds or of other kinds has to be cleared away."""
        called = f"{self.kind.resource.plural}-{name}"
        await self.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": called}})
        return called

    def operator(self, namespace: str) -> AbstractAsyncContextManager[Operator]:
        """An operator that looks after jobs of the kind in one namespace."""
        return running_operator(self.kubeconfig, kind=self.kind.resource.qualified_name, namespace=namespace, folder=self.folder)

    async def create_jobs(self, bodies: Iterable[JobBody]) -> None:
        """Create jobs as fast as the server takes them."""

        async def create(body: JobBody) -> None:
            await self.client.call("POST", self.kind.resource.path(namespace=body["metadata"]["namespace"]), body=body)

        await many(bodies, create)


async def many(items: Iterable[Item], work: Callable[[Item], Awaitable[Any]]) -> None:
    """Do something with each item, `IN_FLIGHT` at once."""
    waiting = iter(items)

    async def one_after_another() -> None:
        for item in waiting:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(one_after_another())


class Follower:
    """Watches some resources of a namespace from now on."""

    def __init__(self, client: Client, namespace: str, told: Mapping[Resource, Told]) -> None:
        self._client = client
        self._namespace = namespace
        self._told = told
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        for resource, told in self._told.items():
            answer = await self._client.call("GET", resource.path(namespace=self._namespace), query=(("limit", "1"),))
            version = msgspec.json.decode(answer.body)["metadata"]["resourceVersion"]
            task = asyncio.create_task(self._follow(resource, told, version))
            task.add_done_callback(lambda _: self._changed.set())
            self._tasks.append(task)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def until(self, reached: Callable[[], bool], *, what: Callable[[], str], within_seconds: float = WITHIN_SECONDS) -> float:
        """Wait until something is so, and return the moment. `what` says what there is, in case it never is."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_seconds):
                while not reached():
                    self._demand_watches()
                    self._changed.clear()
                    await self._changed.wait()
                return time.perf_counter()
        raise MeasureError(f"after {within_seconds:g} seconds there are {what()}")

    def _demand_watches(self) -> None:
        for task in self._tasks:
            if task.done():
                raise MeasureError(f"a watch of the bench has ended: {task.exception()}")

    async def _follow(self, resource: Resource, told: Told, version: str) -> None:
        while True:
            # A server may end a watch at any time; it goes on from where it was.
            async with self._client.watch(
                resource, namespace=self._namespace, resource_version=version, bookmarks=False, timeout_seconds=1200
            ) as events:
                last: WatchEvent | None = None
                async for event in events:
                    told(event)
                    last = event
                    self._changed.set()
            version = version if last is None else _read_partial(last.object).metadata.resource_version


class Kubelet:
    """Says of pods what a kubelet says: they run, they have ended."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def runs(self, pod: Pod) -> None:
        """All its containers run."""
        await self._report(pod, running_status(pod, now=to_the_second(time.time())))

    async def ended(self, pod: Pod, *, exit_code: int = 0) -> None:
        """All its containers have ended, the first with this exit code."""
        reason = "Error" if exit_code else "Completed"
        now = to_the_second(time.time())
        await self._report(pod, finished_status(pod, exit_code=exit_code, reason=reason, message="", container="", now=now))

    async def _report(self, pod: Pod, status: dict[str, Any]) -> None:
        metadata = pod.metadata
        path = PODS.path(namespace=metadata.namespace, name=metadata.name, subresource="status")
        await self._client.call("PATCH", path, body={"status": status}, content_type=PatchType.STRATEGIC)
