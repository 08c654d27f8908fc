"""Streaming of pod logs through the API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from dlop.kube.client import Client
from dlop.kube.errors import UnauthorizedError, error_from_response
from dlop.kube.resources import PODS
from dlop.kube.transport import Request, StreamResponse

# A container may log nothing for hours.
_IDLE_TIMEOUT_SECONDS = 24 * 3600.0


@asynccontextmanager
async def stream_pod_log(
    client: Client,
    name: str,
    *,
    namespace: str,
    container: str | None = None,
    follow: bool = False,
    previous: bool = False,
    timestamps: bool = False,
    tail_lines: int | None = None,
    since_seconds: int | None = None,
    since_time: str | None = None,
    limit_bytes: int | None = None,
    idle_timeout_seconds: float = _IDLE_TIMEOUT_SECONDS,
) -> AsyncIterator[AsyncIterator[bytes]]:
    """The log of a container, in chunks with arbitrary boundaries; with `follow` until the container terminates.

    Reading raises TransportError if the stream breaks or sends nothing for `idle_timeout_seconds`.

    Raises:
        StatusError: the pod, the container or its previous run does not exist, or the container has not started yet.
        TransportError: no response.
    """
    flags = {"follow": follow, "previous": previous, "timestamps": timestamps}
    values = {
        "container": container,
        "tailLines": tail_lines,
        "sinceSeconds": since_seconds,
        "sinceTime": since_time,
        "limitBytes": limit_bytes,
    }
    query = [(option, "true") for option, enabled in flags.items() if enabled]
    query += [(option, str(value)) for option, value in values.items() if value is not None]
    path = PODS.path(namespace=namespace, name=name, subresource="log")
    # A log is plain text, an error is JSON.
    request = Request("GET", path, query=tuple(query), headers={"accept": "*/*"})
    async with AsyncExitStack() as stack:
        response = await _open_log(stack, client, request, idle_timeout_seconds)
        yield response.chunks


async def _open_log(stack: AsyncExitStack, client: Client, request: Request, idle_timeout_seconds: float) -> StreamResponse:
    has_refreshed = False
    while True:
        response = await stack.enter_async_context(client.transport.stream(request, idle_timeout_seconds=idle_timeout_seconds))
        if response.status == 200:
            return response
        body = b"".join([chunk async for chunk in response.chunks])
        error = error_from_response(response.status, response.headers, body)
        if not isinstance(error, UnauthorizedError) or has_refreshed:
            raise error
        await client.transport.refresh_credentials()
        has_refreshed = True
