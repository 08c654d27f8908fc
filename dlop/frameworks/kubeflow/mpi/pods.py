"""What the pods of an MPI job get besides what their user wrote: the scripts, and for the launcher a kubectl."""

from __future__ import annotations

from typing import Any

from dlop.frameworks.kubeflow.mpi.scripts import DISCOVERY, HOSTFILE, KUBECTL_MOUNT, MOUNT, SHELL
from dlop.kube.types import JsonObject

_CONFIG, _KUBECTL = "mpi-job-config", "mpi-job-kubectl"
_CONFIG_MOUNT = {"name": _CONFIG, "mountPath": MOUNT}
_KUBECTL_MOUNT = {"name": _KUBECTL, "mountPath": KUBECTL_MOUNT}
_EXECUTABLE, _READABLE = 0o555, 0o444
_SIZE = {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "5Gi"}
_OPEN_MPI = {"OMPI_MCA_plm_rsh_agent": f"{MOUNT}/{SHELL}", "OMPI_MCA_orte_default_hostfile": f"{MOUNT}/{HOSTFILE}"}
_INTEL_MPI = {"I_MPI_HYDRA_BOOTSTRAP": "rsh", "I_MPI_HYDRA_BOOTSTRAP_EXEC": f"{MOUNT}/{SHELL}"}
# A launcher that has no GPU of its own must not see those of its node.
_NO_GPU = {"NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}


def worker_spec(spec: JsonObject, *, config_map: str) -> JsonObject:
    """The spec of a worker. One that is not told what to run waits for commands."""
    first = spec["containers"][0]
    waiting = {} if first.get("command") else {"command": ["sleep"], "args": ["365d"]}
    volume = _config_volume(config_map, {SHELL: _EXECUTABLE})
    return _with_volumes({**spec, "containers": [{**first, **waiting}, *spec["containers"][1:]]}, [volume], [_CONFIG_MOUNT])


def launcher_spec(spec: JsonObject, *, config_map: str, service_account: str, delivery: JsonObject) -> JsonObject:
    """The spec of the launcher."""
    files = {SHELL: _EXECUTABLE, HOSTFILE: _READABLE, DISCOVERY: _EXECUTABLE}
    volumes = [{"name": _KUBECTL, "emptyDir": {}}, _config_volume(config_map, files)]
    found = _with_volumes(spec, volumes, [_KUBECTL_MOUNT, _CONFIG_MOUNT])
    return {**found, "serviceAccountName": service_account, "initContainers": [*_listed(spec, "initContainers"), delivery]}


def launcher_variables(template: JsonObject) -> dict[str, str]:
    """How a launcher reaches the workers. What the user says to Intel MPI stands."""
    taken = {str(each.get("name")) for each in _listed(template["spec"]["containers"][0], "env")}
    intel = {name: value for name, value in _INTEL_MPI.items() if name not in taken}
    return {**_OPEN_MPI, **({} if asks_for_gpu(template) else _NO_GPU), **intel}


def asks_for_gpu(template: JsonObject) -> bool:
    """Whether a container of a pod has a GPU among its limits."""
    found = (container.get("resources") for container in template["spec"]["containers"])
    limits = (each.get("limits") for each in found if isinstance(each, dict))
    return any("gpu" in str(name) for each in limits if isinstance(each, dict) for name in each)


def _with_volumes(spec: JsonObject, volumes: list[JsonObject], mounts: list[JsonObject]) -> JsonObject:
    first, *others = spec["containers"]
    mounted = {**first, "volumeMounts": [*_listed(first, "volumeMounts"), *mounts]}
    return {**spec, "containers": [mounted, *others], "volumes": [*_listed(spec, "volumes"), *volumes]}


def _config_volume(config_map: str, modes: dict[str, int]) -> JsonObject:
    items = [{"key": name, "path": name, "mode": mode} for name, mode in modes.items()]
    return {"name": _CONFIG, "configMap": {"name": config_map, "items": items}}


def delivery(image: str, *, namespace: str) -> JsonObject:
    """What brings a kubectl to the launcher before it begins."""
    return {
        "name": "kubectl-delivery",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": "TARGET_DIR", "value": KUBECTL_MOUNT}, {"name": "NAMESPACE", "value": namespace}],
        "volumeMounts": [_KUBECTL_MOUNT, _CONFIG_MOUNT],
        "resources": {"limits": _SIZE, "requests": _SIZE},
    }


def _listed(found: JsonObject, name: str) -> list[Any]:
    return found.get(name) or []
