"""Additions to the pod templates of an MPI job: volumes with the scripts, and for the launcher kubectl and environment variables."""

from __future__ import annotations

from typing import Any

from dlop import JsonObject
from dlop.frameworks.kubeflow.mpi.scripts import DISCOVERY, HOSTFILE, KUBECTL_MOUNT, MOUNT, SHELL

_CONFIG, _KUBECTL = "mpi-job-config", "mpi-job-kubectl"
_CONFIG_MOUNT = {"name": _CONFIG, "mountPath": MOUNT}
_KUBECTL_MOUNT = {"name": _KUBECTL, "mountPath": KUBECTL_MOUNT}
_EXECUTABLE, _READABLE = 0o555, 0o444
_DELIVERY_RESOURCES = {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "5Gi"}
_OPEN_MPI = {"OMPI_MCA_plm_rsh_agent": f"{MOUNT}/{SHELL}", "OMPI_MCA_orte_default_hostfile": f"{MOUNT}/{HOSTFILE}"}
_INTEL_MPI = {"I_MPI_HYDRA_BOOTSTRAP": "rsh", "I_MPI_HYDRA_BOOTSTRAP_EXEC": f"{MOUNT}/{SHELL}"}
# Hides the GPUs of the node from a launcher that requests none.
_NO_GPU = {"NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}


def worker_spec(spec: JsonObject, *, config_map: str) -> JsonObject:
    """The pod spec of a worker. Without a command of the user, the container sleeps and waits for the launcher."""
    first = spec["containers"][0]
    default_command = {} if first.get("command") else {"command": ["sleep"], "args": ["365d"]}
    volume = _config_volume(config_map, {SHELL: _EXECUTABLE})
    return _with_volumes({**spec, "containers": [{**first, **default_command}, *spec["containers"][1:]]}, [volume], [_CONFIG_MOUNT])


def launcher_spec(spec: JsonObject, *, config_map: str, service_account: str, init_container: JsonObject) -> JsonObject:
    files = {SHELL: _EXECUTABLE, HOSTFILE: _READABLE, DISCOVERY: _EXECUTABLE}
    volumes = [{"name": _KUBECTL, "emptyDir": {}}, _config_volume(config_map, files)]
    spec = _with_volumes(spec, volumes, [_KUBECTL_MOUNT, _CONFIG_MOUNT])
    return {**spec, "serviceAccountName": service_account, "initContainers": [*_as_list(spec, "initContainers"), init_container]}


def launcher_env(template: JsonObject) -> dict[str, str]:
    """Variables that make Open MPI and Intel MPI use the remote shell. The user's variables for Intel MPI take precedence."""
    user_variables = {str(variable.get("name")) for variable in _as_list(template["spec"]["containers"][0], "env")}
    intel = {name: value for name, value in _INTEL_MPI.items() if name not in user_variables}
    return {**_OPEN_MPI, **({} if requests_gpu(template) else _NO_GPU), **intel}


def requests_gpu(template: JsonObject) -> bool:
    """Whether a container has a GPU limit."""
    resources = (container.get("resources") for container in template["spec"]["containers"])
    limits = (requirements.get("limits") for requirements in resources if isinstance(requirements, dict))
    return any("gpu" in str(name) for limit in limits if isinstance(limit, dict) for name in limit)


def _with_volumes(spec: JsonObject, volumes: list[JsonObject], mounts: list[JsonObject]) -> JsonObject:
    first, *others = spec["containers"]
    mounted = {**first, "volumeMounts": [*_as_list(first, "volumeMounts"), *mounts]}
    return {**spec, "containers": [mounted, *others], "volumes": [*_as_list(spec, "volumes"), *volumes]}


def _config_volume(config_map: str, modes: dict[str, int]) -> JsonObject:
    items = [{"key": name, "path": name, "mode": mode} for name, mode in modes.items()]
    return {"name": _CONFIG, "configMap": {"name": config_map, "items": items}}


def kubectl_delivery_container(image: str, *, namespace: str) -> JsonObject:
    """The init container that copies kubectl to the launcher's volume."""
    return {
        "name": "kubectl-delivery",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": "TARGET_DIR", "value": KUBECTL_MOUNT}, {"name": "NAMESPACE", "value": namespace}],
        "volumeMounts": [_KUBECTL_MOUNT, _CONFIG_MOUNT],
        "resources": {"limits": _DELIVERY_RESOURCES, "requests": _DELIVERY_RESOURCES},
    }


def _as_list(body: JsonObject, name: str) -> list[Any]:
    return body.get(name) or []
