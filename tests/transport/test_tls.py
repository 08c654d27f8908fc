"""TLS to the API server: who is trusted, who the client is, and what is said when either does not work out."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dlop.kube.client import Client, Limits
from dlop.kube.config import load
from dlop.kube.errors import ConfigurationError, KubeError, TransportError
from dlop.kube.http.transport import HttpTransport, connect
from dlop.kube.resources import PODS
from tests.transport.certificates import Authority, Pair
from tests.transport.kubeconfigs import base64_of, exec_answer, exec_user, kubeconfig
from tests.transport.wire import Exchange, answer, status, wire

POD = {"kind": "Pod", "metadata": {"name": "a"}}


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def certificate_user(pair: Pair) -> dict[str, str]:
    return {"client-certificate-data": base64_of(pair.certificate), "client-key-data": base64_of(pair.key)}


def trusting(authority: Authority, **extra: Any) -> dict[str, Any]:
    return {"certificate-authority-data": base64_of(authority.pem), **extra}


@asynccontextmanager
async def client_from(path: Path) -> AsyncIterator[Client]:
    client = Client(HttpTransport(await load.load(path)), limits=Limits(timeout_seconds=5))
    try:
        yield client
    finally:
        await client.close()


async def read(client: Client) -> object:
    return await client.get(PODS, "a", namespace="lab")


async def name_of_client(exchange: Exchange) -> None:
    """Answer with the name in the client's certificate."""
    subject = exchange.writer.get_extra_info("ssl_object").getpeercert()["subject"]
    await exchange.answer(json={"metadata": {"name": subject[0][0][1]}})


async def test_a_server_of_the_kubeconfigs_authority_is_trusted(tmp_path: Path, authority: Authority) -> None:
    async with (
        wire(answer(json=POD), tls=authority.server_context(tmp_path)) as server,
        client_from(kubeconfig(tmp_path, server=server.url, cluster=trusting(authority))) as client,
    ):
        assert await read(client) == POD


async def test_an_authority_in_a_file_beside_the_kubeconfig_works_too(tmp_path: Path, authority: Authority) -> None:
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    async with (
        wire(answer(json=POD), tls=authority.server_context(tmp_path)) as server,
        client_from(kubeconfig(tmp_path, server=server.url, cluster={"certificate-authority": "ca.pem"})) as client,
    ):
        assert await read(client) == POD


@pytest.mark.parametrize("verb", ["read", "write"])
async def test_a_server_of_another_authority_gets_nothing_and_is_named(tmp_path: Path, authority: Authority, verb: str) -> None:
    async with wire(answer(json=POD), tls=authority.server_context(tmp_path)) as server:
        path = kubeconfig(tmp_path, server=server.url, cluster=trusting(Authority("another")))
        async with client_from(path) as client:
            with pytest.raises(TransportError, match="not trusted") as caught:
                await (read(client) if verb == "read" else client.create(PODS, POD, namespace="lab"))
        assert server.exchanges == []
        assert f"kubeconfig {path}" in str(caught.value)
        assert "certificate-authority" in str(caught.value)


async def test_a_server_with_another_name_is_not_trusted_unless_the_kubeconfig_says_that_name(tmp_path: Path, authority: Authority) -> None:
    tls = authority.server_context(tmp_path, hosts=("kubernetes.lab",))
    async with wire(answer(json=POD), tls=tls) as server:
        async with client_from(kubeconfig(tmp_path, server=server.url, cluster=trusting(authority))) as client:
            with pytest.raises(TransportError, match="tls-server-name"):
                await read(client)
        named = trusting(authority, **{"tls-server-name": "kubernetes.lab"})
        async with client_from(kubeconfig(tmp_path, server=server.url, cluster=named)) as client:
            assert await read(client) == POD


