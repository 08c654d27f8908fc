"""Runs one pod on the node: setup, init containers in order, main containers, and termination.

A pod finishes when its containers have finished, or is terminated because it was deleted or its deadline has passed. The final status
is always written before the pod object is deleted, and no process of the pod runs after that.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, TypeVar

import structlog

from dlop.embedded.kubelet.conditions import with_own_conditions
from dlop.embedded.kubelet.container import ContainerWorker, PodContext
from dlop.embedded.kubelet.container_config import ContainerConfigBuilder
from dlop.embedded.kubelet.crash_loop_backoff import ContainerRole, container_role
from dlop.embedded.kubelet.environment import DownwardValues
from dlop.embedded.kubelet.events import PodEvent
from dlop.embedded.kubelet.hosts_file import PodEntry, pod_entry
from dlop.embedded.kubelet.node_context import NodeContext
from dlop.embedded.kubelet.pod_setup import PodSetup
from dlop.embedded.kubelet.pod_status import ObservedPod, TerminatedState, initial_containers, pod_status
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
    def __init__(self, pod: JsonObject, *, context: NodeContext) -> None:
        self.pod = pod
        self.sandbox: Sandbox | None = None
        self.status: JsonObject = pod.get("status") or {}
        """The current status, which may not be written to the server yet."""
        self.is_finished = False
        self._context = context
        metadata = pod["metadata"]
        self._pod_dir = context.root_dir / "pods" / metadata["uid"]
        self._log_dir = context.root_dir / "logs" / f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"
        self._config_builder = ContainerConfigBuilder(
            context.config_reader, pod_dir=self._pod_dir, log_dir=self._log_dir, environment=context.environment
        )
        self._status_writer = StatusWriter(context.client, pod, rng=context.rng)
        self._started_at = context.clock()
        self._address = ""
        self._failure: tuple[str, str] | None = None
        self._terminating = asyncio.Event()
        self._terminate_by = float("inf")
        self._deadline: asyncio.TimerHandle | None = None
        self._is_deleted = False
        self.containers = self._new_containers()
        self._started_sidecars: list[ContainerWorker] = []

    def _new_containers(self) -> dict[str, ContainerWorker]:
        observed, spec = initial_containers(self.pod), self.pod["spec"]
        containers = [(container, container_role(container, is_init=True)) for container in spec.get("initContainers") or ()]
        containers += [(container, ContainerRole.MAIN) for container in spec["containers"]]
        return {
            container["name"]: ContainerWorker(
                container,
                role=role,
                observed=observed[container["name"]],
                context=self._context,
                config_builder=self._config_builder,
            )
            for container, role in containers
        }

    # --- called by the kubelet ---------------------------------------------------------------------------------------

    def update(self, pod: JsonObject) -> None:
        """Handle a new version of the pod object. A deletion timestamp terminates the pod."""
        if pod["spec"].get("activeDeadlineSeconds") != self.pod["spec"].get("activeDeadlineSeconds"):
            self.pod = pod
            self._start_deadline_timer()
        self.pod = pod
        if pod["metadata"].get("deletionTimestamp"):
            grace = pod["metadata"].get("deletionGracePeriodSeconds")
            self.terminate(grace_seconds=self._pod_grace_seconds if grace is None else float(grace))
        self._update_status()

    def handle_deletion(self) -> None:
        """Stop the pod immediately, because the pod object was deleted."""
        self._is_deleted = True
        self._status_writer.mark_deleted()
        self.terminate(grace_seconds=0.0)

    def terminate(self, *, grace_seconds: float) -> None:
        """Terminate the pod within the grace period. The earliest deadline of several calls applies."""
        terminate_by = asyncio.get_running_loop().time() + grace_seconds
        if terminate_by < self._terminate_by:
            self._terminate_by = terminate_by
            for container in self.containers.values():
                # Sidecars are stopped last, by `_stop_sidecars`.
                if container.role is not ContainerRole.SIDECAR or container.is_stopping:
                    container.stop(grace_seconds=grace_seconds)
        self._terminating.set()

    def write_hosts(self) -> None:
        """Write the pod's hosts file from the current names."""
        entry = self.hosts_entry
        if self.sandbox is not None and entry is not None:
            self.sandbox.write_hosts(self._context.hosts.table.render(entry))

    @property
    def hosts_entry(self) -> PodEntry | None:
        """The pod's entry for hosts files. None until it has an address."""
        if self.is_finished:
            return pod_entry(self.pod, "")
        return pod_entry(self.pod, self._address) if self._address else None

    @property
    def _host_ip(self) -> str:
        """The node's address as the pod sees it. A pod on the host network has the same address as its node."""
        on_host_network = self._address and self.pod["spec"].get("hostNetwork")
        return self._address if on_host_network else self._context.runtime.node_address

    @property
    def _pod_grace_seconds(self) -> float:
        return float(self.pod["spec"].get("terminationGracePeriodSeconds") or 0)

    # --- running -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run the pod until its object may be deleted."""
        writing = asyncio.create_task(self._status_writer.run(), name=f"status of {self.pod['metadata']['name']}")
        try:
            self._update_status()
            await self._set_up_and_run()
            await self._finish()
        finally:
            self._cancel_deadline_timer()
            writing.cancel()
            await self._close_sandbox()
            await asyncio.gather(writing, return_exceptions=True)

    async def _set_up_and_run(self) -> None:
        self._start_deadline_timer()
        try:
            setup = PodSetup(self.pod, context=self._context, pod_dir=self._pod_dir)
            pod_context = await self._unless_terminating(self._set_up(setup))
            if pod_context is not None:
                await self._run_with_volumes(pod_context, setup)
        except Exception as error:
            # A bug or a failure of the host must fail this pod only.
            log.exception("pod worker failed", pod=self.pod["metadata"]["name"])
            self._failure = ("NodeError", f"The node could not run the pod: {error}")

    def clean_up(self) -> None:
        """Delete the files of the pod, and its logs unless they are kept."""
        shutil.rmtree(self._pod_dir, ignore_errors=True)
        if not self._context.keep_logs:
            shutil.rmtree(self._log_dir, ignore_errors=True)

    async def _set_up(self, setup: PodSetup) -> PodContext:
        downward = DownwardValues(self._host_ip, "", self._context.allocatable)
        self._config_builder.volume_paths = await setup.set_up_volumes(downward)
        self._config_builder.api_access = await setup.set_up_api_access()
        self._config_builder.hostname = pod_entry(self.pod, "").pod_hostname
        self.sandbox = sandbox = await setup.create_sandbox()
        self._address = sandbox.address
        self._context.hosts.invalidate()
        self.write_hosts()
        self._update_status()
        downward = replace(downward, host_ip=self._host_ip, pod_ip=self._address)
        return PodContext(pod=lambda: self.pod, sandbox=sandbox, downward=downward, on_change=self._update_status)

    async def _unless_terminating(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of the work. None if the pod is terminated first."""
        task = asyncio.create_task(work)
        terminating = asyncio.create_task(self._terminating.wait())
        try:
            await asyncio.wait({task, terminating}, return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            task.cancel()
            terminating.cancel()
            await asyncio.gather(task, terminating, return_exceptions=True)

    # --- containers --------------------------------------------------------------------------------------------------

    async def _run_with_volumes(self, pod_context: PodContext, setup: PodSetup) -> None:
        refreshing = asyncio.create_task(setup.refresh_volumes(pod_context.downward))
        try:
            await self._run_containers(pod_context)
        finally:
            refreshing.cancel()
            await asyncio.gather(refreshing, return_exceptions=True)

    async def _run_containers(self, pod_context: PodContext) -> None:
        async with asyncio.TaskGroup() as group:
            if await self._run_init_containers(pod_context, group):
                async with asyncio.TaskGroup() as mains:
                    for container in self.containers.values():
                        if container.role is ContainerRole.MAIN:
                            mains.create_task(container.run(pod_context), name=f"container {container.name}")
            await self._stop_sidecars()

    async def _run_init_containers(self, pod_context: PodContext, group: asyncio.TaskGroup) -> bool:
        """Run the init containers in order; sidecars continue in the group. Returns whether all succeeded."""
        for container in self.containers.values():
            if self._terminating.is_set():
                return False
            if container.role is ContainerRole.SIDECAR:
                group.create_task(container.run(pod_context), name=f"sidecar {container.name}")
                self._started_sidecars.append(container)
                await self._unless_terminating(container.started.wait())
            elif container.role is ContainerRole.INIT:
                await container.run(pod_context)
                if not isinstance(container.observed.state, TerminatedState) or container.observed.state.exit_code != 0:
                    return False
        return not self._terminating.is_set()

    async def _stop_sidecars(self) -> None:
        """Stop sidecars one by one in reverse order, within the rest of the grace period."""
        terminate_by = min(self._terminate_by, asyncio.get_running_loop().time() + self._pod_grace_seconds)
        for container in reversed(self._started_sidecars):
            container.stop(grace_seconds=max(0.0, terminate_by - asyncio.get_running_loop().time()))
            await container.finished.wait()

    # --- termination -------------------------------------------------------------------------------------------------

    def _start_deadline_timer(self) -> None:
        """Start or restart the timer. The deadline counts from the start of the pod and may be shortened later."""
        self._cancel_deadline_timer()
        seconds = self.pod["spec"].get("activeDeadlineSeconds")
        if seconds is not None and not self.is_finished:
            remaining = max(0.0, self._started_at + float(seconds) - self._context.clock())
            self._deadline = asyncio.get_running_loop().call_later(remaining, self._handle_deadline)

    def _cancel_deadline_timer(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _handle_deadline(self) -> None:
        if not self._terminating.is_set() and not self.is_finished:
            self._failure = _DEADLINE
            self._context.events.record(self.pod, PodEvent(reason=_DEADLINE[0], message=_DEADLINE[1]))
            self.terminate(grace_seconds=self._pod_grace_seconds)
            self._update_status()

    async def _finish(self) -> None:
        """Write the final status, wait for a deletion and then delete the pod object."""
        await self._close_sandbox()
        self.is_finished = True
        self._context.hosts.invalidate()
        self._update_status()
        await self._status_writer.wait_flushed()
        while not self._is_deleted:
            if self.pod["metadata"].get("deletionTimestamp"):
                await self._delete_pod_object()
                return
            self._terminating.clear()
            await self._terminating.wait()

    async def _delete_pod_object(self) -> None:
        """Delete the object of a terminated pod, which only its node may do."""
        metadata = self.pod["metadata"]
        while not self._is_deleted:
            try:
                await self._context.client.delete(
                    PODS, metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"], grace_seconds=0
                )
                return
            except (NotFoundError, ConflictError):
                return  # already deleted, or replaced by another pod of the same name
            except KubeError as error:
                log.warning("pod deletion failed, retrying", pod=metadata["name"], error=str(error))
                await asyncio.sleep(_RETRY_SECONDS)

    async def _close_sandbox(self) -> None:
        sandbox, self.sandbox = self.sandbox, None
        if sandbox is not None:
            await sandbox.close()

    # --- status ------------------------------------------------------------------------------------------------------

    def _update_status(self) -> None:
        observed = ObservedPod(
            containers={name: container.observed for name, container in self.containers.items()},
            started_at=self._started_at,
            host_ip=self._host_ip,
            pod_ip=self._address,
            has_sandbox=self.sandbox is not None,
            is_finished=self.is_finished,
            failure=self._failure,
        )
        pod = {**self.pod, "status": {**(self.pod.get("status") or {}), "conditions": self._current_conditions()}}
        self.status = pod_status(pod, observed, now=self._context.clock())
        self._status_writer.set_status(with_own_conditions(self.status))

    def _current_conditions(self) -> list[JsonObject]:
        """The node's own conditions as last computed, and those of other owners from the server."""
        on_server = {condition["type"]: condition for condition in (self.pod.get("status") or {}).get("conditions") or ()}
        own = {condition["type"]: condition for condition in with_own_conditions(self.status).get("conditions") or ()}
        return list((on_server | own).values())
