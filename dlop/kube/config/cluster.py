"""What a transport needs to know about a cluster: where it is, and how to be let in.

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
class ClusterConfig:
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
    """The access in use, read again when it is due.

    However many calls wait for it, it is read once. A call that gives up waiting does not end the reading: a program that
    takes longer than a call may wait would otherwise be begun anew by each call and never come to its end.
    """

    def __init__(self, credentials: Credentials, *, clock: Callable[[], float]) -> None:
        self._credentials = credentials
        self._clock = clock
        self._access: Access | None = None
        self._renew_at = -math.inf
        self._is_refused = False
        self._reading: asyncio.Task[Access] | None = None

    def at_hand(self) -> Access | None:
        """The access, if it need not be read first."""
        return self._access if self._clock() < self._renew_at else None

    async def get(self) -> Access:
        """The access, read first where that is due. One that still works outlives a failure to read the next."""
        return self.at_hand() or await self._read_together()

    def doubt(self) -> None:
        """Have it read again before its next use."""
        self._renew_at = -math.inf

    def refuse(self, access: Access) -> None:
        """Note that the server has turned this access down; that does not matter where it has been replaced since."""
        self._is_refused = self._is_refused or access is self._access

    async def renew(self) -> None:
        """Read it again if it is refused."""
        if self._is_refused:
            await self._read_together()

    async def close(self) -> None:
        """End a reading that is under way."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    async def _read_together(self) -> Access:
        reading = self._reading
        if reading is None:
            reading = self._reading = asyncio.create_task(self._read(), name="read credentials")
            reading.add_done_callback(self._end_reading)
        await asyncio.wait([reading])
        if reading.cancelled():
            raise TransportError("the client was closed while its credentials were being read: nothing was sent")
        return reading.result()

    def _end_reading(self, reading: asyncio.Task[Access]) -> None:
        self._reading = None
        if not reading.cancelled():
            reading.exception()  # seen, even if all who waited for it have given up

    async def _read(self) -> Access:
        refused = self._is_refused
        try:
            access = await self._credentials.read(refused=refused)
        except ConfigurationError:
            if refused or self._access is None:
                raise
            self._renew_at = self._clock() + _RENEWAL_PAUSE_SECONDS
            return self._access
        self._access, self._renew_at, self._is_refused = access, access.renew_at, False
        return access
