"""The restart matrix: what the operator does when something happens to a replica.

The tests run every cell, and the table in the documentation is generated from it. The planner does not read it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from dlop.api.phase import Phase
from dlop.api.spec import RestartPolicy, RestartScope


class Cause(StrEnum):
    """What happens to one replica."""

    EXIT_0 = "program exits with code 0"
    EXIT_1_TO_127 = "program exits with a code from 1 to 127"
    EXIT_128_TO_255 = "program exits with a code from 128 to 255"
    FAILED = "pod fails without an exit code of the program, for example because an init container fails"
    EVICTED = "pod is evicted, preempted, or shut down with its node"
    DELETED = "pod is deleted by another client"
    VANISHED = "pod no longer exists"
    NODE_LOST = "node does not respond, and its pod is force-deleted"


class Action(StrEnum):
    """What the operator does."""

    DONE = "done"
    """The replica has completed. The job succeeds when all replicas of its required roles have."""
    FAILED = "job fails"
    RESTARTED = "restart"
    """The restart scope is restarted; counts as a restart."""
    REPLACED = "replace"
    """The restart scope is restarted; counts as a disruption."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table. The actions are for the policies Always, OnFailure, Never, ExitCode."""

    cause: Cause
    scopes: tuple[RestartScope, ...]
    actions: tuple[Action, Action, Action, Action]


_ALL = tuple(RestartScope)
_ROLE_OR_JOB = (RestartScope.ROLE, RestartScope.JOB)
_DONE, _FAILED, _RESTARTED, _REPLACED = Action
_ALWAYS_REPLACED = (_REPLACED, _REPLACED, _REPLACED, _REPLACED)

TABLE = (
    Row(Cause.EXIT_0, (RestartScope.REPLICA,), (_RESTARTED, _DONE, _DONE, _DONE)),
    Row(Cause.EXIT_0, _ROLE_OR_JOB, (_DONE, _DONE, _DONE, _DONE)),
    Row(Cause.EXIT_1_TO_127, _ALL, (_RESTARTED, _RESTARTED, _FAILED, _FAILED)),
    Row(Cause.EXIT_128_TO_255, _ALL, (_RESTARTED, _RESTARTED, _FAILED, _RESTARTED)),
    Row(Cause.FAILED, _ALL, (_RESTARTED, _RESTARTED, _FAILED, _RESTARTED)),
    Row(Cause.EVICTED, _ALL, _ALWAYS_REPLACED),
    Row(Cause.DELETED, _ALL, _ALWAYS_REPLACED),
    Row(Cause.VANISHED, _ALL, _ALWAYS_REPLACED),
    Row(Cause.NODE_LOST, _ALL, _ALWAYS_REPLACED),
)

LIMITS: tuple[tuple[int | None, int | None], ...] = ((None, None), (0, None), (None, 0), (0, 0), (1, 1))
"""Values of `backoffLimit` and `disruptionLimit` that the tests combine with every cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One test case and its expected result."""

    cause: Cause
    policy: RestartPolicy
    scope: RestartScope
    is_required: bool
    """Whether the role of the replica is required for success."""
    backoff_limit: int | None
    disruption_limit: int | None
    action: Action

    @property
    def exceeds(self) -> str:
        """The reason of the limit that this action exceeds; empty if it exceeds none."""
        if self.action is Action.RESTARTED and self.backoff_limit == 0:
            return "BackoffLimitExceeded"
        return "DisruptionLimitExceeded" if self.action is Action.REPLACED and self.disruption_limit == 0 else ""

    @property
    def phase(self) -> Phase:
        """The phase of the job after it has settled and all pods run."""
        if self.action is Action.FAILED or self.exceeds:
            return Phase.FAILED
        return Phase.SUCCEEDED if self.action is Action.DONE and self.is_required else Phase.RUNNING

    def __str__(self) -> str:
        role = "required" if self.is_required else "optional"
        limits = f"backoff={self.backoff_limit} disruption={self.disruption_limit}"
        return f"{self.cause.name} {self.policy} {self.scope} {role} {limits}"


def cells() -> Iterator[Cell]:
    """Every cell of the table, combined with required and optional roles and all limits."""
    for row, (policy, action), scope, is_required, limits in _combinations():
        if scope in row.scopes:
            yield Cell(
                cause=row.cause,
                policy=policy,
                scope=scope,
                is_required=is_required,
                backoff_limit=limits[0],
                disruption_limit=limits[1],
                action=action,
            )


def _combinations() -> Iterator[tuple[Row, tuple[RestartPolicy, Action], RestartScope, bool, tuple[int | None, int | None]]]:
    for row in TABLE:
        yield from itertools.product((row,), zip(RestartPolicy, row.actions, strict=True), _ALL, (True, False), LIMITS)


def restart_matrix_markdown() -> str:
    """The table with its notes."""
    head = ["Event", "Restart scope", *(policy.value for policy in RestartPolicy)]
    lines = [head, ["---"] * len(head), *(_line(row) for row in TABLE)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n" + _NOTES


def _line(row: Row) -> list[str]:
    scopes = "any" if row.scopes == _ALL else ", ".join(scope.value for scope in row.scopes)
    return [row.cause.value, scopes, *(f"**{action.value}**" if action is Action.FAILED else action.value for action in row.actions)]


_NOTES = """
- **done**: the replica is never started again, even if its pod is deleted. The job succeeds when all replicas of its required
  roles are done.
- **job fails**: also if the role is not required for success.
- **restart**: counts once in `status.dlop.restarts` and against `backoffLimit`. With `backoffLimit: N`, restart N + 1 fails
  the job. In scope Replica with Always or OnFailure, the kubelet restarts the container in its pod, which counts as well.
- **replace**: counts once in `status.dlop.disruptions` and against `disruptionLimit`, but never against `backoffLimit`.
  Disruptions of [spot replicas](#spot-replicas) count in `status.dlop.spotDisruptions` instead, and against no limit.
- In restart scope Replica, only the replica gets a new pod. In the scopes Role and Job, all pods of the role or the job are
  deleted, and new ones are created when the last old one is gone. This counts once, however many replicas were lost, and
  starts a new attempt. The attempt is in the status and in a label of the pods.
- Restarts are delayed by an exponential back-off: the first is immediate, the next ones follow after 10 seconds, 20, 40, up to
  5 minutes. After disruptions, the second restart is immediate, too. The back-off applies to the replica, the role or the job,
  depending on the scope. It is reset after 10 minutes without a failure and by a change of the spec. The condition `Blocked`
  with reason `BackOff` has the time of the next start.
- A job whose required roles have 0 replicas does not succeed. It waits until they are scaled up, unless some of these replicas
  were done before.
- A change of the spec replaces pods that have not started. Running pods keep their spec until they are restarted.
- A change that renames pods, such as `RuntimeId` of an MXJob, replaces them even if they are running. This is not counted.
- A job whose replicas know the world size (all kinds of kubeflow.org, except for elastic workers) restarts as a whole when it is
  scaled while it runs, because old and new replicas would wait for different numbers of peers. This is not counted; the
  condition `Restarting` has the reason.
- A pod that exits with code 0 after its deletion was requested is not done. It is replaced.
- A running job whose spec becomes invalid keeps its state and its pods until the spec is fixed. The condition `Blocked` with
  reason `InvalidSpec` names the error. Only a job that has not started fails because of it.
"""
