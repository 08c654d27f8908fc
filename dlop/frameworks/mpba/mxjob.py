"""MXJob of mpba.fbk.eu/v1: MXNet with a scheduler, servers and workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, RootModel

from dlop import ContainerProperties, JobType, Replica, ReplicaType
from dlop.api.schema import rule, with_rules
from dlop.api.spec_models import OpenModel, Replicas, RestartedPodTemplate
from dlop.frameworks.mpba.base import ListSpecJob


class MXReplicaModel(OpenModel):
    """Replica spec of one role."""

    replicas: Replicas
    """Number of replicas."""
    replica_type: Literal["SCHEDULER", "SERVER", "WORKER"]
    """Role of the replicas."""
    template: RestartedPodTemplate
    """Pod template."""


Entries = Annotated[
    list[MXReplicaModel],
    Field(
        max_length=3,
        json_schema_extra=with_rules(
            rule("self.exists_one(r, r.replicaType == 'SCHEDULER')", "must have exactly one entry of type SCHEDULER"),
            rule("self.all(r, r.replicaType != 'SCHEDULER' || r.replicas == 1)", "replicas of SCHEDULER must be exactly 1"),
            rule("self.all(r, self.exists_one(s, s.replicaType == r.replicaType))", "must have at most one entry for each type"),
        ),
    ),
]


class MXJobEntriesModel(RootModel[Entries]):
    """Specification of an MXJob: one entry per role."""


class MXJob(ListSpecJob):
    """An MXNet job with a scheduler, servers and workers. It succeeds when the scheduler and all workers succeed."""

    job_type = JobType(group="mpba.fbk.eu", version="v1", kind="MXJob")
    replica_types = (
        ReplicaType("SCHEDULER", minimum=1, maximum=1, required=True),
        ReplicaType("SERVER", required_for_success=False),
        ReplicaType("WORKER"),
    )
    container_properties = ContainerProperties(name="", port=9000, port_name="dlport0")
    spec_model = MXJobEntriesModel

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        """Variables of ps-lite."""
        return {
            "DMLC_ROLE": replica.role.casefold(),
            "DMLC_PS_ROOT_URI": self.host("SCHEDULER"),
            "DMLC_PS_ROOT_PORT": str(self.port(self.spec.roles[0])),
            "DMLC_NUM_SERVER": str(self.replicas("SERVER")),
            "DMLC_NUM_WORKER": str(self.replicas("WORKER")),
            # Without it, the scheduler of newer MXNet versions tries to bind to the name of its service, which is not a local address.
            "DMLC_USE_KUBERNETES": "1",
            "PS_VERBOSE": "2",
        }
