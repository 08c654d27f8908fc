"""The kubelet's server without kubectl: authentication, older protocols, and disconnects."""

from __future__ import annotations

import asyncio
import ssl
import struct
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import kubernetes_asyncio.client
import kubernetes_asyncio.config
import msgspec
import pytest
from client_certificate import write_client_certificate
from kubernetes_asyncio.stream import WsApiClient

from dlop.embedded.cluster import EmbeddedCluster
from dlop.embedded.kubelet.logs import STDOUT
from dlop.embedded.kubelet.server.api import HOST, KubeletServer
from dlop.embedded.kubelet.server.backend import ContainerRef, ContainerUnavailableError
from dlop.embedded.kubelet.server.log_source import LogRun, log_source
from dlop.embedded.kubelet.server.spdy import (
    DICTIONARY,
    DataFrame,
    GoAway,
    PingFrame,
    RstStream,
    SpdyError,
    SpdyReader,
    SpdyWriter,
    SynStream,
)
from dlop.embedded.kubelet.server.websocket_channels import StreamChannel
from dlop.kube.errors import ServerError
from dlop.kube.pod_logs import stream_pod_log
from dlop.kube.resources import PODS
from dlop.kube.types import JsonObject
from tests.embedded.kubelet_env import TIMEOUT_SECONDS, EchoServer, FakePods, register_node

MAIN = ContainerRef("default", "one", "main")
RUNNING = {"containerStatuses": [{"name": "main", "state": {"running": {}}}]}
TOKEN = {"authorization": "Bearer secret"}


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[FakePods]:
    pods = FakePods(tmp_path / "logs")
    pods.statuses["default", "one"] = RUNNING
    pods.start_container(MAIN)
    yield pods
    pods.close()


@asynccontextmanager
async def session_for(
    kubelet: KubeletServer, *, headers: JsonObject = TOKEN, certificate: Path | None = None
) -> AsyncIterator[aiohttp.ClientSession]:
    context = ssl.create_default_context(cadata=kubelet.ca_pem)
    if certificate is not None:
        context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    connector = aiohttp.TCPConnector(ssl=context)
    async with (
        asyncio.timeout(TIMEOUT_SECONDS),
        aiohttp.ClientSession(f"https://{HOST}:{kubelet.port}", connector=connector, headers=headers) as session,
    ):
        yield session


# --- authentication ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}, {"authorization": "Basic secret"}])
async def test_requests_without_the_token_are_unauthorized(pods: FakePods, headers: JsonObject) -> None:
    async with KubeletServer(pods, token="secret") as kubelet, session_for(kubelet, headers=headers) as session:
        for path in ("/healthz", "/containerLogs/default/one/main", "/exec/default/one/main?command=true&output=1"):
            assert (await session.get(path)).status == 401
    assert pods.started == []


async def test_a_client_certificate_of_the_ca_replaces_the_token(pods: FakePods, tmp_path: Path) -> None:
    trusted, untrusted = tmp_path / "trusted.crt", tmp_path / "untrusted.crt"
    for path in (trusted, untrusted):
        write_client_certificate(path, path.with_suffix(".key"), name="kube-apiserver")
    async with KubeletServer(pods, token="secret", client_ca_pem=trusted.read_text()) as kubelet:
        async with session_for(kubelet, headers={}, certificate=trusted) as session:
            assert (await session.get("/healthz")).status == 200
        async with session_for(kubelet, headers={}) as session:
            assert (await session.get("/healthz")).status == 401
        async with session_for(kubelet, headers={}, certificate=untrusted) as session:
            with pytest.raises(aiohttp.ClientError):
                await session.get("/healthz")


async def test_errors_have_the_status_codes_of_the_kubelet(pods: FakePods) -> None:
    async with KubeletServer(pods, token="secret") as kubelet, session_for(kubelet) as session:
        for path, status, text in (
            ("/healthz", 200, "ok"),
            ("/containerLogs/default/none/main", 404, 'pod "none" does not exist'),
            ("/containerLogs/default/one/main?tailLines=many", 400, '{"message": "Unable to decode query."}'),
            ("/exec/default/one/main?command=true", 400, "you must specify at least 1 of stdin, stdout, stderr"),
            ("/exec/default/one/other?command=true&output=1", 500, 'container not found ("other")'),
            ("/exec/default/one/main?command=true&output=1", 400, "Upgrade request required"),
        ):
            response = await session.get(path)
            assert (response.status, await response.text()) == (status, text)


