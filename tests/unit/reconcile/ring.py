"""The test kind: two roles, one of which is required for success."""

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
    """Trainers are required for success, helpers are not."""

    job_type = JobType("example.org", "v1", "RingJob")
    replica_types = (ReplicaType(TRAINER), ReplicaType(HELPER, required_for_success=False))
    container_properties = ContainerProperties(name="main", port=7000)

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        return {"RANK": str(replica.index)}


class OrderedJob(RingJob):
    """Trainers start after all helpers have pods."""

    def may_start(self, role: RoleSpec, progress: Progress) -> bool:
        helpers = progress.role(HELPER)
        return role.name == HELPER or helpers is None or all(replica.pod is not None for replica in helpers.replicas)


class NamedJob(RingJob):
    """Pod names contain a field of the spec, but labels do not. A pod with an earlier name still belongs to its replica."""

    def part_of_name(self, role: RoleSpec) -> str:
        return str(self.raw_spec["names"][role.name])

    def replica_name(self, role: RoleSpec, index: int) -> str:
        return f"ring-{role.name.lower()}-{self.part_of_name(role)}-{index}"


class RenamedJob(NamedJob):
    """Labels contain the field, too. A change of it replaces all pods of the role."""

    def role_labels(self, role: RoleSpec) -> Mapping[str, str]:
        return {**super().role_labels(role), "example.org/part": self.part_of_name(role)}


def role(replicas: int, policy: str = "OnFailure") -> JsonObject:
    containers = [{"name": "main", "image": "example.org/train:1"}]
    return {"replicas": replicas, "restartPolicy": policy, "template": {"spec": {"containers": containers}}}


def ring(*, trainers: int = 2, helpers: int = 0, policy: str = "OnFailure", **run_policy: object) -> JsonObject:
    roles = {TRAINER: role(trainers, policy)} | ({HELPER: role(helpers, policy)} if helpers else {})
    return {"replicaSpecs": roles, "runPolicy": run_policy}


def named_ring(**run_policy: object) -> JsonObject:
    """A spec for a `NamedJob`: two trainers and two helpers."""
    return {**ring(helpers=2, **run_policy), "names": {TRAINER: "n0", HELPER: "n0"}}  # type: ignore[arg-type]
