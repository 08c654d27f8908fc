"""Replicas of two jobs in two namespaces resolve every form of service name, with and without kernel namespaces."""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from dlop.jobs.list_watch import WatchScope, list_and_watch
from dlop.kube.client import Client
from dlop.kube.http.transport import connect
from dlop.kube.objects import Pod
from dlop.kube.resources import PODS
from dlop.kube.types import JsonObject
from tests.embedded.kubelet_cases import PYTHON
from tests.frameworks.example_manifests import EXAMPLES
from tests.local.local_jobs import write_manifests
from tests.local.local_process import TIMEOUT_SECONDS, start_local

NAMESPACES = ("one", "two")
PEERS = 2

# A peer connects to every name, and answers with its identity. It exits when all connections are done.
_PEER = """
import os, socket, threading, time

rank = int(os.environ["RANK"])

def serve(server):
    for _ in range(int(os.environ["EXPECTED_CONNECTIONS"].split()[rank])):
        connection, _ = server.accept()
        connection.sendall(f"<{os.environ['JOB']}:{rank}>".encode())
        connection.close()

def connect(name):
    while True:
        try:
            with socket.create_connection((name, 7000), timeout=5) as connection:
                return connection.recv(100).decode()
        except OSError:
            time.sleep(0.05)

own = os.environ["PEERS"].split(",")[rank].partition(":")[0]
thread = threading.Thread(target=serve, args=(socket.create_server((own, 7000)),), daemon=True)
thread.start()
for target in os.environ["TARGETS"].split():
    name, _, expected = target.partition("=")
    answer = connect(name)
    print(name, answer, flush=True)
    assert answer == expected, target
thread.join()
"""


def name_forms(service: str, *, namespace: str, client_namespace: str) -> Iterator[str]:
    """All DNS names of a service."""
    if namespace == client_namespace:
        yield service
    yield from (f"{service}.{namespace}", f"{service}.{namespace}.svc", f"{service}.{namespace}.svc.cluster.local")


def connection_targets(client_namespace: str) -> Iterator[str]:
    """All names with the expected answer. Peers have headless services; `front` has a cluster IP."""
    for namespace in NAMESPACES:
        for index in range(PEERS):
            yield from (
                f"{name}=<{namespace}:{index}>"
                for name in name_forms(f"ring-peer-{index}", namespace=namespace, client_namespace=client_namespace)
            )
        yield from (f"{name}=<{namespace}:0>" for name in name_forms("front", namespace=namespace, client_namespace=client_namespace))


def expected_connections(namespace: str, index: int) -> int:
    """The number of connections to a peer from all peers of both jobs."""
    return PEERS * sum(target.endswith(f"=<{namespace}:{index}>") for other in NAMESPACES for target in connection_targets(other))


def ring(namespace: str, *, gate: Path) -> JsonObject:
    """A job whose peers connect when the gate is open, because all names exist then."""
    template = {
        "spec": {
            "volumes": [{"name": "gate", "hostPath": {"path": str(gate)}}],
            "initContainers": [
                {
                    "name": "wait",
                    "image": "none",
                    "command": ["sh", "-c", "until test -e /gate/open; do sleep 0.05; done"],
                    "volumeMounts": [{"name": "gate", "mountPath": "/gate"}],
                }
            ],
            "containers": [
                {
                    "name": "peer",
                    "image": "none",
                    "command": [PYTHON, "-c", _PEER],
                    "env": [
                        {"name": "JOB", "value": namespace},
                        {
                            "name": "EXPECTED_CONNECTIONS",
                            "value": " ".join(str(expected_connections(namespace, index)) for index in range(PEERS)),
                        },
                        {"name": "TARGETS", "value": " ".join(connection_targets(namespace))},
                    ],
                }
            ],
        }
    }
    metadata = {"name": "ring", "namespace": namespace}
    spec = {"replicaSpecs": {"Peer": {"replicas": PEERS, "restartPolicy": "Never", "template": template}}}
    return {"apiVersion": "example.org/v1", "kind": "RingJob", "metadata": metadata, "spec": spec}


def front(namespace: str) -> JsonObject:
    """A service with a cluster IP for the first peer."""
    selector = {"dlop.dev/job-name": "ring", "dlop.dev/replica-index": "0"}
    spec = {"selector": selector, "ports": [{"port": 7000}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "front", "namespace": namespace}, "spec": spec}


@pytest.mark.parametrize("isolation", [(), ("--no-namespaces",)], ids=["namespaces", "plain"])
async def test_replicas_of_two_jobs_resolve_every_form_of_name(tmp_path: Path, isolation: tuple[str, ...]) -> None:
    gate = tmp_path / "gate"
    gate.mkdir()
    file = write_manifests(tmp_path, *map(front, NAMESPACES), *(ring(namespace, gate=gate) for namespace in NAMESPACES))
    path = os.pathsep.join([str(EXAMPLES.parent), str(EXAMPLES / "04-custom-framework")])
    words = (file, "--framework", "ring:RingJob", "--logs", "--timeout", "50s", *isolation)
    async with start_local(*words, folder=tmp_path, PYTHONPATH=path) as dlop:
        await wait_for_addresses(await dlop.kubeconfig())
        (gate / "open").touch()
        result = await dlop.wait_for_exit()
    assert result.code == 0, result.out + result.err
    answers = Counter(re.findall(r"\| \S+ (<\w+:\d>)$", result.out, re.MULTILINE))
    assert answers == {
        f"<{namespace}:{index}>": expected_connections(namespace, index) for namespace in NAMESPACES for index in range(PEERS)
    }


async def wait_for_addresses(kubeconfig: Path) -> None:
    """Wait until every peer has an address."""
    client = Client(await connect(kubeconfig))
    with_address: set[str] = set()
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS), aclosing(list_and_watch(client, WatchScope(resource=PODS), Pod)) as changes:
            async for change_set in changes:
                with_address |= {pod.metadata.uid for pod in change_set.upserted if pod.status.pod_ip}
                if len(with_address) == PEERS * len(NAMESPACES):
                    return
    finally:
        await client.close()