# --- streams ----------------------------------------------------------------------------------------------------------


async def test_version_4_of_the_exec_protocol_is_supported(pods: FakePods) -> None:
    async with KubeletServer(pods, token="secret") as kubelet, session_for(kubelet) as session:
        path = "/exec/default/one/main?command=sh&command=-c&command=read+x;echo+got+$x;exit+4&input=1&output=1"
        async with session.ws_connect(path, protocols=("v4.channel.k8s.io",)) as socket:
            assert socket.protocol == "v4.channel.k8s.io"
            await socket.send_bytes(bytes((StreamChannel.STDIN,)) + b"this\n")
            messages = [message.data async for message in socket]
    assert messages[0] == bytes((StreamChannel.STDOUT,)) + b"got this\n"
    assert messages[-1][0] == StreamChannel.ERROR
    status = msgspec.json.decode(messages[-1][1:])
    assert (status["status"], status["details"]["causes"]) == ("Failure", [{"reason": "ExitCode", "message": "4"}])


async def test_port_forward_with_ports_in_the_query(pods: FakePods) -> None:
    async with EchoServer() as echo, KubeletServer(pods, token="secret") as kubelet, session_for(kubelet) as session:
        path = f"/portForward/default/one?port={echo.port}"
        async with session.ws_connect(path, protocols=("v4.channel.k8s.io",)) as socket:
            await socket.send_bytes(b"\0hello")
            messages = {await socket.receive_bytes() for _ in range(3)}
    port = struct.pack("<H", echo.port)
    assert messages == {b"\0" + port, b"\1" + port, b"\0HELLO"}


async def test_a_tunnel_with_invalid_data_is_closed(pods: FakePods) -> None:
    async with (
        KubeletServer(pods, token="secret") as kubelet,
        session_for(kubelet) as session,
        session.ws_connect("/portForward/default/one", protocols=("SPDY/3.1+portforward.k8s.io",)) as socket,
    ):
        await socket.send_bytes(b"\xff" * 4 + b"\0\0\0\0")
        assert [message async for message in socket] == []


async def test_streams_end_when_the_kubelet_stops(pods: FakePods) -> None:
    kubelet = KubeletServer(pods, token="secret")
    await kubelet.__aenter__()
    pods.log(MAIN, previous=False).write(b"hello\n", STDOUT)
    async with session_for(kubelet) as session:
        log = await session.get("/containerLogs/default/one/main?follow=true")
        assert await log.content.readany() == b"hello\n"
        path = "/exec/default/one/main?command=sleep&command=1000&output=1"
        async with session.ws_connect(path, protocols=("v5.channel.k8s.io",)) as socket:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await kubelet.__aexit__(None, None, None)
            assert [message async for message in socket] == []
        ended = await pods.started[0].wait()
    assert ended.code == 137


async def test_streams_leak_no_descriptors(pods: FakePods) -> None:
    def count_descriptors() -> int:
        return len(list(Path("/dev/fd").iterdir()))

    async def use_all_streams(session: aiohttp.ClientSession, port: int) -> None:
        assert await (await session.get("/containerLogs/default/one/main")).read() == b""
        for query in ("input=1&output=1&error=1", "input=1&output=1&tty=1"):
            async with session.ws_connect(f"/exec/default/one/main?command=true&{query}", protocols=("v5.channel.k8s.io",)) as socket:
                assert [message.data[0] async for message in socket] == [StreamChannel.ERROR]
        async with session.ws_connect(f"/portForward/default/one?port={port}", protocols=("v4.channel.k8s.io",)) as socket:
            await socket.receive_bytes()

    async with EchoServer() as echo, KubeletServer(pods, token="secret") as kubelet, session_for(kubelet) as session:
        await use_all_streams(session, echo.port)
        before = count_descriptors()
        for _ in range(10):
            await use_all_streams(session, echo.port)
        after = count_descriptors()
    # The last connections may still be closing.
    assert after <= before + 4


