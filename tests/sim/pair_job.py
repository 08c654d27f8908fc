"""A framework with two roles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlop.api.types import ContainerProperties, JobType, ReplicaType
from dlop.job import DLJob
from dlop.kube.types import JsonObject
from dlop.replica import Replica


class PairJob(DLJob):
    """Workers that know the addresses of the servers."""

    job_type = JobType(group="example.org", version="v1", kind="PairJob")
    replica_types = (ReplicaType("Server"), ReplicaType("Worker"))
    container_properties = ContainerProperties(name="main", port=7000)

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        return {"SERVERS": ",".join(self.addresses("Server"))}


def pair(*, servers: int = 1, workers: int = 2, **run_policy: Any) -> JsonObject:
    template = {"spec": {"containers": [{"name": "main", "image": "i"}]}}
    roles = {
        role: {"replicas": replicas, "restartPolicy": "ExitCode", "template": template}
        for role, replicas in (("Server", servers), ("Worker", workers))
    }
    spec = {"replicaSpecs": roles, "runPolicy": run_policy}
    return {"apiVersion": "example.org/v1", "kind": "PairJob", "metadata": {"name": "pair", "namespace": "default"}, "spec": spec}
