"""The embedded kubelet, which runs pods as processes of this machine and is an ordinary client of the API server.

    async with EmbeddedKubelet(client, runtime=runtime, root_dir=directory):
        ...   # pods are scheduled and run, and their status is written

It registers its node, renews the lease, assigns pods to itself while they fit, and runs each assigned pod in a `PodWorker`. This
module wires the parts together.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

import structlog

from dlop.embedded.kubelet import machine
from dlop.embedded.kubelet.api_access import ApiAccess
from dlop.embedded.kubelet.config_sources import ConfigReader
from dlop.embedded.kubelet.events import PodEventRecorder
from dlop.embedded.kubelet.hosts_file import PodEntry, ServiceEntry, pod_entry, service_entry
from dlop.embedded.kubelet.hosts_sync import HostsSync
from dlop.embedded.kubelet.image_map import ImageMap
from dlop.embedded.kubelet.node_context import NodeContext, Timings
from dlop.embedded.kubelet.node_object import NodeProperties
from dlop.embedded.kubelet.object_watch import ObjectWatcher
from dlop.embedded.kubelet.orphaned_pods import is_orphaned
from dlop.embedded.kubelet.pod_worker import PodWorker
from dlop.embedded.kubelet.pods_api import PodWorkerBackend
from dlop.embedded.kubelet.python_environments import PythonEnvironments, default_cache_dir
from dlop.embedded.kubelet.registration import Registration, fail_orphaned_pod
from dlop.embedded.kubelet.runtime.base import Runtime
from dlop.embedded.kubelet.server.api import DECLARED_FEATURES, HOST, KubeletServer
from dlop.embedded.scheduler.scheduler import Scheduler
from dlop.kube.cache import CacheChange
from dlop.kube.client import Client
from dlop.kube.informer import Informer
from dlop.kube.objects import CustomObject
from dlop.kube.quantity import quantity_value
from dlop.kube.resources import PODS, SERVICES, Resource
from dlop.kube.types import JsonObject

log = structlog.get_logger(__name__)

_FINISHED = ("Succeeded", "Failed")

PodKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class KubeletServerConfig:
    """Clients of the kubelet's server need this bearer token, or a certificate of the CA."""

    token: str
    client_ca_pem: str | None = None


