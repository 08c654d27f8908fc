"""The node: an ordinary client of the API server that runs pods as processes, as a kubelet runs them as containers.

    async with Node(client, runtime=runtime, folder=folder):
        ...   # pods are scheduled, run, and told of

It registers itself, keeps its lease alive, puts pods on itself as far as they fit, and runs those that are on it: one
`PodWorker` a pod. This module only ties the parts together.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

import structlog

from dlop.embedded.kubelet import machine
from dlop.embedded.kubelet.api_access import ApiAccess
from dlop.embedded.kubelet.config_sources import Inputs
from dlop.embedded.kubelet.events import Events
from dlop.embedded.kubelet.hosts_file import NamedPod, NamedService, named_pod, named_service
from dlop.embedded.kubelet.hosts_sync import Directory
from dlop.embedded.kubelet.image_map import ImageMap
from dlop.embedded.kubelet.node_context import NodeContext, Timings
from dlop.embedded.kubelet.node_object import NodeFacts
from dlop.embedded.kubelet.object_watch import Watchers
from dlop.embedded.kubelet.orphaned_pods import is_lost
from dlop.embedded.kubelet.pod_worker import PodWorker
from dlop.embedded.kubelet.pods_api import PodsApi
from dlop.embedded.kubelet.python_environments import PythonEnvironments, default_cache_folder
from dlop.embedded.kubelet.registration import Registration, tell_lost
from dlop.embedded.kubelet.runtime.base import Runtime
from dlop.embedded.kubelet.server.api import DECLARED_FEATURES, HOST, KubeletApi
from dlop.embedded.scheduler.scheduler import Scheduler
from dlop.kube.cache import CacheChange
from dlop.kube.client import Client
from dlop.kube.informer import Informer
from dlop.kube.objects import CustomObject
from dlop.kube.quantity import amount
from dlop.kube.resources import PODS, SERVICES, Resource
from dlop.kube.types import JsonObject

log = structlog.get_logger(__name__)

_FINISHED = ("Succeeded", "Failed")

PodKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Serving:
    """Who may call the node's own API: whoever bears the token, or a certificate of the authority."""

    token: str
    client_authority_pem: str | None = None


