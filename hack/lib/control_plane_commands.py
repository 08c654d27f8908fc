"""The command lines of a control plane on loopback: which flags, and why."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

# Files in the folder of a cluster.
SIGNING_KEY = "service-account.key"
TOKENS = "tokens.csv"
CERTIFICATES = "certificates"
KUBELET_CLIENT_CERTIFICATE = "kubelet-client.crt"
KUBELET_CLIENT_KEY = "kubelet-client.key"

# There is no kubelet: nodes and running pods are played by tests. These controllers would clear such pods away.
_CONTROLLERS_OFF = ("node-lifecycle-controller", "pod-garbage-collector-controller", "taint-eviction-controller")


def etcd(binary: Path, folder: Path, *, port: int, peer_port: int) -> list[str]:
    """The command line of etcd: one member, plain http on loopback, no waiting for the disk."""
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
    """The command line of a kube-apiserver. It makes its own certificate, or takes the one that is there already."""
    return [
        str(binary),
        f"--etcd-servers={etcd_url}",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        # Else it looks for a default route, and machines without a network have none.
        "--advertise-address=127.0.0.1",
        # A loopback address may not be the endpoint of a service: nobody is told where this server is.
        "--endpoint-reconciler-type=none",
        f"--cert-dir={folder / CERTIFICATES}",
        f"--service-account-key-file={folder / SIGNING_KEY}",
        f"--service-account-signing-key-file={folder / SIGNING_KEY}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--token-auth-file={folder / TOKENS}",
        "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.96.0.0/16",
        # It would refuse pods until a controller has made the namespace's service account.
        "--disable-admission-plugins=ServiceAccount",
        "--allow-privileged=true",
        # A node on this machine knows the server by this certificate. Its own is not checked: nobody has vouched for it.
        f"--kubelet-client-certificate={folder / KUBELET_CLIENT_CERTIFICATE}",
        f"--kubelet-client-key={folder / KUBELET_CLIENT_KEY}",
        # Node names are not in any DNS.
        "--kubelet-preferred-address-types=ExternalIP,InternalIP,Hostname",
        *extra_flags,
    ]


def controller_manager(binary: Path, folder: Path, kubeconfig: Path, *, port: int) -> list[str]:
    """The command line of kube-controller-manager: garbage collection, namespace deletion and the rest, without a lease."""
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
