"""The test kind: two roles, one of which is required for success."""

from __future__ import annotations

from collections.abc import Mapping

from dlop.api.progress import Progress
from dlop.api.spec import RoleSpec
from dlop.api.types import ContainerProperties, JobType, ReplicaType
from dlop.job import DLJob
from dlop.kube.types import JsonObject
from dlop.policies import Lifecycle, Naming
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


class HelpersFirst(Lifecycle[RingJob]):
    """Trainers start after all helpers have pods."""

    def may_start(self, job: RingJob, role: RoleSpec, progress: Progress) -> bool:
        helpers = progress.role(HELPER)
        return role.name == HELPER or helpers is None or all(replica.pod is not None for replica in helpers.replicas)


class OrderedJob(RingJob):
    """A ring whose roles start in an order that `start_after` cannot express."""

    lifecycle = HelpersFirst()


class SpecNaming(Naming[RingJob]):
    """Pod names contain a field of the spec, but labels do not. A pod with an earlier name still belongs to its replica."""

    def pod_name(self, job: RingJob, role: RoleSpec, index: int) -> str:
        return f"ring-{role.name.lower()}-{part_of_name(job, role)}-{index}"


class LabelledSpecNaming(SpecNaming):
    """Labels contain the field, too. A change of it replaces all pods of the role."""

    def role_labels(self, job: RingJob, role: RoleSpec) -> Mapping[str, str]:
        return {**super().role_labels(job, role), "example.org/part": part_of_name(job, role)}


class NamedJob(RingJob):
    """A ring with `SpecNaming`."""

    naming = SpecNaming()


class RenamedJob(RingJob):
    """A ring with `LabelledSpecNaming`."""

    naming = LabelledSpecNaming()


def part_of_name(job: RingJob, role: RoleSpec) -> str:
    return str(job.raw_spec["names"][role.name])


def role(replicas: int, policy: str = "OnFailure") -> JsonObject:
    containers = [{"name": "main", "image": "example.org/train:1"}]
    return {"replicas": replicas, "restartPolicy": policy, "template": {"spec": {"containers": containers}}}


def ring(*, trainers: int = 2, helpers: int = 0, policy: str = "OnFailure", **run_policy: object) -> JsonObject:
    roles = {TRAINER: role(trainers, policy)} | ({HELPER: role(helpers, policy)} if helpers else {})
    return {"replicaSpecs": roles, "runPolicy": run_policy}


def named_ring(**run_policy: object) -> JsonObject:
    """A spec for a `NamedJob`: two trainers and two helpers."""
    return {**ring(helpers=2, **run_policy), "names": {TRAINER: "n0", HELPER: "n0"}}  # type: ignore[arg-type]
