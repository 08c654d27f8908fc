"""The kind that the engine is tried on: two roles, of which one decides."""

from __future__ import annotations

from collections.abc import Mapping

from dlop.api.progress import Progress
from dlop.api.spec import RoleSpec
from dlop.api.types import ContainerProperties, JobType, ReplicaType
from dlop.job import DLJob
from dlop.kube.types import JsonObject
from dlop.replica import Replica

TRAINER = "Trainer"
HELPER = "Helper"


class RingJob(DLJob):
    """Trainers decide; helpers serve them."""

    job_type = JobType("example.org", "v1", "RingJob")
    replica_types = (ReplicaType(TRAINER), ReplicaType(HELPER, decides=False))
    container_properties = ContainerProperties(name="main", port=7000)

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        return {"RANK": str(replica.index)}


class OrderedJob(RingJob):
    """Trainers start when all helpers run."""

    def may_start(self, role: RoleSpec, progress: Progress) -> bool:
        helpers = progress.role(HELPER)
        return role.name == HELPER or helpers is None or all(replica.pod is not None for replica in helpers.replicas)


def role(replicas: int, policy: str = "OnFailure") -> JsonObject:
    containers = [{"name": "main", "image": "example.org/train:1"}]
    return {"replicas": replicas, "restartPolicy": policy, "template": {"spec": {"containers": containers}}}


def ring(*, trainers: int = 2, helpers: int = 0, policy: str = "OnFailure", **run_policy: object) -> JsonObject:
    """A spec."""
    roles = {TRAINER: role(trainers, policy)} | ({HELPER: role(helpers, policy)} if helpers else {})
    return {"replicaSpecs": roles, "runPolicy": run_policy}
