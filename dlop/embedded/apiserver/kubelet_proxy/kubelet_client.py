"""Client for kubelet APIs. It only calls trusted kubelets, over TLS and with their token."""

from __future__ import annotations

import ssl
import weakref
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import aiohttp

from dlop.embedded.apiserver.api_errors import internal_error
from dlop.embedded.apiserver.responses import TEXT_HEADERS
from dlop.kube.errors import StatusError
from dlop.kube.transport import Response
from dlop.kube.types import JsonObject

# Preferred address types of a node, in order.
_ADDRESS_TYPES = ("ExternalIP", "InternalIP", "Hostname")
_CONNECT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class _KubeletCredentials:
    context: ssl.SSLContext
    token: str


@dataclass(frozen=True, slots=True)
class KubeletLocation:
    """URL of a kubelet API request."""

    host: str
    port: int
    path: str
    query: Sequence[tuple[str, str]] = ()

    @property
    def url(self) -> str:
        return f"https://{self.host}:{self.port}{self.path}"


class KubeletClient:
    def __init__(self) -> None:
        self._credentials: dict[tuple[str, int], _KubeletCredentials] = {}
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False
        # Open streams. Closing the session does not end pending reads, so they are closed one by one.
        self._responses = weakref.WeakSet[aiohttp.ClientResponse]()
        self._websockets = weakref.WeakSet[aiohttp.ClientWebSocketResponse]()

    def trust(self, host: str, port: int, *, ca_pem: str, token: str) -> None:
        """Allow requests to the kubelet at this address, with its CA and token."""
        self._credentials[host, port] = _KubeletCredentials(ssl.create_default_context(cadata=ca_pem), token)

    async def get(self, location: KubeletLocation) -> aiohttp.ClientResponse:
        """Send a GET request. The body of the response is not read yet.

        Raises:
            ServerError: the kubelet is not reachable.
        """
        credentials = self._find_credentials(location)
        try:
            response = await self._open_session().get(
                location.url, params=location.query, ssl=credentials.context, headers=_authorization(credentials)
            )
        except aiohttp.ClientConnectionError as error:
            raise _unreachable(location, error) from error
        self._responses.add(response)
        return response

    async def open_socket(self, location: KubeletLocation, protocols: Sequence[str]) -> aiohttp.ClientWebSocketResponse | Response:
        """Open a WebSocket, or return the error response of the kubelet.

        Raises:
            ServerError: the kubelet is not reachable.
        """
        credentials = self._find_credentials(location)
        try:
            websocket = await self._open_session().ws_connect(
                location.url,
                params=location.query,
                protocols=protocols,
                ssl=credentials.context,
                headers=_authorization(credentials),
                max_msg_size=0,
                compress=0,
            )
        except aiohttp.WSServerHandshakeError:
            return await self.get_error(location)
        except aiohttp.ClientConnectionError as error:
            raise _unreachable(location, error) from error
        self._websockets.add(websocket)
        return websocket

    async def get_error(self, location: KubeletLocation) -> Response:
        """The response of the kubelet to the request without an upgrade, which explains the error."""
        async with await self.get(location) as response:
            return Response(response.status, TEXT_HEADERS, await response.read())

    async def close(self) -> None:
        """Close all streams. Later requests fail."""
        self._is_closed = True
        for response in list(self._responses):
            response.close()
        for websocket in list(self._websockets):
            await websocket.close()
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _find_credentials(self, location: KubeletLocation) -> _KubeletCredentials:
        credentials = self._credentials.get((location.host, location.port))
        if self._is_closed:
            raise internal_error("the server is shutting down")
        if credentials is None:
            raise internal_error(f"the kubelet at {location.host}:{location.port} is not known to this server")
        return credentials

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
            # Every stream has its own connection. The client closes it after the last read, because with uvloop unread data is
            # lost when the server closes the connection first.
            self._session = aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0))
        return self._session


def kubelet_address(node: JsonObject) -> tuple[str, int]:
    """Host and port of the kubelet of a node.

    Raises:
        ServerError: the node has no address.
    """
    status = node.get("status") or {}
    addresses = {address.get("type"): address.get("address") for address in status.get("addresses") or ()}
    port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port") or 0
    for kind in _ADDRESS_TYPES:
        if addresses.get(kind):
            return addresses[kind], int(port)
    raise internal_error(f"no preferred addresses found; known addresses: {list(addresses)}")


class KubeletResponseBody(AsyncGenerator[bytes, None]):
    """The chunks of a response body. Closing it closes the connection, even if nothing was read."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def asend(self, value: None) -> bytes:
        try:
            chunk = await self._response.content.readany()
        except aiohttp.ClientError:
            chunk = b""  # a lost connection ends the log
        if not chunk:
            self._response.close()
            raise StopAsyncIteration
        return chunk

    async def athrow(
        self, typ: type[BaseException] | BaseException, val: BaseException | object = None, tb: TracebackType | None = None
    ) -> Any:
        """Close the connection. `aclose` calls this."""
        self._response.close()
        raise typ


def _authorization(credentials: _KubeletCredentials) -> Mapping[str, str]:
    return {"authorization": f"Bearer {credentials.token}"}


def _unreachable(location: KubeletLocation, error: aiohttp.ClientError) -> StatusError:
    return internal_error(f'Get "{location.url}": {error}')
