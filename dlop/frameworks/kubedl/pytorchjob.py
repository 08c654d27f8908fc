"""PyTorchJob of training.kubedl.io/v1alpha1: a master and workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dlop import CleanPodPolicy, Progress, Replica, ReplicaState, ReplicaType, RestartPolicy, RoleSpec
from dlop.frameworks.kubedl.base import COLUMNS, KubeDLContainer, KubeDLJob, KubeDLLeader, KubeDLNaming, kubedl_type
from dlop.frameworks.kubedl.schema import KubeDLModel, KubeDLSchema, ReplicaSpecs


class PyTorchJobModel(KubeDLModel):
    """Specification of a PyTorchJob."""

    pytorch_replica_specs: ReplicaSpecs
    """Replica specs by role: AIMaster, Master, Worker."""


@dataclass(frozen=True, kw_only=True)
class PyTorchNaming(KubeDLNaming):
    """Only the master has a service."""

    def service_name(self, job: KubeDLJob, role: RoleSpec, index: int) -> str | None:
        return super().service_name(job, role, index) if role.name == "Master" else None


class PyTorchLifecycle(KubeDLLeader["PyTorchJob"]):
    """The job succeeds with its AIMaster; without one, with the master and all workers."""

    def required_roles(self, job: PyTorchJob) -> tuple[str, ...]:
        leaders = super().required_roles(job)
        return (*leaders, "Worker") if leaders == ("Master",) and job.spec.role("Worker") is not None else leaders

    def has_succeeded(self, job: PyTorchJob, progress: Progress) -> bool:
        workers = progress.role("Worker")
        if self.leader(job) == "AIMaster" and super().has_succeeded(job, progress):
            return True
        master = progress.role("Master")
        return master is not None and all(role.all(ReplicaState.SUCCEEDED) for role in (master, workers) if role is not None)


class PyTorchJob(KubeDLJob):
    """A PyTorch job. It succeeds when the master and all workers succeed."""

    job_type = kubedl_type("PyTorchJob")
    replica_types = (
        ReplicaType("AIMaster", maximum=1, restart_policy=RestartPolicy.NEVER, in_gang=False),
        ReplicaType("Master", minimum=1, maximum=1, required=True, restart_policy=RestartPolicy.EXIT_CODE, start_after="AIMaster"),
        ReplicaType("Worker", restart_policy=RestartPolicy.ON_FAILURE, start_after="Master"),
    )
    container_properties = KubeDLContainer(name="pytorch", port=23456, port_name="pytorchjob-port")
    schema = KubeDLSchema(field="pytorchReplicaSpecs", model=PyTorchJobModel, columns=COLUMNS, clean_pod_policy=CleanPodPolicy.NONE)
    naming = PyTorchNaming(master_roles=("Master",))
    lifecycle = PyTorchLifecycle("AIMaster", "Master")

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        """The master reaches itself as localhost."""
        if replica.role == "AIMaster":
            return {}
        if replica.role == "Master":
            return self.master_variables(MASTER_ADDR="localhost", RANK="0")
        return self.master_variables(RANK=str(replica.index + 1))
