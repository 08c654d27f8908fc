"""The official client in a pod with a service account, as pipelines use it.

Run with `python -m tests.local.official_client.in_pod NAMESPACE`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from kubernetes import client, config

from tests.local.official_client.functions import ECHO_IMAGE, IMAGE
from tests.local.official_client.helpers import wait_until

NAME = "author"
JOB = "from-inside"

_PROGRAM = f"""
from kubeflow.training import TrainingClient
training = TrainingClient()
training.create_job(name="{JOB}", base_image="{ECHO_IMAGE}", num_workers=1)
training.wait_for_job_conditions("{JOB}", polling_interval=0.1, wait_timeout=100)
print(training.namespace, training.get_job_logs("{JOB}")[0])
try:
    training.delete_job("{JOB}")
except RuntimeError as error:
    print("(403)" in str(error))
"""
_RULES = [
    {"apiGroups": ["kubeflow.org"], "resources": ["pytorchjobs"], "verbs": ["create", "get"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
]


def main(namespace: str) -> None:
    """The service account may create and get jobs, but not delete them."""
    config.load_kube_config()
    pods, rbac, named = client.CoreV1Api(), client.RbacAuthorizationV1Api(), {"metadata": {"name": NAME}}
    pods.create_namespaced_service_account(namespace, named)
    rbac.create_namespaced_role(namespace, {**named, "rules": _RULES})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAME}
    account = {"kind": "ServiceAccount", "name": NAME, "namespace": namespace}
    rbac.create_namespaced_role_binding(namespace, {**named, "roleRef": role, "subjects": [account]})
    pods.create_namespaced_pod(namespace, {**named, "spec": _pod()})
    phase = wait_until(lambda: _terminal_phase(pods.read_namespaced_pod(NAME, namespace)))
    log_lines = pods.read_namespaced_pod_log(NAME, namespace).splitlines()
    client.CustomObjectsApi().delete_namespaced_custom_object("kubeflow.org", "v1", namespace, "pytorchjobs", JOB)
    print(json.dumps({"phase": phase, "logs": log_lines}))


def _pod() -> Any:
    container = {"name": "main", "image": IMAGE, "command": ["python", "-c", _PROGRAM]}
    return {"serviceAccountName": NAME, "restartPolicy": "Never", "containers": [container]}


def _terminal_phase(pod: Any) -> str:
    return pod.status.phase if pod.status.phase in ("Succeeded", "Failed") else ""


if __name__ == "__main__":
    main(*sys.argv[1:])
