"""Replicas of two jobs in two namespaces find each other by every form of name, with and without namespaces of the kernel."""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from dlop.jobs.list_watch import WatchScope, follow
from dlop.kube.client import Client
from dlop.kube.http.transport import connect
from dlop.kube.objects import Pod
from dlop.kube.resources import PODS
from dlop.kube.types import JsonObject
from tests.embedded.kubelet_cases import PYTHON
from tests.frameworks.manifests import EXAMPLES
from tests.local.local_jobs import written
from tests.local.local_program import PATIENCE_SECONDS, running

NAMESPACES = ("one", "two")
PEERS = 2

# A peer says who it is to everybody who asks, and asks everybody. When it has asked all and all have asked it, it is done.
_PEER = """
import os, socket, threading, time

rank = int(os.environ["RANK"])

def answer(door):
    for _ in range(int(os.environ["ASKED"].split()[rank])):
        connection, _ = door.accept()
        connection.sendall(f"<{os.environ['JOB']}:{rank}>".encode())
        connection.close()

def ask(name):
    while True:
        try:
            with socket.create_connection((name, 7000), timeout=5) as connection:
                return connection.recv(100).decode()
        except OSError:
            time.sleep(0.05)

own = os.environ["PEERS"].split(",")[rank].partition(":")[0]
answering = threading.Thread(target=answer, args=(socket.create_server((own, 7000)),), daemon=True)
answering.start()
for question in os.environ["QUESTIONS"].split():
    name, _, expected = question.partition("=")
    found = ask(name)
    print(name, found, flush=True)
    assert found == expected, question
answering.join()
"""


def forms(service: str, *, namespace: str, seen_from: str) -> Iterator[str]:
    """The names of a service."""
    if namespace == seen_from:
        yield service
    yield from (f"{service}.{namespace}", f"{service}.{namespace}.svc", f"{service}.{namespace}.svc.cluster.local")


def questions(seen_from: str) -> Iterator[str]:
    """Every form of every name, and who must answer. Peers have headless services; `front` is one with an address of its own."""
    for namespace in NAMESPACES:
        for index in range(PEERS):
            yield from (f"{name}=<{namespace}:{index}>" for name in forms(f"ring-peer-{index}", namespace=namespace, seen_from=seen_from))
        yield from (f"{name}=<{namespace}:0>" for name in forms("front", namespace=namespace, seen_from=seen_from))


def asked(namespace: str, index: int) -> int:
    """How often a peer is asked: by all peers of both jobs."""
    return PEERS * sum(question.endswith(f"=<{namespace}:{index}>") for other in NAMESPACES for question in questions(other))


def ring(namespace: str, *, gate: Path) -> JsonObject:
    """A job whose peers ask their questions when the gate is open: from then on, there are all names."""
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
                        {"name": "ASKED", "value": " ".join(str(asked(namespace, index)) for index in range(PEERS))},
                        {"name": "QUESTIONS", "value": " ".join(questions(namespace))},
                    ],
                }
            ],
        }
    }
    metadata = {"name": "ring", "namespace": namespace}
    spec = {"replicaSpecs": {"Peer": {"replicas": PEERS, "restartPolicy": "Never", "template": template}}}
    return {"apiVersion": "example.org/v1", "kind": "RingJob", "metadata": metadata, "spec": spec}


def front(namespace: str) -> JsonObject:
    """A service that is not headless, for the first peer."""
    selector = {"dlop.dev/job-name": "ring", "dlop.dev/replica-index": "0"}
    spec = {"selector": selector, "ports": [{"port": 7000}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "front", "namespace": namespace}, "spec": spec}


@pytest.mark.parametrize("isolation", [(), ("--no-namespaces",)], ids=["namespaces", "plain"])
async def test_replicas_of_two_jobs_find_each_other_by_every_form_of_name(tmp_path: Path, isolation: tuple[str, ...]) -> None:
    gate = tmp_path / "gate"
    gate.mkdir()
    file = written(tmp_path, *map(front, NAMESPACES), *(ring(namespace, gate=gate) for namespace in NAMESPACES))
    path = os.pathsep.join([str(EXAMPLES.parent), str(EXAMPLES / "04-custom-framework")])
    words = (file, "--framework", "ring:RingJob", "--logs", "--timeout", "50s", *isolation)
    async with running(*words, folder=tmp_path, PYTHONPATH=path) as program:
        await all_have_addresses(await program.kubeconfig())
        (gate / "open").touch()
        ended = await program.ends()
    assert ended.code == 0, ended.out + ended.err
    answers = Counter(re.findall(r"\| \S+ (<\w+:\d>)$", ended.out, re.MULTILINE))
    assert answers == {f"<{namespace}:{index}>": asked(namespace, index) for namespace in NAMESPACES for index in range(PEERS)}


async def all_have_addresses(kubeconfig: Path) -> None:
    """Wait until every peer has an address."""
    client = Client(await connect(kubeconfig))
    known: set[str] = set()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS), aclosing(follow(client, WatchScope(resource=PODS), Pod)) as all_news:
            async for news in all_news:
                known |= {pod.metadata.uid for pod in news.there if pod.status.pod_ip}
                if len(known) == PEERS * len(NAMESPACES):
                    return
    finally:
        await client.close()
