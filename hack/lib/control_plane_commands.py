"""The command lines of a control plane on loopback."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

# Files in the directory of a cluster.
SIGNING_KEY = "service-account.key"
TOKENS = "tokens.csv"
CERTIFICATES = "certificates"
KUBELET_CLIENT_CERTIFICATE = "kubelet-client.crt"
KUBELET_CLIENT_KEY = "kubelet-client.key"

# There is no kubelet. Tests set the status of nodes and pods, and these controllers would delete such pods.
_CONTROLLERS_OFF = ("node-lifecycle-controller", "pod-garbage-collector-controller", "taint-eviction-controller")


def etcd(binary: Path, folder: Path, *, port: int, peer_port: int) -> list[str]:
    """One member, plain HTTP on loopback, no fsync."""
    client_url, peer_url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    return [
        str(binary),
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={client_url}",
        f"--advertise-client-urls={client_url}",
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster=default={peer_url}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def api_server(binary: Path, folder: Path, *, etcd_url: str, port: int, extra_flags: Sequence[str]) -> list[str]:
    """A kube-apiserver that generates its serving certificate unless the directory already contains one."""
    return [
        str(binary),
        f"--etcd-servers={etcd_url}",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        # Otherwise it requires a default route, which machines without a network do not have.
        "--advertise-address=127.0.0.1",
        # A loopback address is not a valid endpoint of the service `kubernetes`.
        "--endpoint-reconciler-type=none",
        f"--cert-dir={folder / CERTIFICATES}",
        f"--service-account-key-file={folder / SIGNING_KEY}",
        f"--service-account-signing-key-file={folder / SIGNING_KEY}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--token-auth-file={folder / TOKENS}",
        "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.96.0.0/16",
        # This plugin rejects pods until a controller has created the service account of the namespace.
        "--disable-admission-plugins=ServiceAccount",
        "--allow-privileged=true",
        # Nodes authenticate the server by this certificate. The server does not verify the certificates of nodes.
        f"--kubelet-client-certificate={folder / KUBELET_CLIENT_CERTIFICATE}",
        f"--kubelet-client-key={folder / KUBELET_CLIENT_KEY}",
        # Node names are not resolvable.
        "--kubelet-preferred-address-types=ExternalIP,InternalIP,Hostname",
        *extra_flags,
    ]


def controller_manager(binary: Path, folder: Path, kubeconfig: Path, *, port: int) -> list[str]:
    """All controllers that do not need a kubelet, without leader election."""
    return [
        str(binary),
        f"--kubeconfig={kubeconfig}",
        f"--service-account-private-key-file={folder / SIGNING_KEY}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={folder / 'controller-certificates'}",
        "--controllers=" + ",".join(["*", *(f"-{name}" for name in _CONTROLLERS_OFF)]),
    ]
