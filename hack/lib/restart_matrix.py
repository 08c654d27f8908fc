"""The truth about restarts, as one table: what happens when something happens to a replica.

The tests run every cell of it, and the page in the documentation is made from it. The engine does not read it.
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

    EXIT_0 = "its program ends with exit code 0"
    EXIT_1_TO_127 = "its program ends with an exit code from 1 to 127"
    EXIT_128_TO_255 = "its program ends with an exit code from 128 to 255"
    FAILED = "its pod fails and its program has no exit code, as when an init container fails"
    EVICTED = "its pod is evicted, preempted, or shut down with its node"
    DELETED = "its pod is deleted by somebody"
    VANISHED = "its pod is gone"
    NODE_LOST = "its node does not answer any more"


class Answer(StrEnum):
    """What is done about it."""

    DONE = "done"
    """The replica has finished. Once all replicas of the roles that decide have, the job has succeeded."""
    FAILED = "job fails"
    RESTARTED = "restart"
    """Started again, in the restart scope; counts as a restart."""
    REPLACED = "replace"
    """Started again, in the restart scope; counts as a disruption."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: the answers for the policies Always, OnFailure, Never, ExitCode."""

    cause: Cause
    scopes: tuple[RestartScope, ...]
    answers: tuple[Answer, Answer, Answer, Answer]


_ALL = tuple(RestartScope)
_WIDER = (RestartScope.ROLE, RestartScope.JOB)
_DONE, _FAILED, _RESTARTED, _REPLACED = Answer
_EACH = (_REPLACED, _REPLACED, _REPLACED, _REPLACED)

TABLE = (
    Row(Cause.EXIT_0, (RestartScope.REPLICA,), (_RESTARTED, _DONE, _DONE, _DONE)),
    Row(Cause.EXIT_0, _WIDER, (_DONE, _DONE, _DONE, _DONE)),
    Row(Cause.EXIT_1_TO_127, _ALL, (_RESTARTED, _RESTARTED, _FAILED, _FAILED)),
    Row(Cause.EXIT_128_TO_255, _ALL, (_RESTARTED, _RESTARTED, _FAILED, _RESTARTED)),
    Row(Cause.FAILED, _ALL, (_RESTARTED, _RESTARTED, _FAILED, _RESTARTED)),
    Row(Cause.EVICTED, _ALL, _EACH),
    Row(Cause.DELETED, _ALL, _EACH),
    Row(Cause.VANISHED, _ALL, _EACH),
    Row(Cause.NODE_LOST, _ALL, _EACH),
)

LIMITS: tuple[tuple[int | None, int | None], ...] = ((None, None), (0, None), (None, 0), (0, 0), (1, 1))
"""`backoffLimit` and `disruptionLimit`, as the table is tried with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One case, and what must come of it."""

    cause: Cause
    policy: RestartPolicy
    scope: RestartScope
    decides: bool
    """Whether the role is one that decides."""
    backoff_limit: int | None
    disruption_limit: int | None
    answer: Answer

    @property
    def exceeds(self) -> str:
        """The limit that this one restart or replacement is too much for, if it is."""
        if self.answer is Answer.RESTARTED and self.backoff_limit == 0:
            return "BackoffLimitExceeded"
        return "DisruptionLimitExceeded" if self.answer is Answer.REPLACED and self.disruption_limit == 0 else ""

    @property
    def phase(self) -> Phase:
        """Where the job stands when all is quiet again and every pod runs that can."""
        if self.answer is Answer.FAILED or self.exceeds:
            return Phase.FAILED
        return Phase.SUCCEEDED if self.answer is Answer.DONE and self.decides else Phase.RUNNING

    def __str__(self) -> str:
        role = "decides" if self.decides else "helps"
        limits = f"backoff={self.backoff_limit} disruption={self.disruption_limit}"
        return f"{self.cause.name} {self.policy} {self.scope} {role} {limits}"


def cells() -> Iterator[Cell]:
    """Every cell of the table, for both sorts of roles and all limits."""
    for row, (policy, answer), scope, decides, limits in _combined():
        if scope in row.scopes:
            yield Cell(
                cause=row.cause,
                policy=policy,
                scope=scope,
                decides=decides,
                backoff_limit=limits[0],
                disruption_limit=limits[1],
                answer=answer,
            )


def _combined() -> Iterator[tuple[Row, tuple[RestartPolicy, Answer], RestartScope, bool, tuple[int | None, int | None]]]:
    for row in TABLE:
        yield from itertools.product((row,), zip(RestartPolicy, row.answers, strict=True), _ALL, (True, False), LIMITS)


def truth_table_markdown() -> str:
    """The table as a page."""
    head = ["What happens to a replica", "Restart scope", *(policy.value for policy in RestartPolicy)]
    lines = [head, ["---"] * len(head), *(_line(row) for row in TABLE)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n" + _NOTES


def _line(row: Row) -> list[str]:
    scopes = "any" if row.scopes == _ALL else ", ".join(scope.value for scope in row.scopes)
    return [row.cause.value, scopes, *(f"**{answer.value}**" if answer is Answer.FAILED else answer.value for answer in row.answers)]


_NOTES = """
- **done**: the replica never runs again, even when its pod is gone. When all replicas of the roles that decide are done,
  the job has succeeded.
- **job fails**: also when the role is not one that decides.
- **restart**: counts once in `status.dlop.restarts`, and against `backoffLimit`: with `backoffLimit: N`, restart N + 1 fails
  the job. In scope Replica under Always and OnFailure the node restarts the container in its pod; that counts too.
- **replace**: counts once in `status.dlop.disruptions`, and against `disruptionLimit` if there is one; never against
  `backoffLimit`.
- Restart scope Replica: that replica alone gets a new pod. Role and Job: all pods of the role or of the job are deleted, and
  new ones are created when the last old one is gone. That counts once, however many replicas were lost, and is a new
  attempt: its number is on the status and on the pods.
- What dlop starts again, it starts later each time: at once the first time, then after 10 seconds, 20, 40, up to 5 minutes;
  after a disruption, at once the second time too. Each replica waits by itself; in the scopes Role and Job, the role or the job
  waits. What has gone on for 10 minutes begins from the start, and so does a job whose spec was edited. The `Blocked`
  condition, reason `BackOff`, tells the moment.
- A job with 0 replicas in every role that decides has not succeeded: it waits until they are raised. It has when some of
  these replicas were done before.
- A pod that has not started is replaced when the spec that it was made from is edited; one that has keeps what it was made of
  until it is started again.
- An edit that changes the names of pods, like one of `RuntimeId` of an MXJob, replaces them, also those that run. It counts as
  nothing.
- A job whose replicas are told how many there are (those of kubeflow.org are, save workers that may come and go) is started
  again as a whole when it is scaled while it runs: else old and new replicas would wait for different numbers of peers. It
  counts as nothing; the `Restarting` condition tells why.
- A pod that is told to go and ends with exit code 0 after that has not finished: it is replaced.
- A job whose spec is edited so that it cannot be run keeps its state and its pods until that is mended; the `Blocked` condition,
  reason `InvalidSpec`, tells what is wrong. Only a job that has not begun fails for it.
"""
