"""The durable record of a job in `status.dlop`, the same for every kind.

A pass needs only the spec, the children and this record. Results that must be counted exactly once are stored here before
the pod that they came from is deleted:

- A pod that was seen running is claimed (`started_indexes`). If a claimed pod is missing or terminating, another client
  deleted it, because dlop releases its claim in the record before it deletes a pod. A claim applies to one pod name. If a
  change of the spec renames the pods of a role (`claimed_as`), its claims are released.
- A lost pod is counted in `replacements` in the same write that counts the failure or disruption. The pod is deleted later. Its
  successor has the new number as an annotation, so that the two cannot be confused.
- Container restarts are counted per index (`counted_restarts`), and apply to one pod name, too. If the pods are renamed, or the role is
  removed, the old pods may become desired again before they are gone. Therefore a pod with counted restarts is entered in
  `replacements` when it is renamed, without counting a loss, and the counts of a removed role are kept. What happens to a pod while
  the spec does not contain it is not counted.

Everything that grows with the number of replicas is keyed by ranges of indexes (`0-3,7`), so that the record of 10,000 replicas stays
far below the limit of the API server. In a long list each number is relative to the one before it, and the list starts with a plus
sign: `+0-3,4` is `0-3,7`.

`RecordBuilder` makes the next record from the stored one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from dlop.api.scale_plan import MembersRecord
from dlop.api.spec import JobSpec
from dlop.kube.timestamps import format_time, parse_time
from dlop.kube.types import JsonObject

BACKOFF_GRANULARITY_SECONDS = 30
"""For more than `_MANY_BACKOFFS` replicas in back-off."""
_MANY_BACKOFFS = 1_000
_MAX_FAILURES_OF_MANY = 8
"""More consecutive failures do not increase the delay."""
_LONG_LIST = 1_000
"""Length above which a list of indexes has relative numbers."""
# At most six digits, so that a status that was edited by hand cannot exhaust the memory.
_MAX_INDEX = 999_999
_INDEXES = re.compile(r"\+?\d{1,6}(-\d{1,6})?(,\d{1,6}(-\d{1,6})?)*")


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


class ScaleReason(StrEnum):
    """Why the operator changes a number of replicas or members. The first three are decisions of the autoscaler."""

    IDLE_CAPACITY = "IdleCapacity"
    OVERLOAD = "Overload"
    WAITING_PODS = "WaitingPods"
    SCALE_PLAN = "ScalePlan"
    """A scale plan of the master of the job."""
    MANUAL_SCALE_PLAN = "ManualScalePlan"
    """A scale plan of a user."""


_SCALE_REASONS = {
    ScaleReason.IDLE_CAPACITY: "the cluster has idle capacity",
    ScaleReason.OVERLOAD: "the requests of all pods exceed the load limit of the cluster",
    ScaleReason.WAITING_PODS: "pods of another job wait for a node",
    ScaleReason.SCALE_PLAN: "the master of the job asked for it",
    ScaleReason.MANUAL_SCALE_PLAN: "a user asked for it",
}


class ScaleRecord(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A change of the number of replicas by the autoscaler, or of the number of members by a scale plan."""

    time: str = ""
    role: str = ""
    replicas: int = 0
    """The number after the change."""
    change: int = 0
    """Replicas added; negative if replicas were removed; 0 if members were only replaced."""
    replaced: int = 0
    """Members of a scale plan that took the places of others. They are not part of `change`."""
    reason: str = ""
    """A `ScaleReason`."""
    plan: str = ""
    """The name of the scale plan, if there is one."""

    def __str__(self) -> str:
        reason = _SCALE_REASONS[ScaleReason(self.reason)] if self.reason in list(ScaleReason) else self.reason
        plan = f" with scale plan {self.plan}" if self.plan else ""
        if not self.change:
            return f"Replaced {self.replaced} of {self.replicas} {self.role} pods{plan}: {reason}"
        return f"Scaled {self.role} from {self.replicas - self.change} to {self.replicas}{plan}: {reason}"


class AssignedPorts(msgspec.Struct, frozen=True):
    """Consecutive ports of the host network that the operator has assigned to a job."""

    first: int
    count: int


Counts = dict[str, str]
"""Indexes as ranges, by count. A count of 0 is omitted."""


