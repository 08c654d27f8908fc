"""The state of every replica of a job in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dlop.api.record import LastFailure
from dlop.api.spec import RoleSpec
from dlop.kube.objects import Pod


class ReplicaState(StrEnum):
    """The state of one replica."""

    MISSING = "Missing"
    """It has no pod."""
    PENDING = "Pending"
    """Its pod is not running yet."""
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    """It has succeeded, in this pass or an earlier one. Its pod may be deleted already."""
    FAILED = "Failed"
    """Its pod has failed, and the restart policy does not restart it."""
    RESTARTING = "Restarting"
    """Its pod has failed and will be replaced."""
    DISRUPTED = "Disrupted"
    """Its pod was evicted, preempted, deleted by another client or lost with its node, and will be replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaProgress:
    """The state of one replica and its pod."""

    role: str
    index: int
    state: ReplicaState
    pod: Pod | None = None
    failure: LastFailure | None = None
    """How its pod failed or was disrupted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleProgress:
    """All replicas of one role, ordered by index."""

    spec: RoleSpec
    replicas: tuple[ReplicaProgress, ...]

    def count(self, *states: ReplicaState) -> int:
        """The number of replicas in these states."""
        replica_states = [replica.state for replica in self.replicas]
        return sum(map(replica_states.count, states))

    def all(self, state: ReplicaState) -> bool:
        """Whether every replica is in this state. True for a role without replicas."""
        return all(replica.state is state for replica in self.replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """All roles, in the order of the spec."""

    roles: tuple[RoleProgress, ...]

    def role(self, name: str) -> RoleProgress | None:
        """The role of this name; None if the job does not have it."""
        return next((role for role in self.roles if role.spec.name == name), None)

    def replica(self, role: str, index: int) -> ReplicaProgress | None:
        """One replica; None if the job does not have it."""
        progress = self.role(role)
        return progress.replicas[index] if progress is not None and 0 <= index < len(progress.replicas) else None
