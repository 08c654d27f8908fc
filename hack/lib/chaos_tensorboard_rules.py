"""Rules of a chaos test for the TensorBoards of jobs. Pure."""

from __future__ import annotations

from chaos_feature_rules import IN_FLIGHT_SECONDS, STALE_SECONDS, Violations
from chaos_history import CompanionChange, Entry, JobChange
from chaos_scripts import JobScript

from dlop.api.phase import Phase

CREATE_SECONDS = 30.0
"""The TensorBoard of a job that runs exists after this time, also if both operators and the API server are restarted in between."""

_RUNNING = (Phase.RUNNING, Phase.RESTARTING)


class TensorBoardRules:
    """Follows the history of a job in the order of revisions."""

    def __init__(self, script: JobScript) -> None:
        self._tensorboard = script.draft.features.tensorboard
        self._objects: dict[str, CompanionChange] = {}
        """By uid."""
        self._missing_since: float | None = None
        """Since when the job runs and has no pod of its TensorBoard; None if it has one or does not run."""
        self._is_running = False
        self._is_deleted = False
        self._free_at: float | None = None
        """The time from which on nothing may be created, because the job has ended; None if it has not."""

    def add(self, entry: Entry) -> Violations:
        match entry:
            case CompanionChange():
                if entry.created:
                    yield from self._check_new(entry)
                self._objects[entry.uid] = entry
            case JobChange():
                self._add_job(entry)
        if self._tensorboard is not None:
            yield from self._check_missing(entry.seconds)

    def at_end(self) -> Violations:
        """To be called when nothing changes any more, and if the job has ended.

        The garbage collector deletes the objects of a deleted job. The test waits only for pods.
        """
        for companion in self._objects.values():
            if not companion.deleted and (companion.is_pod or not self._is_deleted):
                yield "TensorBoard survives", f"{companion.key} ({companion.uid[:8]}) exists, and the time to live has passed"

    def _add_job(self, change: JobChange) -> None:
        self._is_running = change.record.phase in _RUNNING and not change.suspended and not change.deleted
        if change.deleted:
            self._is_deleted = True
            self._free_at = change.seconds + IN_FLIGHT_SECONDS
        elif change.is_finished and self._free_at is None and self._tensorboard is not None:
            self._free_at = change.seconds + self._tensorboard.ttl_seconds + STALE_SECONDS

    def _check_new(self, new: CompanionChange) -> Violations:
        name = f"{new.key} ({new.uid[:8]})"
        if self._tensorboard is None:
            yield "unexpected TensorBoard", f"{name} was created, and the job asks for none"
        for other in self._objects.values():
            if new.is_pod and other.is_pod and not other.deleted:
                yield "two TensorBoards", f"{name} was created while {other.uid[:8]} exists"
        if self._free_at is not None and new.seconds > self._free_at:
            yield "created after the end", f"{name} was created {new.seconds - self._free_at:.1f} s too late"

    def _check_missing(self, now: float) -> Violations:
        exists = any(companion.is_pod and not companion.deleted for companion in self._objects.values())
        if exists or not self._is_running:
            self._missing_since = None
        elif self._missing_since is None:
            self._missing_since = now
        elif now - self._missing_since > CREATE_SECONDS:
            yield "no TensorBoard", f"the job runs since {self._missing_since:.0f} s, and has no TensorBoard"
