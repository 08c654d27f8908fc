"""One container of a pod: started, watched, and started again as often as its pod wants it.

What is known of it is in `facts`; every change of that is told to the pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from dlop.embedded.kubelet.container_config import DownwardValues, Prepared, Preparing
from dlop.embedded.kubelet.container_run import Run
from dlop.embedded.kubelet.environment import ConfigurationProblem
from dlop.embedded.kubelet.events import PodEvent
from dlop.embedded.kubelet.image_map import ImageProblem
from dlop.embedded.kubelet.logs import ContainerLog, ContainerLogs
from dlop.embedded.kubelet.node_context import NodeContext
from dlop.embedded.kubelet.pod_status import ContainerFacts, Ended, Running, Waiting
from dlop.embedded.kubelet.restart_backoff import CrashLoop, Role, duration_text, is_restarted
from dlop.embedded.kubelet.runtime.base import Exit, Launch, LaunchError, Sandbox
from dlop.embedded.kubelet.termination_message import reason_of, termination_message
from dlop.kube.errors import KubeError
from dlop.kube.types import JsonObject

T = TypeVar("T")

_START_ERROR_CODE = 128


class _Stopped(Exception):  # noqa: N818 - no error
    """The container is not wanted any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """What the containers of a pod share."""

    pod: Callable[[], JsonObject]
    sandbox: Sandbox
    place: DownwardValues
    changed: Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One run of a container."""

    number: int
    identity: str
    last: Ended | None
    """How the run before it ended."""


class Container:
    """A container, over all its runs."""

    def __init__(self, spec: JsonObject, *, role: Role, facts: ContainerFacts, tools: NodeContext, preparing: Preparing) -> None:
        self.spec = spec
        self.role = role
        self.facts = facts
        self.logs = ContainerLogs(preparing.log_folder(spec), nanoseconds=lambda: int(tools.clock() * 1e9))
        self.launch: Launch | None = None
        """How it runs now; None while it does not."""
        self.started = asyncio.Event()
        """Set once it has started, or never will."""
        self.ended = asyncio.Event()
        """Set once it has ended for good."""
        self._tools = tools
        self._preparing = preparing
        self._crash_loop = CrashLoop(tools.pace.restarts)
        self._image_loop = CrashLoop(tools.pace.images)
        self._stopping = asyncio.Event()
        self._run: Run | None = None
        self._attempts = 0

    @property
    def name(self) -> str:
        """The container's name."""
        return str(self.spec["name"])

    # --- the life ----------------------------------------------------------------------------------------------------

    async def run(self, home: Home) -> None:
        """Run it until it has ended for good: of itself, or because it was stopped."""
        try:
            while not self._stopping.is_set():
                ended = await self._run_once(home)
                if not is_restarted(home.pod(), self.spec, role=self.role, exit_code=ended.exit_code):
                    return
                await self._wait_for_restart(home, ended)
        except _Stopped:
            return
        finally:
            self.logs.end()
            self.started.set()
            self.ended.set()

    @property
    def is_stopping(self) -> bool:
        """Whether it was told to end."""
        return self._stopping.is_set()

    def stop(self, *, grace_seconds: float) -> None:
        """Let it end within the grace period, and not start again."""
        self._stopping.set()
        if self._run is not None:
            self._run.stop(grace_seconds=grace_seconds)

    async def _run_once(self, home: Home) -> Ended:
        prepared = await self._prepared(home)
        attempt = self._new_attempt()
        self._tell(home, "Created", "Container created")
        run = self._new_run(home, prepared, self.logs.begin(attempt.number))
        try:
            await run.start()
        except LaunchError as error:
            return self._could_not_start(home, str(error), attempt)
        self._tell(home, "Started", "Container started")
        return await self._watched(home, run, prepared, attempt)

    def _new_attempt(self) -> _Attempt:
        number, self._attempts = self._attempts, self._attempts + 1
        return _Attempt(number, f"dlop://{self._tools.rng.getrandbits(256):064x}", self._last_end())

    def _last_end(self) -> Ended | None:
        return self.facts.state if isinstance(self.facts.state, Ended) else self.facts.last

    def _new_run(self, home: Home, prepared: Prepared, log: ContainerLog) -> Run:
        return Run(
            self.spec,
            sandbox=home.sandbox,
            launch=prepared.launch,
            log=log,
            grace_seconds=float(home.pod()["spec"].get("terminationGracePeriodSeconds") or 0),
            shortest_grace_seconds=self._tools.pace.shortest_grace_seconds,
            tell=lambda reason, message, is_warning=False: self._tell(home, reason, message, is_warning=is_warning),
            changed=lambda: self._probed(home),
        )

    async def _watched(self, home: Home, run: Run, prepared: Prepared, attempt: _Attempt) -> Ended:
        started_at = self._tools.clock()
        self._run, self.launch = run, run.target.launch
        if self._stopping.is_set():
            run.stop(grace_seconds=0)
        try:
            ending = await run.wait(began=lambda: self._began(home, attempt, started_at))
        finally:
            self._run = self.launch = None
        ended = self._ended(ending, prepared, started_at=started_at, identity=attempt.identity)
        self._know_attempt(home, attempt, state=ended, last=attempt.last, is_started=False, is_ready=False)
        return ended

    def _began(self, home: Home, attempt: _Attempt, started_at: float) -> None:
        self._know_attempt(home, attempt, state=Running(started_at), last=attempt.last)
        self._probed(home)

    def _know_attempt(self, home: Home, attempt: _Attempt, **changes: Any) -> None:
        image = f"dlop://{self.spec.get('image', '')}"
        self._know(home, restarts=attempt.number, container_id=attempt.identity, image_id=image, **changes)

    def _probed(self, home: Home) -> None:
        if self._run is not None:
            self._know(home, is_started=self._run.is_started, is_ready=self._run.is_ready)
        if self.facts.is_started:
            self.started.set()

    def _ended(self, ending: Exit, prepared: Prepared, *, started_at: float, identity: str) -> Ended:
        message = termination_message(self.spec, prepared.message_file, exit_code=ending.code, log=self.logs.current)
        return Ended(
            exit_code=ending.code,
            reason=reason_of(ending),
            message=message,
            started_at=started_at,
            finished_at=self._tools.clock(),
            container_id=identity,
        )

    def _could_not_start(self, home: Home, message: str, attempt: _Attempt) -> Ended:
        """As containerd tells it: such a run has an end and no beginning."""
        self._tell(home, "Failed", f"Error: {message}", is_warning=True)
        ended = Ended(
            exit_code=_START_ERROR_CODE,
            reason="StartError",
            message=message,
            finished_at=self._tools.clock(),
            container_id=attempt.identity,
        )
        if is_restarted(home.pod(), self.spec, role=self.role, exit_code=ended.exit_code):
            self._know_attempt(home, attempt, state=Waiting("RunContainerError", message), last=ended)
        else:
            self._know_attempt(home, attempt, state=ended, last=attempt.last)
        return ended

    # --- before a start ----------------------------------------------------------------------------------------------

    async def _prepared(self, home: Home) -> Prepared:
        """All that a start needs, after as many attempts as it takes."""
        while True:
            try:
                return await self._unless_stopped(self._prepare(home))
            except ImageProblem as problem:
                await self._wait_for_image(home, str(problem))
            except ConfigurationProblem as problem:
                await self._wait_for_configuration(home, "CreateContainerConfigError", str(problem))
            except (KubeError, OSError) as error:
                await self._wait_for_configuration(home, "CreateContainerError", str(error))

    async def _prepare(self, home: Home) -> Prepared:
        image = self._tools.images.meant_by(self.spec)
        name = self.spec.get("image", "")
        present = f'Container image "{name}" already present on machine and can be accessed by the pod'
        if image.python is not None and not self._tools.environments.is_ready(image.python):
            self._tell(home, "Pulling", f'Pulling image "{name}"')
            present = f'Successfully pulled image "{name}"'
        programs = None if image.python is None else await self._tools.environments.programs(image.python)
        self._tell(home, "Pulled", present)
        prepared = await self._preparing.prepare(
            home.pod(), self.spec, image=image, programs=programs, place=home.place, run=self._attempts
        )
        if not self._tools.runtime.resolves_names:
            texts = (*prepared.launch.argv, *prepared.launch.environment.values())
            await self._tools.directory.all_named(home.pod()["metadata"]["namespace"], texts)
        return prepared

    async def _wait_for_image(self, home: Home, message: str) -> None:
        name = self.spec.get("image", "")
        self._tell(home, "Failed", f'Failed to pull image "{name}": {message}', is_warning=True)
        self._tell(home, "Failed", "Error: ErrImagePull", is_warning=True)
        self._wait_as(home, Waiting("ErrImagePull", message))
        now = asyncio.get_running_loop().time()
        self._image_loop.restarted(now=now)
        # The reason stays for a moment before it becomes that of the wait, as pull and back-off are two looks at the pod.
        await self._sleep(min(1.0, self._image_loop.wait_seconds / 10))
        self._tell(home, "BackOff", f'Back-off pulling image "{name}"')
        self._tell(home, "Failed", "Error: ImagePullBackOff", is_warning=True)
        self._wait_as(home, Waiting("ImagePullBackOff", f'Back-off pulling image "{name}": ErrImagePull: {message}'))
        await self._sleep(self._image_loop.wait_seconds)

    async def _wait_for_configuration(self, home: Home, reason: str, message: str) -> None:
        self._tell(home, "Failed", f"Error: {message}", is_warning=True)
        self._wait_as(home, Waiting(reason, message))
        await self._sleep(self._tools.pace.retry_seconds)

    async def _wait_for_restart(self, home: Home, ended: Ended) -> None:
        loop = asyncio.get_running_loop()
        delay = self._crash_loop.restart_at(ended_at=loop.time()) - loop.time()
        if delay > 0:
            pod = home.pod()["metadata"]
            which = f"{pod['name']}_{pod['namespace']}({pod['uid']})"
            self._tell(home, "BackOff", f"Back-off restarting failed container {self.name} in pod {which}", is_warning=True)
            wait = duration_text(self._crash_loop.wait_seconds)
            message = f"back-off {wait} restarting failed container={self.name} pod={which}"
            self._know(home, state=Waiting("CrashLoopBackOff", message), last=ended)
            await self._sleep(delay)
        self._crash_loop.restarted(now=loop.time())

    def _wait_as(self, home: Home, waiting: Waiting) -> None:
        self._know(home, state=waiting, last=self._last_end())

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

    # --- telling -----------------------------------------------------------------------------------------------------

    def _know(self, home: Home, **changes: Any) -> None:
        self.facts = replace(self.facts, **changes)
        home.changed()

    def _tell(self, home: Home, reason: str, message: str, *, is_warning: bool = False) -> None:
        field = "containers" if self.role is Role.MAIN else "initContainers"
        event = PodEvent(reason=reason, message=message, is_warning=is_warning, field_path=f"spec.{field}{{{self.name}}}")
        self._tools.events.tell(home.pod(), event)
