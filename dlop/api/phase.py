"""What a pass has found out about a job, for its kind to put into its own words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from dlop.api.gang import Gang
from dlop.api.progress import Progress
from dlop.api.record import Blocked, LastFailure, Record
from dlop.api.spec import JobSpec, RoleSpec
from dlop.kube.errors import JsonObject
from dlop.kube.objects import ObjectMeta
from dlop.kube.resources import Resource
from dlop.reconcile.plan import Creation


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
class Verdict:
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


class Job(Protocol):
    """What the engine needs to know of a job. `dlop.job.DLJob` is one."""

    @property
    def metadata(self) -> ObjectMeta:
        """The metadata of the custom resource."""
        ...

    @property
    def managed_elsewhere(self) -> bool:
        """Whether the manifest names somebody else as the one who reconciles the job. Told even when the spec makes no sense."""
        ...

    @property
    def spec(self) -> JobSpec:
        """What the job asks for. Raises SpecError when that makes no sense."""
        ...

    def as_far_as_legible(self) -> Job:
        """The same job with a spec of what can be read of it, and defaults for the rest. Pods stay where that is in doubt."""
        ...

    @property
    def stored_status(self) -> JsonObject:
        """The status as it is stored now."""
        ...

    def replica_name(self, role: RoleSpec, index: int) -> str:
        """The name of a replica's pod."""
        ...

    def labels(self, role: RoleSpec, index: int) -> Mapping[str, str]:
        """The labels that tell a replica's pod from all others."""
        ...

    def pod_restart_policy(self, role: RoleSpec, index: int) -> str:
        """What the node is to do when a container of a replica's pod ends."""
        ...

    def replicas_path(self, role: str) -> tuple[str | int, ...] | None:
        """Where in the spec the number of replicas of a role stands, and beside it its pod template; None: the job has no such role."""
        ...

    def make_pod(self, role: RoleSpec, index: int, *, attempt: int) -> JsonObject:
        """The pod of a replica, complete."""
        ...

    def make_service(self, role: RoleSpec, index: int) -> JsonObject | None:
        """The service of a replica, complete; None when it needs none."""
        ...

    def service_name(self, role: RoleSpec, index: int) -> str | None:
        """The name of that service; None when there is none. Asked far more often than the service itself."""
        ...

    def other_objects(self) -> tuple[Creation, ...]:
        """Whatever else the job needs before its pods."""
        ...

    def changing_objects(self, progress: Progress) -> tuple[Creation, ...]:
        """Those of them that are kept up with the job, as they are to be now."""
        ...

    @property
    def passing_resources(self) -> tuple[Resource, ...]:
        """Of what kind those of them are that go when the job holds still or has come to its end."""
        ...

    @property
    def size(self) -> str:
        """How many replicas there are, in a few words, as far as each of them is told; empty where none is."""
        ...

    @property
    def way_to_rights(self) -> str:
        """How the operator comes by the rights that it needs for this kind, as part of a sentence."""
        ...

    @property
    def gang(self) -> Gang | None:
        """The group as which a scheduler places the pods; None: each pod by itself."""
        ...

    def owned(self, name: str) -> JsonObject:
        """The metadata of a further object that belongs to the job and goes with it."""
        ...

    def may_start(self, role: RoleSpec, progress: Progress) -> bool:
        """Whether the pods of a role may be created now (start order between roles)."""
        ...

    def is_final_failure(self, role: RoleSpec, index: int, failure: LastFailure) -> bool | None:
        """Whether a replica that failed (not: was disrupted) is not tried again; None: as its restart policy says.

        The failure is that of its main container: without an exit code where that has none.
        """
        ...

    def is_running(self, progress: Progress) -> bool:
        """Whether the job as a whole counts as running."""
        ...

    def deciding_roles(self) -> tuple[str, ...]:
        """The roles that have to be done for the job to be done."""
        ...

    def judge(self, progress: Progress) -> Verdict | None:
        """Whether the job has come to its end, by the success rule of its kind. Failures that are final count here too."""
        ...

    def phase_in(self, status: JsonObject) -> Phase | None:
        """The phase that a stored status of this kind's dialect tells; None when it tells none.

        Asked only where `status.dlop` does not tell it: for jobs that another operator has run.
        """
        ...

    def finished_in(self, status: JsonObject) -> Any:
        """When a job came to its end, as a stored status of this kind's dialect tells it; asked under the same conditions."""
        ...

    def write_block(self, blocked: Blocked, *, now: float) -> JsonObject:
        """The stored status with what is in the way, without `status.dlop`. Asked while the spec makes no sense."""
        ...

    def write_status(self, outcome: Outcome) -> JsonObject:
        """The whole status in the dialect of the kind, without `status.dlop`, which the engine adds."""
        ...
