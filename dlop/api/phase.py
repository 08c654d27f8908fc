"""The result of a reconcile pass, from which every kind writes its own status format."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from dlop.api.progress import Progress, ReplicaProgress
from dlop.api.record import Record
from dlop.api.scale_plan import Member
from dlop.kube.objects import Pod


class Phase(StrEnum):
    """The phase of a job. Succeeded and Failed are permanent; Invalid lasts until the spec changes."""

    CREATED = "Created"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    INVALID = "Invalid"

    @property
    def is_final(self) -> bool:
        """Whether no pods are started in this phase: Succeeded, Failed or Invalid."""
        return self in (Phase.SUCCEEDED, Phase.FAILED, Phase.INVALID)

    @property
    def is_finished(self) -> bool:
        """Whether the job has finished. A change of the spec cannot undo this."""
        return self in (Phase.SUCCEEDED, Phase.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """How a job has finished. The status policy of the kind turns it into words."""

    succeeded: bool
    failed_replica: ReplicaProgress | None = None
    """The replica whose failure failed the job; None if no replica did."""
    reason: str = ""
    """The limit or deadline that the job exceeded; empty if its replicas decided."""
    message: str = ""
    """Describes the exceeded limit or deadline."""


class MemberPod(NamedTuple):
    """An existing member of a job."""

    member: Member
    pod: Pod

    @property
    def is_alive(self) -> bool:
        """Whether the pod counts as one of the members that a scale plan asks for. One that is being deleted does not."""
        return self.pod.status.phase != "Failed" and self.pod.metadata.deletion_timestamp is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Everything that a status is written from."""

    phase: Phase
    reason: str
    message: str
    progress: Progress
    record: Record
    now: float
    """Seconds since the epoch."""
    started_at: float | None
    """When the job was started, or last resumed."""
    finished_at: float | None
    surplus_pods: int = 0
    """Number of existing pods that the job no longer needs, for example because it is scaled down."""
    members: tuple[MemberPod, ...] = ()
    """Existing pods that the master of the job manages."""
    is_scaling: bool = False
    """Whether a scale plan is being executed."""

    @property
    def blocked(self) -> str:
        """Why the job cannot progress, for example a rejected create or a name conflict; empty if it can."""
        return self.record.blocked.message if self.record.blocked else ""