class Node:
    """Runs pods for as long as the context lasts. Leaving it kills all of them."""

    def __init__(
        self,
        client: Client,
        *,
        runtime: Runtime,
        folder: Path,
        name: str = "dlop-local",
        cpus: float | None = None,
        memory_bytes: int | None = None,
        extended: Mapping[str, int] | None = None,
        images: ImageMap | None = None,
        environments: PythonEnvironments | None = None,
        serving: Serving | None = None,
        admit_pods: Callable[[socket.socket | None], Awaitable[ApiAccess]] | None = None,
        keep_logs: bool = False,
        schedules_all: bool = False,
        pace: Timings = Timings(),  # noqa: B008 - a constant
        clock: Callable[[], float] = time.time,
        rng: Random | None = None,
        aside: Callable[[Callable[[], None]], Awaitable[None]] = asyncio.to_thread,
    ) -> None:
        """`extended` are further resources, such as nvidia.com/gpu. Without `serving` there are no logs and no exec.

        `admit_pods` opens the API server to pods: at a socket where they are waited for, or, if there is none, on this machine's loopback.

        With `keep_logs` those of pods that are gone stay on disk. With `schedules_all` pods that ask for another scheduler are
        not left to it: for clusters where there is no other. `aside` does slow work on disk where it holds nothing up.
        """
        self.name = name
        self._client = client
        self._runtime = runtime
        self._folder = folder
        self._serving = serving
        self._admit_pods = admit_pods
        self._pace = pace
        self._aside = aside
        self._clock = clock
        self._rng = Random() if rng is None else rng  # noqa: S311 - for names and pauses, not for secrets
        self._size = NodeFacts(
            name=name,
            address=HOST,
            port=0,
            cpus=machine.cpu_count() if cpus is None else cpus,
            memory_bytes=machine.memory_bytes() if memory_bytes is None else memory_bytes,
            disk_bytes=machine.disk_bytes(),
            extended=extended or {},
        )
        self._directory = Directory(services=self._named_services, pods=self._named_pods, write=self._write_hosts)
        self._events = Events(client, host=name, clock=clock)
        self._tools = NodeContext(
            client=client,
            runtime=runtime,
            clock=clock,
            rng=self._rng,
            events=self._events,
            inputs=Inputs(client),
            images=images or ImageMap(),
            environments=environments or PythonEnvironments(default_cache_folder()),
            directory=self._directory,
            watchers=Watchers(client, rng=self._rng),
            folder=folder,
            pace=pace,
            allocatable=self._size.capacity,
            environment=machine.base_environment(),
            keep_logs=keep_logs,
        )
        self._pods: dict[PodKey, JsonObject] = {}
        self._workers: dict[str, PodWorker] = {}
        self._services: dict[PodKey, NamedService] = {}
        self._scheduler = Scheduler(
            client,
            node_name=name,
            labels=self._size.labels,
            allocatable={resource: amount(quantity) for resource, quantity in self._size.capacity.items()},
            pods=self._pods.values,
            events=self._events,
            clock=clock,
            takes_all=schedules_all,
        )
        self._group = asyncio.TaskGroup()
        self._ready = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self.kubelet: KubeletApi | None = None
        """Its own API, once it is served."""

    @property
    def pods(self) -> PodsApi:
        """The pods that run here."""
        return PodsApi(self._find)

    # --- coming and going --------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self.run(), name=f"node {self.name}")
        ready = asyncio.create_task(self._ready.wait())
        await asyncio.wait({self._running, ready}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if self._running.done():
            await self._running
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})
            if not self._running.cancelled():
                # It broke, and nobody has heard of it yet.
                self._running.result()

    async def until_ended(self) -> None:
        """Wait for the end of the node. Before it is left that comes only when something in it breaks, which is raised then."""
        if self._running is not None:
            await asyncio.shield(self._running)

    async def run(self) -> None:
        """Be a node until cancelled."""
        _make_private(self._folder)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._runtime)
            if self._admit_pods is not None:
                access = await self._admit_pods(await self._runtime.listen())
                self._tools = replace(self._tools, access=access)
            registration = Registration(self._client, await self._served(stack), clock=self._clock, rng=self._rng)
            await registration.register()
            async with self._group as group:
                group.create_task(registration.stay(every_seconds=self._pace.lease_seconds), name="lease")
                group.create_task(self._events.run(), name="events")
                services = self._informer(SERVICES, self._service_changed)
                group.create_task(services.run(), name="services")
                await services.wait_synced()
                pods = self._informer(PODS, self._pod_changed)
                group.create_task(pods.run(), name="pods")
                await pods.wait_synced()
                group.create_task(self._directory.run(), name="names")
                group.create_task(self._scheduler.run(), name="scheduler")
                self._ready.set()

    async def _served(self, stack: AsyncExitStack) -> NodeFacts:
        if self._serving is None:
            return self._size
        api = KubeletApi(
            self.pods,
            token=self._serving.token,
            client_authority_pem=self._serving.client_authority_pem,
            clock=self._clock,
        )
        self.kubelet = await stack.enter_async_context(api)
        return self._size.served_at(port=api.port, features=DECLARED_FEATURES)

    def _informer(self, resource: Resource, handler: Callable[[CacheChange[CustomObject]], None]) -> Informer[CustomObject]:
        return Informer(self._client, resource, CustomObject, rng=self._rng, handlers=[handler])

    # --- what happens in the cluster ---------------------------------------------------------------------------------

    def _service_changed(self, change: CacheChange[CustomObject]) -> None:
        metadata = change.object.metadata
        key = (metadata.namespace, metadata.name)
        if change.new is None:
            self._services.pop(key, None)
        else:
            self._services[key] = named_service(change.new.body())
        self._directory.change()

    def _pod_changed(self, change: CacheChange[CustomObject]) -> None:
        key = (change.object.metadata.namespace, change.object.metadata.name)
        gone = self._pods.get(key)
        if gone is not None and (change.new is None or change.new.metadata.uid != gone["metadata"]["uid"]):
            self._forget(key, gone)
        if change.new is not None:
            pod = self._pods[key] = change.new.body()
            if pod["spec"].get("nodeName") == self.name:
                self._own_pod_changed(pod, initial=change.initial)
            elif pod["spec"].get("nodeName"):
                self._directory.change()
        self._scheduler.look()

    def _forget(self, key: PodKey, pod: JsonObject) -> None:
        del self._pods[key]
        worker = self._workers.pop(pod["metadata"]["uid"], None)
        if worker is not None:
            worker.remove()
        self._directory.change()

    def _own_pod_changed(self, pod: JsonObject, *, initial: bool) -> None:
        uid = pod["metadata"]["uid"]
        if worker := self._workers.get(uid):
            worker.update(pod)
        elif initial and is_lost(pod):
            self._group.create_task(tell_lost(self._client, pod, now=self._clock()))
        elif (pod.get("status") or {}).get("phase") not in _FINISHED:
            worker = self._workers[uid] = PodWorker(pod, tools=self._tools)
            if pod["metadata"].get("deletionTimestamp"):
                worker.update(pod)
            self._group.create_task(self._see_through(worker), name=f"pod {pod['metadata']['name']}")

    async def _see_through(self, worker: PodWorker) -> None:
        """Whatever breaks in one pod, the others go on."""
        try:
            await worker.run()
        except Exception:
            log.exception("a pod could not be brought to its end", pod=worker.pod["metadata"]["name"])
        await self._aside(worker.clean_up)

    def _find(self, namespace: str, name: str) -> PodWorker | None:
        pod = self._pods.get((namespace, name))
        return None if pod is None else self._workers.get(pod["metadata"]["uid"])

    # --- names -------------------------------------------------------------------------------------------------------

    def _named_services(self) -> Iterator[NamedService]:
        yield from self._services.values()

    def _named_pods(self) -> Iterator[NamedPod]:
        """Our own as their workers know them, which is sooner than the server does, and all others."""
        for worker in self._workers.values():
            if named := worker.named:
                yield named
        for pod in self._pods.values():
            status = pod.get("status") or {}
            if pod["metadata"]["uid"] in self._workers or not status.get("podIP"):
                continue
            yield named_pod(pod, "" if status.get("phase") in _FINISHED else status["podIP"])

    def _write_hosts(self) -> None:
        for worker in self._workers.values():
            try:
                worker.write_hosts()
            except OSError as error:
                log.warning("the names of a pod could not be written", pod=worker.pod["metadata"]["name"], error=str(error))


def _make_private(folder: Path) -> None:
    """Secrets and logs lie in there, with the modes that pods want to see on them. So nobody else gets as far as that."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
