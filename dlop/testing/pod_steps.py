"""What can happen to a pod, step by step. Each step is one deed of a kubelet, a scheduler or a dying node.

A step knows nothing of servers and clocks: it is given a `PodControl` that changes one pod.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dlop.kube.objects import Pod
from dlop.kube.types import JsonObject
from dlop.testing.pod_status import (
    condition,
    finished_status,
    restarted_status,
    running_status,
    waiting_status,
)

KILLED_BY_SIGTERM = 143


class PodControl(Protocol):
    """One pod, for a step to change."""

    @property
    def pod(self) -> Pod:
        """The pod as it is now."""
        ...

    def now(self) -> str:
        """The moment, as the API writes it."""
        ...

    async def bind(self) -> None:
        """Put the pod on a node, if it is not on one."""
        ...

    async def report(self, status: JsonObject) -> None:
        """Change the parts of the pod's status that are given."""
        ...

    async def delete(self) -> None:
        """Delete the pod as a user would: it is then asked to end."""
        ...

    async def pause(self, seconds: float) -> None:
        """Let scripted seconds pass."""
        ...

    async def until_told(self) -> None:
        """Wait for the test."""
        ...

    def lose_node(self) -> None:
        """From now on nobody looks after this pod: what is deleted stays, for ever ending."""
        ...


class Step(Protocol):
    """One thing that happens to a pod."""

    async def perform(self, hand: PodControl) -> None:
        """Let it happen."""
        ...


@dataclass(frozen=True, slots=True)
class RunFor:
    """The pod is scheduled and its containers run."""

    async def perform(self, hand: PodControl) -> None:
        """Let it happen."""
        await hand.bind()
        await hand.report(running_status(hand.pod, now=hand.now()))


@dataclass(frozen=True, slots=True)
class Exit:
    """The process of a container ends, by default that of the first. The pod's restart policy decides what follows."""

    exit_code: int
    reason: str = ""
    message: str = ""
    container: str = ""

    async def perform(self, hand: PodControl) -> None:
        """Let it happen."""
        await hand.report(self._status(hand.pod, now=hand.now()))

    def _status(self, pod: Pod, *, now: str) -> JsonObject:
        reason = self.reason or ("Error" if self.exit_code else "Completed")
        policy = pod.spec.restart_policy
        goes_on = policy == "Always" or (policy == "OnFailure" and self.exit_code != 0)
        make = restarted_status if goes_on else finished_status
        return make(pod, exit_code=self.exit_code, reason=reason, message=self.message, container=self.container, now=now)


@dataclass(frozen=True, slots=True)
class RestartInPlace:
    """A container ends with an error and is started again in the same pod."""

    times: int = 1
    exit_code: int = 1

    async def perform(self, hand: PodControl) -> None:
        """Let it happen, each time in a report of its own."""
        for number in range(self.times):
            if number:
                await hand.pause(1)
            status = restarted_status(hand.pod, exit_code=self.exit_code, reason="Error", message="", container="", now=hand.now())
            await hand.report(status)


@dataclass(frozen=True, slots=True)
class Evict:
    """The node is short of something and ends the pod, whatever its restart policy."""

    message: str = "The node was low on resource: memory."

    async def perform(self, hand: PodControl) -> None:
        """Let it happen."""
        now = hand.now()
        status = finished_status(hand.pod, exit_code=137, reason="Error", message="", container="", now=now)
        disrupted = condition("DisruptionTarget", now=now, reason="TerminationByKubelet", message=self.message)
        conditions = [*status["conditions"], disrupted]
        await hand.report({**status, "phase": "Failed", "reason": "Evicted", "message": self.message, "conditions": conditions})


@dataclass(frozen=True, slots=True)
class Preempt:
    """The scheduler gives the pod's place to another pod: it is marked and deleted."""

    async def perform(self, hand: PodControl) -> None:
        """Let it happen."""
        message = "default-scheduler: preempting to accommodate a higher priority pod"
        await hand.report({"conditions": [condition("DisruptionTarget", now=hand.now(), reason="PreemptionByScheduler", message=message)]})
        await hand.delete()


@dataclass(frozen=True, slots=True)
class LoseNode:
    """The node falls silent, and after a while the pod is deleted. Nobody ever confirms that it has ended."""

    after_seconds: float = 300.0

    async def perform(self, hand: PodControl) -> None:
        """Let it happen."""
        hand.lose_node()
        now = hand.now()
        await hand.report({"conditions": [condition("Ready", now=now, status="False", reason="NodeStatusUnknown")]})
        await hand.pause(self.after_seconds)
        message = "Taint manager: deleting due to NoExecute taint"
        await hand.report({"conditions": [condition("DisruptionTarget", now=hand.now(), reason="DeletionByTaintManager", message=message)]})
        await hand.delete()


@dataclass(frozen=True, slots=True)
class CannotStart:
    """The pod has a node, but a container cannot be started: a bad image, a missing configuration."""

    reason: str
    message: str = ""

    async def perform(self, hand: PodControl) -> None:
        """Let it happen."""
        await hand.bind()
        await hand.report(waiting_status(hand.pod, reason=self.reason, message=self.message, now=hand.now()))


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """No node has room for the pod."""

    message: str = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."

    async def perform(self, hand: PodControl) -> None:
        """Let it happen."""
        now = hand.now()
        await hand.report(
            {"conditions": [condition("PodScheduled", now=now, status="False", reason="Unschedulable", message=self.message)]}
        )


@dataclass(frozen=True, slots=True)
class Pause:
    """Scripted seconds pass."""

    seconds: float

    async def perform(self, hand: PodControl) -> None:
        """Let it happen."""
        await hand.pause(self.seconds)


@dataclass(frozen=True, slots=True)
class UntilTold:
    """Nothing happens before the test says so."""

    async def perform(self, hand: PodControl) -> None:
        """Let it happen."""
        await hand.until_told()
