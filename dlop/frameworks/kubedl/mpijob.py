"""MPIJob of training.kubedl.io/v1alpha1: a launcher that starts processes in its workers with `kubectl exec`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlop import (
    CleanPodPolicy,
    JobResult,
    JsonObject,
    Progress,
    Replica,
    ReplicaState,
    ReplicaType,
    RestartPolicy,
    RoleProgress,
    RoleSpec,
)
from dlop.frameworks.kubedl.base import COLUMNS, KubeDLContainer, KubeDLJob, KubeDLLeader, KubeDLNaming, KubeDLStatus, kubedl_type
from dlop.frameworks.kubedl.mpi_schema import Distribution, MPIJobModel, MPISchema, read_distribution, read_slots
from dlop.policies import Lifecycle, object_name
from dlop.policies.mpi import (
    HOSTFILE,
    IDLE_COMMAND,
    KUBECTL_DELIVERY_IMAGE,
    REMOTE_SHELL,
    LauncherObjects,
    LauncherPods,
    MPIFlags,
    config_map_name,
    hostfile,
    launcher_account,
    mpi_path,
    names_account,
    remote_shell,
    worker_names,
)

_PODS = LauncherPods(
    config_volume="mpi-config-volume",
    kubectl_volume="kubectl-volume",
    delivery_resources={"requests": {"cpu": "100m", "memory": "128Mi"}},
    all_containers=True,
)
_VARIABLES = {
    Distribution.OPEN_MPI: ("OMPI_MCA_plm_rsh_agent", "OMPI_MCA_orte_default_hostfile"),
    Distribution.INTEL_MPI: ("I_MPI_HYDRA_BOOTSTRAP_EXEC", "I_MPI_HYDRA_HOST_FILE"),
    Distribution.MPICH: ("HYDRA_LAUNCHER_EXEC", "HYDRA_HOST_FILE"),
}
"""The variables with the paths of the remote shell and the host file."""


class MPILauncherObjects(LauncherObjects["MPIJob"]):
    """KubeDL's users name an account for the launcher and grant it permissions. Other launchers get an account of the job."""

    def grants_exec(self, job: MPIJob) -> bool:
        return not names_account(job)

    def scripts(self, job: MPIJob, *, running: Sequence[str]) -> Mapping[str, str]:
        """The launcher is the first host if it runs processes, too."""
        launcher, workers = job.spec.role("Launcher"), worker_names(job)
        if launcher is not None and job.options.flags(MPIFlags).mpi_launcher_runs_workloads:
            workers = [job.naming.pod_name(job, launcher, 0), *workers]
        separator = " slots=" if read_distribution(job.spec_field) is Distribution.OPEN_MPI else ":"
        return {
            HOSTFILE: hostfile(workers, slots=read_slots(job.spec_field), separator=separator),
            REMOTE_SHELL: remote_shell(job.spec_field.get("mainContainer").string()),
        }


@dataclass(frozen=True, kw_only=True)
class MPINaming(KubeDLNaming):
    """No services: the launcher reaches the workers through the API server. So pod names need not be DNS labels."""

    def pod_name(self, job: KubeDLJob, role: RoleSpec, index: int) -> str:
        return object_name(job.metadata.name, f"-{role.name.lower()}-{index}")

    def service_name(self, job: KubeDLJob, role: RoleSpec, index: int) -> str | None:
        return None


class MPILifecycle(KubeDLLeader["MPIJob"]):
    """The launcher decides. It notices failed workers, unless it still waits for them."""

    def fixed_roles(self, job: MPIJob) -> tuple[str, ...]:
        """The number of workers is not in the environment but in the host file, which is kept current."""
        return ()

    def is_running(self, job: MPIJob, progress: Progress) -> bool:
        return all(role.all(ReplicaState.RUNNING) for role in progress.roles)

    def evaluate(self, job: MPIJob, progress: Progress) -> JobResult | None:
        launcher = progress.role("Launcher")
        if launcher is not None and launcher.count(ReplicaState.MISSING):
            return Lifecycle.evaluate(self, job, progress)
        return super().evaluate(job, progress)

    def has_failed(self, job: MPIJob, role: RoleProgress) -> bool:
        return role.spec.name == "Launcher" and super().has_failed(job, role)


@dataclass(frozen=True, kw_only=True)
class MPIStatus(KubeDLStatus):
    def describe_result(self, job: KubeDLJob, result: JobResult, progress: Progress) -> str:
        message = f"{job.job_type.kind} {job.metadata.name} has successfully completed."
        return message if result.succeeded else super().describe_result(job, result, progress)


class MPIJob(KubeDLJob):
    """An MPI job with a launcher and workers. The launcher starts when all workers run, and the job succeeds with the launcher."""

    job_type = kubedl_type("MPIJob")
    replica_types = (
        ReplicaType("Worker", restart_policy=RestartPolicy.NEVER),
        ReplicaType("Launcher", minimum=1, maximum=1, required=True, restart_policy=RestartPolicy.NEVER, start_after="Worker"),
    )
    # The container can have any name, because `mainContainer` may name another one.
    container_properties = KubeDLContainer(name="", port=2222, port_name="mpi-port")
    schema = MPISchema(field="mpiReplicaSpecs", model=MPIJobModel, columns=COLUMNS, clean_pod_policy=CleanPodPolicy.RUNNING)
    naming = MPINaming()
    lifecycle = MPILifecycle("Launcher")
    status = MPIStatus()
    children = (MPILauncherObjects(),)
    flags = MPIFlags

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        if replica.role == "Worker":
            return {}
        shell, hosts = _VARIABLES[read_distribution(self.spec_field)]
        return {shell: mpi_path(REMOTE_SHELL), hosts: mpi_path(HOSTFILE)}

    def customize_pod(self, replica: Replica, pod: JsonObject) -> JsonObject:
        pod = super().customize_pod(replica, pod)
        config_map = config_map_name(self)
        if replica.role == "Worker":
            containers = [_with_idle_command(container) for container in pod["spec"]["containers"]]
            return {**pod, "spec": _PODS.worker_spec({**pod["spec"], "containers": containers}, config_map=config_map)}
        spec = _PODS.launcher_spec(
            pod["spec"],
            config_map=config_map,
            namespace=self.metadata.namespace,
            service_account=launcher_account(self),
            image=self.options.flags(MPIFlags).mpi_kubectl_delivery_image or KUBECTL_DELIVERY_IMAGE,
        )
        return {**pod, "spec": spec}


def _with_idle_command(container: JsonObject) -> JsonObject:
    return container if container.get("command") or container.get("args") else {**container, **IDLE_COMMAND}
