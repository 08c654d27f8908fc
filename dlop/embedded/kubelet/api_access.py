"""How pods reach the API server: its address in variables, and a token of their service account in files, as on a cluster.

Only pods that name an account get this: others have nothing to ask for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dlop.embedded.kubelet.runtime.base import Mount
from dlop.embedded.kubelet.volumes import File, Files, make
from dlop.kube.types import JsonObject

FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where programs in pods look for it."""
# As long as anything here may take: the token ends with its pod, and nobody brings another one.
TOKEN_SECONDS = 365 * 24 * 3600
_PRIVATE, _OPEN = 0o600, 0o644


@dataclass(frozen=True, slots=True)
class ApiAddress:
    """Where the API server is, and whose certificate it shows."""

    host: str
    port: int
    authority_pem: str

    @property
    def variables(self) -> Mapping[str, str]:
        """What clients in pods look for."""
        port = str(self.port)
        return {"KUBERNETES_SERVICE_HOST": self.host, "KUBERNETES_SERVICE_PORT": port, "KUBERNETES_SERVICE_PORT_HTTPS": port}


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """The API server, as pods see it."""

    from_pods: ApiAddress
    from_host: ApiAddress
    """For pods on the host's network."""

    def of(self, pod: JsonObject) -> ApiAddress | None:
        """What a pod is to be told; None for one that has no business there."""
        spec = pod["spec"]
        if spec.get("serviceAccountName", "default") == "default" or spec.get("automountServiceAccountToken") is False:
            return None
        return self.from_host if spec.get("hostNetwork") else self.from_pods


@dataclass(frozen=True, slots=True)
class PodAccess:
    """What the containers of a pod get."""

    variables: Mapping[str, str]
    files: Mount | None = None

    def mounts_of(self, container: JsonObject) -> tuple[Mount, ...]:
        """The files, unless the container has something else in their place."""
        taken = {each["mountPath"].rstrip("/") for each in container.get("volumeMounts") or ()}
        return () if self.files is None or FOLDER in taken else (self.files,)


NO_ACCESS = PodAccess({})


def pod_access(address: ApiAddress, folder: Path, *, token: str, namespace: str) -> PodAccess:
    """Write what a client needs to know into a folder."""
    files = {
        "token": File(token.encode(), _PRIVATE),
        "ca.crt": File(address.authority_pem.encode(), _OPEN),
        "namespace": File(namespace.encode(), _OPEN),
    }
    return PodAccess(address.variables, Mount(make(Files(files), folder), FOLDER, read_only=True))
