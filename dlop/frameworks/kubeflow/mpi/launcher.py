"""The launcher of an MPI job: its files, its environment and the additions to its pod and to those of the workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from dlop import JsonObject
from dlop.policies.mpi import (
    HOSTFILE,
    IDLE_COMMAND,
    REMOTE_SHELL,
    LauncherObjects,
    LauncherPods,
    hostfile,
    launcher_template,
    mpi_path,
    remote_shell,
    worker_names,
)

if TYPE_CHECKING:
    from dlop.frameworks.kubeflow.mpi.job import MPIJob

_DISCOVERY = "discover_hosts.sh"
_DELIVERY_RESOURCES = {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "5Gi"}
PODS = LauncherPods(
    config_volume="mpi-job-config",
    kubectl_volume="mpi-job-kubectl",
    delivery_resources={"limits": _DELIVERY_RESOURCES, "requests": _DELIVERY_RESOURCES},
    further_scripts=(_DISCOVERY,),
)
_OPEN_MPI = {"OMPI_MCA_plm_rsh_agent": mpi_path(REMOTE_SHELL), "OMPI_MCA_orte_default_hostfile": mpi_path(HOSTFILE)}
_INTEL_MPI = {"I_MPI_HYDRA_BOOTSTRAP": "rsh", "I_MPI_HYDRA_BOOTSTRAP_EXEC": mpi_path(REMOTE_SHELL)}
# Hides the GPUs of the node from a launcher that requests none.
_NO_GPU = {"NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}


class KubeflowLauncherObjects(LauncherObjects["MPIJob"]):
    """A launcher with GPUs runs processes, too."""

    def scripts(self, job: MPIJob, *, running: Sequence[str]) -> Mapping[str, str]:
        workers, slots = worker_names(job), job.spec_field.get("slotsPerWorker").integer(1)
        launcher = job.launcher_name if requests_gpu(launcher_template(job)) else ""
        return {
            HOSTFILE: hostfile([launcher, *workers] if launcher else workers, slots=slots),
            _DISCOVERY: discover_hosts(running, slots=slots, launcher=launcher),
            REMOTE_SHELL: remote_shell(job.spec_field.get("mainContainer").string()),
        }


def with_idle_command(spec: JsonObject) -> JsonObject:
    """The pod spec of a worker, whose first container sleeps unless the user has set a command."""
    first, *others = spec["containers"]
    return spec if first.get("command") else {**spec, "containers": [{**first, **IDLE_COMMAND}, *others]}


def launcher_env(template: JsonObject) -> dict[str, str]:
    """Variables that make Open MPI and Intel MPI use the remote shell. The user's variables for Intel MPI take precedence."""
    user_variables = {str(variable.get("name")) for variable in template["spec"]["containers"][0].get("env") or []}
    intel = {name: value for name, value in _INTEL_MPI.items() if name not in user_variables}
    return {**_OPEN_MPI, **({} if requests_gpu(template) else _NO_GPU), **intel}


def requests_gpu(template: JsonObject) -> bool:
    """Whether a container has a GPU limit."""
    resources = (container.get("resources") for container in template["spec"]["containers"])
    limits = (requirements.get("limits") for requirements in resources if isinstance(requirements, dict))
    return any("gpu" in str(name) for limit in limits if isinstance(limit, dict) for name in limit)


def discover_hosts(running: Iterable[str], *, slots: int, launcher: str = "") -> str:
    """A script for Horovod that prints the running hosts. The launcher, if it runs processes too, comes first."""
    first = f"\necho {launcher}:{slots}\n" if launcher else ""
    return "#!/bin/sh" + first + "".join(f"\necho {host}:{slots}" for host in sorted(running))
