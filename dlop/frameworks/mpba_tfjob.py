"""TFJob of mpba.fbk.eu/v1: TensorFlow with parameter servers and workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
from pydantic import RootModel

from dlop import ContainerProperties, JobType, Replica, ReplicaType
from dlop.api.models import OpenModel, PodTemplate, Replicas
from dlop.frameworks.mpba import ListedJob


class EntryModel(OpenModel):
    """One role of the job."""

    replicas: Replicas
    replica_type: Literal["ps", "worker"]
    template: PodTemplate


class TFJobModel(RootModel[list[EntryModel]]):
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
