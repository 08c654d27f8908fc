"""A minimal installation of Kubeflow's training operator: CRDs, Deployment, Service, webhook.

The objects have their original names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml

from dlop.api.crd import build_crd
from dlop.deploy.apply import DEPLOYMENTS, apply
from dlop.job import DLJob
from dlop.kube.client import Client
from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject

NAMESPACE, NAME = "kubeflow", "training-operator"
WEBHOOKS = Resource("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", False)
_LABELS = {"control-plane": "kubeflow-training-operator"}
_STATUS = ("conditions", "replicaStatuses", "startTime", "completionTime", "lastReconcileTime")
_ANYTHING: JsonObject = {"x-kubernetes-preserve-unknown-fields": True}


def kubeflow_crd(kind: type[DLJob]) -> JsonObject:
    """A CRD that accepts any spec and prunes status fields that Kubeflow's operator does not write."""
    crd = build_crd(kind)
    status = {"type": "object", "properties": dict.fromkeys(_STATUS, _ANYTHING)}
    properties = {"spec": {"type": "object", **_ANYTHING}, "status": status}
    crd["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    crd["metadata"] = {"name": crd["metadata"]["name"]}
    return crd


async def install_crds(client: Client, kinds: Iterable[type[DLJob]]) -> None:
    await apply(client, [kubeflow_crd(kind) for kind in kinds], report=lambda _: None)


async def install_operator(client: Client, kinds: Iterable[type[DLJob]]) -> None:
    """Install the operator without a process. Its webhook does not respond, as if it had just been stopped."""
    *others, webhook = _operator_objects(kinds)
    await apply(client, others, report=lambda _: None)
    await client.create(WEBHOOKS, webhook)


def write_manifests(folder: Path, kinds: Sequence[type[DLJob]]) -> None:
    """Write all manifests for `kubectl apply --kustomize`."""
    objects = [*map(kubeflow_crd, kinds), *_operator_objects(kinds)]
    (folder / "all.yaml").write_text(yaml.safe_dump_all(objects))
    (folder / "kustomization.yaml").write_text("resources: [all.yaml]\n")


def _operator_objects(kinds: Iterable[type[DLJob]]) -> list[JsonObject]:
    ports = [{"name": "monitoring-port", "port": 8080}, {"name": "webhook-server", "port": 443, "targetPort": 9443}]
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata()},
        {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(), "spec": {"selector": _LABELS, "ports": ports}},
        _deployment(),
        _webhook(kinds),
    ]


def _metadata() -> JsonObject:
    return {"name": NAME, "namespace": NAMESPACE, "labels": dict(_LABELS)}


def _deployment() -> JsonObject:
    pod = {"serviceAccountName": NAME, "containers": [{"name": NAME, "image": "example.org/training-operator:1.9.4"}]}
    spec = {"replicas": 1, "selector": {"matchLabels": _LABELS}, "template": {"metadata": {"labels": _LABELS}, "spec": pod}}
    return {"apiVersion": DEPLOYMENTS.api_version, "kind": DEPLOYMENTS.kind, "metadata": _metadata(), "spec": spec}


def _webhook(kinds: Iterable[type[DLJob]]) -> JsonObject:
    """A webhook for creates and updates of jobs, with failure policy Fail."""
    plurals = [kind.job_type.plural for kind in kinds if kind.job_type.kind != "MPIJob"]
    rule = {"apiGroups": ["kubeflow.org"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": plurals}
    webhook = {
        "name": "validator.training-operator.kubeflow.org",
        "clientConfig": {"service": {"name": NAME, "namespace": NAMESPACE, "path": "/validate"}},
        "rules": [rule],
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    metadata = {"name": "validator.training-operator.kubeflow.org"}
    return {"apiVersion": WEBHOOKS.api_version, "kind": WEBHOOKS.kind, "metadata": metadata, "webhooks": [webhook]}
