"""Authentication: who a request is from, and that nobody but the holder of the token is the administrator."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable

import pytest

from dlop.embedded.apiserver.authentication import Authenticator
from dlop.embedded.apiserver.transports.inprocess import InProcessTransport
from dlop.embedded.apiserver.users import ADMINISTRATOR, ANONYMOUS
from dlop.embedded.cluster import EmbeddedCluster
from dlop.kube.client import Client
from dlop.kube.errors import ForbiddenError, UnauthorizedError
from dlop.kube.resources import CONFIG_MAPS, SERVICE_ACCOUNTS
from dlop.kube.transport import Request
from dlop.kube.types import JsonObject
from dlop.testing.virtual_time import virtual_time

TOKEN = "the-token-of-the-administrator"
PATH = CONFIG_MAPS.path(namespace="default")
BODY = b'{"metadata": {"name": "a"}}'
WITHOUT_TOKEN = ["", " ", "Bearer", "Bearer ", f"Basic {TOKEN}", f"Token {TOKEN}", TOKEN]
WRONG_TOKENS = [
    "Bearer x",
    f"Bearer {TOKEN[:-1]}",
    f"Bearer {TOKEN}x",
    f"Bearer {TOKEN.upper()}",
    f"Bearer {TOKEN} {TOKEN}",
    "Bearer ..",
    "Bearer \udcff",
]


@pytest.mark.parametrize("header", [*WITHOUT_TOKEN, *WRONG_TOKENS])
@virtual_time
async def test_a_write_without_the_token_is_refused_and_changes_nothing(header: str) -> None:
    async with EmbeddedCluster(token=TOKEN) as cluster:
        response = await cluster.server.handle(Request("POST", PATH, headers={"authorization": header}, body=BODY))
        assert response.status == (403 if header in WITHOUT_TOKEN else 401)
        assert (await cluster.client().list(CONFIG_MAPS, namespace="default"))["items"] == []


@virtual_time
async def test_a_write_with_the_token_is_allowed() -> None:
    async with EmbeddedCluster(token=TOKEN) as cluster:
        response = await cluster.server.handle(Request("POST", PATH, headers={"authorization": f"bearer  {TOKEN} "}, body=BODY))
        assert response.status == 201


@pytest.mark.parametrize("header", WITHOUT_TOKEN)
@virtual_time
async def test_a_request_without_a_token_is_from_a_user_that_is_not_the_administrator(header: str) -> None:
    async with EmbeddedCluster() as cluster:
        user = Authenticator(cluster.storage, admin_token=TOKEN).authenticate(header)
        assert user == ANONYMOUS != ADMINISTRATOR
        assert not set(user.groups) & set(ADMINISTRATOR.groups)


@virtual_time
async def test_an_empty_token_of_the_administrator_is_refused_so_that_an_empty_token_cannot_match_it() -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        EmbeddedCluster(token="")


@virtual_time
async def test_an_in_process_client_with_an_empty_token_is_anonymous() -> None:
    async with EmbeddedCluster() as cluster:
        client = Client(InProcessTransport(cluster.server, token=""))
        with pytest.raises(ForbiddenError, match='User "system:anonymous" cannot list resource "configmaps"'):
            await client.list(CONFIG_MAPS, namespace="default")


async def _administrator(cluster: EmbeddedCluster) -> str:
    return cluster.server.token


async def _service_account(cluster: EmbeddedCluster) -> str:
    body: JsonObject = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bot"}}
    await cluster.client().create(SERVICE_ACCOUNTS, body, namespace="default")
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    response = await cluster.client().create(SERVICE_ACCOUNTS, body, namespace="default", name="bot", subresource="token")
    return str(response["status"]["token"])


@pytest.mark.parametrize("get_token", [_administrator, _service_account])
def test_a_token_is_accepted_only_by_the_comparison_in_constant_time(
    get_token: Callable[[EmbeddedCluster], Awaitable[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    @virtual_time
    async def scenario() -> None:
        async with EmbeddedCluster() as cluster:
            client = Client(InProcessTransport(cluster.server, token=await get_token(cluster)))
            await client.call("GET", "/api")
            monkeypatch.setattr(hmac, "compare_digest", lambda *_: False)
            with pytest.raises(UnauthorizedError):
                await client.call("GET", "/api")

    scenario()
