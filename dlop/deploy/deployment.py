"""The operator as objects of the cluster: its namespace, its account, its Deployment, the Service that metrics are read from.

It runs as nobody, on a file system that it cannot write to, without any of the kernel's special powers.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlop.api.constants import MANAGER
from dlop.deploy.rbac import ServiceAccountRef
from dlop.kube.types import JsonObject

DEFAULT_NAMESPACE = "dlop-system"
DEFAULT_IMAGE = "dlop:latest"
PROBES_PORT = 8080

# The user of that number in the image. Any other would do as well.
_USER_ID = 65_532
_LABELS = {"app.kubernetes.io/name": MANAGER}
_SELECTOR = {**_LABELS, "app.kubernetes.io/component": "operator"}
# How a Prometheus that looks for annotations finds the metrics, as it found those of Kubeflow's operator.
_SCRAPED = {"prometheus.io/scrape": "true", "prometheus.io/path": "/metrics", "prometheus.io/port": str(PROBES_PORT)}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployOptions:
    """What is to be chosen about a running operator."""

    namespace: str = DEFAULT_NAMESPACE
    image: str = DEFAULT_IMAGE
    watched_namespaces: tuple[str, ...] = ()
    """Where jobs are looked for; empty: everywhere."""
    frameworks: tuple[str, ...] = ()
    """Classes besides those that the image finds by itself, as module:Class; the image must have the modules."""
    kinds: tuple[str, ...] = ()
    """The kinds to look after; empty: all. The operator has rights to no others, and must know."""
    rights: tuple[str, ...] = ()
    """Rights besides those that every operator has, by name: see `optional.py`."""
    flags: tuple[str, ...] = ()
    """What it is started with besides."""

    @property
    def account(self) -> ServiceAccountRef:
        """The service account that it runs as."""
        return ServiceAccountRef(self.namespace)


def namespace(name: str) -> JsonObject:
    """A namespace that admits only pods that ask for nothing special."""
    labels = {**_LABELS, "pod-security.kubernetes.io/enforce": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def service_account(account: ServiceAccountRef) -> JsonObject:
    """The account that the operator runs as."""
    metadata = {"name": account.name, "namespace": account.namespace, "labels": dict(_LABELS)}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}


def metrics_service(chosen: DeployOptions) -> JsonObject:
    """Where Prometheus finds the metrics."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"{MANAGER}-metrics", "namespace": chosen.namespace, "labels": dict(_SELECTOR), "annotations": dict(_SCRAPED)},
        "spec": {
            "selector": dict(_SELECTOR),
            "ports": [{"name": "http", "port": PROBES_PORT, "targetPort": "http", "protocol": "TCP"}],
        },
    }


def deployment(chosen: DeployOptions) -> JsonObject:
    """The operator. Two may run at a time: the lease decides which of them works."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": MANAGER, "namespace": chosen.namespace, "labels": dict(_SELECTOR)},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": dict(_SELECTOR)},
            "template": {"metadata": {"labels": dict(_SELECTOR)}, "spec": _pod(chosen)},
        },
    }


def _pod(chosen: DeployOptions) -> JsonObject:
    return {
        "serviceAccountName": chosen.account.name,
        # Long enough to end the passes that are under way and to give the lease back.
        "terminationGracePeriodSeconds": 30,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER_ID,
            "runAsGroup": _USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(chosen)],
    }


def _container(chosen: DeployOptions) -> JsonObject:
    return {
        "name": "operator",
        "image": chosen.image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["run", *chosen.flags],
        **_environment(chosen),
        "ports": [{"name": "http", "containerPort": PROBES_PORT, "protocol": "TCP"}],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 20, "timeoutSeconds": 5},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http"}, "periodSeconds": 10, "timeoutSeconds": 5},
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _environment(chosen: DeployOptions) -> JsonObject:
    """Only what differs from the defaults of `dlop run`."""
    lists = {"DLOP_FRAMEWORKS": chosen.frameworks, "DLOP_KINDS": chosen.kinds, "DLOP_NAMESPACES": chosen.watched_namespaces}
    found: list[JsonObject] = [{"name": name, "value": ",".join(values)} for name, values in lists.items() if values]
    if chosen.watched_namespaces == (chosen.namespace,):
        # Said like this, the manifest stays true when it is put into another namespace.
        found[-1] = {"name": "DLOP_NAMESPACES", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}
    return {"env": found} if found else {}
