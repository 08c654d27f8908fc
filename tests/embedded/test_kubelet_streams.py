"""The kubelet's API itself, as other clients than kubectl speak it; and what becomes of streams when a side goes."""

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
from dlop.embedded.kubelet.server.api import HOST, KubeletApi
from dlop.embedded.kubelet.server.backend import ContainerName, NotAvailableError
from dlop.embedded.kubelet.server.log_source import Run, log_source
from dlop.embedded.kubelet.server.spdy import DICTIONARY, Data, GoAway, Opened, Ping, Reset, SpdyError, SpdyReader, SpdyWriter
from dlop.embedded.kubelet.server.websocket_channels import Channel
from dlop.kube.errors import ServerError
from dlop.kube.pod_logs import pod_log
from dlop.kube.resources import PODS
from dlop.kube.types import JsonObject
from tests.embedded.kubelet_world import PATIENCE_SECONDS, Echo, FakePods, register

MAIN = ContainerName("default", "one", "main")
RUNNING = {"containerStatuses": [{"name": "main", "state": {"running": {}}}]}
TOKEN = {"authorization": "Bearer secret"}


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[FakePods]:
    pods = FakePods(tmp_path / "logs")
    pods.statuses["default", "one"] = RUNNING
    pods.begin(MAIN)
    yield pods
    pods.end()


@asynccontextmanager
async def visiting(
    kubelet: KubeletApi, *, headers: JsonObject = TOKEN, certificate: Path | None = None
) -> AsyncIterator[aiohttp.ClientSession]:
    trust = ssl.create_default_context(cadata=kubelet.authority_pem)
    if certificate is not None:
        trust.load_cert_chain(certificate, certificate.with_suffix(".key"))
    connector = aiohttp.TCPConnector(ssl=trust)
    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        aiohttp.ClientSession(f"https://{HOST}:{kubelet.port}", connector=connector, headers=headers) as session,
    ):
        yield session


# --- who may ask ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}, {"authorization": "Basic secret"}])
async def test_nobody_is_answered_without_the_token(pods: FakePods, headers: JsonObject) -> None:
    async with KubeletApi(pods, token="secret") as kubelet, visiting(kubelet, headers=headers) as session:
        for path in ("/healthz", "/containerLogs/default/one/main", "/exec/default/one/main?command=true&output=1"):
            assert (await session.get(path)).status == 401
    assert pods.started == []


async def test_who_shows_a_certificate_of_the_authority_needs_no_token(pods: FakePods, tmp_path: Path) -> None:
    known, stranger = tmp_path / "known.crt", tmp_path / "stranger.crt"
    for path in (known, stranger):
        write_client_certificate(path, path.with_suffix(".key"), name="kube-apiserver")
    async with KubeletApi(pods, token="secret", client_authority_pem=known.read_text()) as kubelet:
        async with visiting(kubelet, headers={}, certificate=known) as session:
            assert (await session.get("/healthz")).status == 200
        async with visiting(kubelet, headers={}) as session:
            assert (await session.get("/healthz")).status == 401
        async with visiting(kubelet, headers={}, certificate=stranger) as session:
            with pytest.raises(aiohttp.ClientError):
                await session.get("/healthz")


async def test_what_is_not_there_is_told(pods: FakePods) -> None:
    async with KubeletApi(pods, token="secret") as kubelet, visiting(kubelet) as session:
        for path, status, text in (
            ("/healthz", 200, "ok"),
            ("/containerLogs/default/none/main", 404, 'pod "none" does not exist'),
            ("/containerLogs/default/one/main?tailLines=many", 400, '{"message": "Unable to decode query."}'),
            ("/exec/default/one/main?command=true", 400, "you must specify at least 1 of stdin, stdout, stderr"),
            ("/exec/default/one/other?command=true&output=1", 500, 'container not found ("other")'),
            ("/exec/default/one/main?command=true&output=1", 400, "Upgrade request required"),
        ):
            answer = await session.get(path)
            assert (answer.status, await answer.text()) == (status, text)


# --- streams ----------------------------------------------------------------------------------------------------------


async def test_the_older_exec_protocol_is_spoken_too(pods: FakePods) -> None:
    async with KubeletApi(pods, token="secret") as kubelet, visiting(kubelet) as session:
        path = "/exec/default/one/main?command=sh&command=-c&command=read+x;echo+got+$x;exit+4&input=1&output=1"
        async with session.ws_connect(path, protocols=("v4.channel.k8s.io",)) as socket:
            assert socket.protocol == "v4.channel.k8s.io"
            await socket.send_bytes(bytes((Channel.STDIN,)) + b"this\n")
            messages = [message.data async for message in socket]
    assert messages[0] == bytes((Channel.STDOUT,)) + b"got this\n"
    assert messages[-1][0] == Channel.ERROR
    status = msgspec.json.decode(messages[-1][1:])
    assert (status["status"], status["details"]["causes"]) == ("Failure", [{"reason": "ExitCode", "message": "4"}])


