"""A CRD in place of the built-in Ingress."""

from __future__ import annotations

from dlop.kube.types import JsonObject

INGRESS_CRD: JsonObject = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "ingresses.networking.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/1"},
    },
    "spec": {
        "group": "networking.k8s.io",
        "scope": "Namespaced",
        "names": {"plural": "ingresses", "singular": "ingress", "kind": "Ingress", "listKind": "IngressList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
"""Stands in for the built-in type, which the embedded API server does not have."""
