"""How pods reach the API server: its address in environment variables, and a service account token in files, as on a cluster.

Only pods that name a service account get this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dlop.embedded.kubelet.runtime.base import Mount
from dlop.embedded.kubelet.volumes import ProjectedFile, ProjectedFiles, set_up_volume
from dlop.kube.types import JsonObject

MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where Kubernetes clients look for the token."""
_PRIVATE, _PUBLIC = 0o600, 0o644


@dataclass(frozen=True, slots=True)
class ApiAddress:
    """The address of the API server, and the CA of its certificate."""

    host: str
    port: int
    ca_pem: str

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that in-cluster clients read."""
        port = str(self.port)
        return {"KUBERNETES_SERVICE_HOST": self.host, "KUBERNETES_SERVICE_PORT": port, "KUBERNETES_SERVICE_PORT_HTTPS": port}


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """The addresses of the API server."""

    from_pods: ApiAddress
    from_host: ApiAddress
    """For pods on the host network."""

    def for_pod(self, pod: JsonObject) -> ApiAddress | None:
        """The address for a pod. None if the pod has no service account token."""
        spec = pod["spec"]
        if spec.get("serviceAccountName", "default") == "default" or spec.get("automountServiceAccountToken") is False:
            return None
        return self.from_host if spec.get("hostNetwork") else self.from_pods


@dataclass(frozen=True, slots=True)
class PodAccess:
    """The variables and the mount for the containers of a pod."""

    environment: Mapping[str, str]
    mount: Mount | None = None

    def mounts_of(self, container: JsonObject) -> tuple[Mount, ...]:
        """The mount of the token, unless the container mounts something else at its path."""
        mount_paths = {mount["mountPath"].rstrip("/") for mount in container.get("volumeMounts") or ()}
        return () if self.mount is None or MOUNT_PATH in mount_paths else (self.mount,)


NO_ACCESS = PodAccess({})


def write_pod_access(address: ApiAddress, directory: Path, *, token: str, namespace: str) -> PodAccess:
    """Write the service account files to a directory."""
    files = {
        "token": ProjectedFile(token.encode(), _PRIVATE),
        "ca.crt": ProjectedFile(address.ca_pem.encode(), _PUBLIC),
        "namespace": ProjectedFile(namespace.encode(), _PUBLIC),
    }
    return PodAccess(address.environment, Mount(set_up_volume(ProjectedFiles(files), directory), MOUNT_PATH, read_only=True))
