"""A framework with one role: workers in a ring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlop.api.types import ContainerProperties, JobType, ReplicaType
from dlop.job import DLJob
from dlop.kube.types import JsonObject
from dlop.replica import Replica


class RingJob(DLJob):
    """Workers that know the addresses of all workers."""

    job_type = JobType(group="example.org", version="v1", kind="RingJob")
    replica_types = (ReplicaType("Worker"),)
    container_properties = ContainerProperties(name="main", port=7000)

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        return {"RANK": str(replica.index), "PEERS": ",".join(self.addresses("Worker"))}


def ring(name: str = "ring", *, workers: int = 2, restart_policy: str = "ExitCode", **run_policy: Any) -> JsonObject:
    template = {"spec": {"containers": [{"name": "main", "image": "i"}]}}
    worker = {"replicas": workers, "restartPolicy": restart_policy, "template": template}
    spec = {"replicaSpecs": {"Worker": worker}, "runPolicy": run_policy}
    return {"apiVersion": "example.org/v1", "kind": "RingJob", "metadata": {"name": name, "namespace": "default"}, "spec": spec}
