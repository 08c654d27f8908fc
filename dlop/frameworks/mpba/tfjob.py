"""TFJob of mpba.fbk.eu/v1: TensorFlow with parameter servers and workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from pydantic import Field, RootModel

from dlop import (
    ContainerProperties,
    JobType,
    OpenModel,
    Replica,
    Replicas,
    ReplicaType,
    RestartedPodTemplate,
    cached_property,
    rule,
    with_rules,
)
from dlop.frameworks.mpba.base import EntriesJob, entries_schema


class TFReplicaModel(OpenModel):
    """Replica spec of one role."""

    replicas: Replicas
    """Number of replicas."""
    replica_type: Literal["ps", "worker"]
    """Role of the replicas."""
    template: RestartedPodTemplate
    """Pod template."""


Entries = Annotated[
    list[TFReplicaModel],
    Field(
        max_length=2,
        json_schema_extra=with_rules(
            rule("self.exists_one(r, r.replicaType == 'worker')", "must have exactly one entry of type worker"),
            rule("self.all(r, self.exists_one(s, s.replicaType == r.replicaType))", "must have at most one entry for each type"),
        ),
    ),
]


class TFJobEntriesModel(RootModel[Entries]):
    """Specification of a TFJob: one entry per role."""


class TFJob(EntriesJob):
    """A TensorFlow job with parameter servers and workers. It succeeds when all workers succeed; parameter servers never finish."""

    job_type = JobType(group="mpba.fbk.eu", version="v1", kind="TFJob")
    replica_types = (ReplicaType("ps", required_for_success=False), ReplicaType("worker", required=True))
    container_properties = ContainerProperties(name="", port=2222, port_name="dlport0")
    schema = entries_schema(TFJobEntriesModel)

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        task = {"type": replica.role, "index": replica.index}
        return {"TF_CONFIG": msgspec.json.encode({"cluster": self._cluster, "task": task}).decode()}

    @cached_property
    def _cluster(self) -> msgspec.Raw:
        """The addresses of all replicas, encoded once."""
        return msgspec.Raw(msgspec.json.encode({role.name: self.addresses(role.name) for role in self.spec.roles}))
