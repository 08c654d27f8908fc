"""What a transport needs to know about a cluster: where it is, and how to be let in.

Nothing here opens a socket or reads a kubeconfig; `dlop.kube.access.configuration` does that.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from dlop.kube.errors import ConfigurationError

# How soon a failed reading of credentials is tried again while the old ones are still there.
_RENEWAL_PAUSE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Access:
    """What lets a request in, for now."""

    authorization: str | None = None
    """The value of the Authorization header; none with a client certificate, or without any credentials."""
    tls: ssl.SSLContext | None = None
    """Carries the trusted authorities and the client certificate. One object a material: connections are shared by it."""
    renew_at: float = math.inf
    """The wall time, in seconds, from which on the credentials are to be read again."""


class Credentials(Protocol):
    """A source of access that can be read again."""

    async def read(self, *, refused: bool) -> Access:
        """The access to use from now on.

        `refused` says that the server has turned the last one down, so nothing may be taken from memory.

        Raises:
            ConfigurationError: when there are no usable credentials.
        """
        ...


@dataclass(frozen=True, slots=True)
class FixedCredentials:
    """Credentials that never change."""

    access: Access

    async def read(self, *, refused: bool) -> Access:
        """Always the same."""
        return self.access


@dataclass(frozen=True, slots=True)
class Connection:
    """One API server, and the way to it."""

    server: str
    """`scheme://host:port`, with a path where a gateway needs one, without a slash at the end."""
    credentials: Credentials
    origin: str
    """Where all this was found, for error messages: `kubeconfig /path, context name`."""
    proxy: str | None = None
    tls_server_name: str | None = None
    namespace: str = "default"
    """The namespace that the context or the service account belongs to."""


class CurrentAccess:
    """The access in use, read again when it is due. However many calls wait for it, it is read once."""

    def __init__(self, credentials: Credentials, *, clock: Callable[[], float]) -> None:
        self._credentials = credentials
        self._clock = clock
        self._access: Access | None = None
        self._reading = asyncio.Lock()

    def at_hand(self) -> Access | None:
        """The access, if it need not be read first."""
        access = self._access
        return access if access is not None and self._clock() < access.renew_at else None

    async def get(self) -> Access:
        """The access, read first where that is due. One that still works outlives a failure to read the next."""
        async with self._reading:
            access = self.at_hand()
            if access is not None:
                return access
            try:
                self._access = await self._credentials.read(refused=False)
            except ConfigurationError:
                if self._access is None:
                    raise
                self._access = replace(self._access, renew_at=self._clock() + _RENEWAL_PAUSE_SECONDS)
            return self._access

    def doubt(self) -> None:
        """Have it read again before its next use."""
        if self._access is not None:
            self._access = replace(self._access, renew_at=-math.inf)

    async def renew(self, refused: Access | None) -> None:
        """Read it again because the server has turned `refused` down; not needed where someone else has done so since."""
        async with self._reading:
            if refused is None or self._access is refused:
                self._access = await self._credentials.read(refused=True)
