"""The logs of pods, read through the API server while they grow."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from dlop.kube.client import Client
from dlop.kube.errors import UnauthorizedError, error_from_response
from dlop.kube.resources import PODS
from dlop.kube.transport import Request, StreamResponse

# A container may be silent for long, and still have something to say.
_SILENCE_SECONDS = 24 * 3600.0


@asynccontextmanager
async def pod_log(
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
    silence_seconds: float = _SILENCE_SECONDS,
) -> AsyncIterator[AsyncIterator[bytes]]:
    """What a container has written, in pieces that end anywhere; with `follow` until it ends.

    Reading raises TransportError when the stream breaks, or nothing comes for `silence_seconds`.

    Raises:
        StatusError: there is no such pod, container or run, or it has not started yet.
        TransportError: no answer.
    """
    flags = {"follow": follow, "previous": previous, "timestamps": timestamps}
    values = {
        "container": container,
        "tailLines": tail_lines,
        "sinceSeconds": since_seconds,
        "sinceTime": since_time,
        "limitBytes": limit_bytes,
    }
    query = [(option, "true") for option, wanted in flags.items() if wanted]
    query += [(option, str(value)) for option, value in values.items() if value is not None]
    path = PODS.path(namespace=namespace, name=name, subresource="log")
    # The log is text, a refusal is JSON.
    request = Request("GET", path, query=tuple(query), headers={"accept": "*/*"})
    async with AsyncExitStack() as stack:
        answer = await _opened(stack, client, request, silence_seconds)
        yield answer.chunks


async def _opened(stack: AsyncExitStack, client: Client, request: Request, silence_seconds: float) -> StreamResponse:
    has_refreshed = False
    while True:
        answer = await stack.enter_async_context(client.transport.stream(request, idle_timeout_seconds=silence_seconds))
        if answer.status == 200:
            return answer
        body = b"".join([chunk async for chunk in answer.chunks])
        error = error_from_response(answer.status, answer.headers, body)
        if not isinstance(error, UnauthorizedError) or has_refreshed:
            raise error
        await client.transport.refresh_credentials()
        has_refreshed = True
