"""The operator's own objects: the Deployment and what belongs to it.

The pod satisfies the `restricted` Pod Security Standard and has a read-only root file system. Metrics have no authentication: they are
bound to loopback, unless `DeployOptions.metrics_from` names the namespaces that may read them.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlop.api.constants import MANAGER
from dlop.deploy.rbac import ServiceAccountRef
from dlop.kube.types import JsonObject

DEFAULT_NAMESPACE = "dlop-system"
DEFAULT_IMAGE = "dlop:latest"
PROBES_PORT = 8080
METRICS_PORT = 8081

# The user of the image. Any other non-root UID works too.
_USER_ID = 65_532
_LABELS = {"app.kubernetes.io/name": MANAGER}
_SELECTOR = {**_LABELS, "app.kubernetes.io/component": "operator"}
# For Prometheus configurations that discover targets by annotation, as with Kubeflow's training operator.
_PROMETHEUS_ANNOTATIONS = {"prometheus.io/scrape": "true", "prometheus.io/path": "/metrics", "prometheus.io/port": str(METRICS_PORT)}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployOptions:
    """Options of `dlop deploy` and `dlop manifests`."""

    namespace: str = DEFAULT_NAMESPACE
    image: str = DEFAULT_IMAGE
    replicas: int = 1
    """More than one: one leads, and the others are on standby."""
    watched_namespaces: tuple[str, ...] = ()
    """Namespaces whose jobs the operator runs; empty means all. If set, the operator gets Roles and no ClusterRole."""
    frameworks: tuple[str, ...] = ()
    """Frameworks in addition to the installed ones, as module:Class. The image must contain the modules."""
    kinds: tuple[str, ...] = ()
    """Kinds that the operator runs; empty means all."""
    permission_sets: tuple[str, ...] = ()
    """Optional permission sets, as NAME or NAME:NAMESPACE; see `rbac.py`."""
    metrics_from: tuple[str, ...] = ()
    """Namespaces whose pods may read the metrics. If empty, the metrics are bound to loopback."""
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
            "ports": [{"name": "metrics", "port": 8080, "targetPort": "metrics", "protocol": "TCP"}],
        },
    }


def network_policy(options: DeployOptions) -> JsonObject:
    """Allows ingress to the probes, and to the metrics from `metrics_from`. Egress is not restricted: the API server can be anywhere."""
    # Not restricted to the kubelet: its address as seen by the pod depends on the network plugin.
    ingress: list[JsonObject] = [{"ports": [{"port": PROBES_PORT, "protocol": "TCP"}]}]
    if options.metrics_from:
        names = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(options.metrics_from)}
        sources = [{"namespaceSelector": {"matchExpressions": [names]}}]
        ingress.append({"from": sources, "ports": [{"port": METRICS_PORT, "protocol": "TCP"}]})
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": MANAGER, "namespace": options.namespace, "labels": dict(_SELECTOR)},
        "spec": {"podSelector": {"matchLabels": dict(_SELECTOR)}, "policyTypes": ["Ingress"], "ingress": ingress},
    }


def pod_disruption_budget(options: DeployOptions) -> JsonObject:
    """Keeps one of two replicas during a drain. It blocks no drain: a single replica, or one that is not ready, may be evicted."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": MANAGER, "namespace": options.namespace, "labels": dict(_SELECTOR)},
        "spec": {"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow", "selector": {"matchLabels": dict(_SELECTOR)}},
    }


def deployment(options: DeployOptions) -> JsonObject:
    """The Deployment, with the default rolling update: leader election keeps a second pod idle."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": MANAGER, "namespace": options.namespace, "labels": dict(_SELECTOR)},
        "spec": {
            "replicas": options.replicas,
            "selector": {"matchLabels": dict(_SELECTOR)},
            "template": {"metadata": {"labels": dict(_SELECTOR)}, "spec": _pod_spec(options)},
        },
    }


def _pod_spec(options: DeployOptions) -> JsonObject:
    return {
        "serviceAccountName": options.account.name,
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": dict(_SELECTOR)},
            }
        ],
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
        "env": _environment(options),
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in _ports(options).items()],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 20, "timeoutSeconds": 5},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http"}, "periodSeconds": 10, "timeoutSeconds": 5},
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _ports(options: DeployOptions) -> dict[str, int]:
    return {"http": PROBES_PORT} | ({"metrics": METRICS_PORT} if options.metrics_from else {})


def _environment(options: DeployOptions) -> list[JsonObject]:
    """The settings that differ from the defaults of `dlop run`."""
    metrics_host = "" if options.metrics_from else "127.0.0.1"
    values = {"DLOP_HEALTH_PROBE_BIND_ADDRESS": f":{PROBES_PORT}", "DLOP_METRICS_BIND_ADDRESS": f"{metrics_host}:{METRICS_PORT}"}
    lists = {"DLOP_FRAMEWORKS": options.frameworks, "DLOP_KINDS": options.kinds, "DLOP_NAMESPACES": options.watched_namespaces}
    values |= {name: ",".join(items) for name, items in lists.items() if items}
    env: list[JsonObject] = [{"name": name, "value": value} for name, value in values.items()]
    if options.watched_namespaces == (options.namespace,):
        # With a field reference, the manifest stays valid when kustomize moves it to another namespace.
        env[-1] = {"name": "DLOP_NAMESPACES", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}
    return env
