"""What MPI jobs of several groups have in common: a launcher that starts processes in its workers with `kubectl exec`."""

from dlop.policies.mpi.launcher_objects import (
    LauncherObjects,
    config_map_name,
    launcher_account,
    launcher_template,
    names_account,
    worker_names,
)
from dlop.policies.mpi.models import MainContainer, MPIFlags
from dlop.policies.mpi.pods import IDLE_COMMAND, KUBECTL_DELIVERY_IMAGE, LauncherPods
from dlop.policies.mpi.scripts import HOSTFILE, REMOTE_SHELL, hostfile, mpi_path, remote_shell

__all__ = [
    "HOSTFILE",
    "IDLE_COMMAND",
    "KUBECTL_DELIVERY_IMAGE",
    "REMOTE_SHELL",
    "LauncherObjects",
    "LauncherPods",
    "MPIFlags",
    "MainContainer",
    "config_map_name",
    "hostfile",
    "launcher_account",
    "launcher_template",
    "mpi_path",
    "names_account",
    "remote_shell",
    "worker_names",
]
