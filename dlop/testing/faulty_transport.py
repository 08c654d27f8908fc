"""A transport that records writes and injects faults.

    transport = FaultyTransport(cluster.transport())
    transport.inject_fault_at(7, ResponseLost())

Writes are numbered from 1 in the order in which they are sent, and sent one at a time. Writes of leases are not counted. Reads and
watches pass unless the transport is disconnected.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import msgspec

from dlop.kube.errors import AmbiguousWriteError, TransportError
from dlop.kube.resources import LEASES
from dlop.kube.transport import JSON, Request, Response, StreamResponse, Transport

_REASONS = {409: "Conflict", 429: "TooManyRequests", 500: "InternalError"}


@dataclass(frozen=True, slots=True)
class RecordedWrite:
    """A write that was sent."""

    number: int
    request: Request
    at: float
    """Seconds of the event loop."""
    status: int | None
    """The status code of the server; None if the request never reached it."""

    def __str__(self) -> str:
        return f"{self.number}. {self.request.method} {self.request.path} -> {self.status} at {self.at:g} s"


class WriteFault(Protocol):
    """A fault of one write."""

    def before(self, transport: FaultyTransport, request: Request) -> Response | None:
        """A response in place of the server's. The request is then not sent. None sends it."""
        ...

    def after(self, transport: FaultyTransport, request: Request) -> None:
        """Called when the server has responded, before the caller gets the response."""
        ...


@dataclass(frozen=True, slots=True)
class Rejected:
    """The server rejects the write."""

    code: int
    retry_after_seconds: int | None = None

    def before(self, transport: FaultyTransport, request: Request) -> Response | None:
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": self.code, "reason": _REASONS[self.code]}
        headers = {"content-type": JSON}
        if self.retry_after_seconds is not None:
            headers["retry-after"] = str(self.retry_after_seconds)
        return Response(self.code, headers, msgspec.json.encode(status | {"message": "rejected by the test"}))

    def after(self, transport: FaultyTransport, request: Request) -> None:
        pass


@dataclass(frozen=True, slots=True)
class ResponseLost:
    """The server executes the write, and the connection breaks before the response."""

    def before(self, transport: FaultyTransport, request: Request) -> Response | None:
        return None

    def after(self, transport: FaultyTransport, request: Request) -> None:
        raise AmbiguousWriteError(f"{request.method} {request.path}: the connection was closed")


@dataclass(frozen=True, slots=True)
class Crash:
    """The server executes the write, and the operator crashes."""

    def before(self, transport: FaultyTransport, request: Request) -> Response | None:
        return None

    def after(self, transport: FaultyTransport, request: Request) -> None:
        transport.disconnect()
        raise AmbiguousWriteError(f"{request.method} {request.path}: the operator has crashed")


@dataclass(frozen=True, slots=True)
class SideEffect:
    """The write succeeds, and `action` runs right after it."""

    action: Callable[[], None]

    def before(self, transport: FaultyTransport, request: Request) -> Response | None:
        return None

    def after(self, transport: FaultyTransport, request: Request) -> None:
        self.action()


FaultSelector = Callable[[int, Request], WriteFault | None]
"""The fault of a write, given its number; None if it has none."""


class FaultyTransport:
    """Wraps the transport of one operator."""

    def __init__(self, transport: Transport) -> None:
        self.writes: list[RecordedWrite] = []
        self.disconnected = asyncio.Event()
        """Set when the transport is disconnected."""
        self._leases_disconnected = False
        self._transport = transport
        self._sent = 0
        self._write_lock = asyncio.Lock()
        self._faults: dict[int, WriteFault] = {}
        self._select_fault: FaultSelector = lambda _number, _request: None

    def inject_fault_at(self, number: int, fault: WriteFault) -> None:
        self._faults[number] = fault

    def inject_faults_by(self, select_fault: FaultSelector) -> None:
        """Select the fault of every write with a function."""
        self._select_fault = select_fault

    def disconnect(self) -> None:
        """Fail all further requests."""
        self.disconnected.set()

    def disconnect_leases(self) -> None:
        """Fail all further requests for leases, so that the operator loses its leadership."""
        self._leases_disconnected = True

    def reconnect_leases(self) -> None:
        self._leases_disconnected = False

    async def send(self, request: Request, *, timeout_seconds: float) -> Response:
        self._require_connection(request)
        if not request.is_write or _is_lease_request(request):
            return await self._transport.send(request, timeout_seconds=timeout_seconds)
        self._sent += 1
        number = self._sent
        async with self._write_lock:
            self._require_connection(request)
            return await self._send_write(number, request, timeout_seconds)

    async def _send_write(self, number: int, request: Request, timeout_seconds: float) -> Response:
        fault = self._faults.get(number) or self._select_fault(number, request)
        replacement = fault.before(self, request) if fault else None
        if replacement is not None:
            self._record(number, request, None)
            return replacement
        response = await self._transport.send(request, timeout_seconds=timeout_seconds)
        self._record(number, request, response.status)
        if fault is not None:
            fault.after(self, request)
        return response

    @asynccontextmanager
    async def stream(self, request: Request, *, idle_timeout_seconds: float) -> AsyncIterator[StreamResponse]:
        self._require_connection(request)
        async with self._transport.stream(request, idle_timeout_seconds=idle_timeout_seconds) as response:
            yield response

    async def refresh_credentials(self) -> str:
        return await self._transport.refresh_credentials()

    async def close(self) -> None:
        await self._transport.close()

    def _record(self, number: int, request: Request, status: int | None) -> None:
        self.writes.append(RecordedWrite(number, request, asyncio.get_running_loop().time(), status))

    def _require_connection(self, request: Request) -> None:
        if self.disconnected.is_set() or (self._leases_disconnected and _is_lease_request(request)):
            raise TransportError(f"{request.method} {request.path}: the transport is disconnected")


def _is_lease_request(request: Request) -> bool:
    return request.path.startswith(f"/apis/{LEASES.api_version}/")
