"""Runs one container of a pod over all its restarts.

The observed state is in `observed`; the pod is notified of every change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from dlop.embedded.kubelet.container_config import ContainerConfig, ContainerConfigBuilder
from dlop.embedded.kubelet.container_run import ContainerRun
from dlop.embedded.kubelet.crash_loop_backoff import ContainerRole, RestartBackoff, format_go_duration, should_restart
from dlop.embedded.kubelet.environment import ContainerConfigError, DownwardValues
from dlop.embedded.kubelet.events import PodEvent
from dlop.embedded.kubelet.image_map import ImagePullError
from dlop.embedded.kubelet.logs import ContainerLog, ContainerLogs
from dlop.embedded.kubelet.node_context import NodeContext
from dlop.embedded.kubelet.pod_status import ObservedContainer, RunningState, TerminatedState, WaitingState
from dlop.embedded.kubelet.runtime.base import ExitStatus, LaunchError, LaunchRequest, Sandbox
from dlop.embedded.kubelet.termination_message import termination_message, termination_reason
from dlop.kube.errors import KubeError
from dlop.kube.types import JsonObject

T = TypeVar("T")

_START_ERROR_CODE = 128


class _Stopped(Exception):  # noqa: N818 - not an error
    """The container was stopped while it waited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodContext:
    """What the containers of a pod share."""

    pod: Callable[[], JsonObject]
    """Returns the current pod object."""
    sandbox: Sandbox
    downward: DownwardValues
    on_change: Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One run of a container."""

    number: int
    container_id: str
    last: TerminatedState | None
    """The state at the end of the previous run."""


class ContainerWorker:
    def __init__(
        self,
        spec: JsonObject,
        *,
        role: ContainerRole,
        observed: ObservedContainer,
        context: NodeContext,
        config_builder: ContainerConfigBuilder,
    ) -> None:
        self.spec = spec
        self.role = role
        self.observed = observed
        self.logs = ContainerLogs(config_builder.log_dir(spec), clock_ns=lambda: int(context.clock() * 1e9))
        self.launch: LaunchRequest | None = None
        """The launch of the current run. None while the container does not run."""
        self.started = asyncio.Event()
        """Set once the container has started, or never will."""
        self.finished = asyncio.Event()
        """Set once the container has exited and will not be restarted."""
        self._context = context
        self._config_builder = config_builder
        self._restart_backoff = RestartBackoff(context.timings.restarts)
        self._image_backoff = RestartBackoff(context.timings.images)
        self._stopping = asyncio.Event()
        self._run: ContainerRun | None = None
        self._attempts = 0

    @property
    def name(self) -> str:
        return str(self.spec["name"])

    # --- running -----------------------------------------------------------------------------------------------------

    async def run(self, pod_context: PodContext) -> None:
        """Run the container, with restarts, until it has finished or was stopped."""
        try:
            while not self._stopping.is_set():
                terminated = await self._run_once(pod_context)
                if not should_restart(pod_context.pod(), self.spec, role=self.role, exit_code=terminated.exit_code):
                    return
                await self._wait_for_restart(pod_context, terminated)
        except _Stopped:
            return
        finally:
            self.logs.close()
            self.started.set()
            self.finished.set()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def stop(self, *, grace_seconds: float) -> None:
        """Stop the container within the grace period and do not restart it."""
        self._stopping.set()
        if self._run is not None:
            self._run.stop(grace_seconds=grace_seconds)

    async def _run_once(self, pod_context: PodContext) -> TerminatedState:
        config = await self._build_config_with_retries(pod_context)
        attempt = self._new_attempt()
        self._record_event(pod_context, "Created", "Container created")
        run = self._new_run(pod_context, config, self.logs.start_run(attempt.number))
        try:
            await run.start()
        except LaunchError as error:
            return self._observe_start_error(pod_context, str(error), attempt)
        self._record_event(pod_context, "Started", "Container started")
        return await self._wait_for_exit(pod_context, run, config, attempt)

    def _new_attempt(self) -> _Attempt:
        number, self._attempts = self._attempts, self._attempts + 1
        return _Attempt(number, f"dlop://{self._context.rng.getrandbits(256):064x}", self._last_termination())

    def _last_termination(self) -> TerminatedState | None:
        return self.observed.state if isinstance(self.observed.state, TerminatedState) else self.observed.last

    def _new_run(self, pod_context: PodContext, config: ContainerConfig, log: ContainerLog) -> ContainerRun:
        return ContainerRun(
            self.spec,
            sandbox=pod_context.sandbox,
            launch=config.launch,
            log=log,
            grace_seconds=float(pod_context.pod()["spec"].get("terminationGracePeriodSeconds") or 0),
            min_grace_seconds=self._context.timings.min_grace_seconds,
            record_event=lambda reason, message, is_warning=False: self._record_event(pod_context, reason, message, is_warning=is_warning),
            on_probe_change=lambda: self._observe_probes(pod_context),
        )

    async def _wait_for_exit(
        self, pod_context: PodContext, run: ContainerRun, config: ContainerConfig, attempt: _Attempt
    ) -> TerminatedState:
        started_at = self._context.clock()
        self._run, self.launch = run, run.target.launch
        if self._stopping.is_set():
            run.stop(grace_seconds=0)
        try:
            status = await run.wait(on_running=lambda: self._observe_running(pod_context, attempt, started_at))
        finally:
            self._run = self.launch = None
        terminated = self._terminated_state(status, config, started_at=started_at, container_id=attempt.container_id)
        self._observe_attempt(pod_context, attempt, state=terminated, last=attempt.last, is_started=False, is_ready=False)
        return terminated

    def _terminated_state(self, status: ExitStatus, config: ContainerConfig, *, started_at: float, container_id: str) -> TerminatedState:
        message = termination_message(self.spec, config.message_file, exit_code=status.code, log=self.logs.current)
        return TerminatedState(
            exit_code=status.code,
            reason=termination_reason(status),
            message=message,
            started_at=started_at,
            finished_at=self._context.clock(),
            container_id=container_id,
        )

    def _observe_start_error(self, pod_context: PodContext, message: str, attempt: _Attempt) -> TerminatedState:
        """As containerd does, the state has a finish time but no start time."""
        self._record_event(pod_context, "Failed", f"Error: {message}", is_warning=True)
        terminated = TerminatedState(
            exit_code=_START_ERROR_CODE,
            reason="StartError",
            message=message,
            finished_at=self._context.clock(),
            container_id=attempt.container_id,
        )
        if should_restart(pod_context.pod(), self.spec, role=self.role, exit_code=terminated.exit_code):
            self._observe_attempt(pod_context, attempt, state=WaitingState("RunContainerError", message), last=terminated)
        else:
            self._observe_attempt(pod_context, attempt, state=terminated, last=attempt.last)
        return terminated

    # --- before a start ----------------------------------------------------------------------------------------------

    async def _build_config_with_retries(self, pod_context: PodContext) -> ContainerConfig:
        while True:
            try:
                return await self._unless_stopped(self._build_config(pod_context))
            except ImagePullError as error:
                await self._back_off_image_pull(pod_context, str(error))
            except ContainerConfigError as error:
                await self._wait_for_config(pod_context, "CreateContainerConfigError", str(error))
            except (KubeError, OSError) as error:
                await self._wait_for_config(pod_context, "CreateContainerError", str(error))

    async def _build_config(self, pod_context: PodContext) -> ContainerConfig:
        image = self._context.images.resolve(self.spec)
        name = self.spec.get("image", "")
        pulled_message = f'Container image "{name}" already present on machine and can be accessed by the pod'
        if image.python is not None and not self._context.environments.is_ready(image.python):
            self._record_event(pod_context, "Pulling", f'Pulling image "{name}"')
            pulled_message = f'Successfully pulled image "{name}"'
        bin_dir = None if image.python is None else await self._context.environments.ensure(image.python)
        self._record_event(pod_context, "Pulled", pulled_message)
        config = await self._config_builder.build(
            pod_context.pod(), self.spec, image=image, bin_dir=bin_dir, downward=pod_context.downward, run=self._attempts
        )
        if not self._context.runtime.has_hosts_file:
            texts = (*config.launch.argv, *config.launch.environment.values())
            await self._context.hosts.wait_resolvable(pod_context.pod()["metadata"]["namespace"], texts)
        return config

    async def _back_off_image_pull(self, pod_context: PodContext, message: str) -> None:
        name = self.spec.get("image", "")
        self._record_event(pod_context, "Failed", f'Failed to pull image "{name}": {message}', is_warning=True)
        self._record_event(pod_context, "Failed", "Error: ErrImagePull", is_warning=True)
        self._observe_waiting(pod_context, WaitingState("ErrImagePull", message))
        now = asyncio.get_running_loop().time()
        self._image_backoff.record_restart(now=now)
        # The kubelet reports the back-off in its next sync of the pod, so the first reason is visible for a moment.
        await self._sleep(min(1.0, self._image_backoff.delay_seconds / 10))
        self._record_event(pod_context, "BackOff", f'Back-off pulling image "{name}"')
        self._record_event(pod_context, "Failed", "Error: ImagePullBackOff", is_warning=True)
        self._observe_waiting(pod_context, WaitingState("ImagePullBackOff", f'Back-off pulling image "{name}": ErrImagePull: {message}'))
        await self._sleep(self._image_backoff.delay_seconds)

    async def _wait_for_config(self, pod_context: PodContext, reason: str, message: str) -> None:
        self._record_event(pod_context, "Failed", f"Error: {message}", is_warning=True)
        self._observe_waiting(pod_context, WaitingState(reason, message))
        await self._sleep(self._context.timings.retry_seconds)

    async def _wait_for_restart(self, pod_context: PodContext, terminated: TerminatedState) -> None:
        loop = asyncio.get_running_loop()
        delay = self._restart_backoff.restart_at(ended_at=loop.time()) - loop.time()
        if delay > 0:
            metadata = pod_context.pod()["metadata"]
            pod = f"{metadata['name']}_{metadata['namespace']}({metadata['uid']})"
            self._record_event(pod_context, "BackOff", f"Back-off restarting failed container {self.name} in pod {pod}", is_warning=True)
            duration = format_go_duration(self._restart_backoff.delay_seconds)
            message = f"back-off {duration} restarting failed container={self.name} pod={pod}"
            self._observe(pod_context, state=WaitingState("CrashLoopBackOff", message), last=terminated)
            await self._sleep(delay)
        self._restart_backoff.record_restart(now=loop.time())

    async def _sleep(self, seconds: float) -> None:
        await self._unless_stopped(asyncio.sleep(seconds))

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(work)
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise _Stopped
            return task.result()
        finally:
            task.cancel()
            stopping.cancel()
            await asyncio.gather(task, stopping, return_exceptions=True)

    # --- observed state and events -----------------------------------------------------------------------------------

    def _observe_running(self, pod_context: PodContext, attempt: _Attempt, started_at: float) -> None:
        self._observe_attempt(pod_context, attempt, state=RunningState(started_at), last=attempt.last)
        self._observe_probes(pod_context)

    def _observe_probes(self, pod_context: PodContext) -> None:
        if self._run is not None:
            self._observe(pod_context, is_started=self._run.is_started, is_ready=self._run.is_ready)
        if self.observed.is_started:
            self.started.set()

    def _observe_waiting(self, pod_context: PodContext, waiting: WaitingState) -> None:
        self._observe(pod_context, state=waiting, last=self._last_termination())

    def _observe_attempt(self, pod_context: PodContext, attempt: _Attempt, **changes: Any) -> None:
        image_id = f"dlop://{self.spec.get('image', '')}"
        self._observe(pod_context, restarts=attempt.number, container_id=attempt.container_id, image_id=image_id, **changes)

    def _observe(self, pod_context: PodContext, **changes: Any) -> None:
        self.observed = replace(self.observed, **changes)
        pod_context.on_change()

    def _record_event(self, pod_context: PodContext, reason: str, message: str, *, is_warning: bool = False) -> None:
        field = "containers" if self.role is ContainerRole.MAIN else "initContainers"
        event = PodEvent(reason=reason, message=message, is_warning=is_warning, field_path=f"spec.{field}{{{self.name}}}")
        self._context.events.record(pod_context.pod(), event)