async def test_ports_are_forwarded_for_clients_that_name_them_in_the_query(pods: FakePods) -> None:
    async with Echo() as echo, KubeletApi(pods, token="secret") as kubelet, visiting(kubelet) as session:
        path = f"/portForward/default/one?port={echo.port}"
        async with session.ws_connect(path, protocols=("v4.channel.k8s.io",)) as socket:
            await socket.send_bytes(b"\0hello")
            messages = {await socket.receive_bytes() for _ in range(3)}
    port = struct.pack("<H", echo.port)
    assert messages == {b"\0" + port, b"\1" + port, b"\0HELLO"}


async def test_a_tunnel_with_nonsense_in_it_is_closed(pods: FakePods) -> None:
    async with (
        KubeletApi(pods, token="secret") as kubelet,
        visiting(kubelet) as session,
        session.ws_connect("/portForward/default/one", protocols=("SPDY/3.1+portforward.k8s.io",)) as socket,
    ):
        await socket.send_bytes(b"\xff" * 4 + b"\0\0\0\0")
        assert [message async for message in socket] == []


async def test_streams_end_when_the_kubelet_goes(pods: FakePods) -> None:
    kubelet = KubeletApi(pods, token="secret")
    await kubelet.__aenter__()
    pods.log(MAIN, previous=False).write(b"hello\n", STDOUT)
    async with visiting(kubelet) as session:
        log = await session.get("/containerLogs/default/one/main?follow=true")
        assert await log.content.readany() == b"hello\n"
        path = "/exec/default/one/main?command=sleep&command=1000&output=1"
        async with session.ws_connect(path, protocols=("v5.channel.k8s.io",)) as socket:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await kubelet.__aexit__(None, None, None)
            assert [message async for message in socket] == []
        ended = await pods.started[0].wait()
    assert ended.code == 137


async def test_streams_leave_no_descriptor_behind(pods: FakePods) -> None:
    def descriptors() -> int:
        return len(list(Path("/dev/fd").iterdir()))

    async def use(session: aiohttp.ClientSession, port: int) -> None:
        assert await (await session.get("/containerLogs/default/one/main")).read() == b""
        for query in ("input=1&output=1&error=1", "input=1&output=1&tty=1"):
            async with session.ws_connect(f"/exec/default/one/main?command=true&{query}", protocols=("v5.channel.k8s.io",)) as socket:
                assert [message.data[0] async for message in socket] == [Channel.ERROR]
        async with session.ws_connect(f"/portForward/default/one?port={port}", protocols=("v4.channel.k8s.io",)) as socket:
            await socket.receive_bytes()

    async with Echo() as echo, KubeletApi(pods, token="secret") as kubelet, visiting(kubelet) as session:
        await use(session, echo.port)
        before = descriptors()
        for _ in range(10):
            await use(session, echo.port)
        after = descriptors()
    # The last connections may still be on their way out.
    assert after <= before + 4


async def test_the_python_client_runs_commands_and_reads_logs(pods: FakePods) -> None:
    pods.log(MAIN, previous=False).write(b"hello\n", STDOUT)
    async with embedded(pods) as cluster:
        configuration = kubernetes_asyncio.client.Configuration()
        kubeconfig = (await cluster.serve()).kubeconfig()
        await kubernetes_asyncio.config.load_kube_config_from_dict(kubeconfig, client_configuration=configuration)
        async with WsApiClient(configuration) as streaming:
            core = kubernetes_asyncio.client.CoreV1Api(streaming)
            command: Any = ["sh", "-c", "echo out; echo err >&2"]
            said = await core.connect_get_namespaced_pod_exec("one", "default", command=command, stdout=True, stderr=True)
        async with kubernetes_asyncio.client.ApiClient(configuration) as calling:
            log = await kubernetes_asyncio.client.CoreV1Api(calling).read_namespaced_pod_log("one", "default", tail_lines=1)
    assert sorted(said.splitlines()) == ["err", "out"]
    assert log == "hello\n"


# --- through the embedded server --------------------------------------------------------------------------------------


@asynccontextmanager
async def embedded(pods: FakePods) -> AsyncIterator[EmbeddedCluster]:
    async with KubeletApi(pods, token="secret") as kubelet, EmbeddedCluster() as cluster:
        cluster.trust_node(HOST, kubelet.port, authority_pem=kubelet.authority_pem, token="secret")
        await register(cluster.client(), "node", kubelet.port)
        spec = {"nodeName": "node", "containers": [{"name": "main", "image": "any"}]}
        await cluster.client().create(
            PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": spec}, namespace="default"
        )
        yield cluster


async def test_a_log_is_followed_without_a_front(pods: FakePods) -> None:
    log = pods.log(MAIN, previous=False)
    log.write(b"hello\n", STDOUT)
    async with asyncio.timeout(PATIENCE_SECONDS), embedded(pods) as cluster:
        async with pod_log(cluster.client(), "one", namespace="default", follow=True) as pieces:
            assert await anext(pieces) == b"hello\n"
            log.write(b"again\n", STDOUT)
            assert await anext(pieces) == b"again\n"
        whole = await cluster.client().call("GET", "/api/v1/namespaces/default/pods/one/log", query=(("tailLines", "1"),))
        assert whole.body == b"again\n"


