"""The operator's own record in a job's status: `status.dlop`, the same for every kind.

The next pass needs nothing that is not in the spec, the children or this record. What must not be counted twice or
forgotten is written here *before* the pod that it came from is deleted:

- a pod that has been seen to run is claimed (`started`). A claimed pod that is missing or about to go was taken away by
  somebody else: dlop gives up its claim, in the record, before it deletes anything. A claim is to a pod of one name: when an
  edit renames the pods of a role (`claimed_as`), its claims are released;
- a pod that has failed or was taken away is written off (`written_off`) in the same write that counts it, and deleted later.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from dlop.kube.types import JsonObject

# Six digits: no job has a million replicas, and a status that somebody has written by hand must not fill the memory.
_RANGES = re.compile(r"(\d{1,6}(-\d{1,6})?)(,\d{1,6}(-\d{1,6})?)*")


class LastFailure(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The failure or disruption that the job saw last."""

    pod: str = ""
    role: str = ""
    index: int = -1
    """-1 when it is not known."""
    node: str = ""
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""
    message: str = ""
    time: str = ""


class Blocked(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Why nothing goes on. It stays as it was first told while the object and the reason are the same."""

    object: str = ""
    """What is in the way, e.g. `pod train-worker-0`."""
    reason: str = ""
    message: str = ""
    since: str = ""


class BackoffState(msgspec.Struct, frozen=True, array_like=True):
    """Something that was lost not long ago. Written as a list, for there may be many."""

    losses: int = 0
    """How often in a row."""
    until: str = ""
    """From when on it may be started again."""


class Record(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What has happened to a job so far."""

    observed_generation: int = 0
    phase: str = ""
    """A `Phase`; empty when dlop has not written it. The dialect of the kind may not be able to tell all of them apart."""
    started_at: str = ""
    """When the job was first started, or resumed last."""
    finished_at: str = ""
    attempt: int = 0
    """How often the whole job was started anew."""
    role_attempts: dict[str, int] = {}
    """How often one role was, beyond that."""
    restarts: dict[str, int] = {}
    """Restarts after failures by role: of containers in place, of pods, of whole attempts. Never falls."""
    disruptions: dict[str, int] = {}
    """Replacements after disruptions by role. Never falls."""
    completed: dict[str, str] = {}
    """Indexes by role that have finished and never run again, as ranges."""
    failed: dict[str, str] = {}
    """Indexes by role that have failed for good and are not run again in this attempt, as ranges."""
    started: dict[str, str] = {}
    """Indexes by role whose pods have been seen to run in this attempt, as ranges: dlop's claims."""
    claimed_as: dict[str, str] = {}
    """For each role with claims, the name of its pod of index 0 when they were made. A role that is not here has kept its names."""
    counted: dict[str, int] = {}
    """By pod uid, how many restarts of its containers are in `restarts` already. Forgotten with the pod."""
    written_off: list[str] = []
    """The uids of pods that are counted as failed or disrupted, and are to be deleted. Forgotten with the pod."""
    retries: dict[str, BackoffState] = {}
    """What was lost not long ago, by the name of what is started again as one: see `backoff.py`."""
    last_failure: LastFailure | None = None
    blocked: Blocked | None = None

    def attempt_of(self, role: str) -> int:
        """The attempt that the pods of a role must belong to."""
        return self.attempt + self.role_attempts.get(role, 0)


def record_in(status: JsonObject) -> Record | None:
    """The record in a job's status; None when there is none, or none that makes sense: it is then written anew."""
    try:
        return msgspec.convert(status["dlop"], Record)
    except (KeyError, msgspec.ValidationError):
        return None


def plain(record: Record) -> JsonObject:
    """The record as it is written."""
    data: JsonObject = msgspec.to_builtins(record)
    return data


def indexes_of(ranges: str) -> frozenset[int]:
    """`0-3,7` as a set of numbers; what is no such text is an empty set."""
    if not _RANGES.fullmatch(ranges):
        return frozenset()
    found: set[int] = set()
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def ranges_of(indexes: Iterable[int]) -> str:
    """A set of numbers as `0-3,7`."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def describe_failure(failure: LastFailure) -> str:
    """A failure as a person would tell it, with all that helps to find its cause."""
    words = [f"{failure.role} {failure.index} (pod {failure.pod}{f' on node {failure.node}' if failure.node else ''})"]
    words.append("ended" if failure.exit_code is None else f"ended with exit code {failure.exit_code}")
    if failure.reason:
        words.append(f"({failure.reason})")
    text = " ".join(words)
    return f"{text}: {failure.message}" if failure.message else text
