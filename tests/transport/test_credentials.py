"""Credentials: they are read again when they expire or are rejected, and errors name their origin."""

from __future__ import annotations

import asyncio
import datetime
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dlop.kube.client import Client, ClientLimits
from dlop.kube.config import load
from dlop.kube.config.cluster import ClusterConfig, RequestAuth
from dlop.kube.config.credentials import ServiceAccountCredentials
from dlop.kube.errors import ConfigurationError, TransportError, UnauthorizedError
from dlop.kube.http.transport import HttpTransport, connect
from dlop.kube.resources import PODS
from tests.transport.certificates import CertificateAuthority
from tests.transport.kubeconfigs import exec_output, exec_user, kubeconfig
from tests.transport.scripted_server import Exchange, Handler, ScriptedServer, event_line, scripted_server

POD = {"kind": "Pod", "metadata": {"name": "a"}}


class Clock:
    """Wall time that is set by the test."""

    def __init__(self) -> None:
        self.now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC).timestamp()

    def __call__(self) -> float:
        return self.now


def accept_only(*tokens: str) -> Handler:
    """Respond with 401 to requests without one of these tokens."""

    async def handle(exchange: Exchange) -> None:
        if exchange.headers.get("authorization") in [f"Bearer {token}" for token in tokens]:
            if "watch=true" in exchange.query:
                await exchange.start_stream()
                await exchange.chunk(event_line("ADDED", POD))
                await exchange.end_stream()
            else:
                await exchange.respond(json=POD)
        else:
            await exchange.respond(status=401, json={"kind": "Status", "code": 401, "reason": "Unauthorized", "message": "Unauthorized"})

    return handle


@asynccontextmanager
async def client_from(path: Path, *, clock: Clock | None = None) -> AsyncIterator[Client]:
    config: ClusterConfig = await load.load(path, clock=clock or Clock())
    client = Client(HttpTransport(config, clock=clock or Clock()), limits=ClientLimits(timeout_seconds=5))
    try:
        yield client
    finally:
        await client.close()


async def read(client: Client) -> object:
    return await client.get(PODS, "a", namespace="lab")


async def watch(client: Client) -> list[object]:
    async with client.watch(PODS) as events:
        return [event.decode() async for event in events]


def received_tokens(server: ScriptedServer) -> list[str]:
    return [exchange.headers["authorization"].removeprefix("Bearer ") for exchange in server.exchanges]


async def test_the_kubeconfig_is_read_again_when_its_token_is_rejected(tmp_path: Path) -> None:
    async with scripted_server(accept_only("new")) as server:
        path = kubeconfig(tmp_path, server=server.url, user={"token": "old"})
        async with client_from(path) as client:
            kubeconfig(tmp_path, server=server.url, user={"token": "new"})
            assert await read(client) == POD
            assert await read(client) == POD
        assert received_tokens(server) == ["old", "new", "new"]


async def test_a_token_file_is_read_again_when_its_token_is_rejected(tmp_path: Path) -> None:
    async with scripted_server(accept_only("one"), accept_only("two")) as server:
        (tmp_path / "token").write_text("one\n")
        async with client_from(kubeconfig(tmp_path, server=server.url, user={"tokenFile": "token"})) as client:
            assert await read(client) == POD
            (tmp_path / "token").write_text("two\n")
            assert await read(client) == POD
        assert received_tokens(server) == ["one", "one", "two"]


async def test_a_token_file_is_read_again_every_minute(tmp_path: Path) -> None:
    clock = Clock()
    async with scripted_server(accept_only("one", "two")) as server:
        (tmp_path / "token").write_text("one")
        async with client_from(kubeconfig(tmp_path, server=server.url, user={"tokenFile": "token"}), clock=clock) as client:
            await read(client)
            (tmp_path / "token").write_text("two")
            clock.now += 59
            await read(client)
            clock.now += 2
            await read(client)
        assert received_tokens(server) == ["one", "one", "two"]


