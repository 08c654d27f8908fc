"""What Kubeflow's operator has in a cluster besides jobs: its definitions, its Deployment, its webhook.

They are named as it names them, and no larger than they have to be.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from dlop.api.crd import definition
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


def old_definition(kind: type[DLJob]) -> JsonObject:
    """It takes any spec, and of a status only what that operator writes."""
    found = definition(kind)
    status = {"type": "object", "properties": dict.fromkeys(_STATUS, _ANYTHING)}
    properties = {"spec": {"type": "object", **_ANYTHING}, "status": status}
    found["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    found["metadata"] = {"name": found["metadata"]["name"]}
    return found


async def install_definitions(client: Client, kinds: Iterable[type[DLJob]]) -> None:
    """So that there can be jobs."""
    await apply(client, [old_definition(kind) for kind in kinds], say=lambda _: None)


async def install_operator(client: Client, kinds: Iterable[type[DLJob]]) -> None:
    """An operator that has been at work. Nobody answers for its webhook, as if it had just been stopped."""
    *others, webhook = _operator(kinds)
    await apply(client, others, say=lambda _: None)
    await client.create(WEBHOOKS, webhook)


def write_manifests(folder: Path, kinds: Sequence[type[DLJob]]) -> None:
    """All of it, for `kubectl apply --kustomize`."""
    objects = [*map(old_definition, kinds), *_operator(kinds)]
    (folder / "all.yaml").write_text("\n---\n".join(json.dumps(body) for body in objects))
    (folder / "kustomization.yaml").write_text("resources: [all.yaml]\n")


def _operator(kinds: Iterable[type[DLJob]]) -> list[JsonObject]:
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
    """It wants to see every job that is made or changed, and lets none pass that it cannot see."""
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
