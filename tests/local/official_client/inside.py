"""The official client in a pod, as pipelines use it: with nothing but the pod's service account.

`python -m tests.local.official_client.inside NAMESPACE` plays it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from kubernetes import client, config

from tests.local.official_client.acting import until
from tests.local.official_client.functions import IMAGE, TALKING_IMAGE

NAME = "author"
JOB = "from-inside"

_PROGRAM = f"""
from kubeflow.training import TrainingClient
training = TrainingClient()
training.create_job(name="{JOB}", base_image="{TALKING_IMAGE}", num_workers=1)
training.wait_for_job_conditions("{JOB}", polling_interval=0.1, wait_timeout=100)
print(training.namespace, training.get_job_logs("{JOB}")[0])
try:
    training.delete_job("{JOB}")
except RuntimeError as error:
    print("(403)" in str(error))
"""
_RIGHTS = [
    {"apiGroups": ["kubeflow.org"], "resources": ["pytorchjobs"], "verbs": ["create", "get"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
]


def main(namespace: str) -> None:
    """Play it: the account may create jobs and look at them, and not delete them."""
    config.load_kube_config()
    pods, rights, about = client.CoreV1Api(), client.RbacAuthorizationV1Api(), {"metadata": {"name": NAME}}
    pods.create_namespaced_service_account(namespace, about)
    rights.create_namespaced_role(namespace, {**about, "rules": _RIGHTS})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAME}
    account = {"kind": "ServiceAccount", "name": NAME, "namespace": namespace}
    rights.create_namespaced_role_binding(namespace, {**about, "roleRef": role, "subjects": [account]})
    pods.create_namespaced_pod(namespace, {**about, "spec": _pod()})
    phase = until(lambda: _end(pods.read_namespaced_pod(NAME, namespace)))
    said = pods.read_namespaced_pod_log(NAME, namespace).splitlines()
    client.CustomObjectsApi().delete_namespaced_custom_object("kubeflow.org", "v1", namespace, "pytorchjobs", JOB)
    print(json.dumps({"phase": phase, "said": said}))


def _pod() -> Any:
    container = {"name": "main", "image": IMAGE, "command": ["python", "-c", _PROGRAM]}
    return {"serviceAccountName": NAME, "restartPolicy": "Never", "containers": [container]}


def _end(pod: Any) -> str:
    return pod.status.phase if pod.status.phase in ("Succeeded", "Failed") else ""


if __name__ == "__main__":
    main(*sys.argv[1:])