class Record(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    observed_generation: int = 0
    pods_version: str = ""
    """The resource version of the pod cache that the record is based on. An operator whose cache is older must not use the record."""
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
    """Replacements after disruptions by role, without those of spot replicas. Never decreases."""
    spot_disruptions: dict[str, int] = {}
    """Replacements of spot replicas after disruptions by role. Never decreases."""
    completed_indexes: dict[str, str] = {}
    """Indexes by role that have succeeded and are never started again, as ranges."""
    failed_indexes: dict[str, str] = {}
    """Indexes by role that have failed and are not started again in this attempt, as ranges."""
    started_indexes: dict[str, str] = {}
    """Indexes by role whose pods were seen running in this attempt, as ranges. These are the claims."""
    claimed_as: dict[str, str] = {}
    """For each role with claims or counted container restarts, the pod name of index 0 at that time.

    A role without an entry has kept its names.
    """
    replacements: dict[str, Counts] = {}
    """By role, how many pods of an index were lost in this attempt, or renamed after container restarts."""
    counted_restarts: dict[str, Counts] = {}
    """By role, container restarts of the current pod of an index that are included in `restarts`.

    The entry is removed from the stored record before the next pod of the index is created.
    """
    backoffs: dict[str, BackoffState] = {}
    """By restart units, see `dlop/reconcile/backoff.py`. Replicas with the same state share a key, such as `Worker/0-3,7`."""
    last_failure: LastFailure | None = None
    blocked: Blocked | None = None
    host_ports: AssignedPorts | None = None
    elastic_replicas: dict[str, int] = {}
    """By elastic role, the number of replicas that the autoscaler has chosen."""
    scale_records: list[ScaleRecord] = []
    """The last changes by the autoscaler or by scale plans, oldest first."""
    members: MembersRecord | None = None
    queue: str = ""
    """The queue of Kueue in which the job waits, or from which it was admitted; empty if it was started without one."""
    watched: list[str] = []
    """Qualified names of the resources that are watched on demand and of which the job may have objects."""

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
    """The record as plain data, equal to what the API server returns."""
    data: JsonObject = msgspec.to_builtins(record)
    if record.members is not None:
        # It has tuples, which `to_builtins` keeps, and which are not equal to lists.
        data["members"] = msgspec.json.decode(msgspec.json.encode(record.members))
    return data


def parse_indexes(ranges: str) -> frozenset[int]:
    """Parses `0-3,7` or `+0-3,4`; empty if it is malformed."""
    if not _INDEXES.fullmatch(ranges):
        return frozenset()
    is_relative = ranges.startswith("+")
    indexes: set[int] = set()
    first = last = 0
    for part in ranges.removeprefix("+").split(","):
        start, _, end = part.partition("-")
        first = int(start) + (last if is_relative else 0)
        last = int(end) + (first if is_relative else 0) if end else first
        if last > _MAX_INDEX:
            return frozenset()
        indexes.update(range(first, last + 1))
    return frozenset(indexes)


def format_indexes(indexes: Iterable[int]) -> str:
    """The reverse of `parse_indexes`."""
    ranges: list[list[int]] = []
    for index in sorted(indexes):
        if ranges and index == ranges[-1][1] + 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    text = _format_ranges(ranges, is_relative=False)
    return text if len(text) <= _LONG_LIST else f"+{_format_ranges(ranges, is_relative=True)}"


def _format_ranges(ranges: Iterable[Sequence[int]], *, is_relative: bool) -> str:
    parts: list[str] = []
    previous = 0
    for first, last in ranges:
        start = str(first - previous if is_relative else first)
        parts.append(start if first == last else f"{start}-{last - first if is_relative else last}")
        previous = last
    return ",".join(parts)


def parse_counts(counts: Counts) -> dict[int, int]:
    """Counts by index. Malformed entries are left out."""
    valid = ((int(count), ranges) for count, ranges in counts.items() if count.isdecimal() and len(count) < 10)
    return {index: count for count, ranges in valid for index in parse_indexes(ranges)}


def format_counts(counts: Mapping[int, int]) -> Counts:
    """The reverse of `parse_counts`."""
    indexes: dict[int, list[int]] = {}
    for index, count in counts.items():
        if count:
            indexes.setdefault(count, []).append(index)
    return {str(count): format_indexes(indexes[count]) for count in sorted(indexes)}


def parse_backoffs(stored: Mapping[str, BackoffState]) -> dict[str, BackoffState]:
    """Back-offs by restart unit."""
    backoffs: dict[str, BackoffState] = {}
    for key, backoff in stored.items():
        role, separator, ranges = key.partition("/")
        backoffs |= {f"{role}/{index}": backoff for index in parse_indexes(ranges)} if separator else {key: backoff}
    return backoffs


def format_backoffs(backoffs: Mapping[str, BackoffState]) -> dict[str, BackoffState]:
    """The reverse of `parse_backoffs`. If there are many, they are rounded, so that fewer of them differ."""
    has_many = len(backoffs) > _MANY_BACKOFFS
    shared: dict[tuple[str, BackoffState], list[int]] = {}
    stored: dict[str, BackoffState] = {}
    for unit, backoff in backoffs.items():
        role, separator, index = unit.partition("/")
        if separator:
            shared.setdefault((role, _round(backoff) if has_many else backoff), []).append(int(index))
        else:
            stored[unit] = backoff
    return stored | {f"{role}/{format_indexes(indexes)}": backoff for (role, backoff), indexes in shared.items()}


def _round(backoff: BackoffState) -> BackoffState:
    """The state with the time rounded up, and without failures that do not matter for the delay."""
    time = parse_time(backoff.not_before)
    if time is None:
        return backoff
    granularity = BACKOFF_GRANULARITY_SECONDS
    return BackoffState(min(backoff.failures, _MAX_FAILURES_OF_MANY), format_time(math.ceil(time / granularity) * granularity))


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
        self.spot_disruptions = dict(record.spot_disruptions)
        # The pods of removed indexes and roles may still exist when these are added again.
        self.replacements = _parse_counts_by_role(record.replacements, self._roles)
        self.counted_restarts = _parse_counts_by_role(record.counted_restarts, self._roles)
        self.backoffs = parse_backoffs(record.backoffs)
        self.last_failure = record.last_failure
        self.queue = record.queue
        self.watched = record.watched
        replicas = {role.name: role.replicas for role in spec.roles}
        self.completed_indexes = _parse_desired(record.completed_indexes, replicas)
        self.failed_indexes = _parse_desired(record.failed_indexes, replicas)
        self.started_indexes = _parse_desired(record.started_indexes, replicas)
        self.renamed_roles = tuple(role for role, name in record.claimed_as.items() if first_pods.get(role, name) != name)
        """Roles whose pods have other names now than in the stored record."""
        for role in self.renamed_roles:
            self.started_indexes[role].clear()

    def count_restarts(self, role: str, restarts: int) -> None:
        if restarts:
            self.restarts[role] = self.restarts.get(role, 0) + restarts

    def count_disruption(self, role: str, *, is_spot: bool) -> None:
        disruptions = self.spot_disruptions if is_spot else self.disruptions
        disruptions[role] = disruptions.get(role, 0) + 1

    def add_watched(self, resources: Iterable[str]) -> None:
        """Add resources of which the job may have objects."""
        new = [name for name in resources if name not in self.watched]
        if new:
            self.watched = [*self.watched, *new]

    def update_last_failure(self, failure: LastFailure) -> None:
        """Store a failure as the last one unless the stored one is later. Failures of one pass are reported in any order."""
        if self.last_failure is None or failure.time >= self.last_failure.time:
            self.last_failure = failure

    def replace_pod(self, role: str, index: int) -> None:
        """Account for a lost or renamed pod, and release its claim."""
        self.started_indexes[role].discard(index)
        self.counted_restarts[role].pop(index, None)
        self.replacements[role][index] = self.replacements[role].get(index, 0) + 1

    def raise_replacements(self, role: str, index: int, number: int) -> None:
        """Take over the replacement number of an existing pod, if the record lags behind it because an older status was restored."""
        if number > self.replacements[role].get(index, 0):
            self.replacements[role][index] = number

    def reset_role(self, role: str) -> None:
        """Discard the results and claims of a role that starts a new attempt."""
        for indexes in (self.completed_indexes, self.failed_indexes, self.started_indexes):
            indexes[role].clear()
        self.replacements[role].clear()
        self.counted_restarts[role].clear()

    def reset_all_roles(self) -> None:
        for role in self._roles:
            self.reset_role(role)
        for counts in (*self.replacements.values(), *self.counted_restarts.values()):
            counts.clear()  # also those of removed roles

    def release_claims(self) -> None:
        """Release all claims and reset all back-offs, for a job that is suspended."""
        self.backoffs.clear()
        for indexes in self.started_indexes.values():
            indexes.clear()

    def build(self) -> Record:
        """The record to store."""
        return msgspec.structs.replace(
            self._record,
            attempt=self.attempt,
            role_attempts=self.role_attempts,
            restarts=self.restarts,
            disruptions=self.disruptions,
            spot_disruptions=self.spot_disruptions,
            completed_indexes=_format(self.completed_indexes),
            failed_indexes=_format(self.failed_indexes),
            started_indexes=_format(self.started_indexes),
            claimed_as=self._claimed_as(),
            replacements=_format_counts_by_role(self.replacements),
            counted_restarts=_format_counts_by_role(self.counted_restarts),
            backoffs=format_backoffs(self.backoffs),
            last_failure=self.last_failure,
            queue=self.queue,
            watched=self.watched,
        )

    def _claimed_as(self) -> dict[str, str]:
        """Of a removed role, the stored name is kept."""
        names = {**self._record.claimed_as, **self._first_pods}
        claimed = (role for role, counts in self.counted_restarts.items() if counts or self.started_indexes.get(role))
        return {role: names[role] for role in claimed if role in names}


def _parse_desired(stored: dict[str, str], replicas: dict[str, int]) -> dict[str, set[int]]:
    """The stored indexes by role, without those that the spec no longer contains."""
    return {role: {index for index in parse_indexes(stored.get(role, "")) if index < count} for role, count in replicas.items()}


def _format(indexes_by_role: dict[str, set[int]]) -> dict[str, str]:
    return {role: format_indexes(indexes) for role, indexes in indexes_by_role.items() if indexes}


def _parse_counts_by_role(stored: Mapping[str, Counts], roles: Iterable[str]) -> dict[str, dict[int, int]]:
    """The counts of these roles and of all stored ones."""
    return {role: parse_counts(stored.get(role, {})) for role in dict.fromkeys((*roles, *stored))}


def _format_counts_by_role(counts_by_role: Mapping[str, Mapping[int, int]]) -> dict[str, Counts]:
    return {role: format_counts(counts) for role, counts in counts_by_role.items() if counts}
