"""Credentials over the wire: they are read again when they are due or refused, and a lasting refusal says where they are."""

from __future__ import annotations

import asyncio
import datetime
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dlop.kube.client import Client, Limits
from dlop.kube.config import load
from dlop.kube.config.cluster import Access, ClusterConfig
from dlop.kube.config.credentials import ServiceAccountCredentials
from dlop.kube.errors import ConfigurationError, TransportError, UnauthorizedError
from dlop.kube.http.transport import HttpTransport, connect
from dlop.kube.resources import PODS
from tests.transport.certificates import Authority
from tests.transport.kubeconfigs import exec_answer, exec_user, kubeconfig
from tests.transport.wire import Exchange, Handler, WireServer, event_line, wire

POD = {"kind": "Pod", "metadata": {"name": "a"}}


class Clock:
    """Wall time that moves when told to."""

    def __init__(self) -> None:
        self.now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC).timestamp()

    def __call__(self) -> float:
        return self.now


def only(*tokens: str) -> Handler:
    """A server that lets in these bearer tokens only."""

    async def handle(exchange: Exchange) -> None:
        if exchange.headers.get("authorization") in [f"Bearer {token}" for token in tokens]:
            if "watch=true" in exchange.query:
                await exchange.begin()
                await exchange.chunk(event_line("ADDED", POD))
                await exchange.end()
            else:
                await exchange.answer(json=POD)
        else:
            await exchange.answer(status=401, json={"kind": "Status", "code": 401, "reason": "Unauthorized", "message": "Unauthorized"})

    return handle


@asynccontextmanager
async def client_from(path: Path, *, clock: Clock | None = None) -> AsyncIterator[Client]:
    connection: ClusterConfig = await load.load(path, clock=clock or Clock())
    client = Client(HttpTransport(connection, clock=clock or Clock()), limits=Limits(timeout_seconds=5))
    try:
        yield client
    finally:
        await client.close()


async def read(client: Client) -> object:
    return await client.get(PODS, "a", namespace="lab")


async def watch(client: Client) -> list[object]:
    async with client.watch(PODS) as events:
        return [event.decode() async for event in events]


def tokens_seen(server: WireServer) -> list[str]:
    return [exchange.headers["authorization"].removeprefix("Bearer ") for exchange in server.exchanges]


async def test_a_token_in_the_kubeconfig_is_read_anew_when_it_is_refused(tmp_path: Path) -> None:
    async with wire(only("new")) as server:
        path = kubeconfig(tmp_path, server=server.url, user={"token": "old"})
        async with client_from(path) as client:
            kubeconfig(tmp_path, server=server.url, user={"token": "new"})
            assert await read(client) == POD
            assert await read(client) == POD
        assert tokens_seen(server) == ["old", "new", "new"]


async def test_a_token_file_that_was_replaced_is_read_when_the_old_token_is_refused(tmp_path: Path) -> None:
    async with wire(only("one"), only("two")) as server:
        (tmp_path / "token").write_text("one\n")
        async with client_from(kubeconfig(tmp_path, server=server.url, user={"tokenFile": "token"})) as client:
            assert await read(client) == POD
            (tmp_path / "token").write_text("two\n")
            assert await read(client) == POD
        assert tokens_seen(server) == ["one", "one", "two"]


async def test_a_token_file_is_read_again_every_minute(tmp_path: Path) -> None:
    clock = Clock()
    async with wire(only("one", "two")) as server:
        (tmp_path / "token").write_text("one")
        async with client_from(kubeconfig(tmp_path, server=server.url, user={"tokenFile": "token"}), clock=clock) as client:
            await read(client)
            (tmp_path / "token").write_text("two")
            clock.now += 59
            await read(client)
            clock.now += 2
            await read(client)
        assert tokens_seen(server) == ["one", "one", "two"]


async def test_a_token_file_that_is_away_for_a_moment_does_no_harm_to_a_token_that_still_works(tmp_path: Path) -> None:
    clock = Clock()
    async with wire(only("one", "two")) as server:
        (tmp_path / "token").write_text("one")
        async with client_from(kubeconfig(tmp_path, server=server.url, user={"tokenFile": "token"}), clock=clock) as client:
            await read(client)
            (tmp_path / "token").unlink()
            clock.now += 61
            await read(client)
            (tmp_path / "token").write_text("two")
            clock.now += 11
            await read(client)
        assert tokens_seen(server) == ["one", "one", "two"]


