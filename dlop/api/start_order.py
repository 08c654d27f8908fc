"""Start order: which role waits for which, and how far the other role has come."""

from __future__ import annotations

from dataclasses import dataclass

from dlop.api.progress import Progress, ReplicaState, RoleProgress
from dlop.api.spec import RoleSpec
from dlop.api.types import StartCondition
from dlop.kube.objects import Pod


@dataclass(frozen=True, slots=True)
class StartWait:
    """A role that waits for another role."""

    role: str
    upstream: str
    condition: StartCondition
    reached: int
    """Number of replicas of the other role that satisfy the condition."""
    desired: int

    def __str__(self) -> str:
        return f"{self.role} waits for {self.upstream}: {self.reached} of {self.desired} {self.condition.lower()}"


def find_start_wait(role: RoleSpec, progress: Progress) -> StartWait | None:
    """The first role that this one has to wait for; None if it may start."""
    for upstream in role.start_after:
        other = progress.role(upstream.role)
        if other is None:
            continue
        reached = _count_reached(other, upstream.condition)
        if reached < len(other.replicas):
            return StartWait(role.name, upstream.role, upstream.condition, reached, len(other.replicas))
    return None


def _count_reached(role: RoleProgress, condition: StartCondition) -> int:
    match condition:
        case StartCondition.RUNNING:
            return role.count(ReplicaState.RUNNING, ReplicaState.SUCCEEDED)
        case StartCondition.READY:
            running = (replica.pod for replica in role.replicas if replica.state is ReplicaState.RUNNING)
            return role.count(ReplicaState.SUCCEEDED) + sum(1 for pod in running if pod is not None and is_ready(pod))
        case StartCondition.SUCCEEDED:
            return role.count(ReplicaState.SUCCEEDED)


def is_ready(pod: Pod) -> bool:
    """Whether the pod is ready. Cached pods have a condition Ready only if their containers are ready and they are not."""
    containers = pod.status.init_container_statuses + pod.status.container_statuses
    is_kept_unready = any(condition.type == "Ready" for condition in pod.status.conditions)
    return bool(containers) and all(container.ready for container in containers) and not is_kept_unready
