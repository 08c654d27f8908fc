"""How a request reaches an API server: the seam between the client and the wire.

Two implementations exist: `dlop.kube.http.transport` (a real server over TLS) and the embedded server's in-process front.
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
    """A whole answer. Headers are found by their lower-case names."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class StreamResponse:
    """An answer that goes on: `chunks` ends when the server closes it, and the bytes are cut anywhere."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]


class Transport(Protocol):
    """Sends requests. It neither retries nor judges status codes."""

    async def send(self, request: Request, *, timeout_seconds: float) -> Response:
        """Send a request and read the whole answer.

        Raises:
            TransportError: when nothing was sent, or the request was a read.
            AmbiguousWriteError: when a write was sent and the answer was lost.
        """
        ...

    def stream(self, request: Request, *, idle_timeout_seconds: float) -> AbstractAsyncContextManager[StreamResponse]:
        """Open a request whose answer is read piece by piece.

        Reading raises TransportError when the stream breaks or stays silent too long.
        """
        ...

    async def refresh_credentials(self) -> str:
        """Read the credentials anew, after the server has refused them. Says where they are from, for error messages.

        Raises:
            ConfigurationError: when there are none that could be used.
        """
        ...

    async def close(self) -> None:
        """Release every connection."""
        ...
