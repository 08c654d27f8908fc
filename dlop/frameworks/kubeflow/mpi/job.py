"""MPIJob of kubeflow.org/v1: a launcher that starts processes in its workers with `kubectl exec`, for Open MPI, Intel MPI and Horovod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dlop import (
    AGE,
    LAST_FAILURE,
    STATE_BY_CONDITIONS,
    JobType,
    JsonObject,
    Outcome,
    Replica,
    ReplicaState,
    ReplicaType,
    RestartPolicy,
    RoleSpec,
)
from dlop.frameworks.kubeflow.base import KubeflowContainer, KubeflowJob, KubeflowLifecycle, KubeflowNaming, KubeflowStatus
from dlop.frameworks.kubeflow.mpi.launcher import PODS, KubeflowLauncherObjects, launcher_env, with_idle_command
from dlop.frameworks.kubeflow.mpi.schema import MPIJobModel, MPIJobSchema
from dlop.policies import object_name
from dlop.policies.mpi import KUBECTL_DELIVERY_IMAGE, MPIFlags, config_map_name, launcher_account


@dataclass(frozen=True, kw_only=True)
class MPINaming(KubeflowNaming):
    """No services: the launcher reaches the workers through the API server. The launcher's name and labels have no index."""

    def pod_name(self, job: KubeflowJob, role: RoleSpec, index: int) -> str:
        return object_name(job.metadata.name, "-launcher" if role.name == "Launcher" else f"-worker-{index}")

    def service_name(self, job: KubeflowJob, role: RoleSpec, index: int) -> str | None:
        return None

    def labels(self, job: KubeflowJob, role: RoleSpec, index: int) -> Mapping[str, str]:
        return self.role_labels(job, role) if role.name == "Launcher" else super().labels(job, role, index)


class MPILifecycle(KubeflowLifecycle["MPIJob"]):
    """Scaling the workers does not restart the job: their number is not in the environment but in the host file, which is kept current."""

    def fixed_roles(self, job: MPIJob) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True, kw_only=True)
class MPIStatus(KubeflowStatus):
    """When the launcher has finished, the counts of the workers are empty."""

    def write(self, job: KubeflowJob, outcome: Outcome) -> JsonObject:
        status = super().write(job, outcome)
        launcher, counts = outcome.progress.role("Launcher"), status.get("replicaStatuses") or {}
        if launcher is None or not launcher.count(ReplicaState.SUCCEEDED, ReplicaState.FAILED) or "Worker" not in counts:
            return status
        return {**status, "replicaStatuses": {**counts, "Worker": {}}}


class MPIJob(KubeflowJob):
    """An MPI job with a launcher and workers. The launcher starts when all workers run, and the job succeeds with the launcher."""

    job_type = JobType(group="kubeflow.org", version="v1", kind="MPIJob")
    replica_types = (
        ReplicaType("Worker", default_replicas=0, restart_policy=RestartPolicy.NEVER),
        ReplicaType("Launcher", minimum=1, maximum=1, required=True, restart_policy=RestartPolicy.NEVER, start_after="Worker"),
    )
    container_properties = KubeflowContainer(name="", required=False, sets_env_in_all_containers=False)
    schema = MPIJobSchema(
        field="mpiReplicaSpecs",
        model=MPIJobModel,
        columns=(AGE, STATE_BY_CONDITIONS, LAST_FAILURE),
        # The job has no services, so its name need not be a DNS label.
        name_pattern="",
    )
    naming = MPINaming()
    lifecycle = MPILifecycle("Launcher")
    status = MPIStatus(metric_label="mpi")
    children = (KubeflowLauncherObjects(),)
    flags = MPIFlags

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        return launcher_env(replica.spec.template) if replica.role == "Launcher" else {}

    def customize_pod(self, replica: Replica, pod: JsonObject) -> JsonObject:
        config_map = config_map_name(self)
        if replica.role == "Worker":
            return {**pod, "spec": PODS.worker_spec(with_idle_command(pod["spec"]), config_map=config_map)}
        spec = PODS.launcher_spec(
            pod["spec"],
            config_map=config_map,
            namespace=self.metadata.namespace,
            service_account=launcher_account(self),
            image=self.options.flags(MPIFlags).mpi_kubectl_delivery_image or KUBECTL_DELIVERY_IMAGE,
        )
        return {**pod, "spec": spec}

    @property
    def launcher_name(self) -> str:
        """The name of the launcher's pod."""
        return object_name(self.metadata.name, "-launcher")
