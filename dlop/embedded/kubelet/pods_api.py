"""The pods of the node, as the kubelet's API asks for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from dlop.embedded.kubelet.container import Container
from dlop.embedded.kubelet.logs import ContainerLog
from dlop.embedded.kubelet.pod_worker import PodWorker
from dlop.embedded.kubelet.runtime.base import Process
from dlop.embedded.kubelet.server.backend import Command, ContainerName, NoSuchContainerError, NoSuchPodError, NotAvailableError
from dlop.embedded.kubelet.server.log_source import Run, log_source


class PodsApi:
    """Implements `PodsOfNode`."""

    def __init__(self, find: Callable[[str, str], PodWorker | None]) -> None:
        """`find` gives the pod of a namespace and name."""
        self._find = find

    def log(self, name: ContainerName, *, previous: bool) -> ContainerLog:
        """The log of a container's present run, or of the run before."""
        worker = self._worker(name.namespace, name.pod)
        logs = _container(worker, name.container).logs
        wanted = log_source(name.pod, worker.status, name.container, previous=previous)
        found = logs.current if wanted is Run.LATEST else logs.previous
        if found is None:
            raise NotAvailableError(f'container "{name.container}" in pod "{name.pod}" is waiting to start - no logs yet')
        return found

    async def execute(self, name: ContainerName, command: Command) -> Process:
        """Run a program next to a container's own, with its environment, mounts and working folder."""
        worker = self._worker(name.namespace, name.pod)
        launch = _container(worker, name.container).launch
        if worker.sandbox is None or launch is None:
            raise NotAvailableError(f'container "{name.container}" in pod "{name.pod}" does not run')
        return await worker.sandbox.start(
            replace(
                launch,
                argv=tuple(command.argv),
                stdin=command.stdin,
                stdout=command.stdout,
                stderr=command.stderr,
                terminal=command.terminal,
                memory_limit_bytes=None,
            )
        )

    async def connect(self, namespace: str, pod: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to a port of a pod, as if from inside of it."""
        sandbox = self._worker(namespace, pod).sandbox
        if sandbox is None:
            raise ConnectionRefusedError(f'pod "{pod}" does not run')
        return await sandbox.connect(port)

    def check(self, namespace: str, pod: str, container: str | None) -> None:
        """Whether a pod and, unless None, its container run here now."""
        worker = self._worker(namespace, pod)
        if worker.sandbox is None:
            raise NotAvailableError(f'pod "{pod}" does not run')
        if container is not None and _container(worker, container).launch is None:
            raise NotAvailableError(f'container "{container}" in pod "{pod}" does not run')

    def _worker(self, namespace: str, pod: str) -> PodWorker:
        worker = self._find(namespace, pod)
        if worker is None:
            raise NoSuchPodError(f'pod "{pod}" is not on this node')
        return worker


def _container(worker: PodWorker, name: str) -> Container:
    container = worker.containers.get(name)
    if container is None:
        raise NoSuchContainerError(f'container "{name}" is not in pod "{worker.pod["metadata"]["name"]}"')
    return container
