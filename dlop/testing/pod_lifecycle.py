"""One pod of the scripted kubelet. Its script runs until the pod is deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import msgspec

from dlop.kube.client import Client, PatchType
from dlop.kube.errors import ConflictError, NotFoundError
from dlop.kube.objects import Pod, object_decoder
from dlop.kube.resources import PODS
from dlop.kube.timestamps import format_time
from dlop.kube.types import JsonObject
from dlop.testing.pod_status import finished_status
from dlop.testing.pod_steps import KILLED_BY_SIGTERM, Step

_decode_pod = object_decoder(Pod)
_FINAL_PHASES = ("Succeeded", "Failed")


class StartTask(Protocol):
    def __call__(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]: ...


@dataclass(frozen=True, slots=True)
class PodEnvironment:
    """Shared by all pods of a kubelet."""

    client: Client
    clock: Callable[[], float]
    time_scale: float
    stop_seconds: float
    node: str


class PodLifecycle:
    """Runs the script of one pod. Implements `PodControl` for the steps."""

    def __init__(self, pod: Pod, environment: PodEnvironment, released: asyncio.Semaphore, *, start: StartTask) -> None:
        self._pod = pod
        self._environment = environment
        self._released = released
        self._start = start
        self._script_task: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._node_is_lost = False

    # --- called by the kubelet ---------------------------------------------------------------------------------------

    def run_script(self, steps: Iterable[Step]) -> None:
        self._script_task = self._start(self._ignore_missing(partial(self._run_steps, steps)), name=f"script of {self._pod.metadata.name}")

    def update(self, pod: Pod) -> None:
        """Process an update of the pod. A deleted pod is terminated."""
        if int(pod.metadata.resource_version) > int(self._pod.metadata.resource_version):
            self._pod = pod
        if pod.metadata.deletion_timestamp is not None and not self._is_stopping and not self._node_is_lost:
            self._is_stopping = True
            self.interrupt()
            self._start(self._ignore_missing(self._stop), name=f"end of {pod.metadata.name}")

    def interrupt(self) -> None:
        """Stop the script."""
        if self._script_task is not None and self._script_task is not asyncio.current_task():
            self._script_task.cancel()

    # --- PodControl --------------------------------------------------------------------------------------------------

    @property
    def pod(self) -> Pod:
        return self._pod

    def now(self) -> str:
        return format_time(self._environment.clock())

    async def bind(self) -> None:
        if self._pod.spec.node_name:
            return
        metadata = self._pod.metadata
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": metadata.name, "uid": metadata.uid},
            "target": {"kind": "Node", "name": self._environment.node},
        }
        await self._environment.client.create(PODS, binding, namespace=metadata.namespace, name=metadata.name, subresource="binding")

    async def report(self, status: JsonObject) -> None:
        metadata = self._pod.metadata
        patch = {"metadata": {"uid": metadata.uid}, "status": status}
        response = await self._environment.client.patch(
            PODS, metadata.name, patch, namespace=metadata.namespace, subresource="status", patch_type=PatchType.STRATEGIC
        )
        self._pod = _decode_pod(msgspec.json.encode(response))

    async def delete(self) -> None:
        await self._delete(grace_seconds=None)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self._environment.time_scale)

    async def until_released(self) -> None:
        await self._released.acquire()

    def lose_node(self) -> None:
        self._node_is_lost = True

    # --- internals ---------------------------------------------------------------------------------------------------

    async def _run_steps(self, steps: Iterable[Step]) -> None:
        for step in steps:
            await self.pause(1)
            await step.perform(self)

    async def _stop(self) -> None:
        """Terminate the containers, report their exit codes, and complete the deletion."""
        if self._pod.status.phase not in _FINAL_PHASES and self._pod.spec.node_name:
            await self.pause(self._environment.stop_seconds)
            final_status = finished_status(self._pod, exit_code=KILLED_BY_SIGTERM, reason="Error", message="", container="", now=self.now())
            await self.report(final_status)
        await self._delete(grace_seconds=0)

    async def _delete(self, *, grace_seconds: int | None) -> None:
        metadata = self._pod.metadata
        await self._environment.client.delete(
            PODS, metadata.name, namespace=metadata.namespace, uid=metadata.uid, grace_seconds=grace_seconds
        )

    async def _ignore_missing(self, work: Callable[[], Awaitable[None]]) -> None:
        # The pod was deleted, or replaced by another one of the same name.
        try:
            await work()
        except (NotFoundError, ConflictError):
            return