async def test_the_python_client_runs_commands_and_reads_logs(pods: FakePods) -> None:
    pods.log(MAIN, previous=False).write(b"hello\n", STDOUT)
    async with embedded_cluster(pods) as cluster:
        configuration = kubernetes_asyncio.client.Configuration()
        kubeconfig = (await cluster.serve()).kubeconfig()
        await kubernetes_asyncio.config.load_kube_config_from_dict(kubeconfig, client_configuration=configuration)
        async with WsApiClient(configuration) as ws_client:
            core = kubernetes_asyncio.client.CoreV1Api(ws_client)
            command: Any = ["sh", "-c", "echo out; echo err >&2"]
            output = await core.connect_get_namespaced_pod_exec("one", "default", command=command, stdout=True, stderr=True)
        async with kubernetes_asyncio.client.ApiClient(configuration) as api_client:
            log = await kubernetes_asyncio.client.CoreV1Api(api_client).read_namespaced_pod_log("one", "default", tail_lines=1)
    assert sorted(output.splitlines()) == ["err", "out"]
    assert log == "hello\n"


# --- through the embedded server --------------------------------------------------------------------------------------


@asynccontextmanager
async def embedded_cluster(pods: FakePods) -> AsyncIterator[EmbeddedCluster]:
    async with KubeletServer(pods, token="secret") as kubelet, EmbeddedCluster() as cluster:
        cluster.trust_kubelet(HOST, kubelet.port, ca_pem=kubelet.ca_pem, token="secret")
        await register_node(cluster.client(), "node", kubelet.port)
        spec = {"nodeName": "node", "containers": [{"name": "main", "image": "any"}]}
        await cluster.client().create(
            PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": spec}, namespace="default"
        )
        yield cluster


async def test_a_log_is_followed_in_process(pods: FakePods) -> None:
    log = pods.log(MAIN, previous=False)
    log.write(b"hello\n", STDOUT)
    async with asyncio.timeout(TIMEOUT_SECONDS), embedded_cluster(pods) as cluster:
        async with stream_pod_log(cluster.client(), "one", namespace="default", follow=True) as chunks:
            assert await anext(chunks) == b"hello\n"
            log.write(b"again\n", STDOUT)
            assert await anext(chunks) == b"again\n"
        response = await cluster.client().call("GET", "/api/v1/namespaces/default/pods/one/log", query=(("tailLines", "1"),))
        assert response.body == b"again\n"


async def test_a_cluster_stops_while_a_log_is_followed(pods: FakePods) -> None:
    log = pods.log(MAIN, previous=False)
    log.write(b"hello\n", STDOUT)
    async with asyncio.timeout(4), aiohttp.ClientSession() as session:
        async with embedded_cluster(pods) as cluster:
            http_server = await cluster.serve(tls=False)
            session.headers["authorization"] = f"Bearer {http_server.token}"
            pod = f"{http_server.url}/api/v1/namespaces/default/pods/one"
            response = await session.get(f"{pod}/log?follow=true")
            assert await response.content.readany() == b"hello\n"
            socket = await session.ws_connect(f"{pod}/exec?command=sleep&command=1000&stdout=true", protocols=("v5.channel.k8s.io",))
        assert await response.content.readany() == b""
        assert [message async for message in socket] == []


async def test_an_unknown_kubelet_is_not_called(pods: FakePods) -> None:
    async with embedded_cluster(pods) as cluster:
        status = {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}
        await cluster.client().call(
            "PATCH",
            "/api/v1/nodes/node/status",
            body={"status": status},
            content_type="application/merge-patch+json",
        )
        with pytest.raises(ServerError, match=r"the kubelet at 127\.0\.0\.1:1 is not known to this server"):
            await cluster.client().call("GET", "/api/v1/namespaces/default/pods/one/log")


# --- log selection ----------------------------------------------------------------------------------------------------

TERMINATED = {"exitCode": 1, "containerID": "dlop://a"}


