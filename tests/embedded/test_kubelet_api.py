"""An unmodified kubectl with the kubelet's server, through the embedded API server and through the real one."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal

import pytest

from dlop.embedded.kubelet.logs import STDERR, STDOUT
from dlop.kube.errors import BadRequestError, InvalidError, NotFoundError
from dlop.kube.pod_logs import stream_pod_log
from dlop.kube.resources import PODS
from tests.embedded.kubelet_env import TIMEOUT_SECONDS, EchoServer, KubeletEnv, Terminal, forwarded_port, read_until, send_and_receive

# --- logs -------------------------------------------------------------------------------------------------------------


async def test_kubectl_logs(kubelet_env: KubeletEnv) -> None:
    (log,) = await kubelet_env.create_pod("one", "main")
    log.write(b"first\nsecond\nthird\n", STDOUT)
    log.write(b"oops\n", STDERR)
    assert await kubelet_env.kubectl_output("logs", "one") == b"first\nsecond\nthird\noops\n"
    assert await kubelet_env.kubectl_output("logs", "one", "--tail", "2") == b"third\noops\n"
    assert await kubelet_env.kubectl_output("logs", "one", "-c", "main", "--limit-bytes", "8") == b"first\nse"
    assert await kubelet_env.kubectl_output("logs", "one", "--since", "1h") == b"first\nsecond\nthird\noops\n"
    assert await kubelet_env.kubectl_output("logs", "one", "--since-time", "2999-01-01T00:00:00Z") == b""
    output_with_timestamp = await kubelet_env.kubectl_output("logs", "one", "--timestamps", "--tail", "1")
    assert re.fullmatch(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z oops\n", output_with_timestamp)


async def test_kubectl_follows_a_log_until_the_container_exits(kubelet_env: KubeletEnv) -> None:
    (log,) = await kubelet_env.create_pod("one", "main")
    log.write(b"old\n", STDOUT)
    async with kubelet_env.start_kubectl("logs", "-f", "one") as kubectl:
        assert kubectl.stdout is not None
        await read_until(kubectl.stdout, b"old\n")
        log.write(b"new\n", STDOUT)
        await read_until(kubectl.stdout, b"new\n")
        log.close()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            assert await kubectl.wait() == 0


async def test_kubectl_shows_the_log_of_the_previous_run(kubelet_env: KubeletEnv) -> None:
    (log,) = await kubelet_env.create_pod("one", "main")
    log.write(b"the first run\n", STDOUT)
    error = await kubelet_env.kubectl_error("logs", "one", "--previous")
    assert 'previous terminated container "main" in pod "one" not found' in error
    second_log = await kubelet_env.restart("one", "main")
    second_log.write(b"the second run\n", STDOUT)
    assert await kubelet_env.kubectl_output("logs", "one", "--previous") == b"the first run\n"
    assert await kubelet_env.kubectl_output("logs", "one") == b"the second run\n"


async def test_a_long_log_is_complete(kubelet_env: KubeletEnv) -> None:
    (log,) = await kubelet_env.create_pod("one", "main")
    text = b"".join(b"line %d\n" % number for number in range(500_000))
    log.write(text, STDOUT)
    assert await kubelet_env.kubectl_output("logs", "one") == text


async def test_requests_for_unavailable_logs_are_rejected_with_a_reason(kubelet_env: KubeletEnv) -> None:
    await kubelet_env.create_pod("two", "a", "b")
    await kubelet_env.create_pod("new", "main", run=None)
    await kubelet_env.create_bare_pod("free", "main", node="")
    client, namespace = kubelet_env.client, kubelet_env.namespace

    async def rejection(pod: str, **query: str) -> str:
        with pytest.raises((BadRequestError, NotFoundError, InvalidError)) as caught:
            await client.call("GET", PODS.path(namespace=namespace, name=pod, subresource="log"), query=tuple(query.items()))
        return str(caught.value)

    assert await rejection("two") == "a container name must be specified for pod two, choose one of: [a b]"
    assert await rejection("two", container="c") == "container c is not valid for pod two"
    assert await rejection("none") == 'pods "none" not found'
    assert await rejection("new") == 'container "main" in pod "new" is waiting to start: ContainerCreating'
    assert await rejection("new", tailLines="-1") == (
        'PodLogOptions "new" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0'
    )
    assert await rejection("new", limitBytes="0", sinceSeconds="0") == (
        'PodLogOptions "new" is invalid: [limitBytes: Invalid value: 0: must be greater than 0, '
        "sinceSeconds: Invalid value: 0: must be greater than 0]"
    )
    response = await client.call("GET", PODS.path(namespace=namespace, name="free", subresource="log"))
    assert response.body == b""


async def test_a_pod_that_the_node_does_not_know_has_no_log(kubelet_env: KubeletEnv) -> None:
    await kubelet_env.create_bare_pod("unknown", "main")
    with pytest.raises(NotFoundError, match=r"the server could not find the requested resource \( pods/log unknown\)"):
        await kubelet_env.client.call("GET", PODS.path(namespace=kubelet_env.namespace, name="unknown", subresource="log"))


async def test_the_client_follows_a_log(kubelet_env: KubeletEnv) -> None:
    (log,) = await kubelet_env.create_pod("one", "main")
    log.write(b"hello\n", STDOUT)
    async with (
        asyncio.timeout(TIMEOUT_SECONDS),
        stream_pod_log(kubelet_env.client, "one", namespace=kubelet_env.namespace, follow=True, tail_lines=1) as chunks,
    ):
        assert await anext(chunks) == b"hello\n"
        log.write(b"again\n", STDOUT)
        assert await anext(chunks) == b"again\n"
        log.close()
        assert [chunk async for chunk in chunks] == []


# --- exec -------------------------------------------------------------------------------------------------------------


async def test_kubectl_exec_returns_output_and_exit_code(kubelet_env: KubeletEnv) -> None:
    await kubelet_env.create_pod("one", "main")
    script = "echo out $CONTAINER; echo err >&2; exit 7"
    code, out, err = await kubelet_env.kubectl("exec", "one", "--", "sh", "-c", script)
    assert (code, out) == (7, b"out main\n")
    assert err == b"err\ncommand terminated with exit code 7\n"


async def test_kubectl_exec_passes_stdin_completely(kubelet_env: KubeletEnv) -> None:
    await kubelet_env.create_pod("one", "main")
    text = os.urandom(300_000)
    assert await kubelet_env.kubectl_output("exec", "-i", "one", "--", "cat", stdin=text) == text


async def test_large_output_of_a_command_is_complete(kubelet_env: KubeletEnv) -> None:
    await kubelet_env.create_pod("one", "main")
    out = await kubelet_env.kubectl_output("exec", "one", "--", "sh", "-c", "seq 300000")
    assert out == b"".join(b"%d\n" % number for number in range(1, 300_001))


async def test_the_terminal_of_a_command_has_the_size_of_the_users_terminal(kubelet_env: KubeletEnv) -> None:
    await kubelet_env.create_pod("one", "main")
    script = "read line; stty size; echo got $line; tty; exit 3"
    async with Terminal(rows=33, columns=77) as terminal:
        arguments = ("exec", "-it", "one", "--", "sh", "-c", script)
        async with kubelet_env.start_kubectl(*arguments, stdin=terminal.slave, stdout=terminal.slave) as kubectl:
            terminal.type(b"typed\r")
            await read_until(terminal.screen, b"33 77\r\n")
            await read_until(terminal.screen, b"got typed\r\n")
            await read_until(terminal.screen, b"/dev/pts/")
            async with asyncio.timeout(TIMEOUT_SECONDS):
                assert await kubectl.wait() == 3


async def test_a_command_is_killed_when_the_client_disconnects(kubelet_env: KubeletEnv) -> None:
    await kubelet_env.create_pod("one", "main")
    async with kubelet_env.start_kubectl("exec", "one", "--", "sh", "-c", "echo here; exec sleep 1000") as kubectl:
        assert kubectl.stdout is not None
        await read_until(kubectl.stdout, b"here\n")
    async with asyncio.timeout(TIMEOUT_SECONDS):
        status = await kubelet_env.pods.started[0].wait()
    assert status.signal == signal.SIGKILL


async def test_exec_ends_with_the_command_even_if_a_background_process_continues(kubelet_env: KubeletEnv) -> None:
    await kubelet_env.create_pod("one", "main")
    assert await kubelet_env.kubectl_output("exec", "one", "--", "sh", "-c", "sleep 1000 & echo done") == b"done\n"


async def test_a_command_that_cannot_be_run_is_rejected_with_a_reason(kubelet_env: KubeletEnv) -> None:
    await kubelet_env.create_pod("one", "main")
    await kubelet_env.create_pod("new", "main", run=None)
    await kubelet_env.create_bare_pod("free", "main", node="")
    assert 'exec: "nonsense": executable file not found in $PATH' in await kubelet_env.kubectl_error("exec", "one", "--", "nonsense")
    assert 'container not found ("main")' in await kubelet_env.kubectl_error("exec", "new", "--", "true")
    assert "pod free does not have a host assigned" in await kubelet_env.kubectl_error("exec", "free", "--", "true")
    assert 'pods "none" not found' in await kubelet_env.kubectl_error("exec", "none", "--", "true")
    assert "container other is not valid for pod one" in await kubelet_env.kubectl_error("exec", "one", "-c", "other", "--", "true")


# --- attach -----------------------------------------------------------------------------------------------------------


async def test_kubectl_attaches_to_the_output_of_a_container(kubelet_env: KubeletEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    (log,) = await kubelet_env.create_pod("one", "main")
    log.write(b"before\n", STDOUT)
    followed, wait_for_data = asyncio.Event(), log._wait_for_data

    async def signal_and_wait() -> None:
        followed.set()
        await wait_for_data()

    monkeypatch.setattr(log, "_wait_for_data", signal_and_wait)
    async with kubelet_env.start_kubectl("attach", "one") as kubectl, asyncio.timeout(TIMEOUT_SECONDS):
        assert kubectl.stdout is not None
        await followed.wait()
        log.write(b"after\n", STDOUT)
        assert await read_until(kubectl.stdout, b"\n") == b"after\n"
        log.close()
        assert await kubectl.wait() == 0


# --- port-forward -----------------------------------------------------------------------------------------------------


async def test_kubectl_forwards_a_port(kubelet_env: KubeletEnv) -> None:
    await kubelet_env.create_pod("one", "main")
    async with EchoServer() as echo, kubelet_env.start_kubectl("port-forward", "one", f":{echo.port}") as kubectl:
        port = await forwarded_port(kubectl)
        assert await send_and_receive(port, b"hello") == b"HELLO"
        large = b"abcdefgh" * 100_000
        responses = await asyncio.gather(*(send_and_receive(port, b"%d %b" % (number, large)) for number in range(5)))
        assert responses == [b"%d %b" % (number, large.upper()) for number in range(5)]


async def test_a_closed_port_is_reported(kubelet_env: KubeletEnv) -> None:
    await kubelet_env.create_pod("one", "main")
    async with EchoServer() as echo:
        closed = echo.port
    async with kubelet_env.start_kubectl("port-forward", "one", f":{closed}") as kubectl:
        assert kubectl.stderr is not None
        assert await send_and_receive(await forwarded_port(kubectl), b"hello") == b""
        await read_until(kubectl.stderr, f"error forwarding port {closed} to pod one".encode())


# --- discovery and upgrades -------------------------------------------------------------------------------------------


async def test_discovery_lists_the_subresources_with_their_verbs(kubelet_env: KubeletEnv) -> None:
    resources = json.loads((await kubelet_env.client.call("GET", "/api/v1")).body)["resources"]
    kinds_and_verbs = {resource["name"]: (resource["kind"], sorted(resource["verbs"])) for resource in resources}
    assert kinds_and_verbs["pods/log"] == ("Pod", ["get"])
    assert kinds_and_verbs["pods/exec"] == ("PodExecOptions", ["create", "get"])
    assert kinds_and_verbs["pods/attach"] == ("PodAttachOptions", ["create", "get"])
    assert kinds_and_verbs["pods/portforward"] == ("PodPortForwardOptions", ["create", "get"])


async def test_a_stream_without_an_upgrade_is_rejected(kubelet_env: KubeletEnv) -> None:
    await kubelet_env.create_pod("one", "main")
    path = PODS.path(namespace=kubelet_env.namespace, name="one", subresource="exec")
    with pytest.raises(BadRequestError, match="Upgrade request required"):
        await kubelet_env.client.call("POST", path, query=(("command", "true"), ("stdout", "true")))
