"""A node with a kubelet server, on the embedded API server and on the real one."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from kubernetes_build import require_assets
from real_cluster import RealCluster

from dlop.embedded.cluster import EmbeddedCluster
from dlop.embedded.kubelet.server.api import HOST, KubeletServer
from dlop.kube.client import Client
from dlop.kube.http.transport import connect
from dlop.kube.resources import NAMESPACES, NODES
from tests.embedded.kubelet_env import FakePods, KubeletEnv, register_node


@pytest.fixture(params=["embedded", "real"])
async def kubelet_env(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[KubeletEnv]:
    """A node with only the kubelet's server, on the embedded API server and on the real one."""
    kubectl = require_assets(("kubectl",))["kubectl"]
    cluster: RealCluster | None = request.getfixturevalue("real_cluster") if request.param == "real" else None
    client_ca = cluster.kubelet_client_certificate.read_text() if cluster else None
    pods, node = FakePods(tmp_path), f"node-{uuid.uuid4().hex[:8]}"
    async with AsyncExitStack() as stack:
        stack.callback(pods.close)
        kubelet = await stack.enter_async_context(KubeletServer(pods, token="secret", client_ca_pem=client_ca))
        if cluster is None:
            embedded = await stack.enter_async_context(EmbeddedCluster())
            embedded.trust_kubelet(HOST, kubelet.port, ca_pem=kubelet.ca_pem, token="secret")
            kubeconfig = tmp_path / "kubeconfig"
            kubeconfig.write_text(json.dumps((await embedded.serve()).kubeconfig()))
        else:
            kubeconfig = cluster.kubeconfig_path
        client = Client(await connect(kubeconfig))
        stack.push_async_callback(client.close)
        namespace = f"local-{uuid.uuid4().hex[:8]}"
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        await register_node(client, node, kubelet.port)
        yield KubeletEnv(client, kubeconfig, kubectl, pods, node, namespace, tmp_path)
        await client.delete(NODES, node)
        await client.delete(NAMESPACES, namespace)
