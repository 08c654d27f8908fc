"""Transport interface between the client and the network.

Implementations: `dlop.kube.http.transport` for a real API server, and the in-process transport of the embedded one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request. Header names are lower case."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None

    @property
    def is_write(self) -> bool:
        """Whether the request may change something on the server."""
        return self.method not in ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True, slots=True)
class Response:
    """A complete response. Header lookup works with lower-case names."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class StreamResponse:
    """A streaming response. `chunks` has arbitrary boundaries and ends when the server closes the stream."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]


class Transport(Protocol):
    """Sends requests. It does not retry writes and does not interpret status codes."""

    async def send(self, request: Request, *, timeout_seconds: float) -> Response:
        """Send a request and read the complete response.

        Raises:
            TransportError: nothing was sent, or the request was a read.
            AmbiguousWriteError: a write was sent and the response was lost.
        """
        ...

    def stream(self, request: Request, *, idle_timeout_seconds: float) -> AbstractAsyncContextManager[StreamResponse]:
        """Send a request and read the response in chunks.

        Reading raises TransportError if the stream breaks or sends nothing for `idle_timeout_seconds`.
        """
        ...

    async def refresh_credentials(self) -> str:
        """Read the credentials again after the server has rejected them. Returns their origin, for error messages.

        Raises:
            ConfigurationError: no usable credentials.
        """
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...
