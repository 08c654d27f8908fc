"""The Node object and its lease, as a kubelet registers them. Pure."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dlop.kube.timestamps import to_the_microsecond, to_the_second
from dlop.kube.types import JsonObject

LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40

_VERSION = "v1.36.3"
_RUNTIME_VERSION = "dlop://1"
_MOST_PODS = 1000
_CONDITIONS = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What a node says of itself."""

    name: str
    address: str
    """Where its API is reached."""
    port: int
    cpus: float
    memory_bytes: int
    disk_bytes: int
    extended: Mapping[str, int] = field(default_factory=dict)
    """Other resources, such as nvidia.com/gpu."""
    features: tuple[str, ...] = ()
    """What its API can do."""

    def served_at(self, *, port: int, features: tuple[str, ...]) -> NodeFacts:
        """The same node, with an API."""
        return replace(self, port=port, features=features)

    @property
    def labels(self) -> dict[str, str]:
        """Those that every node has."""
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
        """How much there is of everything."""
        extended = {name: str(count) for name, count in self.extended.items()}
        return {
            "cpu": f"{round(self.cpus * 1000)}m" if self.cpus % 1 else str(int(self.cpus)),
            "memory": f"{self.memory_bytes // 1024}Ki",
            "ephemeral-storage": f"{self.disk_bytes // 1024}Ki",
            "pods": str(_MOST_PODS),
            **extended,
        }


def node_object(facts: NodeFacts, *, now: float) -> JsonObject:
    """A Node that is ready for pods."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": facts.name, "labels": facts.labels},
        "spec": {},
        "status": node_status(facts, now=now),
    }


def node_status(facts: NodeFacts, *, now: float) -> JsonObject:
    """Its status."""
    features = {"declaredFeatures": list(facts.features)} if facts.features else {}
    return {
        **features,
        "capacity": facts.capacity,
        "allocatable": facts.capacity,
        "conditions": [_condition(*each, now=now) for each in _CONDITIONS],
        "addresses": [{"type": "InternalIP", "address": facts.address}, {"type": "Hostname", "address": facts.name}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": facts.port}},
        "nodeInfo": {
            "machineID": "",
            "systemUUID": "",
            "bootID": "",
            "kernelVersion": platform.release(),
            "osImage": platform.system(),
            "containerRuntimeVersion": _RUNTIME_VERSION,
            "kubeletVersion": _VERSION,
            "kubeProxyVersion": "",
            "operatingSystem": platform.system().lower(),
            "architecture": _architecture(),
        },
    }


def lease_object(name: str, *, now: float, owner_uid: str) -> JsonObject:
    """The sign of life of a node."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": owner_uid}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": to_the_microsecond(now)},
    }


def _condition(type: str, status: str, reason: str, message: str, *, now: float) -> JsonObject:
    moment = to_the_second(now)
    return {
        "type": type,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": moment,
        "lastTransitionTime": moment,
    }


def _architecture() -> str:
    machine = platform.machine().lower()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
