"""An unmodified kubectl with a complete kubelet: logs, exec and port-forward of running pods."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

import pytest
from kubernetes_build import require_assets
from real_cluster import RealCluster

from dlop.embedded.cluster import EmbeddedCluster
from dlop.embedded.kubelet.kubelet import EmbeddedKubelet, KubeletServerConfig
from dlop.embedded.kubelet.runtime.detect import detect_runtime
from dlop.embedded.kubelet.server.api import HOST
from dlop.kube.client import Client
from dlop.kube.http.port_forward import forward_port
from dlop.kube.http.transport import connect
from dlop.kube.resources import NAMESPACES, NODES
from dlop.kube.types import JsonObject
from tests.embedded.kubelet_env import TIMEOUT_SECONDS, FakePods, KubeletEnv, Terminal, forwarded_port, read_until, send_and_receive

_SERVER = """
import socketserver, sys

class UpperCase(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(self.rfile.readline().upper())

with socketserver.TCPServer(("0.0.0.0", 7000), UpperCase) as server:
    print("listening", flush=True)
    server.serve_forever()
"""


@pytest.fixture(params=["embedded", "real"])
async def env(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[KubeletEnv]:
    """A node on the embedded API server and on the real one."""
    kubectl = require_assets(("kubectl",))["kubectl"]
    cluster: RealCluster | None = request.getfixturevalue("cluster_with_nodes") if request.param == "real" else None
    server_config = KubeletServerConfig("secret", cluster.kubelet_client_certificate.read_text() if cluster else None)
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
        runtime = (await detect_runtime()).runtime
        node = await stack.enter_async_context(
            EmbeddedKubelet(client, runtime=runtime, root_dir=tmp_path / "node", name=name, server_config=server_config)
        )
        if embedded is not None:
            assert node.server is not None
            embedded.trust_kubelet(HOST, node.server.port, ca_pem=node.server.ca_pem, token="secret")
        yield KubeletEnv(client, kubeconfig, kubectl, FakePods(tmp_path), name, namespace, tmp_path)
        await client.delete(NAMESPACES, namespace)
        await client.delete(NODES, name)


def pod(env: KubeletEnv, *argv: str) -> bytes:
    container: JsonObject = {"name": "main", "image": "any", "command": list(argv), "env": [{"name": "COLOUR", "value": "blue"}]}
    spec = {"nodeName": env.node, "restartPolicy": "Never", "containers": [container], "terminationGracePeriodSeconds": 0}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": spec}).encode()


async def test_kubectl_logs_exec_and_port_forward(env: KubeletEnv) -> None:
    await env.kubectl_output("apply", "-f", "-", stdin=pod(env, sys.executable, "-c", _SERVER))
    await env.kubectl_output("wait", "pod/one", "--for=condition=Ready", f"--timeout={TIMEOUT_SECONDS:.0f}s")
    async with env.start_kubectl("logs", "-f", "one") as logs:
        assert logs.stdout is not None
        await read_until(logs.stdout, b"listening\n")
        async with env.start_kubectl("port-forward", "one", ":7000") as forward:
            assert await send_and_receive(await forwarded_port(forward), b"hello\n") == b"HELLO\n"
        assert await env.kubectl("exec", "one", "--", "sh", "-c", "echo $COLOUR; exit 3") == (
            3,
            b"blue\n",
            b"command terminated with exit code 3\n",
        )
        assert await env.kubectl_output("exec", "-i", "one", "--", "cat", stdin=b"input") == b"input"
        error = await env.kubectl_error("exec", "one", "--", "nonsense")
        assert "nonsense" in error
        await env.kubectl_output("delete", "pod", "one")
        async with asyncio.timeout(TIMEOUT_SECONDS):
            assert await logs.wait() == 0


async def test_kubectl_exec_with_a_terminal(env: KubeletEnv) -> None:
    await env.kubectl_output("apply", "-f", "-", stdin=pod(env, "sleep", "1000"))
    await env.kubectl_output("wait", "pod/one", "--for=condition=Ready", f"--timeout={TIMEOUT_SECONDS:.0f}s")
    async with Terminal(rows=33, columns=77) as terminal:
        arguments = ("exec", "-it", "one", "--", "sh")
        async with env.start_kubectl(*arguments, stdin=terminal.slave, stdout=terminal.slave) as kubectl:
            terminal.type(b"stty size; echo it is $COLOUR\r")
            await read_until(terminal.screen, b"33 77\r\n")
            await read_until(terminal.screen, b"it is blue\r\n")
            terminal.type(b"exit 5\r")
            async with asyncio.timeout(TIMEOUT_SECONDS):
                assert await kubectl.wait() == 5


async def test_dlop_forwards_many_connections_and_reports_those_that_fail(env: KubeletEnv) -> None:
    await env.kubectl_output("apply", "-f", "-", stdin=pod(env, sys.executable, "-c", _SERVER))
    await env.kubectl_output("wait", "pod/one", "--for=condition=Ready", f"--timeout={TIMEOUT_SECONDS:.0f}s")
    transport, errors = await connect(env.kubeconfig), asyncio.Queue[str]()

    async def send(port: int, text: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(text)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            response = await reader.read(-1)
        writer.close()
        return response

    def forward(name: str, port: int) -> AbstractAsyncContextManager[int]:
        return forward_port(transport, namespace=env.namespace, pod=name, port=port, on_error=errors.put_nowait)

    try:
        async with env.start_kubectl("logs", "-f", "one") as logs:
            assert logs.stdout is not None
            await read_until(logs.stdout, b"listening\n")
        long = b"x" * 300_000 + b"\n"
        async with forward("one", 7000) as port:
            assert await asyncio.gather(*(send(port, b"hello %d\n" % number) for number in range(5)), send(port, long)) == [
                *(b"HELLO %d\n" % number for number in range(5)),
                long.upper(),
            ]
            assert errors.empty()
        async with forward("one", 7001) as port:
            assert await send(port, b"hello\n") == b""
            assert "7001" in await errors.get()
        async with forward("none", 7000) as port:
            assert await send(port, b"hello\n") == b""
            assert "/pods/none/portforward: the API server responded with HTTP 404" in await errors.get()
    finally:
        await transport.close()