async def test_a_watch_reads_refused_credentials_anew_once(tmp_path: Path) -> None:
    async with wire(only("new")) as server:
        path = kubeconfig(tmp_path, server=server.url, user={"token": "old"})
        async with client_from(path) as client:
            kubeconfig(tmp_path, server=server.url, user={"token": "new"})
            assert await watch(client) == [POD]


@pytest.mark.parametrize("verb", ["get", "watch"])
async def test_credentials_that_stay_refused_are_named_with_their_file_and_the_way_out(tmp_path: Path, verb: str) -> None:
    async with wire(only()) as server:
        path = kubeconfig(tmp_path, server=server.url, user={"token": "old"})
        async with client_from(path) as client:
            with pytest.raises(UnauthorizedError) as caught:
                await (read(client) if verb == "get" else watch(client))
        assert len(server.exchanges) == 2
        assert f"kubeconfig {path}, context lab" in str(caught.value)
        assert "get new ones" in str(caught.value)


def plugin_script(folder: Path, *answers: str) -> str:
    """A script that prints the n-th answer at its n-th run, the last one from then on, and counts its runs in a file."""
    for number, answer in enumerate(answers, 1):
        (folder / f"answer-{number}").write_text(answer)
    return f'cd "{folder}"; echo run >> runs; n=$(wc -l < runs); while [ ! -f answer-$((n)) ]; do n=$((n - 1)); done; cat answer-$((n))'


def runs(folder: Path) -> int:
    return len((folder / "runs").read_text().splitlines())


async def test_an_exec_plugin_is_run_once_and_again_when_its_token_is_refused(tmp_path: Path) -> None:
    script = plugin_script(tmp_path, exec_answer(token="one"), exec_answer(token="two"))
    async with wire(only("one"), only("one"), only("two")) as server:
        async with client_from(kubeconfig(tmp_path, server=server.url, user=exec_user(script))) as client:
            await read(client)
            await read(client)
            assert runs(tmp_path) == 1
            await read(client)
        assert tokens_seen(server) == ["one", "one", "one", "two"]
        assert runs(tmp_path) == 2


async def test_an_exec_plugin_is_run_again_shortly_before_its_token_ends(tmp_path: Path) -> None:
    clock = Clock()
    end = datetime.datetime.fromtimestamp(clock.now + 600, datetime.UTC).isoformat()
    script = plugin_script(tmp_path, exec_answer(token="one", expirationTimestamp=end), exec_answer(token="two"))
    async with wire(only("one", "two")) as server:
        async with client_from(kubeconfig(tmp_path, server=server.url, user=exec_user(script)), clock=clock) as client:
            await read(client)
            clock.now += 530
            await read(client)
            clock.now += 15
            await read(client)
        assert tokens_seen(server) == ["one", "one", "two"]


async def test_many_calls_refused_at_once_run_the_plugin_once_for_all(tmp_path: Path) -> None:
    script = plugin_script(tmp_path, exec_answer(token="one"), exec_answer(token="two"))
    async with wire(only("two")) as server:
        async with client_from(kubeconfig(tmp_path, server=server.url, user=exec_user(script))) as client:
            await asyncio.gather(*(read(client) for _ in range(10)))
        assert runs(tmp_path) == 2


async def test_a_plugin_that_fails_after_a_refusal_is_named(tmp_path: Path) -> None:
    script = f'cd "{tmp_path}"; [ -f been ] && {{ echo "please log in" >&2; exit 3; }}; touch been; echo \'{exec_answer(token="one")}\''
    async with wire(only("two")) as server:
        async with client_from(kubeconfig(tmp_path, server=server.url, user=exec_user(script))) as client:
            with pytest.raises(ConfigurationError, match="please log in") as caught:
                await read(client)
        assert "program sh" in str(caught.value)
        assert "code 3" in str(caught.value)


