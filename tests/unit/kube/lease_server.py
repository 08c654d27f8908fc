"""A server that knows nothing but leases, and a wire to it that delays and loses what it carries.

Small on purpose: the wire, not the server, is what the election has to survive. A request that has left the client
arrives some time later even if the client has given up on it meanwhile, as it would on a real network.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from dlop.kube.errors import AmbiguousWriteError, TransportError
from dlop.kube.leader_election import Elector, LeaseTiming
from dlop.kube.transport import Request, Response, StreamResponse

NOON = 1_800_000_000.0


class LeaseServer:
    """Leases by path, with versions and conflicts. Every commit is kept in `history`."""

    def __init__(self) -> None:
        self.leases: dict[str, dict[str, Any]] = {}
        self.version = 0
        self.requests: list[tuple[float, str]] = []
        self.history: list[tuple[float, str]] = []
        self.watchers: set[asyncio.Queue[bytes]] = set()
        self.in_flight: set[asyncio.Task[Response]] = set()

    def handle(self, request: Request) -> Response:
        self.requests.append((asyncio.get_running_loop().time(), request.method))
        body = msgspec.json.decode(request.body) if request.body else {}
        match request.method:
            case "GET":
                return self._found(request.path)
            case "POST":
                return self._create(f"{request.path}/{body['metadata']['name']}", body)
            case "PUT":
                return self._replace(request.path, body)
            case other:
                raise AssertionError(other)

    def edit(self, spec: object) -> None:
        """Change the only lease, as somebody with kubectl could."""
        ((path, lease),) = self.leases.items()
        self._commit(path, {**lease, "spec": spec}, "MODIFIED")

    def delete(self) -> None:
        ((path, lease),) = self.leases.items()
        self._commit(path, lease, "DELETED")
        del self.leases[path]

    @property
    def spec(self) -> dict[str, Any]:
        ((_, lease),) = self.leases.items()
        spec: dict[str, Any] = lease["spec"]
        return spec

    def _found(self, path: str) -> Response:
        lease = self.leases.get(path)
        return _status(404, "NotFound") if lease is None else _answer(200, lease)

    def _create(self, path: str, body: dict[str, Any]) -> Response:
        return _status(409, "AlreadyExists") if path in self.leases else self._commit(path, body, "ADDED")

    def _replace(self, path: str, body: dict[str, Any]) -> Response:
        lease = self.leases.get(path)
        if lease is None:
            return _status(404, "NotFound")
        if body["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"]:
            return _status(409, "Conflict")
        return self._commit(path, body, "MODIFIED")

    def _commit(self, path: str, body: dict[str, Any], change: str) -> Response:
        self.version += 1
        lease = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}
        self.leases[path] = lease
        spec = lease["spec"] if isinstance(lease["spec"], dict) else {}
        self.history.append((asyncio.get_running_loop().time(), str(spec.get("holderIdentity"))))
        for watcher in self.watchers:
            watcher.put_nowait(msgspec.json.encode({"type": change, "object": lease}) + b"\n")
        return _answer(200, lease)


@dataclass
class Wire:
    """A transport to the server. Each rate is the chance of one mishap for one request."""

    server: LeaseServer
    rng: random.Random
    max_delay_seconds: float = 0.0
    lost_request_rate: float = 0.0
    lost_answer_rate: float = 0.0
    error_rate: float = 0.0
    can_watch: bool = True
    cut: bool = False

    async def send(self, request: Request, *, timeout_seconds: float) -> Response:
        """Carry a request there and its answer back, or not."""
        delivery = asyncio.create_task(self._deliver(request))
        self.server.in_flight.add(delivery)
        delivery.add_done_callback(self.server.in_flight.discard)
        delivery.add_done_callback(lambda task: None if task.cancelled() else task.exception())
        try:
            async with asyncio.timeout(timeout_seconds):
                return await asyncio.shield(delivery)
        except (TimeoutError, ConnectionError) as error:
            raise (AmbiguousWriteError if request.is_write else TransportError)("no answer") from error

    async def _deliver(self, request: Request) -> Response:
        await self._travel()
        if self.cut or self.rng.random() < self.lost_request_rate:
            raise ConnectionResetError
        response = _status(500, "InternalError") if self.rng.random() < self.error_rate else self.server.handle(request)
        await self._travel()
        if self.cut or (request.is_write and self.rng.random() < self.lost_answer_rate):
            raise ConnectionResetError
        return response

    async def _travel(self) -> None:
        await asyncio.sleep(self.rng.random() * self.max_delay_seconds)

    @asynccontextmanager
    async def stream(self, request: Request, *, idle_timeout_seconds: float) -> AsyncIterator[StreamResponse]:
        """Watch. What happened between the version asked for and now comes first."""
        if not self.can_watch or self.cut:
            raise TransportError("no watching here")
        changes: asyncio.Queue[bytes] = asyncio.Queue()
        since = int(dict(request.query)["resourceVersion"])
        for lease in self.server.leases.values():
            if int(lease["metadata"]["resourceVersion"]) > since:
                changes.put_nowait(msgspec.json.encode({"type": "MODIFIED", "object": lease}) + b"\n")
        self.server.watchers.add(changes)
        try:
            yield StreamResponse(200, {}, self._changes(changes))
        finally:
            self.server.watchers.discard(changes)

    async def _changes(self, changes: asyncio.Queue[bytes]) -> AsyncIterator[bytes]:
        while True:
            change = await changes.get()
            await self._travel()
            if self.cut:
                raise TransportError("the stream broke")
            yield change

    async def refresh_credentials(self) -> str:
        raise AssertionError

    async def close(self) -> None:
        raise AssertionError


def _answer(code: int, body: dict[str, Any]) -> Response:
    return Response(code, {}, msgspec.json.encode(body))


def _status(code: int, reason: str) -> Response:
    return _answer(code, {"kind": "Status", "code": code, "reason": reason, "message": reason})


# --- electors -----------------------------------------------------------------------------------------------------------


def now() -> float:
    return asyncio.get_running_loop().time()


def wire_to(server: LeaseServer, **faults: float) -> Wire:
    return Wire(server, random.Random(1), **faults)  # type: ignore[arg-type]


def elector(wire: Wire, identity: str, *, seed: int = 0, timing: LeaseTiming = LeaseTiming()) -> Elector:  # noqa: B008
    return Elector(
        wire,
        namespace="ns",
        name="dlop",
        identity=identity,
        rng=random.Random(seed),
        timing=timing,
        wall_clock=lambda: NOON + now(),
    )


async def forever() -> None:
    await asyncio.Event().wait()


async def stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
