"""Files for the launcher of an MPI job: the host file, the host discovery script and the remote shell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlop import ManifestField

MOUNT = "/etc/mpi"
"""Mount path of the files."""
HOSTFILE, DISCOVERY, SHELL = "hostfile", "discover_hosts.sh", "kubexec.sh"
KUBECTL_MOUNT = "/opt/kube"
"""Mount path of the volume with kubectl."""


def build_scripts(spec: ManifestField, *, workers: Sequence[str], running: Iterable[str], launcher: str) -> dict[str, str]:
    """Contents of the files by name. `launcher` is the launcher's host name if it runs processes too, and empty otherwise."""
    slots = spec.get("slotsPerWorker").integer(1)
    return {
        HOSTFILE: hostfile([launcher, *workers] if launcher else workers, slots=slots),
        DISCOVERY: discover_hosts(running, slots=slots, launcher=launcher),
        SHELL: remote_shell(spec.get("mainContainer").string()),
    }


def hostfile(hosts: Iterable[str], *, slots: int) -> str:
    """The host file of `mpirun` with all desired hosts."""
    return "".join(f"{host} slots={slots}\n" for host in hosts)


def discover_hosts(running: Iterable[str], *, slots: int, launcher: str = "") -> str:
    """A script for Horovod that prints the running hosts. The launcher, if it runs processes too, comes first."""
    first = f"\necho {launcher}:{slots}\n" if launcher else ""
    return "#!/bin/sh" + first + "".join(f"\necho {host}:{slots}" for host in sorted(running))


def remote_shell(main_container: str) -> str:
    """A replacement for ssh that MPI calls with a host and a command."""
    container = f" --container {main_container}" if main_container else ""
    command = f'{KUBECTL_MOUNT}/kubectl exec ${{POD_NAME}}{container} -- /bin/sh -c "$*"'
    return "\n".join(("#!/bin/sh", "set -x", "POD_NAME=$1", "shift", command))
