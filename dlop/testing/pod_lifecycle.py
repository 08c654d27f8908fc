"""One pod under the care of the scripted kubelet: its script goes on until somebody deletes the pod."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import msgspec

from dlop.kube.client import Client, PatchType
from dlop.kube.errors import ConflictError, NotFoundError
from dlop.kube.objects import Pod, reader
from dlop.kube.resources import PODS
from dlop.kube.timestamps import to_the_second
from dlop.kube.types import JsonObject
from dlop.testing.pod_status import finished_status
from dlop.testing.pod_steps import KILLED_BY_SIGTERM, Step

_read_pod = reader(Pod)
_FINAL_PHASES = ("Succeeded", "Failed")


class Start(Protocol):
    """How a life gets a task of its own."""

    def __call__(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        """Run this beside everything else."""
        ...


@dataclass(frozen=True, slots=True)
class PodEnvironment:
    """What all pods of a kubelet share."""

    client: Client
    clock: Callable[[], float]
    time_scale: float
    stop_seconds: float
    node: str


class PodLife:
    """One pod, from its appearance to its end. It is the `Hand` of the steps."""

    def __init__(self, pod: Pod, surroundings: PodEnvironment, told: asyncio.Semaphore, *, start: Start) -> None:
        self._pod = pod
        self._around = surroundings
        self._told = told
        self._start = start
        self._course: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._node_is_lost = False

    # --- what the kubelet says ---------------------------------------------------------------------------------------

    def begin(self, steps: Iterable[Step]) -> None:
        """Let the script happen."""
        self._course = self._start(self._harmlessly(partial(self._follow, steps)), name=f"script of {self._pod.metadata.name}")

    def notice(self, pod: Pod) -> None:
        """The pod has changed; what is deleted is ended."""
        if int(pod.metadata.resource_version) > int(self._pod.metadata.resource_version):
            self._pod = pod
        if pod.metadata.deletion_timestamp is not None and not self._is_stopping and not self._node_is_lost:
            self._is_stopping = True
            self.interrupt()
            self._start(self._harmlessly(self._stop), name=f"end of {pod.metadata.name}")

    def interrupt(self) -> None:
        """Nothing more of the script happens."""
        if self._course is not None and self._course is not asyncio.current_task():
            self._course.cancel()

    # --- what a step does --------------------------------------------------------------------------------------------

    @property
    def pod(self) -> Pod:
        """The pod as it is now."""
        return self._pod

    def now(self) -> str:
        """The moment, as the API writes it."""
        return to_the_second(self._around.clock())

    async def bind(self) -> None:
        """Put the pod on a node, if it is not on one."""
        if self._pod.spec.node_name:
            return
        metadata = self._pod.metadata
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": metadata.name, "uid": metadata.uid},
            "target": {"kind": "Node", "name": self._around.node},
        }
        await self._around.client.create(PODS, binding, namespace=metadata.namespace, name=metadata.name, subresource="binding")

    async def report(self, status: JsonObject) -> None:
        """Change the parts of the pod's status that are given."""
        metadata = self._pod.metadata
        patch = {"metadata": {"uid": metadata.uid}, "status": status}
        answer = await self._around.client.patch(
            PODS, metadata.name, patch, namespace=metadata.namespace, subresource="status", patch_type=PatchType.STRATEGIC
        )
        self._pod = _read_pod(msgspec.json.encode(answer))

    async def delete(self) -> None:
        """Delete the pod as a user would."""
        await self._delete(grace_seconds=None)

    async def pause(self, seconds: float) -> None:
        """Let scripted seconds pass."""
        await asyncio.sleep(seconds * self._around.time_scale)

    async def until_told(self) -> None:
        """Wait for the test."""
        await self._told.acquire()

    def lose_node(self) -> None:
        """From now on nobody looks after this pod."""
        self._node_is_lost = True

    # --- inside ------------------------------------------------------------------------------------------------------

    async def _follow(self, steps: Iterable[Step]) -> None:
        for step in steps:
            await self.pause(1)
            await step.perform(self)

    async def _stop(self) -> None:
        """End the containers, say how they ended, and confirm that nothing is left."""
        if self._pod.status.phase not in _FINAL_PHASES and self._pod.spec.node_name:
            await self.pause(self._around.stop_seconds)
            ended = finished_status(self._pod, exit_code=KILLED_BY_SIGTERM, reason="Error", message="", container="", now=self.now())
            await self.report(ended)
        await self._delete(grace_seconds=0)

    async def _delete(self, *, grace_seconds: int | None) -> None:
        metadata = self._pod.metadata
        await self._around.client.delete(PODS, metadata.name, namespace=metadata.namespace, uid=metadata.uid, grace_seconds=grace_seconds)

    async def _harmlessly(self, work: Callable[[], Awaitable[None]]) -> None:
        """A pod that is gone, or another one by now, is nobody's concern any more."""
        try:
            await work()
        except (NotFoundError, ConflictError):
            return
