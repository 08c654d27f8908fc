"""Additions to the pod templates of an MPI job: volumes with the scripts, and for the launcher kubectl and its service account."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dlop.kube.types import JsonObject
from dlop.policies.mpi.scripts import HOSTFILE, KUBECTL_MOUNT, MOUNT, REMOTE_SHELL

IDLE_COMMAND: JsonObject = {"command": ["sleep"], "args": ["365d"]}
"""What a worker without a command runs, because the launcher starts the processes in it."""
KUBECTL_DELIVERY_IMAGE = "ghcr.io/kubeflow/training-v1/kubectl-delivery:v1-3f15cb8"
"""The image that Kubeflow published with release 1.9.2. Kubeflow's operator uses the tag `latest`, whose contents can change."""
_EXECUTABLE, _READABLE = 0o555, 0o444


@dataclass(frozen=True, kw_only=True)
class LauncherPods:
    """How a kind mounts the scripts and kubectl."""

    config_volume: str
    kubectl_volume: str
    delivery_resources: JsonObject
    """Resources of the init container that delivers kubectl."""
    further_scripts: tuple[str, ...] = ()
    """Executable files of the launcher, other than the remote shell."""
    all_containers: bool = False
    """Whether all containers mount the files, or only the first one."""

    def worker_spec(self, spec: JsonObject, *, config_map: str) -> JsonObject:
        """The pod spec of a worker with the remote shell, for which Open MPI searches in every rank."""
        return self._with_volumes(spec, [self._files(config_map, {REMOTE_SHELL: _EXECUTABLE})], [self._config_mount])

    def launcher_spec(self, spec: JsonObject, *, config_map: str, namespace: str, service_account: str, image: str) -> JsonObject:
        """The pod spec of a launcher. `image` delivers kubectl."""
        modes = {REMOTE_SHELL: _EXECUTABLE, HOSTFILE: _READABLE, **dict.fromkeys(self.further_scripts, _EXECUTABLE)}
        volumes = [{"name": self.kubectl_volume, "emptyDir": {}}, self._files(config_map, modes)]
        mounts = [{"name": self.kubectl_volume, "mountPath": KUBECTL_MOUNT}, self._config_mount]
        delivery = {
            "name": "kubectl-delivery",
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "env": [{"name": "TARGET_DIR", "value": KUBECTL_MOUNT}, {"name": "NAMESPACE", "value": namespace}],
            "volumeMounts": mounts,
            "resources": self.delivery_resources,
        }
        spec = self._with_volumes(spec, volumes, mounts)
        return {**spec, "serviceAccountName": service_account, "initContainers": [*_as_list(spec, "initContainers"), delivery]}

    @property
    def _config_mount(self) -> JsonObject:
        return {"name": self.config_volume, "mountPath": MOUNT}

    def _files(self, config_map: str, modes: dict[str, int]) -> JsonObject:
        items = [{"key": name, "path": name, "mode": mode} for name, mode in modes.items()]
        return {"name": self.config_volume, "configMap": {"name": config_map, "items": items}}

    def _with_volumes(self, spec: JsonObject, volumes: list[JsonObject], mounts: list[JsonObject]) -> JsonObject:
        count = len(spec["containers"]) if self.all_containers else 1
        mounted = [
            {**container, "volumeMounts": [*_as_list(container, "volumeMounts"), *mounts]} for container in spec["containers"][:count]
        ]
        return {**spec, "containers": [*mounted, *spec["containers"][count:]], "volumes": [*_as_list(spec, "volumes"), *volumes]}


def _as_list(body: JsonObject, name: str) -> list[Any]:
    return body.get(name) or []