async def test_a_kubeconfig_may_trust_anyone(tmp_path: Path, authority: Authority) -> None:
    async with (
        wire(answer(json=POD), tls=authority.server_context(tmp_path)) as server,
        client_from(kubeconfig(tmp_path, server=server.url, cluster={"insecure-skip-tls-verify": True})) as client,
    ):
        assert await read(client) == POD


async def test_a_client_certificate_tells_who_the_client_is(tmp_path: Path, authority: Authority) -> None:
    async with wire(name_of_client, tls=authority.server_context(tmp_path, wants_client=True)) as server:
        user = certificate_user(authority.issue("alice"))
        async with client_from(kubeconfig(tmp_path, server=server.url, cluster=trusting(authority), user=user)) as client:
            assert await read(client) == {"metadata": {"name": "alice"}}


async def test_a_client_without_the_certificate_that_the_server_wants_fails_in_one_sentence(tmp_path: Path, authority: Authority) -> None:
    async with (
        wire(answer(json=POD), tls=authority.server_context(tmp_path, wants_client=True)) as server,
        client_from(kubeconfig(tmp_path, server=server.url, cluster=trusting(authority))) as client,
    ):
        with pytest.raises(KubeError, match=str(tmp_path)):
            await read(client)


async def test_an_expired_client_certificate_is_named_with_its_file_and_its_end(tmp_path: Path, authority: Authority) -> None:
    path = kubeconfig(tmp_path, server="https://127.0.0.1:1", user=certificate_user(authority.issue("alice", days=-1)))
    yesterday = (datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)).strftime("%Y-%m-%d")
    async with client_from(path) as client:
        with pytest.raises(ConfigurationError, match=f"expired on {yesterday}.*get a new kubeconfig") as caught:
            await read(client)
    assert f"kubeconfig {path}, context lab" in str(caught.value)


@pytest.mark.parametrize(
    "user",
    [
        {"client-certificate-data": base64_of(b"rubbish"), "client-key-data": base64_of(b"rubbish")},
        {"client-certificate": "missing.crt", "client-key": "missing.key"},
    ],
    ids=["rubbish", "missing"],
)
async def test_an_unusable_client_certificate_is_named_with_its_file(tmp_path: Path, user: dict[str, str]) -> None:
    path = kubeconfig(tmp_path, server="https://127.0.0.1:1", user=user)
    with pytest.raises(ConfigurationError, match=f"kubeconfig {path}, context lab"):
        async with client_from(path) as client:
            await read(client)


async def test_a_key_of_another_certificate_is_named_with_its_file(tmp_path: Path, authority: Authority) -> None:
    user = certificate_user(Pair(authority.issue("alice").certificate, authority.issue("bob").key))
    path = kubeconfig(tmp_path, server="https://127.0.0.1:1", user=user)
    async with client_from(path) as client:
        with pytest.raises(ConfigurationError, match=f"kubeconfig {path}, context lab"):
            await read(client)


async def test_an_unusable_authority_is_named_with_its_file(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, server="https://127.0.0.1:1", cluster={"certificate-authority-data": base64_of(b"rubbish")})
    async with client_from(path) as client:
        with pytest.raises(ConfigurationError, match=f"kubeconfig {path}, context lab"):
            await read(client)


async def test_a_plugins_certificate_is_replaced_before_it_ends_over_new_connections(tmp_path: Path, authority: Authority) -> None:
    def answered(name: str, *, ends: datetime.datetime) -> None:
        pair = authority.issue(name)
        (tmp_path / "answer").write_text(
            exec_answer(
                clientCertificateData=pair.certificate.decode(), clientKeyData=pair.key.decode(), expirationTimestamp=ends.isoformat()
            )
        )

    now = datetime.datetime.now(datetime.UTC)
    moment = now.timestamp()
    async with wire(name_of_client, tls=authority.server_context(tmp_path, wants_client=True)) as server:
        path = kubeconfig(tmp_path, server=server.url, cluster=trusting(authority), user=exec_user(f'cat "{tmp_path}/answer"'))
        answered("alice", ends=now + datetime.timedelta(minutes=10))
        connection = await load.load(path, clock=lambda: moment)
        client = Client(HttpTransport(connection, clock=lambda: moment), limits=Limits(timeout_seconds=5))
        assert await read(client) == {"metadata": {"name": "alice"}}
        answered("bob", ends=now + datetime.timedelta(minutes=20))
        assert await read(client) == {"metadata": {"name": "alice"}}
        moment += 595
        assert await read(client) == {"metadata": {"name": "bob"}}
        await client.close()
        assert server.connections == 2


