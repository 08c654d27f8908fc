"""A stopped server has no open connections."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import aiohttp
import pytest

from dlop.embedded.cluster import EmbeddedCluster
from dlop.embedded.kubelet.server.api import HOST, KubeletServer
from tests.embedded.kubelet_env import FakePods

TIMEOUT_SECONDS = 10.0


async def request(url: str, ca_pem: str) -> None:
    """Send one request. Its response shows that the server has accepted all earlier connections."""
    async with aiohttp.ClientSession() as session, session.get(url, ssl=ssl.create_default_context(cadata=ca_pem)) as response:
        await response.read()


async def read_end(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


async def test_the_kubelet_server_closes_connections_whose_handshake_is_pending(tmp_path: Path) -> None:
    async with KubeletServer(FakePods(tmp_path), token="secret") as server:
        reader, writer = await asyncio.open_connection(HOST, server.port)
        await request(f"https://{HOST}:{server.port}/healthz", server.ca_pem)
    assert await read_end(reader) == b""
    writer.close()


@pytest.mark.parametrize("handshake", [True, False])
async def test_the_api_server_closes_all_connections(handshake: bool) -> None:
    async with EmbeddedCluster() as cluster:
        server = await cluster.serve()
        assert server.ca_pem is not None
        context = ssl.create_default_context(cadata=server.ca_pem) if handshake else None
        reader, writer = await asyncio.open_connection(server.host, server.port, ssl=context)
        await request(f"{server.url}/readyz", server.ca_pem)
    assert await read_end(reader) == b""
    writer.close()
