"""The load generator: creates namespaces and jobs, watches objects, and acts as the kubelet. It runs in the benchmark process."""

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
from bench_report import MeasureError

from dlop.api.crd import build_crds
from dlop.deploy.apply import apply
from dlop.kube.client import Client, PatchType
from dlop.kube.objects import PartialObject, Pod, object_decoder
from dlop.kube.resources import NAMESPACES, PODS, Resource
from dlop.kube.timestamps import format_time
from dlop.kube.watch import WatchEvent
from dlop.testing.pod_status import finished_status, running_status

IN_FLIGHT = 50
TIMEOUT_SECONDS = 120.0

Item = TypeVar("Item")
Handler = Callable[[WatchEvent], None]
_read_partial = object_decoder(PartialObject)


@dataclass(frozen=True)
class BenchTarget:
    """The cluster, the bare client process and the kind of a measurement."""

    client: Client
    kubeconfig: Path
    folder: Path
    bare: subprocess.Popen[str]
    kind: MeasuredKind

    async def install(self) -> None:
        """Install the CRD of the kind."""
        await apply(self.client, build_crds([self.kind.job]), report=lambda _: None)
        await self.client.list(self.kind.resource)  # the client retries until the new resource is served

    async def create_namespace(self, name: str) -> str:
        """A new namespace, so that rounds and kinds are independent."""
        full_name = f"{self.kind.resource.plural}-{name}"
        await self.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": full_name}})
        return full_name

    def operator(self, namespace: str, *flags: str) -> AbstractAsyncContextManager[Operator]:
        """An operator for jobs of the kind in one namespace."""
        kind = self.kind.resource.qualified_name
        return running_operator(self.kubeconfig, kind=kind, namespace=namespace, folder=self.folder, flags=flags)

    async def create_jobs(self, bodies: Iterable[JobBody]) -> None:
        """Create jobs as fast as the server accepts them."""

        async def create(body: JobBody) -> None:
            await self.client.call("POST", self.kind.resource.path(namespace=body["metadata"]["namespace"]), body=body)

        await for_each(bodies, create)


async def for_each(items: Iterable[Item], work: Callable[[Item], Awaitable[Any]]) -> None:
    """Call `work` for each item, with `IN_FLIGHT` concurrent calls."""
    pending = iter(items)

    async def worker() -> None:
        for item in pending:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(worker())


class Watcher:
    """Watches resources of a namespace from the current resource version on, and calls a handler for each event."""

    def __init__(self, client: Client, namespace: str, handlers: Mapping[Resource, Handler]) -> None:
        self._client = client
        self._namespace = namespace
        self._handlers = handlers
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        for resource, handler in self._handlers.items():
            response = await self._client.call("GET", resource.path(namespace=self._namespace), query=(("limit", "1"),))
            version = msgspec.json.decode(response.body)["metadata"]["resourceVersion"]
            task = asyncio.create_task(self._watch(resource, handler, version))
            task.add_done_callback(lambda _: self._changed.set())
            self._tasks.append(task)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def until(self, reached: Callable[[], bool], *, what: Callable[[], str], timeout_seconds: float = TIMEOUT_SECONDS) -> float:
        """Wait until `reached` is true, and return the time. `what` describes the current state for the error message."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                while not reached():
                    self._require_watches()
                    self._changed.clear()
                    await self._changed.wait()
                return time.perf_counter()
        raise MeasureError(f"timed out after {timeout_seconds:g} seconds with {what()}")

    def _require_watches(self) -> None:
        for task in self._tasks:
            if task.done():
                raise MeasureError(f"a watch of the benchmark ended: {task.exception()}")

    async def _watch(self, resource: Resource, handler: Handler, version: str) -> None:
        while True:
            # The server can end a watch at any time. Continue from the last resource version.
            async with self._client.watch(
                resource, namespace=self._namespace, resource_version=version, bookmarks=False, timeout_seconds=1200
            ) as events:
                last: WatchEvent | None = None
                async for event in events:
                    handler(event)
                    last = event
                    self._changed.set()
            version = version if last is None else _read_partial(last.object).metadata.resource_version


class Kubelet:
    """Writes the pod status that a kubelet would write."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def set_running(self, pod: Pod) -> None:
        await self._report(pod, running_status(pod, now=format_time(time.time())))

    async def set_finished(self, pod: Pod, *, exit_code: int = 0) -> None:
        """All containers have terminated, the first one with this exit code."""
        reason = "Error" if exit_code else "Completed"
        now = format_time(time.time())
        await self._report(pod, finished_status(pod, exit_code=exit_code, reason=reason, message="", container="", now=now))

    async def _report(self, pod: Pod, status: dict[str, Any]) -> None:
        metadata = pod.metadata
        path = PODS.path(namespace=metadata.namespace, name=metadata.name, subresource="status")
        await self._client.call("PATCH", path, body={"status": status}, content_type=PatchType.STRATEGIC)
