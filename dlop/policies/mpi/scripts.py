"""Files for the launcher of an MPI job: the host file and the remote shell."""

from __future__ import annotations

from collections.abc import Iterable

HOSTFILE, REMOTE_SHELL = "hostfile", "kubexec.sh"
"""Names of the files."""
MOUNT = "/etc/mpi"
"""Mount path of the files."""
KUBECTL_MOUNT = "/opt/kube"
"""Mount path of the volume with kubectl."""


def mpi_path(name: str) -> str:
    """The path of a file in the pods."""
    return f"{MOUNT}/{name}"


def hostfile(hosts: Iterable[str], *, slots: int, separator: str = " slots=") -> str:
    """The host file of `mpirun` with all desired hosts. The separator between host and slots depends on the MPI implementation."""
    return "".join(f"{host}{separator}{slots}\n" for host in hosts)


def remote_shell(main_container: str) -> str:
    """A replacement for ssh that MPI calls with a host and a command. `main_container` must be a valid container name, or empty."""
    container = f" --container {main_container}" if main_container else ""
    command = f'{KUBECTL_MOUNT}/kubectl exec ${{POD_NAME}}{container} -- /bin/sh -c "$*"'
    return "\n".join(("#!/bin/sh", "set -x", "POD_NAME=$1", "shift", command))
