"""What the make-believe kubelet of the recordings did to a pod, as steps of the scripted kubelet."""

from __future__ import annotations

from dataclasses import dataclass

from dlop.testing.pod_status import finished_status, running_status
from dlop.testing.pod_steps import PodControl


@dataclass(frozen=True, slots=True)
class Started:
    """All containers run. They may have been restarted by their node before, which is told in the same breath."""

    exit_code: int = 0
    restarts: int = 0

    async def perform(self, hand: PodControl) -> None:
        """Let it happen."""
        await hand.bind()
        status = running_status(hand.pod, now=hand.now())
        if self.restarts:
            ended = {"exitCode": self.exit_code, "reason": "Error", "startedAt": hand.now(), "finishedAt": hand.now()}
            for container in status["containerStatuses"]:
                container.update({"restartCount": self.restarts, "lastState": {"terminated": ended}})
        await hand.report(status)


@dataclass(frozen=True, slots=True)
class Ended:
    """The pod is over, whatever its restart policy."""

    exit_code: int

    async def perform(self, hand: PodControl) -> None:
        """Let it happen."""
        await hand.bind()
        reason = "Error" if self.exit_code else "Completed"
        await hand.report(finished_status(hand.pod, exit_code=self.exit_code, reason=reason, message="", container="", now=hand.now()))
