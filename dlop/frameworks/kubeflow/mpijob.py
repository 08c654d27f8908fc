"""MPIJob of kubeflow.org/v1: a launcher that starts processes in its workers through `kubectl exec`, for OpenMPI, Intel MPI and Horovod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from dlop import (
    CleanPodPolicy,
    ContainerProperties,
    Creation,
    Field,
    JobSpec,
    JobType,
    Outcome,
    Progress,
    Replica,
    ReplicaState,
    ReplicaType,
    RestartPolicy,
    RoleSpec,
)
from dlop.api.crd import AGE, STATE_BY_CONDITIONS
from dlop.frameworks.kubeflow import mpi_objects, mpi_pods, mpi_scripts
from dlop.frameworks.kubeflow.base import KubeflowJob
from dlop.frameworks.kubeflow.mpi_model import REPLICA_SPECS, SPEC_MODEL
from dlop.kube.errors import JsonObject
from dlop.naming import dns_label, label_value

_SHELL = f"{mpi_scripts.MOUNT}/{mpi_scripts.SHELL}"
_OPEN_MPI = {"OMPI_MCA_plm_rsh_agent": _SHELL, "OMPI_MCA_orte_default_hostfile": f"{mpi_scripts.MOUNT}/{mpi_scripts.HOSTFILE}"}
_INTEL_MPI = {"I_MPI_HYDRA_BOOTSTRAP": "rsh", "I_MPI_HYDRA_BOOTSTRAP_EXEC": _SHELL}
# A launcher that has no GPU of its own must not see those of its node.
_NO_GPU = {"NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}
_READY = (ReplicaState.RUNNING, ReplicaState.SUCCEEDED)


class MPIJob(KubeflowJob):
    """An MPI job: a launcher and its workers. It is done when the launcher is, which starts when all workers run."""

    job_type = JobType(group="kubeflow.org", version="v1", kind="MPIJob")
    replica_types = (
        ReplicaType("Worker", default_replicas=0, restart_policy=RestartPolicy.NEVER),
        ReplicaType("Launcher", minimum=1, maximum=1, required=True, restart_policy=RestartPolicy.NEVER),
    )
    container_properties = ContainerProperties(name="")
    replica_specs_field = REPLICA_SPECS
    leading_roles = ("Launcher",)
    informs_all_containers = False
    spec_model = SPEC_MODEL
    scale_paths = None
    printer_columns = (AGE, STATE_BY_CONDITIONS)
    other_resources = mpi_objects.RESOURCES
    extra_rules = mpi_objects.RULES

    def read_spec(self, spec: Field) -> JobSpec:
        """The policy for pods may also stand at the top."""
        found = super().read_spec(spec)
        older = spec.get("cleanPodPolicy").choice(CleanPodPolicy, self.clean_pod_policy)
        if not spec.get("runPolicy").get("cleanPodPolicy").is_absent:
            return found
        return replace(found, run_policy=replace(found.run_policy, clean_pod_policy=older))

    # Names, labels, pods.

    def replica_name(self, role: RoleSpec, index: int) -> str:
        """There is one launcher, and it has no number."""
        return self._launcher if role.name == "Launcher" else super().replica_name(role, index)

    def service_name(self, role: RoleSpec, index: int) -> str | None:
        """Nobody needs a service: commands reach the workers through the API server."""
        return None

    def labels(self, role: RoleSpec, index: int) -> Mapping[str, str]:
        """The launcher has no index."""
        return self.role_labels(role) if role.name == "Launcher" else super().labels(role, index)

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        """How the launcher reaches the workers. Workers are told nothing."""
        if replica.role != "Launcher":
            return {}
        taken = mpi_pods.variables_of(replica.spec.template)
        intel = {name: value for name, value in _INTEL_MPI.items() if name not in taken}
        return {**_OPEN_MPI, **({} if self._computes else _NO_GPU), **intel}

    def customize_pod(self, replica: Replica, pod: JsonObject) -> JsonObject:
        """With the scripts."""
        if replica.role == "Worker":
            return {**pod, "spec": mpi_pods.worker_spec(pod["spec"], config_map=self._config)}
        spec = mpi_pods.launcher_spec(
            pod["spec"],
            config_map=self._config,
            service_account=self._account or self._launcher,
            image=self.options.kubectl_delivery_image,
            namespace=self.metadata.namespace,
        )
        return {**pod, "spec": spec}

    # The way of the job.

    def may_start(self, role: RoleSpec, progress: Progress) -> bool:
        """The launcher waits until there is somebody to launch anything in."""
        workers = progress.role("Worker")
        return role.name == "Worker" or workers is None or workers.count(*_READY) == len(workers.replicas)

    def write_status(self, outcome: Outcome) -> JsonObject:
        """Once the launcher has finished, workers do not count."""
        status = super().write_status(outcome)
        launcher, counts = outcome.progress.role("Launcher"), status.get("replicaStatuses") or {}
        if launcher is None or not launcher.count(ReplicaState.SUCCEEDED, ReplicaState.FAILED) or "Worker" not in counts:
            return status
        return {**status, "replicaStatuses": {**counts, "Worker": {}}}

    # What there is besides pods.

    def other_objects(self) -> tuple[Creation, ...]:
        """The scripts, and an account for the launcher that may run commands in the workers."""
        name = self._launcher
        account = () if self._account else (mpi_objects.account(self._owned(name)),)
        binding = mpi_objects.binding(self._owned(name), role=name, account=self._account or name)
        return (*account, self._files(running=()), self._rights(), binding)

    def changing_objects(self, progress: Progress) -> tuple[Creation, ...]:
        """The scripts tell which workers run; the rights are for all that are asked for."""
        workers = progress.role("Worker")
        running = [each.index for each in workers.replicas if each.state is ReplicaState.RUNNING] if workers is not None else []
        return self._files(running=running), self._rights()

    def _files(self, *, running: Iterable[int]) -> Creation:
        spec = Field("spec", self.raw_spec)
        slots, launcher = spec.get("slotsPerWorker").integer(1), self._launcher if self._computes else ""
        workers = self._workers
        contents = {
            mpi_scripts.HOSTFILE: mpi_scripts.hostfile([launcher, *workers] if launcher else workers, slots=slots),
            mpi_scripts.DISCOVERY: mpi_scripts.discovery([workers[index] for index in running], slots=slots, launcher=launcher),
            mpi_scripts.SHELL: mpi_scripts.shell(spec.get("mainContainer").text()),
        }
        return mpi_objects.files(self._owned(self._config), contents)

    def _rights(self) -> Creation:
        return mpi_objects.rights(self._owned(self._launcher), pods=self._workers)

    def _owned(self, name: str) -> JsonObject:
        return {**self.owned(name), "labels": {"app": label_value(self.metadata.name)}}

    @property
    def _launcher(self) -> str:
        return dns_label(self.metadata.name, "-launcher")

    @property
    def _config(self) -> str:
        return dns_label(self.metadata.name, "-config")

    @property
    def _workers(self) -> list[str]:
        found = self.spec.role("Worker")
        return [] if found is None else [self.replica_name(found, index) for index in range(found.replicas)]

    @property
    def _template(self) -> JsonObject:
        launcher = self.spec.role("Launcher")
        return {} if launcher is None else launcher.template

    @property
    def _account(self) -> str:
        """The account that the user has given the launcher, with whatever rights it needs besides; empty: none."""
        return Field("template", self._template).get("spec").get("serviceAccountName").text()

    @property
    def _computes(self) -> bool:
        """Whether the launcher is one of the hosts: it is when it asks for a GPU."""
        return mpi_pods.asks_for_gpu(self._template)
