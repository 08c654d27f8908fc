"""An unmodified kubectl and a whole node: what runs in its pods is seen, entered and reached from outside."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from kubernetes_build import require_assets
from real_cluster import RealCluster

from dlop.embedded.cluster import EmbeddedCluster
from dlop.embedded.kubelet.kubelet import Node, Serving
from dlop.embedded.kubelet.runtime.detect import choose
from dlop.embedded.kubelet.server.api import HOST
from dlop.kube.client import Client
from dlop.kube.http.transport import connect
from dlop.kube.resources import NAMESPACES, NODES
from dlop.kube.types import JsonObject
from tests.embedded.kubelet_world import PATIENCE_SECONDS, FakePods, Terminal, World, ask, forwarded_port, read_until

_SERVER = """
import socketserver, sys

class Shout(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(self.rfile.readline().upper())

with socketserver.TCPServer(("0.0.0.0", 7000), Shout) as server:
    print("listening", flush=True)
    server.serve_forever()
"""


@pytest.fixture(params=["embedded", "real"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """A node on the embedded server and on the real one."""
    kubectl = require_assets(("kubectl",))["kubectl"]
    cluster: RealCluster | None = request.getfixturevalue("real_cluster") if request.param == "real" else None
    serving = Serving("secret", cluster.kubelet_client_certificate.read_text() if cluster else None)
    namespace, name = f"local-{uuid.uuid4().hex[:8]}", f"node-{uuid.uuid4().hex[:8]}"
    async with AsyncExitStack() as stack:
        embedded = None if cluster else await stack.enter_async_context(EmbeddedCluster())
        if embedded is not None:
            kubeconfig = tmp_path / "kubeconfig"
            kubeconfig.write_text(json.dumps((await embedded.serve()).kubeconfig()))
        else:
            assert cluster is not None
            kubeconfig = cluster.kubeconfig_path
        client = Client(await connect(kubeconfig))
        stack.push_async_callback(client.close)
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        runtime = (await choose()).runtime
        node = await stack.enter_async_context(Node(client, runtime=runtime, folder=tmp_path / "node", name=name, serving=serving))
        if embedded is not None:
            assert node.kubelet is not None
            embedded.trust_node(HOST, node.kubelet.port, authority_pem=node.kubelet.authority_pem, token="secret")
        yield World(client, kubeconfig, kubectl, FakePods(tmp_path), name, namespace, tmp_path)
        await client.delete(NAMESPACES, namespace)
        await client.delete(NODES, name)


def pod(world: World, *argv: str) -> bytes:
    container: JsonObject = {"name": "main", "image": "any", "command": list(argv), "env": [{"name": "COLOUR", "value": "blue"}]}
    spec = {"nodeName": world.node, "restartPolicy": "Never", "containers": [container], "terminationGracePeriodSeconds": 0}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": spec}).encode()


async def test_kubectl_sees_enters_and_reaches_a_pod(world: World) -> None:
    await world.says("apply", "-f", "-", stdin=pod(world, sys.executable, "-c", _SERVER))
    await world.says("wait", "pod/one", "--for=condition=Ready", f"--timeout={PATIENCE_SECONDS:.0f}s")
    async with world.running("logs", "-f", "one") as logs:
        assert logs.stdout is not None
        await read_until(logs.stdout, b"listening\n")
        async with world.running("port-forward", "one", ":7000") as forward:
            assert await ask(await forwarded_port(forward), b"hello\n") == b"HELLO\n"
        assert await world.kubectl("exec", "one", "--", "sh", "-c", "echo $COLOUR; exit 3") == (
            3,
            b"blue\n",
            b"command terminated with exit code 3\n",
        )
        assert await world.says("exec", "-i", "one", "--", "cat", stdin=b"to and fro") == b"to and fro"
        complaint = await world.complains("exec", "one", "--", "nonsense")
        assert "nonsense" in complaint
        await world.says("delete", "pod", "one")
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await logs.wait() == 0


async def test_kubectl_has_a_terminal_in_a_pod(world: World) -> None:
    await world.says("apply", "-f", "-", stdin=pod(world, "sleep", "1000"))
    await world.says("wait", "pod/one", "--for=condition=Ready", f"--timeout={PATIENCE_SECONDS:.0f}s")
    async with Terminal(rows=33, columns=77) as terminal:
        words = ("exec", "-it", "one", "--", "sh")
        async with world.running(*words, stdin=terminal.far, stdout=terminal.far) as kubectl:
            terminal.type(b"stty size; echo it is $COLOUR\r")
            await read_until(terminal.screen, b"33 77\r\n")
            await read_until(terminal.screen, b"it is blue\r\n")
            terminal.type(b"exit 5\r")
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert await kubectl.wait() == 5
