"""Gives the kubelet's server access to the pods of the node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from dlop.embedded.kubelet.container import ContainerWorker
from dlop.embedded.kubelet.logs import ContainerLog
from dlop.embedded.kubelet.pod_worker import PodWorker
from dlop.embedded.kubelet.runtime.base import Process
from dlop.embedded.kubelet.server.backend import (
    ContainerNotFoundError,
    ContainerRef,
    ContainerUnavailableError,
    ExecCommand,
    PodNotFoundError,
)
from dlop.embedded.kubelet.server.log_source import LogRun, log_source


class PodWorkerBackend:
    """Implements `PodBackend`."""

    def __init__(self, find_worker: Callable[[str, str], PodWorker | None]) -> None:
        """`find_worker` returns the pod with this namespace and name."""
        self._find_worker = find_worker

    def log(self, container: ContainerRef, *, previous: bool) -> ContainerLog:
        worker = self._worker(container.namespace, container.pod)
        logs = _container_worker(worker, container.container).logs
        run = log_source(container.pod, worker.status, container.container, previous=previous)
        log = logs.current if run is LogRun.LATEST else logs.previous
        if log is None:
            raise ContainerUnavailableError(f'container "{container.container}" in pod "{container.pod}" is waiting to start - no logs yet')
        return log

    async def execute(self, container: ContainerRef, command: ExecCommand) -> Process:
        worker = self._worker(container.namespace, container.pod)
        launch = _container_worker(worker, container.container).launch
        if worker.sandbox is None or launch is None:
            raise ContainerUnavailableError(f'container "{container.container}" in pod "{container.pod}" is not running')
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
        sandbox = self._worker(namespace, pod).sandbox
        if sandbox is None:
            raise ConnectionRefusedError(f'pod "{pod}" is not running')
        return await sandbox.connect(port)

    def check_running(self, namespace: str, pod: str, container: str | None) -> None:
        worker = self._worker(namespace, pod)
        if worker.sandbox is None:
            raise ContainerUnavailableError(f'pod "{pod}" is not running')
        if container is not None and _container_worker(worker, container).launch is None:
            raise ContainerUnavailableError(f'container "{container}" in pod "{pod}" is not running')

    def _worker(self, namespace: str, pod: str) -> PodWorker:
        worker = self._find_worker(namespace, pod)
        if worker is None:
            raise PodNotFoundError(f'pod "{pod}" is not on this node')
        return worker


def _container_worker(worker: PodWorker, name: str) -> ContainerWorker:
    container = worker.containers.get(name)
    if container is None:
        raise ContainerNotFoundError(f'container "{name}" is not in pod "{worker.pod["metadata"]["name"]}"')
    return container
