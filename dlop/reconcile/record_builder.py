"""A record that is being written: opened from the stored one, closed into the next one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from dlop.api.record import LastFailure, Record, indexes_of, ranges_of
from dlop.api.spec import JobSpec


class RecordBuilder:
    """What one pass changes in a record. Only made and closed within the pass."""

    def __init__(self, record: Record, spec: JobSpec, *, first_pods: Mapping[str, str]) -> None:
        """`first_pods` is the pod name of index 0 by role. Claims that were made under another name are released."""
        self._record = record
        self._first_pods = first_pods
        self._roles = tuple(role.name for role in spec.roles)
        self.attempt = record.attempt
        self.role_attempts = dict(record.role_attempts)
        self.restarts = dict(record.restarts)
        self.disruptions = dict(record.disruptions)
        self.counted = dict(record.counted)
        self.written_off = set(record.written_off)
        self.retries = dict(record.retries)
        self.last_failure = record.last_failure
        limits = {role.name: role.replicas for role in spec.roles}
        self.completed = _within(record.completed, limits)
        self.failed = _within(record.failed, limits)
        self.started = _within(record.started, limits)
        for role, name in record.claimed_as.items():
            if first_pods.get(role, name) != name:
                self.started[role].clear()

    def count_restarts(self, role: str, restarts: int) -> None:
        """Add restarts after failures."""
        if restarts:
            self.restarts[role] = self.restarts.get(role, 0) + restarts

    def count_disruption(self, role: str) -> None:
        """Add a replacement after a disruption."""
        self.disruptions[role] = self.disruptions.get(role, 0) + 1

    def note(self, failure: LastFailure) -> None:
        """Remember a failure as the last one, if it is: several may be found at once, in any order."""
        if self.last_failure is None or failure.time >= self.last_failure.time:
            self.last_failure = failure

    def forget(self, role: str) -> None:
        """A role starts from the beginning: what its replicas have done no longer counts."""
        for indexes in (self.completed, self.failed, self.started):
            indexes[role].clear()

    def forget_all(self) -> None:
        """So does every role."""
        for role in self._roles:
            self.forget(role)

    def let_go(self) -> None:
        """Give up the claim to every pod. What begins anew has not been lost before."""
        self.retries.clear()
        for indexes in self.started.values():
            indexes.clear()

    def close(self, *, living: Iterable[str]) -> Record:
        """The record to store. What is remembered of pods is kept for those that are there."""
        uids = frozenset(living)
        return msgspec.structs.replace(
            self._record,
            attempt=self.attempt,
            role_attempts=self.role_attempts,
            restarts=self.restarts,
            disruptions=self.disruptions,
            completed=_as_ranges(self.completed),
            failed=_as_ranges(self.failed),
            started=_as_ranges(self.started),
            claimed_as={role: self._first_pods[role] for role, indexes in self.started.items() if indexes},
            counted={uid: count for uid, count in self.counted.items() if uid in uids},
            written_off=sorted(self.written_off & uids),
            retries=self.retries,
            last_failure=self.last_failure,
        )


def _within(stored: dict[str, str], limits: dict[str, int]) -> dict[str, set[int]]:
    """The indexes that the spec still asks for."""
    return {role: {index for index in indexes_of(stored.get(role, "")) if index < limit} for role, limit in limits.items()}


def _as_ranges(indexes: dict[str, set[int]]) -> dict[str, str]:
    return {role: ranges_of(found) for role, found in indexes.items() if found}
