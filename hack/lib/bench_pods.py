"""Pods of the size and structure of those of a training job on a real cluster (about 3 KB of JSON)."""

from __future__ import annotations

from typing import Any

_TIMESTAMP = "2026-01-01T00:00:00Z"


def new_pod(name: str) -> dict[str, Any]:
    """The body of a create request."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": _labels(name), "ownerReferences": [_owner()]},
        "spec": {"restartPolicy": "Never", "containers": [_container()]},
    }


def stored_pod(name: str, *, resource_version: str) -> dict[str, Any]:
    """The same pod in the API server, while it is running."""
    pod = new_pod(name)
    pod["metadata"] |= {
        "uid": f"7e2f0a57-5a0b-4d1c-9f0e-{abs(hash(name)) % 10**12:012d}",
        "resourceVersion": resource_version,
        "creationTimestamp": _TIMESTAMP,
        "managedFields": [_managed_fields("dlop"), _managed_fields("kubelet")],
    }
    pod["spec"] |= {
        "nodeName": "node-17",
        "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 30,
        "tolerations": [
            {"key": f"node.kubernetes.io/{condition}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for condition in ("not-ready", "unreachable")
        ],
    }
    pod["status"] = _status()
    return pod


def _labels(name: str) -> dict[str, str]:
    return {
        "training.kubeflow.org/job-name": "bench-job",
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": name.rpartition("-")[2],
    }


def _owner() -> dict[str, Any]:
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "name": "bench-job",
        "uid": "0f2b7a1e-1111-4c4c-8d8d-123456789abc",
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _container() -> dict[str, Any]:
    variables = {"MASTER_ADDR": "bench-job-master-0", "MASTER_PORT": "23456", "WORLD_SIZE": "1000", "RANK": "17", "PYTHONUNBUFFERED": "1"}
    return {
        "name": "pytorch",
        "image": "registry.example.org/team/train:2026-01",
        "command": ["python", "/opt/train.py", "--epochs=90", "--batch-size=256"],
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "ports": [{"name": "pytorchjob-port", "containerPort": 23456, "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "8", "memory": "64Gi"}, "limits": {"nvidia.com/gpu": "1", "memory": "64Gi"}},
        "imagePullPolicy": "IfNotPresent",
    }


def _managed_fields(manager: str) -> dict[str, Any]:
    fields = {
        "f:metadata": {"f:labels": {".": {}, "f:training.kubeflow.org/job-name": {}, "f:training.kubeflow.org/replica-type": {}}},
        "f:status": {"f:phase": {}, "f:podIP": {}, "f:conditions": {'k:{"type":"Ready"}': {".": {}, "f:status": {}, "f:type": {}}}},
    }
    return {"manager": manager, "operation": "Update", "apiVersion": "v1", "time": _TIMESTAMP, "fieldsType": "FieldsV1", "fieldsV1": fields}


def _status() -> dict[str, Any]:
    types = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "phase": "Running",
        "hostIP": "10.0.0.17",
        "podIP": "10.244.3.17",
        "startTime": _TIMESTAMP,
        "qosClass": "Burstable",
        "conditions": [{"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": _TIMESTAMP} for kind in types],
        "containerStatuses": [
            {
                "name": "pytorch",
                "image": "registry.example.org/team/train:2026-01",
                "imageID": "registry.example.org/team/train@sha256:" + "5" * 64,
                "containerID": "containerd://" + "a" * 64,
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": _TIMESTAMP}},
                "lastState": {},
            }
        ],
    }
