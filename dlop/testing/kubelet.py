"""A kubelet that runs no containers. It writes the pod statuses of a script and completes deletions.

    async with ScriptedKubelet(client, script) as kubelet:
        kubelet.release("default/ring-worker-0")

It is a client of an embedded or real API server, and replaces the scheduler and the nodes too. One scripted second takes
`time_scale` seconds of the event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine
from contextlib import suppress
from random import Random
from types import TracebackType
from typing import Any, Self

from dlop.kube.cache import CacheChange, Key, object_key
from dlop.kube.client import Client
from dlop.kube.errors import AlreadyExistsError
from dlop.kube.informer import Informer
from dlop.kube.objects import Pod
from dlop.kube.resources import NODES, PODS
from dlop.kube.types import JsonObject
from dlop.testing.pod_lifecycle import PodEnvironment, PodLifecycle
from dlop.testing.pod_steps import Step
from dlop.testing.script import Script

NODE_NAME = "scripted-node"


class ScriptedKubelet:
    """Manages the pods of one namespace, or of all if it is None."""

    def __init__(
        self,
        client: Client,
        script: Script | None = None,
        *,
        namespace: str | None = None,
        clock: Callable[[], float] = time.time,
        rng: Random | None = None,
        time_scale: float = 1.0,
        stop_seconds: float = 1.0,
    ) -> None:
        """`stop_seconds` is the time from the deletion of a pod to its termination, in scripted seconds."""
        self.script = Script() if script is None else script
        self._environment = PodEnvironment(client, clock=clock, time_scale=time_scale, stop_seconds=stop_seconds, node=NODE_NAME)
        self._client = client
        randomness = Random(0) if rng is None else rng  # noqa: S311 - only for back-off delays
        self._informer = Informer(client, PODS, Pod, rng=randomness, namespace=namespace, handlers=[self._on_pod_change])
        self._lifecycles: dict[Key, PodLifecycle] = {}
        self._released: defaultdict[Key, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(0))
        self._arrivals = asyncio.Event()
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self._register_node()
        await self._group.__aenter__()
        self._start(self._informer.run(), name="kubelet")
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        for task in self._tasks:
            task.cancel()
        if isinstance(error, asyncio.CancelledError):
            await self._group.__aexit__(kind, error, traceback)
        else:
            # Do not pass the error of the test to the group, which would wrap it.
            await self._group.__aexit__(None, None, None)

    # --- control -----------------------------------------------------------------------------------------------------

    def release(self, pod: str) -> None:
        """Release a pod (`namespace/name`) from its next `until_released` step."""
        self._released[_key(pod)].release()

    async def perform(self, pod: str, step: Step) -> None:
        """Perform a step on a pod, as soon as it exists, in place of the rest of its script."""
        key = _key(pod)
        while key not in self._lifecycles:
            self._arrivals.clear()
            await self._arrivals.wait()
        lifecycle = self._lifecycles[key]
        lifecycle.interrupt()
        await step.perform(lifecycle)

    # --- watching ----------------------------------------------------------------------------------------------------

    def _on_pod_change(self, change: CacheChange[Pod]) -> None:
        if change.new is None:
            self._remove(change.object)
            return
        lifecycle = self._lifecycles.get(object_key(change.new))
        if lifecycle is None or lifecycle.pod.metadata.uid != change.new.metadata.uid:
            self._add(change.new)
        else:
            lifecycle.update(change.new)

    def _add(self, pod: Pod) -> None:
        key = object_key(pod)
        if key in self._lifecycles:
            self._lifecycles[key].interrupt()
        lifecycle = self._lifecycles[key] = PodLifecycle(pod, self._environment, self._released[key], start=self._start)
        self._arrivals.set()
        if pod.status.phase not in ("Succeeded", "Failed"):
            lifecycle.run_script(self.script.steps_of(*key))
        lifecycle.update(pod)

    def _remove(self, pod: Pod) -> None:
        lifecycle = self._lifecycles.get(object_key(pod))
        if lifecycle is not None and lifecycle.pod.metadata.uid == pod.metadata.uid:
            lifecycle.interrupt()
            del self._lifecycles[object_key(pod)]

    def _start(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        task = self._group.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _register_node(self) -> None:
        # Without a node object, a real cluster garbage-collects the pods.
        node: JsonObject = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE_NAME}}
        with suppress(AlreadyExistsError):
            await self._client.create(NODES, node)


def _key(pod: str) -> Key:
    namespace, _, name = pod.partition("/")
    if not name:
        raise ValueError(f"a pod must be named namespace/name, got {pod!r}")
    return namespace, name
