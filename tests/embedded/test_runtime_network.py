"""Both runtimes: pods have addresses, are reachable at them, and resolve each other's names."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from ports import ReservedPorts

from dlop.embedded.kubelet.runtime.base import Runtime
from dlop.embedded.kubelet.runtime.namespaces import NamespacesRuntime
from dlop.embedded.kubelet.runtime.plain import PlainRuntime
from tests.embedded.runtime_kit import RUNTIMES, Output, Pod, Pods, pods_in, start_pods

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


# Pods on the host network share the ports of this machine.
PORTS = ReservedPorts()

# All tests here share one runtime and create their own pods.
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=RUNTIMES)
async def runtime(request: pytest.FixtureRequest) -> AsyncIterator[Runtime]:
    async with RUNTIMES[request.param]() as runtime:
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


async def serve(pod: Pod, *, address: str, port: int, message: str) -> Output:
    _, output = await pod.start_with_output(sys.executable, "-c", SERVER, address, str(port), message)
    assert await output.line() == "ready", await output.rest()
    return output


async def test_pods_have_different_addresses_and_may_listen_on_the_same_port(pods: Pods) -> None:
    one, two = await pods.pod("one"), await pods.pod("two")
    assert one.sandbox.address != two.sandbox.address
    for pod, name in ((one, "one"), (two, "two")):
        await serve(pod, address=pod.sandbox.address, port=9091, message=f"I am {name}")
    for pod in (one, two):
        assert (await pod.run(sys.executable, "-c", CLIENT, one.sandbox.address, "9091"))[1] == "I am one"
        assert (await pod.run(sys.executable, "-c", CLIENT, two.sandbox.address, "9091"))[1] == "I am two"


async def test_pods_may_listen_on_all_interfaces_on_the_same_port(isolated: Pods) -> None:
    one, two = await isolated.pod("one"), await isolated.pod("two")
    await serve(one, address="0.0.0.0", port=9091, message="one")
    await serve(two, address="0.0.0.0", port=9091, message="two")
    assert (await one.run(sys.executable, "-c", CLIENT, two.sandbox.address, "9091"))[1] == "two"
    assert (await one.run(sys.executable, "-c", CLIENT, "localhost", "9091"))[1] == "one"


@pytest.mark.parametrize("address", ["its address", "127.0.0.1", "0.0.0.0"])
async def test_a_port_is_reachable_on_any_address_it_listens_on(pods: Pods, address: str) -> None:
    pod, port = await pods.pod(), PORTS.reserve()
    await serve(pod, address=pod.sandbox.address if address == "its address" else address, port=port, message="hello")
    assert await _read(pod, port) == b"hello"


async def test_a_connection_to_a_closed_port_is_refused(pods: Pods) -> None:
    pod = await pods.pod()
    with pytest.raises(ConnectionRefusedError):
        await pod.sandbox.connect(PORTS.reserve())


async def test_a_probe_does_not_reach_a_port_that_listens_on_localhost_only(pods: Pods) -> None:
    pod, port = await pods.pod(), PORTS.reserve()
    await serve(pod, address="127.0.0.1", port=port, message="hello")
    with pytest.raises(ConnectionRefusedError):
        await pod.sandbox.connect(port, address=pod.sandbox.address)
    assert await _read(pod, port, address="127.0.0.1") == b"hello"


async def test_a_pod_resolves_its_own_name(isolated: Pods) -> None:
    pod = await isolated.pod("job-worker-0")
    _, text = await pod.shell("hostname; cat /etc/hostname; getent hosts job-worker-0")
    assert text.split() == ["job-worker-0", "job-worker-0", pod.sandbox.address, "job-worker-0"]


async def test_running_processes_resolve_new_names(isolated: Pods) -> None:
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


async def test_an_unknown_name_fails_immediately(isolated: Pods) -> None:
    pod = await isolated.pod()
    loop = asyncio.get_running_loop()
    before = loop.time()
    status, _ = await pod.run("getent", "hosts", "nobody.default.svc.cluster.local")
    assert status.code == 2
    assert loop.time() - before < 3


async def test_without_a_hosts_file_names_are_replaced_in_arguments_and_variables(tmp_path: Path) -> None:
    async with start_pods(PlainRuntime(), tmp_path) as pods:
        names = {"job-worker-0": "127.1.0.1", "job-worker-0.default.svc": "127.1.0.1"}
        pod = await pods.pod(host_addresses=names)
        names["late"] = "127.1.0.9"
        _, text = await pod.shell("echo $PEERS job-worker-0", environment={"PEERS": "job-worker-0.default.svc:22,late:22"})
        assert text == "127.1.0.1:22,127.1.0.9:22 127.1.0.1"


async def test_a_pod_on_the_host_network_reaches_the_host(pods: Pods) -> None:
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


async def test_pods_on_the_host_network_have_names_and_addresses(tmp_path: Path) -> None:
    async with start_pods(NamespacesRuntime(host_network=True), tmp_path) as pods:
        one, two = await pods.pod("one"), await pods.pod("two")
        one.sandbox.write_hosts(f"{two.sandbox.address}\ttwo.jobs.svc\n")
        for pod, name in ((one, "one"), (two, "two")):
            await serve(pod, address=pod.sandbox.address, port=9091, message=f"I am {name}")
        assert (await one.run(sys.executable, "-c", CLIENT, "two.jobs.svc", "9091"))[1] == "I am two"
        assert await _read(one, 9091) == b"I am one"


async def test_pods_with_their_own_network_do_not_see_the_hosts_network(isolated: Pods) -> None:
    pod = await isolated.pod()
    with socket.create_server(("127.0.0.1", 0)) as server:
        status, text = await pod.run(sys.executable, "-c", CLIENT, "127.0.0.1", str(server.getsockname()[1]))
    assert status.code == 1
    assert "ConnectionRefusedError" in text


async def test_two_runtimes_do_not_interfere(pods: Pods, tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    async with start_pods(type(pods.runtime)(), tmp_path / "second") as others:
        mine, theirs = await pods.pod(), await others.pod()
        await serve(mine, address=mine.sandbox.address, port=9091, message="first")
        await serve(theirs, address=theirs.sandbox.address, port=9091, message="second")
        assert await _read(mine, 9091) == b"first"
        assert await _read(theirs, 9091) == b"second"


async def _read(pod: Pod, port: int, *, address: str | None = None) -> bytes:
    reader, writer = await pod.sandbox.connect(port, address=address)
    data = await reader.read()
    writer.close()
    await writer.wait_closed()
    return data


async def test_pods_reach_a_socket_of_the_node_that_the_host_does_not_see(isolated: Pods, namespaces: Runtime) -> None:
    await isolated.pod("first")  # existing pods make no difference
    listener = await namespaces.listen()
    assert listener is not None
    address, port = listener.getsockname()
    assert address == namespaces.node_address

    async def respond(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"from the node")
        writer.close()

    async with await asyncio.start_server(respond, sock=listener):
        pod = await isolated.pod("caller")
        assert (await pod.run(sys.executable, "-c", CLIENT, address, str(port)))[1] == "from the node"
        inode = str(os.fstat(listener.fileno()).st_ino)
        assert inode not in _sockets_of_the_host()


async def test_no_socket_is_needed_for_pods_on_the_host_network() -> None:
    for runtime in (PlainRuntime(), NamespacesRuntime(host_network=True)):
        async with runtime:
            assert await runtime.listen() is None


def _sockets_of_the_host() -> set[str]:
    return {line.split()[9] for line in Path("/proc/net/tcp").read_text().splitlines()}
