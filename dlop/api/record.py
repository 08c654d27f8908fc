"""The durable record of a job in `status.dlop`, the same for every kind.

A pass needs only the spec, the children and this record. Results that must be counted exactly once are stored here before
the pod that they came from is deleted:

- A pod that was seen running is claimed (`started_indexes`). If a claimed pod is missing or terminating, another client
  deleted it, because dlop releases its claim in the record before it deletes a pod. A claim applies to one pod name. If a
  change of the spec renames the pods of a role (`claimed_as`), its claims are released.
- A failed or disrupted pod is added to `accounted_pods` in the same write that counts it, and deleted later.

`RecordBuilder` makes the next record from the stored one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from dlop.api.spec import JobSpec
from dlop.kube.types import JsonObject

# At most six digits, so that a status that was edited by hand cannot exhaust the memory.
_INDEXES = re.compile(r"(\d{1,6}(-\d{1,6})?)(,\d{1,6}(-\d{1,6})?)*")


class LastFailure(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The last failure or disruption of a job."""

    pod: str = ""
    role: str = ""
    index: int = -1
    """-1 if it is unknown."""
    node: str = ""
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""
    message: str = ""
    time: str = ""


class Blocked(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Why a job cannot progress. Message and time do not change while object and reason are the same."""

    object: str = ""
    """The object that blocks the job, such as `pod train-worker-0`."""
    reason: str = ""
    message: str = ""
    since: str = ""


class BackoffState(msgspec.Struct, frozen=True, array_like=True):
    """The back-off of one restart unit. Encoded as an array, because a job may have many."""

    failures: int = 0
    """Consecutive failures and disruptions."""
    not_before: str = ""
    """The earliest time of the next start."""


class Record(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    observed_generation: int = 0
    phase: str = ""
    """A `Phase`; empty if dlop has not written it yet. The status format of the kind may not distinguish all phases."""
    started_at: str = ""
    """When the job was started, or last resumed."""
    finished_at: str = ""
    attempt: int = 0
    """Number of restarts of the whole job."""
    role_attempts: dict[str, int] = {}
    """Additional restarts by role."""
    restarts: dict[str, int] = {}
    """Restarts after failures by role: of containers, pods and attempts. Never decreases."""
    disruptions: dict[str, int] = {}
    """Replacements after disruptions by role. Never decreases."""
    completed_indexes: dict[str, str] = {}
    """Indexes by role that have succeeded and are never started again, as ranges."""
    failed_indexes: dict[str, str] = {}
    """Indexes by role that have failed and are not started again in this attempt, as ranges."""
    started_indexes: dict[str, str] = {}
    """Indexes by role whose pods were seen running in this attempt, as ranges. These are the claims."""
    claimed_as: dict[str, str] = {}
    """For each role with claims, the pod name of index 0 when the claims were made. A role without an entry has kept its names."""
    counted_restarts: dict[str, int] = {}
    """By pod UID, container restarts that are included in `restarts`. Removed with the pod."""
    accounted_pods: list[str] = []
    """UIDs of pods that are counted as failed or disrupted and will be deleted. Removed with the pod."""
    backoffs: dict[str, BackoffState] = {}
    """By restart unit, see `dlop/reconcile/backoff.py`."""
    last_failure: LastFailure | None = None
    blocked: Blocked | None = None

    def attempt_of(self, role: str) -> int:
        """The current attempt of a role."""
        return self.attempt + self.role_attempts.get(role, 0)


def parse_record(status: JsonObject) -> Record | None:
    """The record in the status of a job; None if it is missing or malformed. A new one is then written."""
    try:
        return msgspec.convert(status["dlop"], Record)
    except (KeyError, msgspec.ValidationError):
        return None


def record_to_json(record: Record) -> JsonObject:
    data: JsonObject = msgspec.to_builtins(record)
    return data


def parse_indexes(ranges: str) -> frozenset[int]:
    """Parses `0-3,7`; empty if it is malformed."""
    if not _INDEXES.fullmatch(ranges):
        return frozenset()
    indexes: set[int] = set()
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        indexes.update(range(int(first), int(last or first) + 1))
    return frozenset(indexes)


def format_indexes(indexes: Iterable[int]) -> str:
    """The reverse of `parse_indexes`."""
    ranges: list[list[int]] = []
    for index in sorted(indexes):
        if ranges and index == ranges[-1][1] + 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def describe_failure(failure: LastFailure) -> str:
    """A failure for messages: role, index, pod, node, exit code, reason and message."""
    words = [f"{failure.role} {failure.index} (pod {failure.pod}{f' on node {failure.node}' if failure.node else ''})"]
    words.append("terminated" if failure.exit_code is None else f"terminated with exit code {failure.exit_code}")
    if failure.reason:
        words.append(f"({failure.reason})")
    text = " ".join(words)
    return f"{text}: {failure.message}" if failure.message else text


class RecordBuilder:
    """A mutable copy of a record, for one pass."""

    def __init__(self, record: Record, spec: JobSpec, *, first_pods: Mapping[str, str]) -> None:
        """`first_pods` is the pod name of index 0 by role. Claims that were made under another name are released."""
        self._record = record
        self._first_pods = first_pods
        self._roles = tuple(role.name for role in spec.roles)
        self.attempt = record.attempt
        self.role_attempts = dict(record.role_attempts)
        self.restarts = dict(record.restarts)
        self.disruptions = dict(record.disruptions)
        self.counted_restarts = dict(record.counted_restarts)
        self.accounted_pods = set(record.accounted_pods)
        self.backoffs = dict(record.backoffs)
        self.last_failure = record.last_failure
        replicas = {role.name: role.replicas for role in spec.roles}
        self.completed_indexes = _parse_desired(record.completed_indexes, replicas)
        self.failed_indexes = _parse_desired(record.failed_indexes, replicas)
        self.started_indexes = _parse_desired(record.started_indexes, replicas)
        for role, name in record.claimed_as.items():
            if first_pods.get(role, name) != name:
                self.started_indexes[role].clear()

    def count_restarts(self, role: str, restarts: int) -> None:
        if restarts:
            self.restarts[role] = self.restarts.get(role, 0) + restarts

    def count_disruption(self, role: str) -> None:
        self.disruptions[role] = self.disruptions.get(role, 0) + 1

    def update_last_failure(self, failure: LastFailure) -> None:
        """Store a failure as the last one unless the stored one is later. Failures of one pass are reported in any order."""
        if self.last_failure is None or failure.time >= self.last_failure.time:
            self.last_failure = failure

    def reset_role(self, role: str) -> None:
        """Discard the results and claims of a role that starts a new attempt."""
        for indexes in (self.completed_indexes, self.failed_indexes, self.started_indexes):
            indexes[role].clear()

    def reset_all_roles(self) -> None:
        for role in self._roles:
            self.reset_role(role)

    def release_claims(self) -> None:
        """Release all claims and reset all back-offs, for a job that is suspended."""
        self.backoffs.clear()
        for indexes in self.started_indexes.values():
            indexes.clear()

    def build(self, *, live_uids: Iterable[str]) -> Record:
        """The record to store. Entries for pods that no longer exist are dropped."""
        uids = frozenset(live_uids)
        return msgspec.structs.replace(
            self._record,
            attempt=self.attempt,
            role_attempts=self.role_attempts,
            restarts=self.restarts,
            disruptions=self.disruptions,
            completed_indexes=_format(self.completed_indexes),
            failed_indexes=_format(self.failed_indexes),
            started_indexes=_format(self.started_indexes),
            claimed_as={role: self._first_pods[role] for role, indexes in self.started_indexes.items() if indexes},
            counted_restarts={uid: count for uid, count in self.counted_restarts.items() if uid in uids},
            accounted_pods=sorted(self.accounted_pods & uids),
            backoffs=self.backoffs,
            last_failure=self.last_failure,
        )


def _parse_desired(stored: dict[str, str], replicas: dict[str, int]) -> dict[str, set[int]]:
    """The stored indexes by role, without those that the spec no longer contains."""
    return {role: {index for index in parse_indexes(stored.get(role, "")) if index < count} for role, count in replicas.items()}


def _format(indexes_by_role: dict[str, set[int]]) -> dict[str, str]:
    return {role: format_indexes(indexes) for role, indexes in indexes_by_role.items() if indexes}