async def test_a_plugin_that_takes_longer_than_a_call_serves_a_later_one(tmp_path: Path) -> None:
    (tmp_path / "answer").write_text(exec_answer(token="one"))
    script = f'cd "{tmp_path}"; echo run >> runs; while [ ! -f logged-in ]; do sleep 0.02; done; cat answer'
    async with wire(only("one")) as server:
        async with client_from(kubeconfig(tmp_path, server=server.url, user=exec_user(script))) as client:
            for _ in range(2):
                with pytest.raises(TransportError, match="could not be read in time"):
                    await client.call("GET", "/version", timeout_seconds=0.2)
            (tmp_path / "logged-in").touch()
            assert await read(client) == POD
        assert runs(tmp_path) == 1


async def test_a_write_does_not_wait_for_credentials_longer_than_leadership_is_sure_to_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlop.kube.http.transport._CONNECT_SECONDS_OF_A_WRITE", 0.05)

    class SlowCredentials:
        async def read(self, *, refused: bool) -> Access:
            await asyncio.sleep(60)
            raise AssertionError

    async with wire(only()) as server, server.client(credentials=SlowCredentials()) as client:
        with pytest.raises(TransportError, match="could not be read in time: nothing was sent"):
            await client.create(PODS, POD, namespace="lab")
        assert server.exchanges == []


async def test_closing_a_client_fails_the_calls_that_wait_for_credentials(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, user=exec_user("exec sleep 60"))
    async with client_from(path) as client:
        calls = [asyncio.create_task(read(client)) for _ in range(3)]
        await asyncio.sleep(0)
        await client.close()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [TransportError] * 3


@pytest.mark.parametrize("last", ["exec sleep 60", "sleep 60; true"], ids=["itself", "a child of it"])
async def test_a_plugin_that_hangs_does_not_outlive_the_client(tmp_path: Path, last: str) -> None:
    script = f'echo $$ > "{tmp_path}/part"; mv "{tmp_path}/part" "{tmp_path}/pid"; {last}'
    path = kubeconfig(tmp_path, user=exec_user(script))
    transport = HttpTransport(await load.load(path))
    client = Client(transport, limits=Limits(timeout_seconds=0.2))
    with pytest.raises(TransportError, match="could not be read in time"):
        await read(client)
    async with asyncio.timeout(10):
        while not (tmp_path / "pid").exists():  # noqa: ASYNC110 - nothing tells when a program writes a file
            await asyncio.sleep(0.01)
        await client.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_giving_up_to_connect_ends_the_plugin(tmp_path: Path) -> None:
    script = f'echo $$ > "{tmp_path}/part"; mv "{tmp_path}/part" "{tmp_path}/pid"; exec sleep 60'
    connecting = asyncio.create_task(connect(kubeconfig(tmp_path, user=exec_user(script))))
    async with asyncio.timeout(10):
        while not (tmp_path / "pid").exists():  # noqa: ASYNC110 - nothing tells when a program writes a file
            await asyncio.sleep(0.01)
        connecting.cancel()
        await asyncio.wait([connecting])
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_connect_is_all_it_takes(tmp_path: Path) -> None:
    async with wire(only("one")) as server:
        client = Client(await connect(kubeconfig(tmp_path, server=server.url, user={"token": "one"}), context="lab"))
        assert await read(client) == POD
        await client.close()


async def test_the_service_accounts_token_is_read_again_as_the_kubelet_replaces_it(tmp_path: Path) -> None:
    clock = Clock()
    (tmp_path / "token").write_text("one")
    (tmp_path / "ca.crt").write_bytes(Authority().pem)
    credentials = ServiceAccountCredentials(tmp_path, clock=clock)
    async with wire(only("one", "two", "three"), only("one", "two", "three"), only("three")) as server:
        transport = HttpTransport(ClusterConfig(server=server.url, credentials=credentials, origin="the pod"), clock=clock)
        client = Client(transport)
        await read(client)
        (tmp_path / "token").write_text("two")
        clock.now += 61
        await read(client)
        (tmp_path / "token").write_text("three")
        await read(client)
        await client.close()
        assert tokens_seen(server) == ["one", "two", "two", "three"]
