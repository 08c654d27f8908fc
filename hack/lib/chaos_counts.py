"""Bounds for the counts in the record of a job: restarts, disruptions, and disruptions of spot replicas. Pure.

Lost pods are grouped as the operator counts them: each pod in restart scope Replica, each attempt of the role or the job in the
other scopes. A loss is certain if the operator has replaced the pod, and nothing else explains the replacement: the job was
neither suspended nor edited in the meantime, and no user has deleted the failed pod. All other losses may be counted once or not
at all, for example because the job ended first.

A disrupted pod counts by its annotation. If it is gone before the operator sees its loss, its index decides, which may have become that
of a replica on demand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from chaos_features import SpotDraft
from chaos_history import Entry, Injection, JobChange, PodChange, ReplicaKey

from dlop.api.record import Record, parse_indexes
from dlop.api.spec import RestartScope

Unit = tuple[str, str]
"""The role, empty in scope Job, and the uid or the attempt."""


class Cause(StrEnum):
    """What a loss counts as."""

    FAILURE = "restarts"
    DISRUPTION = "disruptions"
    SPOT_DISRUPTION = "spot disruptions"


@dataclass(slots=True)
class _Pod:
    replica: ReplicaKey
    attempt: int
    spot: bool = False
    was_running: bool = False
    has_succeeded: bool = False
    is_completed: bool = False
    """Whether the record lists the index as completed because of this pod."""
    container_restarts: int = 0
    failed: bool = False
    disrupted: bool = False
    deleted_by_user: bool = False
    terminating: bool = False
    is_certain: bool = False
    """Whether the loss is counted if the pod is replaced."""
    is_replaced: bool = False

    @property
    def is_lost(self) -> bool:
        return self.failed or self.disrupted


@dataclass(slots=True)
class _Bounds:
    """The counts of one unit."""

    causes: set[Cause] = field(default_factory=set)
    certain: bool = False


@dataclass(slots=True)
class _Totals:
    """The bounds of one role, or of the job in scope Job."""

    units: dict[Unit, _Bounds] = field(default_factory=dict)
    least_in_place: int = 0
    most_in_place: int = 0


class LossCounter:
    """Follows the history of a job in the order of revisions."""

    def __init__(self, scope: RestartScope, spot: Mapping[str, SpotDraft]) -> None:
        """`spot` has the spot replicas by role."""
        self._scope = scope
        self._spot = spot
        self._pods: dict[str, _Pod] = {}
        self._record = Record()
        self._is_unsettled = True
        """Whether the spec has changed and the operator has not observed it, or the job is suspended."""
        self._sizes: dict[str, list[int]] = {}

    def smallest_size(self, role: str) -> int:
        return min(self._sizes.get(role, [0]))

    def largest_size(self, role: str) -> int:
        return max(self._sizes.get(role, [0]))

    def add(self, entry: Entry) -> None:
        match entry:
            case PodChange():
                self._add_pod(entry)
            case JobChange(deleted=False):
                self._add_job(entry)
            case Injection(deleted_uid=uid) if uid in self._pods:
                self._pods[uid].deleted_by_user = True
                if self._pods[uid].failed:
                    self._pods[uid].is_certain = False

    def _add_job(self, change: JobChange) -> None:
        self._record = change.record
        self._is_unsettled = change.suspended or change.record.observed_generation != change.generation
        for role, size in change.replicas.items():
            self._sizes.setdefault(role, []).append(size)
        for pod in self._pods.values():
            if self._is_unsettled and pod.is_lost and not pod.is_replaced:
                pod.is_certain = False
            if self._scope is not RestartScope.REPLICA and pod.is_lost and change.record.attempt_of(pod.replica[0]) > pod.attempt:
                pod.is_replaced = True
            if pod.has_succeeded and pod.attempt == change.record.attempt_of(pod.replica[0]):
                pod.is_completed |= pod.replica[1] in parse_indexes(change.record.completed_indexes.get(pod.replica[0], ""))

    def _add_pod(self, change: PodChange) -> None:
        if change.created:
            for other in self._pods.values():
                if other.replica == change.replica and other.is_lost:
                    other.is_replaced = True
        pod = self._pods.setdefault(change.uid, _Pod(change.replica, change.attempt, change.spot))
        pod.container_restarts = max(pod.container_restarts, change.container_restarts)
        is_current = change.attempt == self._record.attempt_of(change.replica[0])
        if change.deletion_requested_at is None and not change.deleted:
            if change.phase == "Failed" and not pod.is_lost:
                pod.failed, pod.disrupted = not change.disrupted, change.disrupted
                pod.is_certain = is_current and not self._is_unsettled and not pod.deleted_by_user
        elif not pod.terminating:
            pod.terminating = True
            if pod.deleted_by_user and (pod.was_running or pod.failed):
                claimed = change.replica[1] in parse_indexes(self._record.started_indexes.get(change.replica[0], ""))
                pod.is_certain = is_current and claimed and not self._is_unsettled and not pod.is_lost
                pod.disrupted = True
        pod.was_running |= change.phase == "Running"
        pod.has_succeeded |= change.phase == "Succeeded"

    # --- bounds ------------------------------------------------------------------------------------------------------

    def errors(self) -> Iterator[str]:
        """How the counts of the last record differ from the history."""
        totals = self._totals()
        for role in totals.keys() | self._counted_roles():
            yield from self._compare(role, totals.get(role, _Totals()))

    def _counted_roles(self) -> set[str]:
        if self._scope is RestartScope.JOB:
            return {""}
        return {*self._record.restarts, *self._record.disruptions, *self._record.spot_disruptions}

    def _totals(self) -> dict[str, _Totals]:
        totals: dict[str, _Totals] = {}
        for uid, pod in self._pods.items():
            role = "" if self._scope is RestartScope.JOB else pod.replica[0]
            total = totals.setdefault(role, _Totals())
            total.most_in_place += pod.container_restarts
            total.least_in_place += pod.container_restarts if pod.is_completed else 0
            if pod.is_lost:
                unit = total.units.setdefault((role, uid if self._scope is RestartScope.REPLICA else str(pod.attempt)), _Bounds())
                unit.causes |= self._causes(pod)
                unit.certain |= pod.is_certain and pod.is_replaced
        return totals

    def _causes(self, pod: _Pod) -> set[Cause]:
        """What the loss of a pod may count as."""
        causes = {Cause.FAILURE} if pod.failed else set[Cause]()
        if not pod.disrupted:
            return causes
        role = pod.replica[0]
        causes.add(Cause.SPOT_DISRUPTION if pod.spot else Cause.DISRUPTION)
        if pod.deleted_by_user and role in self._spot:
            falls_back = pod.spot and self._spot[role].max_disruptions is not None
            if falls_back or self.smallest_size(role) < self.largest_size(role):
                causes |= {Cause.DISRUPTION, Cause.SPOT_DISRUPTION}
        return causes

    def _compare(self, role: str, total: _Totals) -> Iterator[str]:
        record, units, subject = self._record, total.units.values(), f"of {role}" if role else "of the job"
        certain = [unit for unit in units if unit.certain]
        counts = {
            cause: sum(count for name, count in counts.items() if role in ("", name))
            for cause, counts in zip(Cause, (record.restarts, record.disruptions, record.spot_disruptions), strict=True)
        }
        for cause, count in counts.items():
            least = sum(unit.causes == {cause} for unit in certain) + (total.least_in_place if cause is Cause.FAILURE else 0)
            most = sum(cause in unit.causes for unit in units) + (total.most_in_place if cause is Cause.FAILURE else 0)
            if not least <= count <= most:
                yield f"{count} {cause} {subject}, expected {_range(least, most)}"
        least, most = len(certain) + total.least_in_place, len(units) + total.most_in_place
        if not least <= sum(counts.values()) <= most:
            yield f"{sum(counts.values())} restarts and disruptions {subject}, expected {_range(least, most)}"


def _range(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}"
