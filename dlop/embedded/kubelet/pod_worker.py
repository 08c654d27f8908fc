"""The life of one pod on the node: volumes, sandbox, init containers in order, containers, and the end.

A pod ends of itself when its containers have, or is ended: because it was deleted, because it is gone, or because its time is
up. Whatever happens, its last status is written before the pod object may vanish, and nothing of it runs on after that.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

import structlog

from dlop.embedded.kubelet.conditions import without_foreign
from dlop.embedded.kubelet.container import Container, Home
from dlop.embedded.kubelet.container_config import Preparing
from dlop.embedded.kubelet.environment import DownwardValues
from dlop.embedded.kubelet.events import PodEvent
from dlop.embedded.kubelet.hosts_file import NamedPod, named_pod
from dlop.embedded.kubelet.node_context import NodeContext
from dlop.embedded.kubelet.pod_setup import PodSetup
from dlop.embedded.kubelet.pod_status import Ended, PodFacts, first_facts, pod_status
from dlop.embedded.kubelet.restart_backoff import Role, role_of
from dlop.embedded.kubelet.runtime.base import Sandbox
from dlop.embedded.kubelet.status_writer import StatusWriter
from dlop.kube.errors import ConflictError, KubeError, NotFoundError
from dlop.kube.resources import PODS
from dlop.kube.types import JsonObject

log = structlog.get_logger(__name__)

T = TypeVar("T")

_DEADLINE = ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
_RETRY_SECONDS = 1.0


class PodWorker:
    """Runs one pod."""

    def __init__(self, pod: JsonObject, *, tools: NodeContext) -> None:
        self.pod = pod
        self.sandbox: Sandbox | None = None
        self.status: JsonObject = pod.get("status") or {}
        """As of now, whatever the server knows of it."""
        self.is_over = False
        self._tools = tools
        metadata = pod["metadata"]
        self._folder = tools.folder / "pods" / metadata["uid"]
        self._logs = tools.folder / "logs" / f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"
        self._preparing = Preparing(tools.inputs, folder=self._folder, logs=self._logs, environment=tools.environment)
        self._writer = StatusWriter(tools.client, pod, rng=tools.rng)
        self._started_at = tools.clock()
        self._address = ""
        self._failure: tuple[str, str] | None = None
        self._ending = asyncio.Event()
        self._end_by = float("inf")
        self._deadline: asyncio.TimerHandle | None = None
        self._is_removed = False
        self.containers = self._new_containers()
        self._sidecars: list[Container] = []
        """Those that were started."""

    def _new_containers(self) -> dict[str, Container]:
        facts, spec = first_facts(self.pod), self.pod["spec"]
        roles = [(each, role_of(each, is_init=True)) for each in spec.get("initContainers") or ()]
        roles += [(each, Role.MAIN) for each in spec["containers"]]
        return {
            each["name"]: Container(each, role=role, facts=facts[each["name"]], tools=self._tools, preparing=self._preparing)
            for each, role in roles
        }

    # --- what the node tells it --------------------------------------------------------------------------------------

    def update(self, pod: JsonObject) -> None:
        """The pod object has changed. A deletion is a wish to end, with some grace."""
        if pod["spec"].get("activeDeadlineSeconds") != self.pod["spec"].get("activeDeadlineSeconds"):
            self.pod = pod
            self._arm_deadline()
        self.pod = pod
        if pod["metadata"].get("deletionTimestamp"):
            grace = pod["metadata"].get("deletionGracePeriodSeconds")
            self.end(grace_seconds=self._own_grace_seconds if grace is None else float(grace))
        self._changed()

    def remove(self) -> None:
        """The pod object is gone: nobody is left to be told anything."""
        self._is_removed = True
        self._writer.give_up()
        self.end(grace_seconds=0.0)

    def end(self, *, grace_seconds: float) -> None:
        """Let the pod end within this time. Said again, the shorter time counts."""
        end_by = asyncio.get_running_loop().time() + grace_seconds
        if end_by < self._end_by:
            self._end_by = end_by
            for container in self.containers.values():
                # Sidecars go last: see `_stop_sidecars`.
                if container.role is not Role.SIDECAR or container.is_stopping:
                    container.stop(grace_seconds=grace_seconds)
        self._ending.set()

    def write_hosts(self) -> None:
        """Tell the pod what names mean now."""
        named = self.named
        if self.sandbox is not None and named is not None:
            self.sandbox.write_hosts(self._tools.directory.names.hosts(named))

    @property
    def named(self) -> NamedPod | None:
        """The pod under its names, as soon as it has an address."""
        if self.is_over:
            return named_pod(self.pod, "")
        return named_pod(self.pod, self._address) if self._address else None

    @property
    def _host_address(self) -> str:
        """Who is on the host's network has the host's address, whatever the host is called by those who are not."""
        shares = self._address and self.pod["spec"].get("hostNetwork")
        return self._address if shares else self._tools.runtime.node_address

    @property
    def _own_grace_seconds(self) -> float:
        return float(self.pod["spec"].get("terminationGracePeriodSeconds") or 0)

    # --- the life ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """See the pod through to its end."""
        writing = asyncio.create_task(self._writer.run(), name=f"status of {self.pod['metadata']['name']}")
        try:
            self._changed()
            await self._live()
            await self._take_leave()
        finally:
            self._disarm_deadline()
            writing.cancel()
            await self._close_sandbox()
            await asyncio.gather(writing, return_exceptions=True)

    async def _live(self) -> None:
        self._arm_deadline()
        try:
            setup = PodSetup(self.pod, tools=self._tools, folder=self._folder)
            home = await self._unless_ending(self._prepare(setup))
            if home is not None:
                await self._run_with_volumes(home, setup)
        except Exception as error:
            # Our bug or the machine's trouble. It is this one pod's end, and the pod says so.
            log.exception("a pod could not be seen through", pod=self.pod["metadata"]["name"])
            self._failure = ("NodeError", f"The node could not run the pod: {error}")

    def clean_up(self) -> None:
        """Remove what is left of the pod on disk, its logs too unless they are to be kept: nobody can ask for them any more."""
        shutil.rmtree(self._folder, ignore_errors=True)
        if not self._tools.keep_logs:
            shutil.rmtree(self._logs, ignore_errors=True)

    async def _prepare(self, setup: PodSetup) -> Home:
        place = DownwardValues(self._host_address, "", self._tools.allocatable)
        self._preparing.volumes = await setup.volumes(place)
        self._preparing.access = await setup.access()
        self._preparing.hostname = named_pod(self.pod, "").own_name
        self.sandbox = sandbox = await setup.sandbox()
        self._address = sandbox.address
        self._tools.directory.change()
        self.write_hosts()
        self._changed()
        place = replace(place, host_address=self._host_address, pod_address=self._address)
        return Home(pod=lambda: self.pod, sandbox=sandbox, place=place, changed=self._changed)

    async def _unless_ending(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What the work gives, or None when the pod is to end before it is done."""
        task = asyncio.create_task(work)
        ending = asyncio.create_task(self._ending.wait())
        try:
            await asyncio.wait({task, ending}, return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            task.cancel()
            ending.cancel()
            await asyncio.gather(task, ending, return_exceptions=True)

    # --- containers --------------------------------------------------------------------------------------------------

    async def _run_with_volumes(self, home: Home, setup: PodSetup) -> None:
        refreshing = asyncio.create_task(setup.keep_up_to_date(home.place))
        try:
            await self._run_containers(home)
        finally:
            refreshing.cancel()
            await asyncio.gather(refreshing, return_exceptions=True)

    async def _run_containers(self, home: Home) -> None:
        async with asyncio.TaskGroup() as group:
            if await self._initialize(home, group):
                async with asyncio.TaskGroup() as mains:
                    for container in (each for each in self.containers.values() if each.role is Role.MAIN):
                        mains.create_task(container.run(home), name=f"container {container.name}")
            await self._stop_sidecars()

    async def _initialize(self, home: Home, group: asyncio.TaskGroup) -> bool:
        """Run the init containers in order; sidecars go on in the group. Says whether all did what they should."""
        for container in self.containers.values():
            if self._ending.is_set():
                return False
            if container.role is Role.SIDECAR:
                group.create_task(container.run(home), name=f"sidecar {container.name}")
                self._sidecars.append(container)
                await self._unless_ending(container.started.wait())
            elif container.role is Role.INIT:
                await container.run(home)
                if not isinstance(container.facts.state, Ended) or container.facts.state.exit_code != 0:
                    return False
        return not self._ending.is_set()

    async def _stop_sidecars(self) -> None:
        """One after the other, the last one first, in what is left of the grace period."""
        end_by = min(self._end_by, asyncio.get_running_loop().time() + self._own_grace_seconds)
        for container in reversed(self._sidecars):
            container.stop(grace_seconds=max(0.0, end_by - asyncio.get_running_loop().time()))
            await container.ended.wait()

    # --- the end -----------------------------------------------------------------------------------------------------

    def _arm_deadline(self) -> None:
        """The deadline counts from the pod's start, and may be moved up while it runs."""
        self._disarm_deadline()
        seconds = self.pod["spec"].get("activeDeadlineSeconds")
        if seconds is not None and not self.is_over:
            left = max(0.0, self._started_at + float(seconds) - self._tools.clock())
            self._deadline = asyncio.get_running_loop().call_later(left, self._deadline_passed)

    def _disarm_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _deadline_passed(self) -> None:
        if not self._ending.is_set() and not self.is_over:
            self._failure = _DEADLINE
            self._tools.events.tell(self.pod, PodEvent(reason=_DEADLINE[0], message=_DEADLINE[1]))
            self.end(grace_seconds=self._own_grace_seconds)
            self._changed()

    async def _take_leave(self) -> None:
        """The last status, and then, if it was to be deleted, the end of the pod object."""
        await self._close_sandbox()
        self.is_over = True
        self._tools.directory.change()
        self._changed()
        await self._writer.settled()
        while not self._is_removed:
            if self.pod["metadata"].get("deletionTimestamp"):
                await self.let_go()
                return
            # A pod that has ended stays until somebody wants it gone.
            self._ending.clear()
            await self._ending.wait()

    async def let_go(self) -> None:
        """Let the pod object vanish, as only its node may."""
        metadata = self.pod["metadata"]
        while not self._is_removed:
            try:
                await self._tools.client.delete(
                    PODS, metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"], grace_seconds=0
                )
                return
            except (NotFoundError, ConflictError):
                return  # it is gone, or another has its name
            except KubeError as error:
                log.warning("a pod cannot be let go yet", pod=metadata["name"], error=str(error))
                await asyncio.sleep(_RETRY_SECONDS)

    async def _close_sandbox(self) -> None:
        sandbox, self.sandbox = self.sandbox, None
        if sandbox is not None:
            await sandbox.close()

    # --- telling -----------------------------------------------------------------------------------------------------

    def _changed(self) -> None:
        facts = PodFacts(
            containers={name: container.facts for name, container in self.containers.items()},
            started_at=self._started_at,
            host_address=self._host_address,
            pod_address=self._address,
            has_sandbox=self.sandbox is not None,
            is_over=self.is_over,
            failure=self._failure,
        )
        known = {**self.pod, "status": {**(self.pod.get("status") or {}), "conditions": self._conditions()}}
        self.status = pod_status(known, facts, now=self._tools.clock())
        self._writer.tell(without_foreign(self.status))

    def _conditions(self) -> list[JsonObject]:
        """Our own as last told, and those of others as the server has them."""
        theirs = {each["type"]: each for each in (self.pod.get("status") or {}).get("conditions") or ()}
        own = {each["type"]: each for each in without_foreign(self.status).get("conditions") or ()}
        return list((theirs | own).values())
