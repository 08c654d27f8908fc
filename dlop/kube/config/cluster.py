"""Configuration of a cluster: its address, and credentials that are cached and refreshed.

Nothing here opens a socket or reads a kubeconfig; `dlop.kube.config.load` does that.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from dlop.kube.errors import ConfigurationError, TransportError

# Delay before a failed read of credentials is retried while the old ones are still in use.
_RETRY_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class RequestAuth:
    """What a request needs for authentication."""

    authorization: str | None = None
    """Value of the Authorization header; None with a client certificate or without credentials."""
    tls: ssl.SSLContext | None = None
    """Trusted CAs and the client certificate. Connections are reused only with the same context object."""
    renew_at: float = math.inf
    """Wall time in seconds at which the credentials must be read again."""


class Credentials(Protocol):
    """A source of credentials that can be read again."""

    async def read(self, *, rejected: bool) -> RequestAuth:
        """The credentials to use from now on.

        With `rejected`, the server has rejected the last ones, so everything must be read again.

        Raises:
            ConfigurationError: no usable credentials.
        """
        ...


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """Address of one API server, and how to connect to it."""

    server: str
    """`scheme://host:port`, with a path if a gateway needs one, without a trailing slash."""
    credentials: Credentials
    origin: str
    """Where the configuration comes from, for error messages: `kubeconfig /path, context name`."""
    proxy: str | None = None
    tls_server_name: str | None = None
    namespace: str = "default"
    """Namespace of the context or of the service account."""


class AuthCache:
    """The credentials in use, read again when necessary.

    Concurrent callers share one read. The read continues if a caller stops waiting. Otherwise an exec plugin that takes
    longer than the timeout of a call would be restarted by each call and never finish.
    """

    def __init__(self, credentials: Credentials, *, clock: Callable[[], float]) -> None:
        self._credentials = credentials
        self._clock = clock
        self._auth: RequestAuth | None = None
        self._renew_at = -math.inf
        self._is_rejected = False
        self._reading: asyncio.Task[RequestAuth] | None = None

    def cached(self) -> RequestAuth | None:
        """The credentials, or None if they must be read first."""
        return self._auth if self._clock() < self._renew_at else None

    async def get(self) -> RequestAuth:
        """The credentials, read first if necessary. If that fails, the old ones are used, unless they were rejected."""
        return self.cached() or await self._read_shared()

    def invalidate(self) -> None:
        """Read the credentials again before their next use."""
        self._renew_at = -math.inf

    def mark_rejected(self, auth: RequestAuth) -> None:
        """Record that the server has rejected `auth`. Ignored if it has been replaced meanwhile."""
        self._is_rejected = self._is_rejected or auth is self._auth

    async def refresh_rejected(self) -> None:
        """Read the credentials again if they were rejected."""
        if self._is_rejected:
            await self._read_shared()

    async def close(self) -> None:
        """Cancel a read in progress."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    async def _read_shared(self) -> RequestAuth:
        reading = self._reading
        if reading is None:
            reading = self._reading = asyncio.create_task(self._read(), name="read credentials")
            reading.add_done_callback(self._on_read)
        await asyncio.wait([reading])
        if reading.cancelled():
            raise TransportError("the client was closed while its credentials were being read; nothing was sent")
        return reading.result()

    def _on_read(self, reading: asyncio.Task[RequestAuth]) -> None:
        self._reading = None
        if not reading.cancelled():
            reading.exception()  # mark as retrieved, because no caller may be waiting any longer

    async def _read(self) -> RequestAuth:
        rejected = self._is_rejected
        try:
            auth = await self._credentials.read(rejected=rejected)
        except ConfigurationError:
            if rejected or self._auth is None:
                raise
            self._renew_at = self._clock() + _RETRY_SECONDS
            return self._auth
        self._auth, self._renew_at, self._is_rejected = auth, auth.renew_at, False
        return auth
