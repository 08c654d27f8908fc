"""One run of a container: its process, log, lifecycle hooks, probes and termination."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

import structlog

from dlop.embedded.kubelet.lifecycle_hooks import HookError, run_hook
from dlop.embedded.kubelet.logs import STDERR, STDOUT, ContainerLog
from dlop.embedded.kubelet.probes import CheckResult, Probe, ProbeKind, ProbeTarget, container_probe, run_probe
from dlop.embedded.kubelet.runtime.base import ExitStatus, LaunchRequest, Process, Sandbox
from dlop.kube.types import JsonObject

# How long to wait for the rest of the output after the process has exited.
_OUTPUT_DRAIN_SECONDS = 1.0

RecordEvent = Callable[..., None]

log = structlog.get_logger(__name__)


def _log_exception(task: asyncio.Task[None]) -> None:
    """The task failed because of a bug. The container continues without it."""
    if not task.cancelled() and task.exception() is not None:
        log.error("container task failed", exc_info=task.exception())


class ContainerRun:
    def __init__(
        self,
        container: JsonObject,
        *,
        sandbox: Sandbox,
        launch: LaunchRequest,
        log: ContainerLog,
        grace_seconds: float,
        min_grace_seconds: float,
        record_event: RecordEvent,
        on_probe_change: Callable[[], None],
    ) -> None:
        """`record_event` takes reason, message and `is_warning` of an event.

        `grace_seconds` is the pod's grace period, for a container that is stopped without a deletion of the pod.
        """
        self.container = container
        self.target = ProbeTarget(sandbox, container, launch)
        self.is_started = False
        self.is_ready = False
        self._log = log
        self._record_event = record_event
        self._on_probe_change = on_probe_change
        self._grace_seconds = grace_seconds
        self._min_grace_seconds = min_grace_seconds
        self._process: Process | None = None
        self._pumps: list[asyncio.Task[None]] = []
        self._stop_requested = asyncio.Event()
        self._deadline = float("inf")
        self._stop_timeout: asyncio.Timeout | None = None

    # --- starting and waiting ----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the process.

        Raises:
            LaunchError: it could not be started.
        """
        ours: list[int] = []
        theirs: list[int] = []
        for _ in (STDOUT, STDERR):
            read_fd, write_fd = os.pipe()
            ours.append(read_fd)
            theirs.append(write_fd)
        try:
            launch = replace(self.target.launch, stdout=theirs[0], stderr=theirs[1])
            self._process = process = await self.target.sandbox.start(launch)
        except BaseException:
            for fd in ours:
                os.close(fd)
            raise
        finally:
            for fd in theirs:
                os.close(fd)
        self.target = replace(self.target, launch=replace(self.target.launch, join=process))
        self._pumps = [asyncio.create_task(self._log.pump(fd, stream)) for fd, stream in zip(ours, (STDOUT, STDERR), strict=True)]

    async def wait(self, *, on_running: Callable[[], None]) -> ExitStatus:
        """Wait for the exit of the process. `on_running` is called once the container counts as running."""
        process = self._process
        assert process is not None  # noqa: S101 - it was started
        tasks = [self._create_task(self._run_hooks_and_probes(on_running)), self._create_task(self._stop_when_requested(process))]
        try:
            status = await process.wait()
        finally:
            process.signal(signal.SIGKILL)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await self._drain_output()
        return status

    def _create_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        task.add_done_callback(_log_exception)
        return task

    async def _drain_output(self) -> None:
        """Read the rest of the output. Do not wait for descendants that inherited the pipes and still run."""
        _, pending = await asyncio.wait(self._pumps, timeout=_OUTPUT_DRAIN_SECONDS)
        for pump in pending:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    # --- hooks and probes --------------------------------------------------------------------------------------------

    async def _run_hooks_and_probes(self, on_running: Callable[[], None]) -> None:
        """Run the postStart hook, then the probes."""
        if handler := (self.container.get("lifecycle") or {}).get("postStart"):
            try:
                await run_hook(handler, self.target)
            except HookError:
                self._record_event("FailedPostStartHook", "PostStartHook failed", is_warning=True)
                on_running()
                self.stop(message="FailedPostStartHook")
                return
        probes = {kind: container_probe(self.container, kind) for kind in ProbeKind}
        self.is_started = probes[ProbeKind.STARTUP] is None
        self.is_ready = self.is_started and probes[ProbeKind.READINESS] is None
        on_running()
        await self._run_probes(probes)

    async def _run_probes(self, probes: dict[ProbeKind, Probe | None]) -> None:
        started_at = asyncio.get_running_loop().time()
        if startup := probes[ProbeKind.STARTUP]:
            await self._run_probe(startup, started_at, self._on_startup_result)
            if not self.is_started:
                return
        async with asyncio.TaskGroup() as group:
            if liveness := probes[ProbeKind.LIVENESS]:
                group.create_task(self._run_probe(liveness, started_at, self._on_liveness_result))
            if readiness := probes[ProbeKind.READINESS]:
                group.create_task(self._run_probe(readiness, started_at, self._on_readiness_result))

    async def _run_probe(self, probe: Probe, started_at: float, on_result: Callable[[Probe, CheckResult], bool]) -> None:
        delay = started_at + probe.initial_delay_seconds - asyncio.get_running_loop().time()
        await asyncio.sleep(max(0.0, delay))
        await run_probe(
            probe,
            self.target,
            on_result=lambda result: on_result(probe, result),
            on_failure=self._record_unhealthy,
        )

    def _record_unhealthy(self, message: str) -> None:
        if not self._stop_requested.is_set():
            self._record_event("Unhealthy", message, is_warning=True)

    def _on_startup_result(self, probe: Probe, result: CheckResult) -> bool:
        if result is CheckResult.FAILURE:
            self._stop_after_probe_failure(probe)
            return False
        self.is_started = True
        self.is_ready = container_probe(self.container, ProbeKind.READINESS) is None
        self._on_probe_change()
        return False

    def _on_liveness_result(self, probe: Probe, result: CheckResult) -> bool:
        if result is CheckResult.SUCCESS:
            return not self._stop_requested.is_set()
        self._stop_after_probe_failure(probe)
        return False

    def _on_readiness_result(self, probe: Probe, result: CheckResult) -> bool:
        if self.is_ready is not (result is CheckResult.SUCCESS):
            self.is_ready = result is CheckResult.SUCCESS
            self._on_probe_change()
        return True

    def _stop_after_probe_failure(self, probe: Probe) -> None:
        if not self._stop_requested.is_set():
            message = f"Container {self.container['name']} failed {probe.kind.value.lower()} probe, will be restarted"
            self.stop(grace_seconds=probe.grace_seconds, message=message)

    # --- stopping ----------------------------------------------------------------------------------------------------

    def stop(self, *, grace_seconds: float | None = None, message: str = "") -> None:
        """Stop the container, with SIGKILL after the grace period. The earliest deadline of several calls applies."""
        grace_seconds = self._grace_seconds if grace_seconds is None else grace_seconds
        self._deadline = min(self._deadline, asyncio.get_running_loop().time() + grace_seconds)
        if self._stop_timeout is not None:
            self._stop_timeout.reschedule(self._deadline)
        if not self._stop_requested.is_set():
            self._record_event("Killing", message or f"Stopping container {self.container['name']}")
            self._stop_requested.set()

    async def _stop_when_requested(self, process: Process) -> None:
        await self._stop_requested.wait()
        if handler := (self.container.get("lifecycle") or {}).get("preStop"):
            await self._until_deadline(self._run_pre_stop(handler))
        self._deadline = max(self._deadline, asyncio.get_running_loop().time() + self._min_grace_seconds)
        process.signal(self._stop_signal())
        await self._until_deadline(asyncio.Event().wait())
        process.signal(signal.SIGKILL)

    def _stop_signal(self) -> int:
        name = (self.container.get("lifecycle") or {}).get("stopSignal") or "SIGTERM"
        return int(getattr(signal, name, signal.SIGTERM))

    async def _run_pre_stop(self, handler: JsonObject) -> None:
        try:
            await run_hook(handler, self.target)
        except HookError:
            self._record_event("FailedPreStopHook", "PreStopHook failed", is_warning=True)

    async def _until_deadline(self, work: Awaitable[object]) -> None:
        """Wait for the work until the deadline, which may be moved up in the meantime."""
        try:
            async with asyncio.timeout_at(self._deadline) as self._stop_timeout:
                await work
        except TimeoutError:
            return
        finally:
            self._stop_timeout = None
