"""How far a job has come: the state of each replica, role by role, after everything that happened is accounted for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dlop.api.record import LastFailure
from dlop.api.spec import RoleSpec
from dlop.kube.objects import Pod


class ReplicaState(StrEnum):
    """Where one replica stands."""

    MISSING = "Missing"
    """It has no pod (yet)."""
    PENDING = "Pending"
    """Its pod does not run yet."""
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    """It has finished, in this pass or an earlier one; its pod may be gone."""
    FAILED = "Failed"
    """Its pod has ended with an error, and the restart policy says that this is final."""
    RESTARTING = "Restarting"
    """Its pod has failed and is to be replaced."""
    DISRUPTED = "Disrupted"
    """Its pod was taken away by somebody or something else, and is to be replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaProgress:
    """One replica."""

    role: str
    index: int
    state: ReplicaState
    pod: Pod | None = None
    failure: LastFailure | None = None
    """How its pod failed or was disrupted, if it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleProgress:
    """All replicas of one role, in the order of their indexes."""

    spec: RoleSpec
    replicas: tuple[ReplicaProgress, ...]

    def count(self, *states: ReplicaState) -> int:
        """How many replicas are in one of these states."""
        found = [replica.state for replica in self.replicas]
        return sum(map(found.count, states))

    def all(self, state: ReplicaState) -> bool:
        """Whether every replica is in this state. A role without replicas has nothing left to do."""
        return all(replica.state is state for replica in self.replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """All roles, in the order of the spec."""

    roles: tuple[RoleProgress, ...]

    def role(self, name: str) -> RoleProgress | None:
        """The role of that name, if the job has it."""
        return next((role for role in self.roles if role.spec.name == name), None)

    def replica(self, role: str, index: int) -> ReplicaProgress | None:
        """One replica, if the job has it."""
        found = self.role(role)
        return found.replicas[index] if found is not None and 0 <= index < len(found.replicas) else None
