"""The specs of the kinds of training.kubedl.io: replica specs by role, and the fields of the run policy beside them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from dlop import (
    ApiModel,
    CleanPodPolicyValue,
    Count,
    CronPolicyModel,
    DLJob,
    JobSpec,
    JsonObject,
    ManifestField,
    OpenModel,
    ReplicaModel,
    RunPolicyModel,
    Schema,
)

_UNSUPPORTED = {
    "modelVersion": "no image is built from the model",
    "cacheBackend": "no data is cached",
}
"""Fields of KubeDL that have no effect, and what that means."""


class SpotModel(OpenModel):
    """The last replicas of a role, which run on cheaper nodes."""

    spot_replica_number: Count | None = None
    """Number of spot replicas."""
    priority_class_name: str | None = None
    """Priority class of their pods."""
    labels: dict[str, str] | None = None
    """Labels of their pods."""


class KubeDLReplicaModel(ReplicaModel):
    """One role of a job."""

    spot_replica_spec: SpotModel | None = None
    """The last replicas of the role, which run on cheaper nodes."""


class KubeDLSchedulingPolicy(ApiModel):
    """Options of gang scheduling and queues."""

    min_available: Count | None = None
    """Number of pods that must be scheduled together. Defaults to all pods."""
    priority: int | None = None
    """Priority in a queue of Kueue."""
    priority_class_name: str | None = None
    """Priority class of the PodGroup, or in a queue of Kueue."""
    queue: str | None = None
    """Queue of the scheduler or of Kueue."""


ReplicaSpecs = Annotated[dict[str, KubeDLReplicaModel], Field(min_length=1, max_length=8)]
"""The replica specs by role. Names of roles are case-insensitive."""


class KubeDLModel(ApiModel):
    """Fields of all kinds."""

    clean_pod_policy: CleanPodPolicyValue | None = None
    """Which pods of a finished job are deleted."""
    ttl_seconds_after_finished: Count | None = None
    """Seconds that a finished job is kept. Unset keeps it."""
    active_deadline_seconds: Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})] | None = None
    """Seconds that the job may run."""
    backoff_limit: Count | None = None
    """Number of restarts after failures, over all roles, before the job fails."""
    scheduling_policy: KubeDLSchedulingPolicy | None = None
    """Options of gang scheduling and queues."""
    cron_policy: CronPolicyModel | None = None
    """The schedule on which the job is created again, by a Cron with the name of the job."""
    model_version: JsonObject | None = None
    """Has no effect."""
    cache_backend: JsonObject | None = None
    """Has no effect."""
    run_policy: RunPolicyModel | None = None
    """Run policy of the job, for the fields that KubeDL does not have. It takes precedence over the fields beside it."""


@dataclass(frozen=True, kw_only=True)
class KubeDLSchema(Schema):
    """The run policy is inline, or in `runPolicy` as for the other kinds of dlop."""

    inline_run_policy: bool = True
    reads_spot_replica_spec: bool = True
    scheduling_path: tuple[str | int, ...] = ("schedulingPolicy",)
    default_ttl_seconds: int | None = None
    """The default of `ttlSecondsAfterFinished`."""
    default_backoff_limit: int | None = None

    def normalize_legacy(self, spec: Any) -> Any:
        """The priority class has another name in the other kinds."""
        policy = spec.get("schedulingPolicy") if isinstance(spec, dict) else None
        if not isinstance(policy, dict) or not isinstance(policy.get("priorityClassName"), str):
            return spec
        others = {name: value for name, value in policy.items() if name != "priorityClassName"}
        return {**spec, "schedulingPolicy": {**others, "priorityClass": policy["priorityClassName"]}}

    def read(self, spec: ManifestField, kind: type[DLJob]) -> JobSpec:
        raw = spec.object()
        defaults = {"ttlSecondsAfterFinished": self.default_ttl_seconds, "backoffLimit": self.default_backoff_limit}
        missing = {name: value for name, value in defaults.items() if value is not None and raw.get(name) is None}
        for name, consequence in _unsupported_fields(spec):
            spec.get(name).warning(f"has no effect: {consequence}; remove it")
        return super().read(ManifestField(spec.path, {**raw, **missing}, spec.problems, spec.warnings), kind)

    def used_scheduling_path(self, spec: ManifestField) -> tuple[str | int, ...]:
        """As for the other fields, `runPolicy` takes precedence."""
        path = ("runPolicy", "schedulingPolicy")
        return self.scheduling_path if spec.get("runPolicy").get("schedulingPolicy").is_absent else path


def _unsupported_fields(spec: ManifestField) -> Iterator[tuple[str, str]]:
    return ((name, consequence) for name, consequence in _UNSUPPORTED.items() if not spec.get(name).is_absent)
