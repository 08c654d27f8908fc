"""An unmodified kubectl talks to pods of a node of ours, through the embedded API server and through the real one."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal

import pytest

from dlop.embedded.kubelet.logs import STDERR, STDOUT
from dlop.kube.errors import BadRequestError, InvalidError, NotFoundError
from dlop.kube.pod_logs import pod_log
from dlop.kube.resources import PODS
from tests.embedded.kubelet_world import PATIENCE_SECONDS, Echo, Terminal, World, ask, forwarded_port, read_until

# --- logs -------------------------------------------------------------------------------------------------------------


async def test_kubectl_shows_logs(kubelet_world: World) -> None:
    (log,) = await kubelet_world.pod("one", "main")
    log.write(b"first\nsecond\nthird\n", STDOUT)
    log.write(b"oops\n", STDERR)
    assert await kubelet_world.says("logs", "one") == b"first\nsecond\nthird\noops\n"
    assert await kubelet_world.says("logs", "one", "--tail", "2") == b"third\noops\n"
    assert await kubelet_world.says("logs", "one", "-c", "main", "--limit-bytes", "8") == b"first\nse"
    assert await kubelet_world.says("logs", "one", "--since", "1h") == b"first\nsecond\nthird\noops\n"
    assert await kubelet_world.says("logs", "one", "--since-time", "2999-01-01T00:00:00Z") == b""
    stamped = await kubelet_world.says("logs", "one", "--timestamps", "--tail", "1")
    assert re.fullmatch(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z oops\n", stamped)


async def test_kubectl_follows_a_log_to_the_container_s_end(kubelet_world: World) -> None:
    (log,) = await kubelet_world.pod("one", "main")
    log.write(b"old\n", STDOUT)
    async with kubelet_world.running("logs", "-f", "one") as kubectl:
        assert kubectl.stdout is not None
        await read_until(kubectl.stdout, b"old\n")
        log.write(b"new\n", STDOUT)
        await read_until(kubectl.stdout, b"new\n")
        log.end()
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await kubectl.wait() == 0


async def test_kubectl_shows_the_log_of_the_run_before(kubelet_world: World) -> None:
    (log,) = await kubelet_world.pod("one", "main")
    log.write(b"the first run\n", STDOUT)
    complaint = await kubelet_world.complains("logs", "one", "--previous")
    assert 'previous terminated container "main" in pod "one" not found' in complaint
    again = await kubelet_world.restart("one", "main")
    again.write(b"the second run\n", STDOUT)
    assert await kubelet_world.says("logs", "one", "--previous") == b"the first run\n"
    assert await kubelet_world.says("logs", "one") == b"the second run\n"


async def test_a_long_log_comes_whole(kubelet_world: World) -> None:
    (log,) = await kubelet_world.pod("one", "main")
    text = b"".join(b"line %d\n" % number for number in range(500_000))
    log.write(text, STDOUT)
    assert await kubelet_world.says("logs", "one") == text


async def test_logs_that_cannot_be_shown_are_refused_with_a_reason(kubelet_world: World) -> None:
    await kubelet_world.pod("two", "a", "b")
    await kubelet_world.pod("new", "main", run=None)
    await kubelet_world.bare_pod("free", "main", node="")
    client, namespace = kubelet_world.client, kubelet_world.namespace

    async def refused(pod: str, **query: str) -> str:
        with pytest.raises((BadRequestError, NotFoundError, InvalidError)) as caught:
            await client.call("GET", PODS.path(namespace=namespace, name=pod, subresource="log"), query=tuple(query.items()))
        return str(caught.value)

    assert await refused("two") == "a container name must be specified for pod two, choose one of: [a b]"
    assert await refused("two", container="c") == "container c is not valid for pod two"
    assert await refused("none") == 'pods "none" not found'
    assert await refused("new") == 'container "main" in pod "new" is waiting to start: ContainerCreating'
    assert await refused("new", tailLines="-1") == (
        'PodLogOptions "new" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0'
    )
    assert await refused("new", limitBytes="0", sinceSeconds="0") == (
        'PodLogOptions "new" is invalid: [limitBytes: Invalid value: 0: must be greater than 0, '
        "sinceSeconds: Invalid value: 0: must be greater than 0]"
    )
    answer = await client.call("GET", PODS.path(namespace=namespace, name="free", subresource="log"))
    assert answer.body == b""


async def test_a_pod_that_the_node_does_not_have_has_no_log(kubelet_world: World) -> None:
    await kubelet_world.bare_pod("unknown", "main")
    with pytest.raises(NotFoundError, match=r"the server could not find the requested resource \( pods/log unknown\)"):
        await kubelet_world.client.call("GET", PODS.path(namespace=kubelet_world.namespace, name="unknown", subresource="log"))


async def test_a_log_is_followed_through_the_client(kubelet_world: World) -> None:
    (log,) = await kubelet_world.pod("one", "main")
    log.write(b"hello\n", STDOUT)
    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        pod_log(kubelet_world.client, "one", namespace=kubelet_world.namespace, follow=True, tail_lines=1) as pieces,
    ):
        assert await anext(pieces) == b"hello\n"
        log.write(b"again\n", STDOUT)
        assert await anext(pieces) == b"again\n"
        log.end()
        assert [piece async for piece in pieces] == []


# --- exec -------------------------------------------------------------------------------------------------------------


async def test_kubectl_runs_a_command_and_gets_its_output_and_exit_code(kubelet_world: World) -> None:
    await kubelet_world.pod("one", "main")
    script = "echo out $CONTAINER; echo err >&2; exit 7"
    code, out, err = await kubelet_world.kubectl("exec", "one", "--", "sh", "-c", script)
    assert (code, out) == (7, b"out main\n")
    assert err == b"err\ncommand terminated with exit code 7\n"


async def test_kubectl_gives_a_command_its_input_to_the_end(kubelet_world: World) -> None:
    await kubelet_world.pod("one", "main")
    text = os.urandom(300_000)
    assert await kubelet_world.says("exec", "-i", "one", "--", "cat", stdin=text) == text


async def test_a_command_with_much_output_loses_none_of_it(kubelet_world: World) -> None:
    await kubelet_world.pod("one", "main")
    out = await kubelet_world.says("exec", "one", "--", "sh", "-c", "seq 300000")
    assert out == b"".join(b"%d\n" % number for number in range(1, 300_001))


async def test_a_command_has_a_terminal_of_the_size_of_the_user_s(kubelet_world: World) -> None:
    await kubelet_world.pod("one", "main")
    script = "read line; stty size; echo got $line; tty; exit 3"
    async with Terminal(rows=33, columns=77) as terminal:
        words = ("exec", "-it", "one", "--", "sh", "-c", script)
        async with kubelet_world.running(*words, stdin=terminal.far, stdout=terminal.far) as kubectl:
            terminal.type(b"typed\r")
            await read_until(terminal.screen, b"33 77\r\n")
            await read_until(terminal.screen, b"got typed\r\n")
            await read_until(terminal.screen, b"/dev/pts/")
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert await kubectl.wait() == 3


async def test_a_command_dies_with_the_user_who_started_it(kubelet_world: World) -> None:
    await kubelet_world.pod("one", "main")
    async with kubelet_world.running("exec", "one", "--", "sh", "-c", "echo here; exec sleep 1000") as kubectl:
        assert kubectl.stdout is not None
        await read_until(kubectl.stdout, b"here\n")
    async with asyncio.timeout(PATIENCE_SECONDS):
        ended = await kubelet_world.pods.started[0].wait()
    assert ended.signal == signal.SIGKILL


async def test_a_command_that_leaves_a_child_behind_ends_when_it_ends(kubelet_world: World) -> None:
    await kubelet_world.pod("one", "main")
    assert await kubelet_world.says("exec", "one", "--", "sh", "-c", "sleep 1000 & echo done") == b"done\n"


async def test_a_command_that_cannot_be_run_is_refused_with_a_reason(kubelet_world: World) -> None:
    await kubelet_world.pod("one", "main")
    await kubelet_world.pod("new", "main", run=None)
    await kubelet_world.bare_pod("free", "main", node="")
    assert 'exec: "nonsense": executable file not found in $PATH' in await kubelet_world.complains("exec", "one", "--", "nonsense")
    assert 'container not found ("main")' in await kubelet_world.complains("exec", "new", "--", "true")
    assert "pod free does not have a host assigned" in await kubelet_world.complains("exec", "free", "--", "true")
    assert 'pods "none" not found' in await kubelet_world.complains("exec", "none", "--", "true")
    assert "container other is not valid for pod one" in await kubelet_world.complains("exec", "one", "-c", "other", "--", "true")


# --- attach -----------------------------------------------------------------------------------------------------------


async def test_kubectl_attaches_to_what_a_container_writes(kubelet_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    (log,) = await kubelet_world.pod("one", "main")
    log.write(b"before\n", STDOUT)
    followed, wait_for_more = asyncio.Event(), log._more

    async def noted() -> None:
        followed.set()
        await wait_for_more()

    monkeypatch.setattr(log, "_more", noted)
    async with kubelet_world.running("attach", "one") as kubectl, asyncio.timeout(PATIENCE_SECONDS):
        assert kubectl.stdout is not None
        await followed.wait()
        log.write(b"after\n", STDOUT)
        assert await read_until(kubectl.stdout, b"\n") == b"after\n"
        log.end()
        assert await kubectl.wait() == 0


# --- port-forward -----------------------------------------------------------------------------------------------------


async def test_kubectl_forwards_a_port(kubelet_world: World) -> None:
    await kubelet_world.pod("one", "main")
    async with Echo() as echo, kubelet_world.running("port-forward", "one", f":{echo.port}") as kubectl:
        port = await forwarded_port(kubectl)
        assert await ask(port, b"hello") == b"HELLO"
        large = b"abcdefgh" * 100_000
        answers = await asyncio.gather(*(ask(port, b"%d %b" % (number, large)) for number in range(5)))
        assert answers == [b"%d %b" % (number, large.upper()) for number in range(5)]


async def test_a_port_that_nobody_listens_on_is_told(kubelet_world: World) -> None:
    await kubelet_world.pod("one", "main")
    async with Echo() as echo:
        closed = echo.port
    async with kubelet_world.running("port-forward", "one", f":{closed}") as kubectl:
        assert kubectl.stderr is not None
        assert await ask(await forwarded_port(kubectl), b"hello") == b""
        await read_until(kubectl.stderr, f"error forwarding port {closed} to pod one".encode())


# --- what else there is -----------------------------------------------------------------------------------------------


async def test_the_subresources_are_discovered_with_their_verbs(kubelet_world: World) -> None:
    listed = json.loads((await kubelet_world.client.call("GET", "/api/v1")).body)["resources"]
    found = {each["name"]: (each["kind"], sorted(each["verbs"])) for each in listed}
    assert found["pods/log"] == ("Pod", ["get"])
    assert found["pods/exec"] == ("PodExecOptions", ["create", "get"])
    assert found["pods/attach"] == ("PodAttachOptions", ["create", "get"])
    assert found["pods/portforward"] == ("PodPortForwardOptions", ["create", "get"])


async def test_a_stream_without_an_upgrade_is_refused(kubelet_world: World) -> None:
    await kubelet_world.pod("one", "main")
    path = PODS.path(namespace=kubelet_world.namespace, name="one", subresource="exec")
    with pytest.raises(BadRequestError, match="Upgrade request required"):
        await kubelet_world.client.call("POST", path, query=(("command", "true"), ("stdout", "true")))
