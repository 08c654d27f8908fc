"""The line between one operator and its API server: it notes every write, and lets exactly one go wrong if asked to.

    wire = Wire(cluster.transport())
    wire.trouble_at(7, AnswerLost())

Writes are counted from 1, in the order in which they are sent, and go through one at a time: what happens at a write
happens before any later one. Leases are not counted, as a leader renews its lease all the time. Reads and watches pass,
unless the line is cut.
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
class Write:
    """A write that was sent, and how it was answered."""

    number: int
    request: Request
    at: float
    """In seconds of the event loop."""
    status: int | None
    """The code of the server's answer; None when the request never got there."""

    def __str__(self) -> str:
        return f"{self.number}. {self.request.method} {self.request.path} -> {self.status} at {self.at:g} s"


class Fault(Protocol):
    """What goes wrong with one write."""

    def before(self, wire: FaultyTransport, request: Request) -> Response | None:
        """An answer in place of the server's, which then never hears of the request."""
        ...

    def after(self, wire: FaultyTransport, request: Request) -> None:
        """Called when the write is done and nobody knows it yet."""
        ...


@dataclass(frozen=True, slots=True)
class Refused:
    """The server says no before it does anything."""

    code: int
    retry_after_seconds: int | None = None

    def before(self, wire: FaultyTransport, request: Request) -> Response | None:
        """The refusal."""
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": self.code, "reason": _REASONS[self.code]}
        headers = {"content-type": JSON}
        if self.retry_after_seconds is not None:
            headers["retry-after"] = str(self.retry_after_seconds)
        return Response(self.code, headers, msgspec.json.encode(status | {"message": "refused by the test"}))

    def after(self, wire: FaultyTransport, request: Request) -> None:
        """Nothing is done, so nothing follows."""


@dataclass(frozen=True, slots=True)
class AnswerLost:
    """The write happens, and the connection breaks before the answer comes."""

    def before(self, wire: FaultyTransport, request: Request) -> Response | None:
        """Nothing yet."""
        return None

    def after(self, wire: FaultyTransport, request: Request) -> None:
        """The answer is lost."""
        raise AmbiguousWriteError(f"{request.method} {request.path}: the connection was closed")


@dataclass(frozen=True, slots=True)
class Crash:
    """The write happens, and the operator is dead at the same moment."""

    def before(self, wire: FaultyTransport, request: Request) -> Response | None:
        """Nothing yet."""
        return None

    def after(self, wire: FaultyTransport, request: Request) -> None:
        """Nothing more goes through this line, in either direction."""
        wire.cut()
        raise AmbiguousWriteError(f"{request.method} {request.path}: the operator is dead")


@dataclass(frozen=True, slots=True)
class SideEffect:
    """The write goes well, and something else happens right after it."""

    happen: Callable[[], None]

    def before(self, wire: FaultyTransport, request: Request) -> Response | None:
        """Nothing yet."""
        return None

    def after(self, wire: FaultyTransport, request: Request) -> None:
        """Let it happen."""
        self.happen()


Choose = Callable[[int, Request], Fault | None]
"""What goes wrong with a write, given its number; None: nothing."""


class FaultyTransport:
    """A transport around another one."""

    def __init__(self, transport: Transport) -> None:
        self.writes: list[Write] = []
        self.was_cut = asyncio.Event()
        self._leases_are_cut = False
        self._transport = transport
        self._sent = 0
        self._turns = asyncio.Lock()
        self._troubles: dict[int, Fault] = {}
        self._choose: Choose = lambda _number, _request: None

    def trouble_at(self, number: int, trouble: Fault) -> None:
        """Let one write go wrong."""
        self._troubles[number] = trouble

    def trouble_by(self, choose: Choose) -> None:
        """Ask at every write whether it is to go wrong, and how."""
        self._choose = choose

    def cut(self) -> None:
        """From now on nothing goes through."""
        self.was_cut.set()

    def cut_leases(self) -> None:
        """From now on everything goes through but what is about leases: leadership will be lost, and nothing else."""
        self._leases_are_cut = True

    async def send(self, request: Request, *, timeout_seconds: float) -> Response:
        """Send a request and read the whole answer."""
        self._demand_line(request)
        if not request.is_write or _is_about_leases(request):
            return await self._transport.send(request, timeout_seconds=timeout_seconds)
        self._sent += 1
        number = self._sent
        async with self._turns:
            self._demand_line(request)
            return await self._send_write(number, request, timeout_seconds)

    async def _send_write(self, number: int, request: Request, timeout_seconds: float) -> Response:
        trouble = self._troubles.get(number) or self._choose(number, request)
        instead = trouble.before(self, request) if trouble else None
        if instead is not None:
            self._note(number, request, None)
            return instead
        answer = await self._transport.send(request, timeout_seconds=timeout_seconds)
        self._note(number, request, answer.status)
        if trouble is not None:
            trouble.after(self, request)
        return answer

    @asynccontextmanager
    async def stream(self, request: Request, *, idle_timeout_seconds: float) -> AsyncIterator[StreamResponse]:
        """Open a request whose answer is read piece by piece."""
        self._demand_line(request)
        async with self._transport.stream(request, idle_timeout_seconds=idle_timeout_seconds) as response:
            yield response

    async def refresh_credentials(self) -> str:
        """Read the credentials anew."""
        return await self._transport.refresh_credentials()

    async def close(self) -> None:
        """Release every connection."""
        await self._transport.close()

    def _note(self, number: int, request: Request, status: int | None) -> None:
        self.writes.append(Write(number, request, asyncio.get_running_loop().time(), status))

    def _demand_line(self, request: Request) -> None:
        if self.was_cut.is_set() or (self._leases_are_cut and _is_about_leases(request)):
            raise TransportError(f"{request.method} {request.path}: the line is cut")


def _is_about_leases(request: Request) -> bool:
    return request.path.startswith(f"/apis/{LEASES.api_version}/")