async def test_a_server_that_speaks_no_tls_fails_in_one_sentence(tmp_path: Path, authority: Authority) -> None:
    async with wire(answer(json=POD)) as server:
        path = kubeconfig(tmp_path, server=server.url.replace("http:", "https:"), cluster=trusting(authority))
        async with client_from(path) as client:
            with pytest.raises(TransportError, match=f"kubeconfig {path}"):
                await client.call("GET", "/api", timeout_seconds=0.1)


async def test_connections_stay_open_when_a_token_is_replaced(tmp_path: Path, authority: Authority) -> None:
    script = answer(json=POD), status(401, "Unauthorized"), answer(json=POD)
    async with wire(*script, tls=authority.server_context(tmp_path)) as server:
        path = kubeconfig(tmp_path, server=server.url, cluster=trusting(authority), user={"token": "one"})
        async with client_from(path) as client:
            await read(client)
            kubeconfig(tmp_path, server=server.url, cluster=trusting(authority), user={"token": "two"})
            await read(client)
        assert [exchange.headers["authorization"] for exchange in server.exchanges] == ["Bearer one", "Bearer one", "Bearer two"]
        assert server.connections == 1


async def test_an_authority_that_was_replaced_is_read_again(tmp_path: Path, authority: Authority) -> None:
    (tmp_path / "ca.pem").write_bytes(Authority("the one before").pem)
    async with (
        wire(answer(json=POD), tls=authority.server_context(tmp_path)) as server,
        client_from(kubeconfig(tmp_path, server=server.url, cluster={"certificate-authority": "ca.pem"})) as client,
    ):
        with pytest.raises(TransportError, match="not trusted"):
            await read(client)
        (tmp_path / "ca.pem").write_bytes(authority.pem)
        assert await read(client) == POD


async def test_connecting_shows_unusable_credentials_at_once(tmp_path: Path, authority: Authority) -> None:
    path = kubeconfig(tmp_path, server="https://127.0.0.1:1", user=certificate_user(authority.issue("alice", days=-1)))
    with pytest.raises(ConfigurationError, match="expired"):
        await connect(path)


async def test_a_client_certificate_in_a_file_is_read_again_shortly_before_its_end(tmp_path: Path, authority: Authority) -> None:
    def write(pair: Pair) -> None:
        (tmp_path / "client.crt").write_bytes(pair.certificate)
        (tmp_path / "client.key").write_bytes(pair.key)

    moment = datetime.datetime.now(datetime.UTC).timestamp()
    async with wire(name_of_client, tls=authority.server_context(tmp_path, wants_client=True)) as server:
        user = {"client-certificate": "client.crt", "client-key": "client.key"}
        path = kubeconfig(tmp_path, server=server.url, cluster=trusting(authority), user=user)
        write(authority.issue("alice", days=1))
        connection = await load.load(path, clock=lambda: moment)
        client = Client(HttpTransport(connection, clock=lambda: moment), limits=Limits(timeout_seconds=5))
        assert await read(client) == {"metadata": {"name": "alice"}}
        write(authority.issue("bob", days=2))
        assert await read(client) == {"metadata": {"name": "alice"}}
        moment += datetime.timedelta(days=1).total_seconds() - 30
        assert await read(client) == {"metadata": {"name": "bob"}}
        await client.close()
