"""One run of a container, from its start to its end: its process, its log, its probes, and how it is stopped."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

import structlog

from dlop.embedded.kubelet.lifecycle_hooks import HookFailed, run_hook
from dlop.embedded.kubelet.logs import STDERR, STDOUT, ContainerLog
from dlop.embedded.kubelet.probes import Probe, ProbeKind, Result, Target, probe_of, watch
from dlop.embedded.kubelet.runtime.base import Exit, Launch, Process, Sandbox
from dlop.kube.types import JsonObject

# How long after its process has ended the rest of what a container said may still come.
_LAST_WORDS_SECONDS = 1.0

Tell = Callable[..., None]

log = structlog.get_logger(__name__)


def _report(helper: asyncio.Task[None]) -> None:
    """A helper that breaks is a bug of ours. The container goes on without it."""
    if not helper.cancelled() and helper.exception() is not None:
        log.error("the care for a container failed", exc_info=helper.exception())


class Run:
    """A container that is being started, runs, or is being stopped."""

    def __init__(
        self,
        container: JsonObject,
        *,
        sandbox: Sandbox,
        launch: Launch,
        log: ContainerLog,
        grace_seconds: float,
        shortest_grace_seconds: float,
        tell: Tell,
        changed: Callable[[], None],
    ) -> None:
        """`tell` takes reason, message and `is_warning` of an event; `changed` hears of probes.

        `grace_seconds` is the pod's own grace period, for when the container is stopped for its own sake.
        """
        self.container = container
        self.target = Target(sandbox, container, launch)
        self.is_started = False
        self.is_ready = False
        self._log = log
        self._tell = tell
        self._changed = changed
        self._grace_seconds = grace_seconds
        self._shortest_grace_seconds = shortest_grace_seconds
        self._process: Process | None = None
        self._pumps: list[asyncio.Task[None]] = []
        self._stop_asked = asyncio.Event()
        self._deadline = float("inf")
        self._window: asyncio.Timeout | None = None

    # --- starting and waiting ----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the process.

        Raises:
            LaunchError: it could not be started.
        """
        ours: list[int] = []
        theirs: list[int] = []
        for _ in (STDOUT, STDERR):
            reading, writing = os.pipe()
            ours.append(reading)
            theirs.append(writing)
        try:
            launch = replace(self.target.launch, stdout=theirs[0], stderr=theirs[1])
            self._process = process = await self.target.sandbox.start(launch)
        except BaseException:
            for descriptor in ours:
                os.close(descriptor)
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        self.target = replace(self.target, launch=replace(self.target.launch, inside=process))
        self._pumps = [
            asyncio.create_task(self._log.pump(descriptor, stream)) for descriptor, stream in zip(ours, (STDOUT, STDERR), strict=True)
        ]

    async def wait(self, *, began: Callable[[], None]) -> Exit:
        """See the process through to its end. `began` is called once the container counts as running."""
        process = self._process
        assert process is not None  # noqa: S101 - it was started
        helpers = [self._helper(self._attend(began)), self._helper(self._stop_when_asked(process))]
        try:
            ended = await process.wait()
        finally:
            process.signal(signal.SIGKILL)
            for helper in helpers:
                helper.cancel()
            await asyncio.wait(helpers)
            await self._hear_last_words()
        return ended

    def _helper(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        helper = asyncio.create_task(work)
        helper.add_done_callback(_report)
        return helper

    async def _hear_last_words(self) -> None:
        """What is still in the pipes. Who inherited them and lives on is not waited for."""
        _, deaf = await asyncio.wait(self._pumps, timeout=_LAST_WORDS_SECONDS)
        for pump in deaf:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    # --- hooks and probes --------------------------------------------------------------------------------------------

    async def _attend(self, began: Callable[[], None]) -> None:
        """The hook first, then the probes."""
        if handler := (self.container.get("lifecycle") or {}).get("postStart"):
            try:
                await run_hook(handler, self.target)
            except HookFailed:
                self._tell("FailedPostStartHook", "PostStartHook failed", is_warning=True)
                began()
                self.stop(message="FailedPostStartHook")
                return
        probes = {kind: probe_of(self.container, kind) for kind in ProbeKind}
        self.is_started = probes[ProbeKind.STARTUP] is None
        self.is_ready = self.is_started and probes[ProbeKind.READINESS] is None
        began()
        await self._probe(probes)

    async def _probe(self, probes: dict[ProbeKind, Probe | None]) -> None:
        began_at = asyncio.get_running_loop().time()
        if startup := probes[ProbeKind.STARTUP]:
            await self._watch(startup, began_at, self._startup_decided)
            if not self.is_started:
                return
        async with asyncio.TaskGroup() as group:
            if liveness := probes[ProbeKind.LIVENESS]:
                group.create_task(self._watch(liveness, began_at, self._liveness_decided))
            if readiness := probes[ProbeKind.READINESS]:
                group.create_task(self._watch(readiness, began_at, self._readiness_decided))

    async def _watch(self, probe: Probe, began_at: float, decided: Callable[[Probe, Result], bool]) -> None:
        delay = began_at + probe.initial_delay_seconds - asyncio.get_running_loop().time()
        await asyncio.sleep(max(0.0, delay))
        await watch(
            probe,
            self.target,
            decided=lambda result: decided(probe, result),
            unhealthy=self._unhealthy,
        )

    def _unhealthy(self, message: str) -> None:
        if not self._stop_asked.is_set():
            self._tell("Unhealthy", message, is_warning=True)

    def _startup_decided(self, probe: Probe, result: Result) -> bool:
        if result is Result.FAILURE:
            self._give_up(probe)
            return False
        self.is_started = True
        self.is_ready = probe_of(self.container, ProbeKind.READINESS) is None
        self._changed()
        return False

    def _liveness_decided(self, probe: Probe, result: Result) -> bool:
        if result is Result.SUCCESS:
            return not self._stop_asked.is_set()
        self._give_up(probe)
        return False

    def _readiness_decided(self, probe: Probe, result: Result) -> bool:
        if self.is_ready is not (result is Result.SUCCESS):
            self.is_ready = result is Result.SUCCESS
            self._changed()
        return True

    def _give_up(self, probe: Probe) -> None:
        if not self._stop_asked.is_set():
            message = f"Container {self.container['name']} failed {probe.kind.value.lower()} probe, will be restarted"
            self.stop(grace_seconds=probe.grace_seconds, message=message)

    # --- stopping ----------------------------------------------------------------------------------------------------

    def stop(self, *, grace_seconds: float | None = None, message: str = "") -> None:
        """Ask the container to end, and make it end after the grace period. Asked again, the shorter time counts."""
        grace_seconds = self._grace_seconds if grace_seconds is None else grace_seconds
        self._deadline = min(self._deadline, asyncio.get_running_loop().time() + grace_seconds)
        if self._window is not None:
            self._window.reschedule(self._deadline)
        if not self._stop_asked.is_set():
            self._tell("Killing", message or f"Stopping container {self.container['name']}")
            self._stop_asked.set()

    async def _stop_when_asked(self, process: Process) -> None:
        await self._stop_asked.wait()
        if handler := (self.container.get("lifecycle") or {}).get("preStop"):
            await self._until_deadline(self._run_pre_stop(handler))
        self._deadline = max(self._deadline, asyncio.get_running_loop().time() + self._shortest_grace_seconds)
        process.signal(self._stop_signal())
        await self._until_deadline(asyncio.Event().wait())
        process.signal(signal.SIGKILL)

    def _stop_signal(self) -> int:
        name = (self.container.get("lifecycle") or {}).get("stopSignal") or "SIGTERM"
        return int(getattr(signal, name, signal.SIGTERM))

    async def _run_pre_stop(self, handler: JsonObject) -> None:
        try:
            await run_hook(handler, self.target)
        except HookFailed:
            self._tell("FailedPreStopHook", "PreStopHook failed", is_warning=True)

    async def _until_deadline(self, work: Awaitable[object]) -> None:
        """Wait for the work, but not beyond the deadline, which may be moved up meanwhile."""
        try:
            async with asyncio.timeout_at(self._deadline) as self._window:
                await work
        except TimeoutError:
            return
        finally:
            self._window = None
