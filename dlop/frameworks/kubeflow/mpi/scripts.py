"""What the launcher of an MPI job reads: who the workers are, and how a command gets to one of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlop import ManifestField

MOUNT = "/etc/mpi"
"""Where the files are."""
HOSTFILE, DISCOVERY, SHELL = "hostfile", "discover_hosts.sh", "kubexec.sh"
KUBECTL_MOUNT = "/opt/kube"
"""Where kubectl is brought to."""


def scripts(spec: ManifestField, *, workers: Sequence[str], running: Iterable[str], launcher: str) -> dict[str, str]:
    """All of them by name, for a job of this spec. `launcher` is empty unless it computes too."""
    slots = spec.get("slotsPerWorker").integer(1)
    return {
        HOSTFILE: hostfile([launcher, *workers] if launcher else workers, slots=slots),
        DISCOVERY: discovery(running, slots=slots, launcher=launcher),
        SHELL: shell(spec.get("mainContainer").text()),
    }


def hostfile(hosts: Iterable[str], *, slots: int) -> str:
    """All hosts that the job asks for, for `mpirun`."""
    return "".join(f"{host} slots={slots}\n" for host in hosts)


def discovery(running: Iterable[str], *, slots: int, launcher: str = "") -> str:
    """A script that tells which workers run now, for Horovod. A launcher that computes too comes first."""
    first = f"\necho {launcher}:{slots}\n" if launcher else ""
    return "#!/bin/sh" + first + "".join(f"\necho {host}:{slots}" for host in sorted(running))


def shell(main_container: str) -> str:
    """What takes the place of a remote shell: MPI calls it with a host and a command."""
    container = f" --container {main_container}" if main_container else ""
    command = f'{KUBECTL_MOUNT}/kubectl exec ${{POD_NAME}}{container} -- /bin/sh -c "$*"'
    return "\n".join(("#!/bin/sh", "set -x", "POD_NAME=$1", "shift", command))
