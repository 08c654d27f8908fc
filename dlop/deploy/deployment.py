"""The operator's own objects: namespace, service account, Deployment, and the Service for metrics.

The pod satisfies the `restricted` Pod Security Standard and has a read-only root file system.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlop.api.constants import MANAGER
from dlop.deploy.rbac import ServiceAccountRef
from dlop.kube.types import JsonObject

DEFAULT_NAMESPACE = "dlop-system"
DEFAULT_IMAGE = "dlop:latest"
HTTP_PORT = 8080
"""Serves probes and metrics."""

# The user of the image. Any other non-root UID works too.
_USER_ID = 65_532
_LABELS = {"app.kubernetes.io/name": MANAGER}
_SELECTOR = {**_LABELS, "app.kubernetes.io/component": "operator"}
# For Prometheus configurations that discover targets by annotation, as with Kubeflow's training operator.
_PROMETHEUS_ANNOTATIONS = {"prometheus.io/scrape": "true", "prometheus.io/path": "/metrics", "prometheus.io/port": str(HTTP_PORT)}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployOptions:
    """Options of `dlop deploy` and `dlop manifests`."""

    namespace: str = DEFAULT_NAMESPACE
    image: str = DEFAULT_IMAGE
    watched_namespaces: tuple[str, ...] = ()
    """Namespaces whose jobs the operator runs; empty means all. If set, the operator gets Roles and no ClusterRole."""
    frameworks: tuple[str, ...] = ()
    """Frameworks in addition to the installed ones, as module:Class. The image must contain the modules."""
    kinds: tuple[str, ...] = ()
    """Kinds that the operator runs; empty means all."""
    permission_sets: tuple[str, ...] = ()
    """Names of optional permission sets; see `rbac.py`."""
    flags: tuple[str, ...] = ()
    """Further flags of `dlop run`."""

    @property
    def account(self) -> ServiceAccountRef:
        return ServiceAccountRef(self.namespace)


def namespace(name: str) -> JsonObject:
    labels = {**_LABELS, "pod-security.kubernetes.io/enforce": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def service_account(account: ServiceAccountRef) -> JsonObject:
    metadata = {"name": account.name, "namespace": account.namespace, "labels": dict(_LABELS)}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}


def metrics_service(options: DeployOptions) -> JsonObject:
    metadata = {
        "name": f"{MANAGER}-metrics",
        "namespace": options.namespace,
        "labels": dict(_SELECTOR),
        "annotations": dict(_PROMETHEUS_ANNOTATIONS),
    }
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "selector": dict(_SELECTOR),
            "ports": [{"name": "http", "port": HTTP_PORT, "targetPort": "http", "protocol": "TCP"}],
        },
    }


def deployment(options: DeployOptions) -> JsonObject:
    """The Deployment, with the default rolling update: leader election keeps a second pod idle."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": MANAGER, "namespace": options.namespace, "labels": dict(_SELECTOR)},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": dict(_SELECTOR)},
            "template": {"metadata": {"labels": dict(_SELECTOR)}, "spec": _pod_spec(options)},
        },
    }


def _pod_spec(options: DeployOptions) -> JsonObject:
    return {
        "serviceAccountName": options.account.name,
        # Enough time to finish the running reconcile passes and to release the lease.
        "terminationGracePeriodSeconds": 30,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER_ID,
            "runAsGroup": _USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(options)],
    }


def _container(options: DeployOptions) -> JsonObject:
    return {
        "name": "operator",
        "image": options.image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["run", *options.flags],
        **_environment(options),
        "ports": [{"name": "http", "containerPort": HTTP_PORT, "protocol": "TCP"}],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 20, "timeoutSeconds": 5},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http"}, "periodSeconds": 10, "timeoutSeconds": 5},
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _environment(options: DeployOptions) -> JsonObject:
    """The `env` field with the settings that differ from the defaults of `dlop run`; empty if none does."""
    lists = {"DLOP_FRAMEWORKS": options.frameworks, "DLOP_KINDS": options.kinds, "DLOP_NAMESPACES": options.watched_namespaces}
    env: list[JsonObject] = [{"name": name, "value": ",".join(values)} for name, values in lists.items() if values]
    if options.watched_namespaces == (options.namespace,):
        # With a field reference, the manifest stays valid when kustomize moves it to another namespace.
        env[-1] = {"name": "DLOP_NAMESPACES", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}
    return {"env": env} if env else {}