async def test_a_missing_token_file_does_not_affect_a_token_that_still_works(tmp_path: Path) -> None:
    clock = Clock()
    async with scripted_server(accept_only("one", "two")) as server:
        (tmp_path / "token").write_text("one")
        async with client_from(kubeconfig(tmp_path, server=server.url, user={"tokenFile": "token"}), clock=clock) as client:
            await read(client)
            (tmp_path / "token").unlink()
            clock.now += 61
            await read(client)
            (tmp_path / "token").write_text("two")
            clock.now += 11
            await read(client)
        assert received_tokens(server) == ["one", "one", "two"]


async def test_a_watch_refreshes_rejected_credentials_once(tmp_path: Path) -> None:
    async with scripted_server(accept_only("new")) as server:
        path = kubeconfig(tmp_path, server=server.url, user={"token": "old"})
        async with client_from(path) as client:
            kubeconfig(tmp_path, server=server.url, user={"token": "new"})
            assert await watch(client) == [POD]


@pytest.mark.parametrize("verb", ["get", "watch"])
async def test_credentials_that_stay_rejected_are_reported_with_their_file_and_a_hint(tmp_path: Path, verb: str) -> None:
    async with scripted_server(accept_only()) as server:
        path = kubeconfig(tmp_path, server=server.url, user={"token": "old"})
        async with client_from(path) as client:
            with pytest.raises(UnauthorizedError) as caught:
                await (read(client) if verb == "get" else watch(client))
        assert len(server.exchanges) == 2
        assert f"kubeconfig {path}, context lab" in str(caught.value)
        assert "get new ones" in str(caught.value)


def plugin_script(directory: Path, *outputs: str) -> str:
    """A script that prints the n-th output in its n-th run, then the last one, and counts its runs in a file."""
    for number, output in enumerate(outputs, 1):
        (directory / f"output-{number}").write_text(output)
    return f'cd "{directory}"; echo run >> runs; n=$(wc -l < runs); while [ ! -f output-$((n)) ]; do n=$((n - 1)); done; cat output-$((n))'


def count_runs(directory: Path) -> int:
    return len((directory / "runs").read_text().splitlines())


async def test_an_exec_plugin_runs_again_when_its_token_is_rejected(tmp_path: Path) -> None:
    script = plugin_script(tmp_path, exec_output(token="one"), exec_output(token="two"))
    async with scripted_server(accept_only("one"), accept_only("one"), accept_only("two")) as server:
        async with client_from(kubeconfig(tmp_path, server=server.url, user=exec_user(script))) as client:
            await read(client)
            await read(client)
            assert count_runs(tmp_path) == 1
            await read(client)
        assert received_tokens(server) == ["one", "one", "one", "two"]
        assert count_runs(tmp_path) == 2


async def test_an_exec_plugin_runs_again_shortly_before_its_token_expires(tmp_path: Path) -> None:
    clock = Clock()
    expiry = datetime.datetime.fromtimestamp(clock.now + 600, datetime.UTC).isoformat()
    script = plugin_script(tmp_path, exec_output(token="one", expirationTimestamp=expiry), exec_output(token="two"))
    async with scripted_server(accept_only("one", "two")) as server:
        async with client_from(kubeconfig(tmp_path, server=server.url, user=exec_user(script)), clock=clock) as client:
            await read(client)
            clock.now += 530
            await read(client)
            clock.now += 15
            await read(client)
        assert received_tokens(server) == ["one", "one", "two"]


async def test_concurrently_rejected_calls_run_the_plugin_once(tmp_path: Path) -> None:
    script = plugin_script(tmp_path, exec_output(token="one"), exec_output(token="two"))
    async with scripted_server(accept_only("two")) as server:
        async with client_from(kubeconfig(tmp_path, server=server.url, user=exec_user(script))) as client:
            await asyncio.gather(*(read(client) for _ in range(10)))
        assert count_runs(tmp_path) == 2


async def test_a_plugin_that_fails_after_a_rejection_is_reported(tmp_path: Path) -> None:
    script = f'cd "{tmp_path}"; [ -f ran ] && {{ echo "please log in" >&2; exit 3; }}; touch ran; echo \'{exec_output(token="one")}\''
    async with scripted_server(accept_only("two")) as server:
        async with client_from(kubeconfig(tmp_path, server=server.url, user=exec_user(script))) as client:
            with pytest.raises(ConfigurationError, match="please log in") as caught:
                await read(client)
        assert "exec plugin sh" in str(caught.value)
        assert "code 3" in str(caught.value)


