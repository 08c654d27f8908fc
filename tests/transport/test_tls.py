"""TLS: trusted servers, client certificates and error messages."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dlop.kube.client import Client, ClientLimits
from dlop.kube.config import load
from dlop.kube.errors import ConfigurationError, KubeError, TransportError
from dlop.kube.http.transport import HttpTransport, connect
from dlop.kube.resources import PODS
from tests.transport.certificates import CertificateAuthority, KeyPair
from tests.transport.kubeconfigs import base64_of, exec_output, exec_user, kubeconfig
from tests.transport.scripted_server import Exchange, respond, scripted_server, status

POD = {"kind": "Pod", "metadata": {"name": "a"}}


@pytest.fixture(scope="module")
def ca() -> CertificateAuthority:
    return CertificateAuthority()


def certificate_user(pair: KeyPair) -> dict[str, str]:
    return {"client-certificate-data": base64_of(pair.certificate), "client-key-data": base64_of(pair.key)}


def trusting(ca: CertificateAuthority, **extra: Any) -> dict[str, Any]:
    return {"certificate-authority-data": base64_of(ca.pem), **extra}


@asynccontextmanager
async def client_from(path: Path) -> AsyncIterator[Client]:
    client = Client(HttpTransport(await load.load(path)), limits=ClientLimits(timeout_seconds=5))
    try:
        yield client
    finally:
        await client.close()


async def read(client: Client) -> object:
    return await client.get(PODS, "a", namespace="lab")


async def respond_with_client_name(exchange: Exchange) -> None:
    """Respond with the common name of the client certificate."""
    subject = exchange.writer.get_extra_info("ssl_object").getpeercert()["subject"]
    await exchange.respond(json={"metadata": {"name": subject[0][0][1]}})


async def test_a_server_certificate_of_the_ca_in_the_kubeconfig_is_trusted(tmp_path: Path, ca: CertificateAuthority) -> None:
    async with (
        scripted_server(respond(json=POD), tls=ca.server_context(tmp_path)) as server,
        client_from(kubeconfig(tmp_path, server=server.url, cluster=trusting(ca))) as client,
    ):
        assert await read(client) == POD


async def test_a_ca_file_is_relative_to_the_kubeconfig(tmp_path: Path, ca: CertificateAuthority) -> None:
    (tmp_path / "ca.pem").write_bytes(ca.pem)
    async with (
        scripted_server(respond(json=POD), tls=ca.server_context(tmp_path)) as server,
        client_from(kubeconfig(tmp_path, server=server.url, cluster={"certificate-authority": "ca.pem"})) as client,
    ):
        assert await read(client) == POD


@pytest.mark.parametrize("verb", ["read", "write"])
async def test_a_server_with_another_ca_gets_no_request_and_is_reported(tmp_path: Path, ca: CertificateAuthority, verb: str) -> None:
    async with scripted_server(respond(json=POD), tls=ca.server_context(tmp_path)) as server:
        path = kubeconfig(tmp_path, server=server.url, cluster=trusting(CertificateAuthority("other CA")))
        async with client_from(path) as client:
            with pytest.raises(TransportError, match="not trusted") as caught:
                await (read(client) if verb == "read" else client.create(PODS, POD, namespace="lab"))
        assert server.exchanges == []
        assert f"kubeconfig {path}" in str(caught.value)
        assert "certificate-authority" in str(caught.value)


async def test_the_server_name_must_match_the_address_or_tls_server_name(tmp_path: Path, ca: CertificateAuthority) -> None:
    tls = ca.server_context(tmp_path, hosts=("kubernetes.lab",))
    async with scripted_server(respond(json=POD), tls=tls) as server:
        async with client_from(kubeconfig(tmp_path, server=server.url, cluster=trusting(ca))) as client:
            with pytest.raises(TransportError, match="tls-server-name"):
                await read(client)
        named = trusting(ca, **{"tls-server-name": "kubernetes.lab"})
        async with client_from(kubeconfig(tmp_path, server=server.url, cluster=named)) as client:
            assert await read(client) == POD


async def test_insecure_skip_tls_verify_trusts_any_server(tmp_path: Path, ca: CertificateAuthority) -> None:
    async with (
        scripted_server(respond(json=POD), tls=ca.server_context(tmp_path)) as server,
        client_from(kubeconfig(tmp_path, server=server.url, cluster={"insecure-skip-tls-verify": True})) as client,
    ):
        assert await read(client) == POD


async def test_a_client_certificate_identifies_the_client(tmp_path: Path, ca: CertificateAuthority) -> None:
    async with scripted_server(respond_with_client_name, tls=ca.server_context(tmp_path, require_client_cert=True)) as server:
        user = certificate_user(ca.issue("alice"))
        async with client_from(kubeconfig(tmp_path, server=server.url, cluster=trusting(ca), user=user)) as client:
            assert await read(client) == {"metadata": {"name": "alice"}}


async def test_a_missing_client_certificate_is_reported(tmp_path: Path, ca: CertificateAuthority) -> None:
    async with (
        scripted_server(respond(json=POD), tls=ca.server_context(tmp_path, require_client_cert=True)) as server,
        client_from(kubeconfig(tmp_path, server=server.url, cluster=trusting(ca))) as client,
    ):
        with pytest.raises(KubeError, match=str(tmp_path)):
            await read(client)


async def test_an_expired_client_certificate_is_reported_with_its_file_and_expiry(tmp_path: Path, ca: CertificateAuthority) -> None:
    path = kubeconfig(tmp_path, server="https://127.0.0.1:1", user=certificate_user(ca.issue("alice", days=-1)))
    yesterday = (datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)).strftime("%Y-%m-%d")
    async with client_from(path) as client:
        with pytest.raises(ConfigurationError, match=f"expired on {yesterday}.*get a new kubeconfig") as caught:
            await read(client)
    assert f"kubeconfig {path}, context lab" in str(caught.value)


@pytest.mark.parametrize(
    "user",
    [
        {"client-certificate-data": base64_of(b"garbage"), "client-key-data": base64_of(b"garbage")},
        {"client-certificate": "missing.crt", "client-key": "missing.key"},
    ],
    ids=["garbage", "missing"],
)
async def test_an_invalid_client_certificate_is_reported_with_its_file(tmp_path: Path, user: dict[str, str]) -> None:
    path = kubeconfig(tmp_path, server="https://127.0.0.1:1", user=user)
    with pytest.raises(ConfigurationError, match=f"kubeconfig {path}, context lab"):
        async with client_from(path) as client:
            await read(client)


async def test_a_key_that_does_not_match_the_certificate_is_reported_with_its_file(tmp_path: Path, ca: CertificateAuthority) -> None:
    user = certificate_user(KeyPair(ca.issue("alice").certificate, ca.issue("bob").key))
    path = kubeconfig(tmp_path, server="https://127.0.0.1:1", user=user)
    async with client_from(path) as client:
        with pytest.raises(ConfigurationError, match=f"kubeconfig {path}, context lab"):
            await read(client)


async def test_an_invalid_ca_is_reported_with_its_file(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, server="https://127.0.0.1:1", cluster={"certificate-authority-data": base64_of(b"garbage")})
    async with client_from(path) as client:
        with pytest.raises(ConfigurationError, match=f"kubeconfig {path}, context lab"):
            await read(client)


async def test_the_certificate_of_an_exec_plugin_is_replaced_before_it_expires(tmp_path: Path, ca: CertificateAuthority) -> None:
    def set_output(name: str, *, expires: datetime.datetime) -> None:
        pair = ca.issue(name)
        (tmp_path / "output").write_text(
            exec_output(
                clientCertificateData=pair.certificate.decode(), clientKeyData=pair.key.decode(), expirationTimestamp=expires.isoformat()
            )
        )

    now = datetime.datetime.now(datetime.UTC)
    time = now.timestamp()
    async with scripted_server(respond_with_client_name, tls=ca.server_context(tmp_path, require_client_cert=True)) as server:
        path = kubeconfig(tmp_path, server=server.url, cluster=trusting(ca), user=exec_user(f'cat "{tmp_path}/output"'))
        set_output("alice", expires=now + datetime.timedelta(minutes=10))
        config = await load.load(path, clock=lambda: time)
        client = Client(HttpTransport(config, clock=lambda: time), limits=ClientLimits(timeout_seconds=5))
        assert await read(client) == {"metadata": {"name": "alice"}}
        set_output("bob", expires=now + datetime.timedelta(minutes=20))
        assert await read(client) == {"metadata": {"name": "alice"}}
        time += 595
        assert await read(client) == {"metadata": {"name": "bob"}}
        await client.close()
        assert server.connections == 2


async def test_a_server_without_tls_is_reported(tmp_path: Path, ca: CertificateAuthority) -> None:
    async with scripted_server(respond(json=POD)) as server:
        path = kubeconfig(tmp_path, server=server.url.replace("http:", "https:"), cluster=trusting(ca))
        async with client_from(path) as client:
            with pytest.raises(TransportError, match=f"kubeconfig {path}"):
                await client.call("GET", "/api", timeout_seconds=0.1)


async def test_connections_are_reused_when_a_token_is_replaced(tmp_path: Path, ca: CertificateAuthority) -> None:
    script = respond(json=POD), status(401, "Unauthorized"), respond(json=POD)
    async with scripted_server(*script, tls=ca.server_context(tmp_path)) as server:
        path = kubeconfig(tmp_path, server=server.url, cluster=trusting(ca), user={"token": "one"})
        async with client_from(path) as client:
            await read(client)
            kubeconfig(tmp_path, server=server.url, cluster=trusting(ca), user={"token": "two"})
            await read(client)
        assert [exchange.headers["authorization"] for exchange in server.exchanges] == ["Bearer one", "Bearer one", "Bearer two"]
        assert server.connections == 1


async def test_a_replaced_ca_file_is_read_again(tmp_path: Path, ca: CertificateAuthority) -> None:
    (tmp_path / "ca.pem").write_bytes(CertificateAuthority("old CA").pem)
    async with (
        scripted_server(respond(json=POD), tls=ca.server_context(tmp_path)) as server,
        client_from(kubeconfig(tmp_path, server=server.url, cluster={"certificate-authority": "ca.pem"})) as client,
    ):
        with pytest.raises(TransportError, match="not trusted"):
            await read(client)
        (tmp_path / "ca.pem").write_bytes(ca.pem)
        assert await read(client) == POD


async def test_connect_reports_invalid_credentials(tmp_path: Path, ca: CertificateAuthority) -> None:
    path = kubeconfig(tmp_path, server="https://127.0.0.1:1", user=certificate_user(ca.issue("alice", days=-1)))
    with pytest.raises(ConfigurationError, match="expired"):
        await connect(path)


async def test_a_client_certificate_file_is_read_again_shortly_before_it_expires(tmp_path: Path, ca: CertificateAuthority) -> None:
    def write_files(pair: KeyPair) -> None:
        (tmp_path / "client.crt").write_bytes(pair.certificate)
        (tmp_path / "client.key").write_bytes(pair.key)

    time = datetime.datetime.now(datetime.UTC).timestamp()
    async with scripted_server(respond_with_client_name, tls=ca.server_context(tmp_path, require_client_cert=True)) as server:
        user = {"client-certificate": "client.crt", "client-key": "client.key"}
        path = kubeconfig(tmp_path, server=server.url, cluster=trusting(ca), user=user)
        write_files(ca.issue("alice", days=1))
        config = await load.load(path, clock=lambda: time)
        client = Client(HttpTransport(config, clock=lambda: time), limits=ClientLimits(timeout_seconds=5))
        assert await read(client) == {"metadata": {"name": "alice"}}
        write_files(ca.issue("bob", days=2))
        assert await read(client) == {"metadata": {"name": "alice"}}
        time += datetime.timedelta(days=1).total_seconds() - 30
        assert await read(client) == {"metadata": {"name": "bob"}}
        await client.close()
