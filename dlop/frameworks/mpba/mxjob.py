"""MXJob of mpba.fbk.eu/v1: MXNet with a scheduler, servers and workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, RootModel, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from dlop import ContainerProperties, JobType, OpenModel, Replica, Replicas, ReplicaType, RestartedPodTemplate, rule, with_rules
from dlop.frameworks.mpba.base import EntriesJob, entries_schema
from dlop.policies import ps_lite_variables


class MXReplicaModel(OpenModel):
    """Replica spec of one role."""

    model_config = ConfigDict(
        json_schema_extra=with_rules(
            rule(
                "self.replicaType == 'SCHEDULER' || has(self.replicas)",
                "is required",
                field_path=".replicas",
                reason="FieldValueRequired",
            )
        )
    )

    replica_type: Literal["SCHEDULER", "SERVER", "WORKER"]
    """Role of the replicas."""
    replicas: Annotated[Replicas | None, Field(validate_default=True)] = None
    """Number of replicas. Only the scheduler has a default, 1."""
    template: RestartedPodTemplate
    """Pod template."""

    @field_validator("replicas")
    @classmethod
    def _check_replicas(cls, replicas: int | None, info: ValidationInfo) -> int | None:
        if replicas is None and info.data.get("replica_type") != "SCHEDULER":
            raise PydanticCustomError("missing", "Field required")
        return replicas


Entries = Annotated[
    list[MXReplicaModel],
    Field(
        max_length=3,
        json_schema_extra=with_rules(
            rule("self.exists_one(r, r.replicaType == 'SCHEDULER')", "must have exactly one entry of type SCHEDULER"),
            rule(
                "self.all(r, r.replicaType != 'SCHEDULER' || !has(r.replicas) || r.replicas == 1)",
                "replicas of SCHEDULER must be exactly 1",
            ),
            rule("self.all(r, self.exists_one(s, s.replicaType == r.replicaType))", "must have at most one entry for each type"),
        ),
    ),
]


class MXJobEntriesModel(RootModel[Entries]):
    """Specification of an MXJob: one entry per role."""


class MXJob(EntriesJob):
    """An MXNet job with a scheduler, servers and workers. It succeeds when the scheduler and all workers succeed."""

    job_type = JobType(group="mpba.fbk.eu", version="v1", kind="MXJob")
    replica_types = (
        ReplicaType("SCHEDULER", minimum=1, maximum=1, required=True),
        ReplicaType("SERVER", required_for_success=False),
        ReplicaType("WORKER"),
    )
    container_properties = ContainerProperties(name="", port=9000, port_name="dlport0")
    schema = entries_schema(MXJobEntriesModel)

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        return {**ps_lite_variables(self, replica, scheduler="SCHEDULER", server="SERVER", worker="WORKER"), "PS_VERBOSE": "2"}