async def test_the_result_of_a_slow_plugin_is_used_by_a_later_call(tmp_path: Path) -> None:
    (tmp_path / "output").write_text(exec_output(token="one"))
    script = f'cd "{tmp_path}"; echo run >> runs; while [ ! -f logged-in ]; do sleep 0.02; done; cat output'
    async with scripted_server(accept_only("one")) as server:
        async with client_from(kubeconfig(tmp_path, server=server.url, user=exec_user(script))) as client:
            for _ in range(2):
                with pytest.raises(TransportError, match="timed out reading the credentials"):
                    await client.call("GET", "/version", timeout_seconds=0.2)
            (tmp_path / "logged-in").touch()
            assert await read(client) == POD
        assert count_runs(tmp_path) == 1


async def test_a_write_waits_for_credentials_only_for_the_write_connect_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlop.kube.http.transport._WRITE_CONNECT_SECONDS", 0.05)

    class SlowCredentials:
        async def read(self, *, rejected: bool) -> RequestAuth:
            await asyncio.sleep(60)
            raise AssertionError

    async with scripted_server(accept_only()) as server, server.client(credentials=SlowCredentials()) as client:
        with pytest.raises(TransportError, match=r"timed out reading the credentials.*nothing was sent"):
            await client.create(PODS, POD, namespace="lab")
        assert server.exchanges == []


async def test_closing_a_client_fails_calls_that_wait_for_credentials(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, user=exec_user("exec sleep 60"))
    async with client_from(path) as client:
        calls = [asyncio.create_task(read(client)) for _ in range(3)]
        await asyncio.sleep(0)
        await client.close()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [TransportError] * 3


@pytest.mark.parametrize("last", ["exec sleep 60", "sleep 60; true"], ids=["plugin", "child process"])
async def test_a_hanging_plugin_is_killed_with_the_client(tmp_path: Path, last: str) -> None:
    script = f'echo $$ > "{tmp_path}/part"; mv "{tmp_path}/part" "{tmp_path}/pid"; {last}'
    path = kubeconfig(tmp_path, user=exec_user(script))
    transport = HttpTransport(await load.load(path))
    client = Client(transport, limits=ClientLimits(timeout_seconds=0.2))
    with pytest.raises(TransportError, match="timed out reading the credentials"):
        await read(client)
    async with asyncio.timeout(10):
        while not (tmp_path / "pid").exists():  # noqa: ASYNC110 - there is no event for a file
            await asyncio.sleep(0.01)
        await client.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_cancelling_connect_kills_the_plugin(tmp_path: Path) -> None:
    script = f'echo $$ > "{tmp_path}/part"; mv "{tmp_path}/part" "{tmp_path}/pid"; exec sleep 60'
    connecting = asyncio.create_task(connect(kubeconfig(tmp_path, user=exec_user(script))))
    async with asyncio.timeout(10):
        while not (tmp_path / "pid").exists():  # noqa: ASYNC110 - there is no event for a file
            await asyncio.sleep(0.01)
        connecting.cancel()
        await asyncio.wait([connecting])
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_connect_returns_an_authenticated_transport(tmp_path: Path) -> None:
    async with scripted_server(accept_only("one")) as server:
        client = Client(await connect(kubeconfig(tmp_path, server=server.url, user={"token": "one"}), context="lab"))
        assert await read(client) == POD
        await client.close()


async def test_a_rotated_service_account_token_is_read_again(tmp_path: Path) -> None:
    clock = Clock()
    (tmp_path / "token").write_text("one")
    (tmp_path / "ca.crt").write_bytes(CertificateAuthority().pem)
    credentials = ServiceAccountCredentials(tmp_path, clock=clock)
    async with scripted_server(accept_only("one", "two", "three"), accept_only("one", "two", "three"), accept_only("three")) as server:
        transport = HttpTransport(ClusterConfig(server=server.url, credentials=credentials, origin="the pod"), clock=clock)
        client = Client(transport)
        await read(client)
        (tmp_path / "token").write_text("two")
        clock.now += 61
        await read(client)
        (tmp_path / "token").write_text("three")
        await read(client)
        await client.close()
        assert received_tokens(server) == ["one", "two", "two", "three"]
