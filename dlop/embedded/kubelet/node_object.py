"""The Node object and its lease, as a kubelet registers them. Pure."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dlop.kube.timestamps import format_micro_time, format_time
from dlop.kube.types import JsonObject

LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40

_KUBELET_VERSION = "v1.36.3"
_RUNTIME_VERSION = "dlop://1"
_MAX_PODS = 1000
_CONDITIONS = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProperties:
    name: str
    address: str
    """The address of the kubelet's server."""
    port: int
    cpus: float
    memory_bytes: int
    disk_bytes: int
    extended_resources: Mapping[str, int] = field(default_factory=dict)
    """Such as nvidia.com/gpu."""
    features: tuple[str, ...] = ()
    """Declared features of the kubelet's server."""

    def with_server(self, *, port: int, features: tuple[str, ...]) -> NodeProperties:
        """The same node with a kubelet server."""
        return replace(self, port=port, features=features)

    @property
    def labels(self) -> dict[str, str]:
        system, machine = platform.system().lower(), _architecture()
        return {
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": system,
            "kubernetes.io/arch": machine,
            "beta.kubernetes.io/os": system,
            "beta.kubernetes.io/arch": machine,
        }

    @property
    def capacity(self) -> dict[str, str]:
        extended_resources = {name: str(count) for name, count in self.extended_resources.items()}
        return {
            "cpu": f"{round(self.cpus * 1000)}m" if self.cpus % 1 else str(int(self.cpus)),
            "memory": f"{self.memory_bytes // 1024}Ki",
            "ephemeral-storage": f"{self.disk_bytes // 1024}Ki",
            "pods": str(_MAX_PODS),
            **extended_resources,
        }


def node_object(properties: NodeProperties, *, now: float) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": properties.name, "labels": properties.labels},
        "spec": {},
        "status": node_status(properties, now=now),
    }


def node_status(properties: NodeProperties, *, now: float) -> JsonObject:
    features = {"declaredFeatures": list(properties.features)} if properties.features else {}
    return {
        **features,
        "capacity": properties.capacity,
        "allocatable": properties.capacity,
        "conditions": [_condition(*condition, now=now) for condition in _CONDITIONS],
        "addresses": [{"type": "InternalIP", "address": properties.address}, {"type": "Hostname", "address": properties.name}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": properties.port}},
        "nodeInfo": {
            "machineID": "",
            "systemUUID": "",
            "bootID": "",
            "kernelVersion": platform.release(),
            "osImage": platform.system(),
            "containerRuntimeVersion": _RUNTIME_VERSION,
            "kubeletVersion": _KUBELET_VERSION,
            "kubeProxyVersion": "",
            "operatingSystem": platform.system().lower(),
            "architecture": _architecture(),
        },
    }


def lease_object(name: str, *, now: float, owner_uid: str) -> JsonObject:
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": owner_uid}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": format_micro_time(now)},
    }


def _condition(type: str, status: str, reason: str, message: str, *, now: float) -> JsonObject:
    now_text = format_time(now)
    return {
        "type": type,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": now_text,
        "lastTransitionTime": now_text,
    }


def _architecture() -> str:
    machine = platform.machine().lower()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
