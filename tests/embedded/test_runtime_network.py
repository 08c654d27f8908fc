"""Both runtimes: pods have addresses, are reached under them, and find each other by name."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from dlop.embedded.kubelet.runtime.base import Runtime
from dlop.embedded.kubelet.runtime.namespaces import NamespacesRuntime
from dlop.embedded.kubelet.runtime.plain import PlainRuntime
from tests.embedded.runtime_kit import MODES, Output, Pod, Pods, pods_in, pods_of

SERVER = """
import os, socket, sys
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
while True:
    connection, _ = server.accept()
    connection.sendall(sys.argv[3].encode())
    connection.close()
"""
CLIENT = """
import socket, sys
print(socket.create_connection((sys.argv[1], int(sys.argv[2])), 5).makefile().read())
"""
RESOLVE = "import socket, sys; sys.stdin.readline(); print(socket.gethostbyname('early.default.svc'), flush=True); "


# One runtime for all tests here: they make pods of their own.
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=MODES)
async def runtime(request: pytest.FixtureRequest) -> AsyncIterator[Runtime]:
    async with MODES[request.param]() as runtime:
        yield runtime


@pytest_asyncio.fixture(loop_scope="module")
async def pods(runtime: Runtime, tmp_path: Path) -> AsyncIterator[Pods]:
    async with pods_in(runtime, tmp_path) as pods:
        yield pods


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def namespaces() -> AsyncIterator[Runtime]:
    async with NamespacesRuntime() as runtime:
        yield runtime


@pytest_asyncio.fixture(loop_scope="module")
async def isolated(namespaces: Runtime, tmp_path: Path) -> AsyncIterator[Pods]:
    async with pods_in(namespaces, tmp_path) as pods:
        yield pods


async def serve(pod: Pod, *, at: str, port: int, saying: str) -> Output:
    _, output = await pod.start_with_output(sys.executable, "-c", SERVER, at, str(port), saying)
    assert await output.line() == "ready", await output.rest()
    return output


async def test_pods_have_addresses_of_their_own_and_may_listen_on_the_same_port(pods: Pods) -> None:
    one, two = await pods.pod("one"), await pods.pod("two")
    assert one.sandbox.address != two.sandbox.address
    for pod, name in ((one, "one"), (two, "two")):
        await serve(pod, at=pod.sandbox.address, port=9091, saying=f"I am {name}")
    for pod in (one, two):
        assert (await pod.run(sys.executable, "-c", CLIENT, one.sandbox.address, "9091"))[1] == "I am one"
        assert (await pod.run(sys.executable, "-c", CLIENT, two.sandbox.address, "9091"))[1] == "I am two"


async def test_pods_may_listen_everywhere_on_the_same_port(isolated: Pods) -> None:
    one, two = await isolated.pod("one"), await isolated.pod("two")
    await serve(one, at="0.0.0.0", port=9091, saying="one")
    await serve(two, at="0.0.0.0", port=9091, saying="two")
    assert (await one.run(sys.executable, "-c", CLIENT, two.sandbox.address, "9091"))[1] == "two"
    assert (await one.run(sys.executable, "-c", CLIENT, "localhost", "9091"))[1] == "one"


@pytest.mark.parametrize("at", ["its address", "127.0.0.1", "0.0.0.0"])
async def test_a_port_of_a_pod_is_reached_wherever_it_listens(pods: Pods, at: str) -> None:
    pod, port = await pods.pod(), _free_port()
    await serve(pod, at=pod.sandbox.address if at == "its address" else at, port=port, saying="hello")
    assert await _read(pod, port) == b"hello"


async def test_a_port_where_nobody_listens_is_refused(pods: Pods) -> None:
    pod = await pods.pod()
    with pytest.raises(ConnectionRefusedError):
        await pod.sandbox.connect(_free_port())


async def test_a_probe_does_not_reach_what_listens_on_localhost_only(pods: Pods) -> None:
    pod, port = await pods.pod(), _free_port()
    await serve(pod, at="127.0.0.1", port=port, saying="hello")
    with pytest.raises(ConnectionRefusedError):
        await pod.sandbox.connect(port, address=pod.sandbox.address)
    assert await _read(pod, port, address="127.0.0.1") == b"hello"


async def test_a_pod_knows_its_own_name(isolated: Pods) -> None:
    pod = await isolated.pod("job-worker-0")
    _, text = await pod.shell("hostname; cat /etc/hostname; getent hosts job-worker-0")
    assert text.split() == ["job-worker-0", "job-worker-0", pod.sandbox.address, "job-worker-0"]


async def test_new_names_are_known_to_processes_that_run_already(isolated: Pods) -> None:
    pod = await isolated.pod()
    read, write = os.pipe()
    try:
        _, output = await pod.start_with_output(sys.executable, "-c", RESOLVE * 2, stdin=read)
        for text in ("10.1.2.3\tearly.default.svc\n" * 50, "10.9.9.9\tearly.default.svc\n"):
            pod.sandbox.write_hosts(text)
            os.write(write, b"\n")
            assert await output.line() == text.split()[0]
    finally:
        os.close(read)
        os.close(write)


async def test_an_unknown_name_is_refused_at_once(isolated: Pods) -> None:
    pod = await isolated.pod()
    loop = asyncio.get_running_loop()
    before = loop.time()
    exit_, _ = await pod.run("getent", "hosts", "nobody.default.svc.cluster.local")
    assert exit_.code == 2
    assert loop.time() - before < 3


async def test_where_there_is_no_hosts_file_names_are_put_into_arguments_and_variables(tmp_path: Path) -> None:
    async with pods_of(PlainRuntime(), tmp_path) as pods:
        names = {"job-worker-0": "127.1.0.1", "job-worker-0.default.svc": "127.1.0.1"}
        pod = await pods.pod(names=names)
        names["late"] = "127.1.0.9"
        _, text = await pod.shell("echo $PEERS job-worker-0", environment={"PEERS": "job-worker-0.default.svc:22,late:22"})
        assert text == "127.1.0.1:22,127.1.0.9:22 127.1.0.1"


async def test_a_pod_on_the_host_network_is_on_the_host_network(pods: Pods) -> None:
    pod = await pods.pod(host_network=True)
    assert pod.sandbox.address == "127.0.0.1"
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        loop = asyncio.get_running_loop()
        accepting = asyncio.create_task(loop.sock_accept(server))
        run = asyncio.create_task(pod.run(sys.executable, "-c", CLIENT, "127.0.0.1", str(server.getsockname()[1])))
        connection, _ = await accepting
        with connection:
            await loop.sock_sendall(connection, b"the host")
        assert (await run)[1] == "the host"


async def test_pods_can_have_names_and_addresses_on_the_hosts_network_too(tmp_path: Path) -> None:
    async with pods_of(NamespacesRuntime(host_network=True), tmp_path) as pods:
        one, two = await pods.pod("one"), await pods.pod("two")
        one.sandbox.write_hosts(f"{two.sandbox.address}\ttwo.jobs.svc\n")
        for pod, name in ((one, "one"), (two, "two")):
            await serve(pod, at=pod.sandbox.address, port=9091, saying=f"I am {name}")
        assert (await one.run(sys.executable, "-c", CLIENT, "two.jobs.svc", "9091"))[1] == "I am two"
        assert await _read(one, 9091) == b"I am one"


async def test_other_pods_do_not_see_the_hosts_network(isolated: Pods) -> None:
    pod = await isolated.pod()
    with socket.create_server(("127.0.0.1", 0)) as server:
        exit_, text = await pod.run(sys.executable, "-c", CLIENT, "127.0.0.1", str(server.getsockname()[1]))
    assert exit_.code == 1
    assert "ConnectionRefusedError" in text


async def test_two_runtimes_at_once_do_not_meet(pods: Pods, tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    async with pods_of(type(pods.runtime)(), tmp_path / "second") as others:
        mine, theirs = await pods.pod(), await others.pod()
        await serve(mine, at=mine.sandbox.address, port=9091, saying="first")
        await serve(theirs, at=theirs.sandbox.address, port=9091, saying="second")
        assert await _read(mine, 9091) == b"first"
        assert await _read(theirs, 9091) == b"second"


async def _read(pod: Pod, port: int, *, address: str | None = None) -> bytes:
    reader, writer = await pod.sandbox.connect(port, address=address)
    data = await reader.read()
    writer.close()
    await writer.wait_closed()
    return data


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def test_pods_reach_a_socket_of_the_node_and_this_machine_does_not_listen_there(isolated: Pods, namespaces: Runtime) -> None:
    await isolated.pod("first")  # a pod that was there before makes no difference
    listening = await namespaces.listen()
    assert listening is not None
    address, port = listening.getsockname()
    assert address == namespaces.node_address

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"from the node")
        writer.close()

    async with await asyncio.start_server(answer, sock=listening):
        pod = await isolated.pod("caller")
        assert (await pod.run(sys.executable, "-c", CLIENT, address, str(port)))[1] == "from the node"
        number = str(os.fstat(listening.fileno()).st_ino)
        assert number not in _sockets_of_this_machine()


async def test_there_is_no_such_socket_where_pods_are_on_the_machines_network() -> None:
    for runtime in (PlainRuntime(), NamespacesRuntime(host_network=True)):
        async with runtime:
            assert await runtime.listen() is None


def _sockets_of_this_machine() -> set[str]:
    return {line.split()[9] for line in Path("/proc/net/tcp").read_text().splitlines()}