class EmbeddedKubelet:
    """An async context manager that runs pods. Leaving it kills all of them."""

    def __init__(
        self,
        client: Client,
        *,
        runtime: Runtime,
        root_dir: Path,
        secret_dirs: Sequence[Path] = (),
        name: str = "dlop-local",
        cpus: float | None = None,
        memory_bytes: int | None = None,
        extended_resources: Mapping[str, int] | None = None,
        images: ImageMap | None = None,
        environments: PythonEnvironments | None = None,
        server_config: KubeletServerConfig | None = None,
        open_api_access: Callable[[socket.socket | None], Awaitable[ApiAccess]] | None = None,
        keep_logs: bool = False,
        schedule_all: bool = False,
        timings: Timings = Timings(),  # noqa: B008 - a constant
        clock: Callable[[], float] = time.time,
        rng: Random | None = None,
        run_blocking: Callable[[Callable[[], None]], Awaitable[None]] = asyncio.to_thread,
    ) -> None:
        """Configure the node.

        Args:
            client: Client of the API server.
            runtime: Runs the processes of pods. Entered with the kubelet.
            root_dir: Contains the files of all pods.
            secret_dirs: Directories that pods must not read, such as that of the administrator's kubeconfig.
            name: Name of the node.
            cpus: CPU capacity. Defaults to that of the machine.
            memory_bytes: Memory capacity. Defaults to that of the machine.
            extended_resources: Further capacity, such as nvidia.com/gpu.
            images: What images mean on this machine.
            environments: Python environments of images.
            server_config: Without it, the kubelet serves no logs and no exec.
            open_api_access: Makes the API server reachable from pods, on the given socket or, if it is None, on the host's loopback.
            keep_logs: Keep the logs of deleted pods.
            schedule_all: Also schedule pods with another `schedulerName`, for clusters without other schedulers.
            timings: Back-off and retry periods.
            clock: Returns seconds since the epoch.
            rng: Source of container IDs and jitter.
            run_blocking: Runs slow disk operations off the event loop.
        """
        self.name = name
        self._client = client
        self._runtime = runtime
        self._root_dir = root_dir
        self._secret_dirs = secret_dirs
        self._server_config = server_config
        self._open_api_access = open_api_access
        self._timings = timings
        self._run_blocking = run_blocking
        self._clock = clock
        self._rng = Random() if rng is None else rng  # noqa: S311 - not for secrets
        self._properties = NodeProperties(
            name=name,
            address=HOST,
            port=0,
            cpus=machine.cpu_count() if cpus is None else cpus,
            memory_bytes=machine.memory_bytes() if memory_bytes is None else memory_bytes,
            disk_bytes=machine.disk_bytes(),
            extended_resources=extended_resources or {},
        )
        self._hosts = HostsSync(services=self._service_entries, pods=self._pod_entries, write=self._write_hosts)
        self._events = PodEventRecorder(client, host=name, clock=clock)
        self._context = NodeContext(
            client=client,
            runtime=runtime,
            clock=clock,
            rng=self._rng,
            events=self._events,
            config_reader=ConfigReader(client),
            images=images or ImageMap(),
            environments=environments or PythonEnvironments(default_cache_dir()),
            hosts=self._hosts,
            object_watcher=ObjectWatcher(client, rng=self._rng),
            root_dir=root_dir,
            timings=timings,
            allocatable=self._properties.capacity,
            environment=machine.base_environment(),
            keep_logs=keep_logs,
        )
        self._pods: dict[PodKey, JsonObject] = {}
        self._workers: dict[str, PodWorker] = {}
        self._services: dict[PodKey, ServiceEntry] = {}
        self._scheduler = Scheduler(
            client,
            node_name=name,
            labels=self._properties.labels,
            allocatable={resource: quantity_value(quantity) for resource, quantity in self._properties.capacity.items()},
            pods=self._pods.values,
            events=self._events,
            clock=clock,
            schedule_all=schedule_all,
        )
        self._group = asyncio.TaskGroup()
        self._ready = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self.server: KubeletServer | None = None
        """Set once it serves."""

    @property
    def pods(self) -> PodWorkerBackend:
        """The pods that run on this node."""
        return PodWorkerBackend(self.find_worker)

    # --- lifecycle ---------------------------------------------------------------------------------------------------

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
                # Raise an error that occurred while it ran.
                self._running.result()

    async def wait(self) -> None:
        """Wait for the end of the kubelet. Before the context is left, it ends only with an error, which is raised."""
        if self._running is not None:
            await asyncio.shield(self._running)

    async def run(self) -> None:
        """Run the node until cancelled."""
        _create_private_dir(self._root_dir)
        self._runtime.protect(self._root_dir, secret_dirs=self._secret_dirs)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._runtime)
            if self._open_api_access is not None:
                api_access = await self._open_api_access(await self._runtime.listen())
                self._context = replace(self._context, api_access=api_access)
            registration = Registration(self._client, await self._start_server(stack), clock=self._clock, rng=self._rng)
            await registration.register()
            async with self._group as group:
                group.create_task(registration.renew_lease(interval_seconds=self._timings.lease_seconds), name="lease")
                group.create_task(self._events.run(), name="events")
                services = self._informer(SERVICES, self._handle_service)
                group.create_task(services.run(), name="services")
                await services.wait_synced()
                pods = self._informer(PODS, self._handle_pod)
                group.create_task(pods.run(), name="pods")
                await pods.wait_synced()
                group.create_task(self._hosts.run(), name="hosts")
                group.create_task(self._scheduler.run(), name="scheduler")
                self._ready.set()

    async def _start_server(self, stack: AsyncExitStack) -> NodeProperties:
        if self._server_config is None:
            return self._properties
        server = KubeletServer(
            self.pods,
            token=self._server_config.token,
            client_ca_pem=self._server_config.client_ca_pem,
            clock=self._clock,
        )
        self.server = await stack.enter_async_context(server)
        return self._properties.with_server(port=server.port, features=DECLARED_FEATURES)

    def _informer(self, resource: Resource, handler: Callable[[CacheChange[CustomObject]], None]) -> Informer[CustomObject]:
        return Informer(self._client, resource, CustomObject, rng=self._rng, handlers=[handler])

    # --- event handlers ----------------------------------------------------------------------------------------------

    def _handle_service(self, change: CacheChange[CustomObject]) -> None:
        metadata = change.object.metadata
        key = (metadata.namespace, metadata.name)
        if change.new is None:
            self._services.pop(key, None)
        else:
            self._services[key] = service_entry(change.new.body())
        self._hosts.invalidate()

    def _handle_pod(self, change: CacheChange[CustomObject]) -> None:
        key = (change.object.metadata.namespace, change.object.metadata.name)
        previous = self._pods.get(key)
        if previous is not None and (change.new is None or change.new.metadata.uid != previous["metadata"]["uid"]):
            self._remove_pod(key, previous)
        if change.new is not None:
            pod = self._pods[key] = change.new.body()
            if pod["spec"].get("nodeName") == self.name:
                self._handle_own_pod(pod, initial=change.initial)
            elif pod["spec"].get("nodeName"):
                self._hosts.invalidate()
        self._scheduler.trigger()

    def _remove_pod(self, key: PodKey, pod: JsonObject) -> None:
        del self._pods[key]
        worker = self._workers.pop(pod["metadata"]["uid"], None)
        if worker is not None:
            worker.handle_deletion()
        self._hosts.invalidate()

    def _handle_own_pod(self, pod: JsonObject, *, initial: bool) -> None:
        uid = pod["metadata"]["uid"]
        if worker := self._workers.get(uid):
            worker.update(pod)
        elif initial and is_orphaned(pod):
            self._group.create_task(fail_orphaned_pod(self._client, pod, now=self._clock()))
        elif (pod.get("status") or {}).get("phase") not in _FINISHED:
            worker = self._workers[uid] = PodWorker(pod, context=self._context)
            if pod["metadata"].get("deletionTimestamp"):
                worker.update(pod)
            self._group.create_task(self._run_worker(worker), name=f"pod {pod['metadata']['name']}")

    async def _run_worker(self, worker: PodWorker) -> None:
        """An error in one pod must not affect the others."""
        try:
            await worker.run()
        except Exception:
            log.exception("pod worker failed", pod=worker.pod["metadata"]["name"])
        await self._run_blocking(worker.clean_up)

    def find_worker(self, namespace: str, name: str) -> PodWorker | None:
        pod = self._pods.get((namespace, name))
        return None if pod is None else self._workers.get(pod["metadata"]["uid"])

    # --- hosts files -------------------------------------------------------------------------------------------------

    def _service_entries(self) -> Iterator[ServiceEntry]:
        yield from self._services.values()

    def _pod_entries(self) -> Iterator[PodEntry]:
        """Own pods as their workers know them, which is earlier than the server, and all others."""
        for worker in self._workers.values():
            if entry := worker.hosts_entry:
                yield entry
        for pod in self._pods.values():
            status = pod.get("status") or {}
            if pod["metadata"]["uid"] in self._workers or not status.get("podIP"):
                continue
            yield pod_entry(pod, "" if status.get("phase") in _FINISHED else status["podIP"])

    def _write_hosts(self) -> None:
        for worker in self._workers.values():
            try:
                worker.write_hosts()
            except OSError as error:
                log.warning("hosts file write failed", pod=worker.pod["metadata"]["name"], error=str(error))


def _create_private_dir(directory: Path) -> None:
    """Only the owner may enter, because it contains secrets and logs with the file modes that pods expect."""
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o700)
