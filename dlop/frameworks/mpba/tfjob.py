"""TFJob of mpba.fbk.eu/v1: TensorFlow with parameter servers and workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from pydantic import Field, RootModel

from dlop import ContainerProperties, JobType, Replica, ReplicaType
from dlop.api.schema import rule, with_rules
from dlop.api.spec_models import OpenModel, Replicas, RestartedPodTemplate
from dlop.frameworks.mpba.base import ListedJob


class EntryModel(OpenModel):
    """One role of the job."""

    replicas: Replicas
    replica_type: Literal["ps", "worker"]
    template: RestartedPodTemplate


Entries = Annotated[
    list[EntryModel],
    Field(
        max_length=2,
        json_schema_extra=with_rules(
            rule("self.exists_one(r, r.replicaType == 'worker')", "must have exactly one entry of type worker"),
            rule("self.all(r, self.exists_one(s, s.replicaType == r.replicaType))", "may have one entry for each type"),
        ),
    ),
]


class TFJobModel(RootModel[Entries]):
    """The roles of a TFJob."""


class TFJob(ListedJob):
    """A TensorFlow job: parameter servers, which never end by themselves, and workers. It is done when all workers are."""

    job_type = JobType(group="mpba.fbk.eu", version="v1", kind="TFJob")
    replica_types = (ReplicaType("ps", decides=False), ReplicaType("worker", required=True))
    container_properties = ContainerProperties(name="", port=2222, port_name="dlport0")
    spec_model = TFJobModel

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        """The cluster as TensorFlow reads it, and the place of the replica in it."""
        cluster = {role.name: self.addresses(role.name) for role in self.spec.roles}
        task = {"type": replica.role, "index": replica.index}
        return {"TF_CONFIG": msgspec.json.encode({"cluster": cluster, "task": task}).decode()}
