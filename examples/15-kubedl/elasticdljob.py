"""The master of the ElasticDLJob, and its workers: the master creates their pods itself, and collects a number from each of them."""

import json
import os
import ssl
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from peers import collect, contribute, reply

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
WORKERS = 2
pod = {name: os.environ.get(f"POD_{name.upper()}", "") for name in ("name", "uid", "ip", "image")}
master = f"{pod['ip']}:50001"


def worker_pod(index: int) -> dict[str, Any]:
    """The pod of a worker. Its owner is the master, so that it is deleted with it."""
    command = ["python3", "/app/elasticdljob.py", master, str(index)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod["name"].replace("-master", f"-worker-{index}"),
            "labels": {"app": "elasticdl", "replica-type": "worker", "replica-index": str(index)},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": pod["name"], "uid": pod["uid"]}],
        },
        "spec": {"restartPolicy": "Never", "containers": [{"name": "elasticdl", "image": pod["image"], "command": command}]},
    }


def create(body: dict[str, Any]) -> None:
    """Create a pod in the namespace of the master, with its service account."""
    server = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
    url = f"{server}/api/v1/namespaces/{(ACCOUNT / 'namespace').read_text()}/pods"
    headers = {"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}", "Content-Type": "application/json"}
    context = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    urlopen(Request(url, json.dumps(body).encode(), headers), context=context).close()  # noqa: S310 - the API server
    print(f"master: created {body['metadata']['name']}", flush=True)


if len(sys.argv) > 1:
    contribute(sys.argv[1], int(sys.argv[2]) + 1)
else:
    for index in range(WORKERS):
        create(worker_pod(index))
    total = collect(master, peers=WORKERS)
    print(f"master: the sum of {WORKERS} workers is {total}", flush=True)
    reply(total)
