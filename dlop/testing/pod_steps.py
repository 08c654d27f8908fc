"""Steps of pod scripts. Each step is one action of a kubelet, a scheduler or a failing node on one pod."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dlop.kube.objects import Pod
from dlop.kube.types import JsonObject
from dlop.testing.pod_status import (
    condition,
    finished_status,
    init_failed_status,
    restarted_status,
    running_status,
    waiting_status,
)

KILLED_BY_SIGTERM = 143


class PodControl(Protocol):
    """The operations of a step on its pod."""

    @property
    def pod(self) -> Pod:
        """The current pod."""
        ...

    def now(self) -> str:
        """The current time in the format of the API."""
        ...

    async def bind(self) -> None:
        """Bind the pod to a node, unless it is bound."""
        ...

    async def report(self, status: JsonObject) -> None:
        """Patch the status of the pod."""
        ...

    async def delete(self) -> None:
        """Delete the pod with its grace period."""
        ...

    async def pause(self, seconds: float) -> None:
        """Wait for scripted seconds."""
        ...

    async def until_released(self) -> None:
        """Wait for `ScriptedKubelet.release`."""
        ...

    def lose_node(self) -> None:
        """Stop managing the pod. If it is deleted, it stays terminating."""
        ...


class Step(Protocol):
    async def perform(self, control: PodControl) -> None: ...


@dataclass(frozen=True, slots=True)
class RunContainers:
    """The pod is scheduled, and its containers start."""

    ready: bool = True

    async def perform(self, control: PodControl) -> None:
        await control.bind()
        await control.report(running_status(control.pod, now=control.now(), ready=self.ready))


@dataclass(frozen=True, slots=True)
class BecomeReady:
    """The readiness probes of the running containers succeed."""

    async def perform(self, control: PodControl) -> None:
        await control.report(running_status(control.pod, now=control.now()))


@dataclass(frozen=True, slots=True)
class ContainerExit:
    """A container terminates, by default the first. The restart policy of the pod decides what follows."""

    exit_code: int
    reason: str = ""
    message: str = ""
    container: str = ""

    async def perform(self, control: PodControl) -> None:
        await control.report(self._status(control.pod, now=control.now()))

    def _status(self, pod: Pod, *, now: str) -> JsonObject:
        reason = self.reason or ("Error" if self.exit_code else "Completed")
        policy = pod.spec.restart_policy
        restarts = policy == "Always" or (policy == "OnFailure" and self.exit_code != 0)
        new_status = restarted_status if restarts else finished_status
        return new_status(pod, exit_code=self.exit_code, reason=reason, message=self.message, container=self.container, now=now)


@dataclass(frozen=True, slots=True)
class RestartInPlace:
    """A container fails and is restarted in the same pod. Every restart is reported."""

    times: int = 1
    exit_code: int = 1

    async def perform(self, control: PodControl) -> None:
        for restart in range(self.times):
            if restart:
                await control.pause(1)
            status = restarted_status(control.pod, exit_code=self.exit_code, reason="Error", message="", container="", now=control.now())
            await control.report(status)


@dataclass(frozen=True, slots=True)
class FailInitContainer:
    """The pod is scheduled, and an init container fails. The restart policy of the pod decides what follows."""

    container: str
    exit_code: int = 1
    message: str = ""

    async def perform(self, control: PodControl) -> None:
        await control.bind()
        status = init_failed_status(
            control.pod, exit_code=self.exit_code, message=self.message, container=self.container, now=control.now()
        )
        await control.report(status)


@dataclass(frozen=True, slots=True)
class Evict:
    """The kubelet evicts the pod because of node pressure, whatever its restart policy."""

    message: str = "The node was low on resource: memory."

    async def perform(self, control: PodControl) -> None:
        now = control.now()
        status = finished_status(control.pod, exit_code=137, reason="Error", message="", container="", now=now)
        disrupted = condition("DisruptionTarget", now=now, reason="TerminationByKubelet", message=self.message)
        conditions = [*status["conditions"], disrupted]
        await control.report({**status, "phase": "Failed", "reason": "Evicted", "message": self.message, "conditions": conditions})


@dataclass(frozen=True, slots=True)
class Preempt:
    """The scheduler preempts the pod."""

    async def perform(self, control: PodControl) -> None:
        message = "default-scheduler: preempting to accommodate a higher priority pod"
        await control.report(
            {"conditions": [condition("DisruptionTarget", now=control.now(), reason="PreemptionByScheduler", message=message)]}
        )
        await control.delete()


@dataclass(frozen=True, slots=True)
class LoseNode:
    """The node becomes unreachable, and the pod is deleted later. Its termination is never confirmed."""

    after_seconds: float = 300.0

    async def perform(self, control: PodControl) -> None:
        control.lose_node()
        now = control.now()
        await control.report({"conditions": [condition("Ready", now=now, status="False", reason="NodeStatusUnknown")]})
        await control.pause(self.after_seconds)
        message = "Taint manager: deleting due to NoExecute taint"
        await control.report(
            {"conditions": [condition("DisruptionTarget", now=control.now(), reason="DeletionByTaintManager", message=message)]}
        )
        await control.delete()


@dataclass(frozen=True, slots=True)
class FailToStart:
    """The pod is scheduled, but its containers cannot start, for example because of a bad image."""

    reason: str
    message: str = ""

    async def perform(self, control: PodControl) -> None:
        await control.bind()
        await control.report(waiting_status(control.pod, reason=self.reason, message=self.message, now=control.now()))


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """The scheduler finds no node for the pod."""

    message: str = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."

    async def perform(self, control: PodControl) -> None:
        now = control.now()
        await control.report(
            {"conditions": [condition("PodScheduled", now=now, status="False", reason="Unschedulable", message=self.message)]}
        )


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float

    async def perform(self, control: PodControl) -> None:
        await control.pause(self.seconds)


@dataclass(frozen=True, slots=True)
class UntilReleased:
    """Waits for `ScriptedKubelet.release`."""

    async def perform(self, control: PodControl) -> None:
        await control.until_released()