async def test_a_cluster_ends_though_a_log_is_followed(pods: FakePods) -> None:
    log = pods.log(MAIN, previous=False)
    log.write(b"hello\n", STDOUT)
    async with asyncio.timeout(4), aiohttp.ClientSession() as session:
        async with embedded(pods) as cluster:
            front = await cluster.serve(tls=False)
            session.headers["authorization"] = f"Bearer {front.token}"
            pod = f"{front.url}/api/v1/namespaces/default/pods/one"
            answer = await session.get(f"{pod}/log?follow=true")
            assert await answer.content.readany() == b"hello\n"
            socket = await session.ws_connect(f"{pod}/exec?command=sleep&command=1000&stdout=true", protocols=("v5.channel.k8s.io",))
        assert await answer.content.readany() == b""
        assert [message async for message in socket] == []


async def test_a_kubelet_that_is_not_known_is_not_called(pods: FakePods) -> None:
    async with embedded(pods) as cluster:
        status = {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}
        await cluster.client().call(
            "PATCH",
            "/api/v1/nodes/node/status",
            body={"status": status},
            content_type="application/merge-patch+json",
        )
        with pytest.raises(ServerError, match=r"the kubelet at 127\.0\.0\.1:1 is not known to this server"):
            await cluster.client().call("GET", "/api/v1/namespaces/default/pods/one/log")


# --- which log --------------------------------------------------------------------------------------------------------

ENDED = {"exitCode": 1, "containerID": "dlop://a"}


@pytest.mark.parametrize(
    ("state", "last", "previous", "expected"),
    [
        ({"running": {}}, {}, False, Run.LATEST),
        ({"running": {}}, {}, True, 'previous terminated container "main" in pod "one" not found'),
        ({"running": {}}, {"terminated": ENDED}, True, Run.BEFORE),
        ({"terminated": ENDED}, {}, False, Run.LATEST),
        ({"terminated": ENDED}, {"terminated": ENDED}, True, Run.BEFORE),
        ({"waiting": {"reason": "CrashLoopBackOff"}}, {"terminated": ENDED}, False, Run.LATEST),
        ({"waiting": {"reason": "CrashLoopBackOff"}}, {"terminated": ENDED}, True, Run.LATEST),
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
def test_the_status_says_which_run_is_shown(state: JsonObject | None, last: JsonObject, previous: bool, expected: Run | str) -> None:
    status = {} if state is None else {"initContainerStatuses": [{"name": "main", "state": state, "lastState": last}]}
    if isinstance(expected, Run):
        assert log_source("one", status, "main", previous=previous) is expected
        return
    with pytest.raises(NotAvailableError) as caught:
        log_source("one", status, "main", previous=previous)
    assert str(caught.value) == expected


# --- SPDY -------------------------------------------------------------------------------------------------------------


def opening(stream: int, headers: dict[str, str], deflate: zlib._Compress, *, ends: bool = False) -> bytes:
    """A SYN_STREAM as a client makes it."""
    words = [word.encode() for pair in headers.items() for word in pair]
    block = struct.pack(">I", len(headers)) + b"".join(struct.pack(">I", len(word)) + word for word in words)
    body = struct.pack(">IIBB", stream, 0, 0, 0) + deflate.compress(block) + deflate.flush(zlib.Z_SYNC_FLUSH)
    return struct.pack(">HHI", 0x8003, 1, (1 if ends else 0) << 24 | len(body)) + body


def test_headers_are_compressed_against_the_dictionary_of_the_specification() -> None:
    assert zlib.adler32(DICTIONARY) == 0xE3C6A7C2


def test_frames_are_read_however_they_are_cut() -> None:
    deflate, writer = zlib.compressobj(zdict=DICTIONARY), SpdyWriter()
    settings = struct.pack(">HHI", 0x8003, 4, 4) + struct.pack(">I", 0)
    sent = b"".join(
        (
            opening(1, {"streamtype": "error", "port": "80"}, deflate, ends=True),
            opening(3, {"streamtype": "data", "port": "80"}, deflate),
            settings,
            writer.data(3, b"hello"),
            writer.data(3, b"", ends=True),
            writer.ping(7),
            writer.reset(3),
            struct.pack(">HHI", 0x8003, 7, 8) + bytes(8),
        )
    )
    expected = [
        Opened(1, {"streamtype": "error", "port": "80"}, ends=True),
        Opened(3, {"streamtype": "data", "port": "80"}, ends=False),
        Data(3, b"hello", ends=False),
        Data(3, b"", ends=True),
        Ping(7),
        Reset(3),
        GoAway(),
    ]
    for size in (1, 7, 1000):
        reader = SpdyReader()
        found = [frame for place in range(0, len(sent), size) for frame in reader.feed(sent[place : place + size])]
        assert found == expected


@pytest.mark.parametrize("nonsense", [b"\x80\x02\x00\x01\0\0\0\0", b"\x80\x03\x00\x01\0\0\0\x02ab", b"\x80\x03\x00\x06\0\0\0\0"])
def test_what_is_no_frame_is_refused(nonsense: bytes) -> None:
    with pytest.raises(SpdyError):
        list(SpdyReader().feed(nonsense))
