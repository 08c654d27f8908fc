"""What the fake kubelet of the recordings did to a pod, as steps of the scripted kubelet."""

from __future__ import annotations

from dataclasses import dataclass

from dlop.testing.pod_status import finished_status, running_status
from dlop.testing.pod_steps import PodControl


@dataclass(frozen=True, slots=True)
class RunPod:
    """Reports all containers as running, after `restarts` restarts by the node with the last one ending with `exit_code`."""

    exit_code: int = 0
    restarts: int = 0

    async def perform(self, hand: PodControl) -> None:
        await hand.bind()
        status = running_status(hand.pod, now=hand.now())
        if self.restarts:
            terminated = {"exitCode": self.exit_code, "reason": "Error", "startedAt": hand.now(), "finishedAt": hand.now()}
            for container in status["containerStatuses"]:
                container.update({"restartCount": self.restarts, "lastState": {"terminated": terminated}})
        await hand.report(status)


@dataclass(frozen=True, slots=True)
class FinishPod:
    """Reports the pod as finished, regardless of its restart policy."""

    exit_code: int

    async def perform(self, hand: PodControl) -> None:
        await hand.bind()
        reason = "Error" if self.exit_code else "Completed"
        await hand.report(finished_status(hand.pod, exit_code=self.exit_code, reason=reason, message="", container="", now=hand.now()))
