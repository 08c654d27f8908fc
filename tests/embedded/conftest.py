"""The two servers that a node of ours can belong to."""

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
from dlop.embedded.kubelet.server.api import HOST, KubeletApi
from dlop.kube.client import Client
from dlop.kube.http.transport import connect
from dlop.kube.resources import NAMESPACES, NODES
from tests.embedded.kubelet_world import FakePods, World, register


@pytest.fixture(params=["embedded", "real"])
async def kubelet_world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """A node that has only the kubelet's API, on the embedded server and on the real one."""
    kubectl = require_assets(("kubectl",))["kubectl"]
    cluster: RealCluster | None = request.getfixturevalue("real_cluster") if request.param == "real" else None
    authority = cluster.kubelet_client_certificate.read_text() if cluster else None
    pods, node = FakePods(tmp_path), f"node-{uuid.uuid4().hex[:8]}"
    async with AsyncExitStack() as stack:
        stack.callback(pods.end)
        kubelet = await stack.enter_async_context(KubeletApi(pods, token="secret", client_authority_pem=authority))
        if cluster is None:
            embedded = await stack.enter_async_context(EmbeddedCluster())
            embedded.trust_node(HOST, kubelet.port, authority_pem=kubelet.authority_pem, token="secret")
            kubeconfig = tmp_path / "kubeconfig"
            kubeconfig.write_text(json.dumps((await embedded.serve()).kubeconfig()))
        else:
            kubeconfig = cluster.kubeconfig_path
        client = Client(await connect(kubeconfig))
        stack.push_async_callback(client.close)
        namespace = f"local-{uuid.uuid4().hex[:8]}"
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        await register(client, node, kubelet.port)
        yield World(client, kubeconfig, kubectl, pods, node, namespace, tmp_path)
        await client.delete(NODES, node)
        await client.delete(NAMESPACES, namespace)
