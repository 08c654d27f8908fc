"""A kubelet that runs nothing: it gives pods the statuses of a script, and confirms their deletion.

    async with Kubelet(client, script) as kubelet:
        kubelet.tell("default/ring-worker-0")

It is an ordinary client of an API server, embedded or real, and stands in for the scheduler and the nodes too. One
scripted second is `time_scale` seconds of the event loop.
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

from dlop.kube.cache import CacheChange, Key, key_of
from dlop.kube.client import Client
from dlop.kube.errors import AlreadyExistsError
from dlop.kube.informer import Informer
from dlop.kube.objects import Pod
from dlop.kube.resources import NODES, PODS
from dlop.kube.types import JsonObject
from dlop.testing.pod_lifecycle import PodEnvironment, PodLife
from dlop.testing.pod_steps import Step
from dlop.testing.script import Script

NODE_NAME = "scripted-node"


class Kubelet:
    """Looks after the pods of one namespace, or of all."""

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
        """`stop_seconds` is how long a pod takes to end when it is deleted, in scripted seconds."""
        self.script = Script() if script is None else script
        self._surroundings = PodEnvironment(client, clock=clock, time_scale=time_scale, stop_seconds=stop_seconds, node=NODE_NAME)
        self._client = client
        randomness = Random(0) if rng is None else rng  # noqa: S311 - only for the pauses between attempts
        self._informer = Informer(client, PODS, Pod, rng=randomness, namespace=namespace, handlers=[self._noticed])
        self._lives: dict[Key, PodLife] = {}
        self._told: defaultdict[Key, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(0))
        self._arrivals = asyncio.Event()
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()

    # --- a life ------------------------------------------------------------------------------------------------------

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
            # What the test raises is its own: the group would wrap it.
            await self._group.__aexit__(None, None, None)

    # --- what a test may say -----------------------------------------------------------------------------------------

    def tell(self, pod: str) -> None:
        """Let the pod (`namespace/name`) get past its next `until_told`."""
        self._told[_key(pod)].release()

    async def perform(self, pod: str, step: Step) -> None:
        """Let this happen to a pod now, as soon as it is known, in place of the rest of its script."""
        key = _key(pod)
        while key not in self._lives:
            self._arrivals.clear()
            await self._arrivals.wait()
        life = self._lives[key]
        life.interrupt()
        await step.perform(life)

    # --- watching ----------------------------------------------------------------------------------------------------

    def _noticed(self, change: CacheChange[Pod]) -> None:
        if change.new is None:
            self._forget(change.object)
            return
        life = self._lives.get(key_of(change.new))
        if life is None or life.pod.metadata.uid != change.new.metadata.uid:
            self._begin(change.new)
        else:
            life.notice(change.new)

    def _begin(self, pod: Pod) -> None:
        key = key_of(pod)
        if key in self._lives:
            self._lives[key].interrupt()
        life = self._lives[key] = PodLife(pod, self._surroundings, self._told[key], start=self._start)
        self._arrivals.set()
        if pod.status.phase not in ("Succeeded", "Failed"):
            life.begin(self.script.steps_of(*key))
        life.notice(pod)

    def _forget(self, pod: Pod) -> None:
        life = self._lives.get(key_of(pod))
        if life is not None and life.pod.metadata.uid == pod.metadata.uid:
            life.interrupt()
            del self._lives[key_of(pod)]

    def _start(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        task = self._group.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _register_node(self) -> None:
        # Without it a real cluster would collect the pods as orphans of a node that is gone.
        node: JsonObject = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE_NAME}}
        with suppress(AlreadyExistsError):
            await self._client.create(NODES, node)


def _key(pod: str) -> Key:
    namespace, _, name = pod.partition("/")
    if not name:
        raise ValueError(f"a pod is named as namespace/name here, not {pod!r}")
    return namespace, name
