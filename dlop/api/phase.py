"""What a pass has found out about a job, for its kind to put into its own words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dlop.api.progress import Progress
from dlop.api.record import Record


class Phase(StrEnum):
    """Where a job stands. Succeeded, Failed and Invalid are final; Invalid until the spec changes."""

    CREATED = "Created"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    INVALID = "Invalid"

    @property
    def is_final(self) -> bool:
        """Whether nothing more is run."""
        return self in (Phase.SUCCEEDED, Phase.FAILED, Phase.INVALID)

    @property
    def is_end(self) -> bool:
        """Whether the job has come to its end, which no change of the spec can undo."""
        return self in (Phase.SUCCEEDED, Phase.FAILED)


@dataclass(frozen=True, slots=True)
class JobResult:
    """The end of a job, as its kind judges it."""

    succeeded: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Everything that a status is made of."""

    phase: Phase
    reason: str
    message: str
    progress: Progress
    record: Record
    now: float
    """Seconds since the epoch."""
    started_at: float | None
    """When the job was first started, or resumed last."""
    finished_at: float | None

    @property
    def blocked(self) -> str:
        """Why nothing goes on, as a sentence that names the object: a refused create, a foreign object, a pod that cannot start."""
        return self.record.blocked.message if self.record.blocked else ""