@pytest.mark.parametrize(
    ("state", "last", "previous", "expected"),
    [
        ({"running": {}}, {}, False, LogRun.LATEST),
        ({"running": {}}, {}, True, 'previous terminated container "main" in pod "one" not found'),
        ({"running": {}}, {"terminated": TERMINATED}, True, LogRun.PREVIOUS),
        ({"terminated": TERMINATED}, {}, False, LogRun.LATEST),
        ({"terminated": TERMINATED}, {"terminated": TERMINATED}, True, LogRun.PREVIOUS),
        ({"waiting": {"reason": "CrashLoopBackOff"}}, {"terminated": TERMINATED}, False, LogRun.LATEST),
        ({"waiting": {"reason": "CrashLoopBackOff"}}, {"terminated": TERMINATED}, True, LogRun.LATEST),
        ({"waiting": {"reason": "PodInitializing"}}, {}, False, 'container "main" in pod "one" is waiting to start: PodInitializing'),
        ({"waiting": {"reason": "ErrImagePull"}}, {}, False, 'container "main" in pod "one" is waiting to start: image can\'t be pulled'),
        (
            {"waiting": {"reason": "ImagePullBackOff"}},
            {},
            False,
            'container "main" in pod "one" is waiting to start: trying and failing to pull image',
        ),
        ({"terminated": {"exitCode": 128}}, {}, False, 'container "main" in pod "one" is terminated'),
        ({}, {}, False, 'container "main" in pod "one" is waiting to start - no logs yet'),
        (None, {}, False, 'container "main" in pod "one" is not available'),
    ],
)
def test_the_status_selects_the_run_whose_log_is_read(
    state: JsonObject | None, last: JsonObject, previous: bool, expected: LogRun | str
) -> None:
    status = {} if state is None else {"initContainerStatuses": [{"name": "main", "state": state, "lastState": last}]}
    if isinstance(expected, LogRun):
        assert log_source("one", status, "main", previous=previous) is expected
        return
    with pytest.raises(ContainerUnavailableError) as caught:
        log_source("one", status, "main", previous=previous)
    assert str(caught.value) == expected


# --- SPDY -------------------------------------------------------------------------------------------------------------


def syn_stream(stream: int, headers: dict[str, str], deflate: zlib._Compress, *, ends: bool = False) -> bytes:
    """A SYN_STREAM frame as a client sends it."""
    strings = [word.encode() for pair in headers.items() for word in pair]
    block = struct.pack(">I", len(headers)) + b"".join(struct.pack(">I", len(word)) + word for word in strings)
    body = struct.pack(">IIBB", stream, 0, 0, 0) + deflate.compress(block) + deflate.flush(zlib.Z_SYNC_FLUSH)
    return struct.pack(">HHI", 0x8003, 1, (1 if ends else 0) << 24 | len(body)) + body


def test_the_compression_dictionary_is_that_of_the_specification() -> None:
    assert zlib.adler32(DICTIONARY) == 0xE3C6A7C2


def test_frames_are_parsed_from_chunks_of_any_size() -> None:
    deflate, writer = zlib.compressobj(zdict=DICTIONARY), SpdyWriter()
    settings = struct.pack(">HHI", 0x8003, 4, 4) + struct.pack(">I", 0)
    received = b"".join(
        (
            syn_stream(1, {"streamtype": "error", "port": "80"}, deflate, ends=True),
            syn_stream(3, {"streamtype": "data", "port": "80"}, deflate),
            settings,
            writer.data(3, b"hello"),
            writer.data(3, b"", ends=True),
            writer.ping(7),
            writer.reset(3),
            struct.pack(">HHI", 0x8003, 7, 8) + bytes(8),
        )
    )
    expected = [
        SynStream(1, {"streamtype": "error", "port": "80"}, ends=True),
        SynStream(3, {"streamtype": "data", "port": "80"}, ends=False),
        DataFrame(3, b"hello", ends=False),
        DataFrame(3, b"", ends=True),
        PingFrame(7),
        RstStream(3),
        GoAway(),
    ]
    for size in (1, 7, 1000):
        reader = SpdyReader()
        frames = [frame for position in range(0, len(received), size) for frame in reader.feed(received[position : position + size])]
        assert frames == expected


@pytest.mark.parametrize("data", [b"\x80\x02\x00\x01\0\0\0\0", b"\x80\x03\x00\x01\0\0\0\x02ab", b"\x80\x03\x00\x06\0\0\0\0"])
def test_invalid_frames_are_an_error(data: bytes) -> None:
    with pytest.raises(SpdyError):
        list(SpdyReader().feed(data))
