"""Fake API server for leases, and a faulty network to it.

A request that was sent reaches the server even if the client has given up on it meanwhile, as on a real network.
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
from dlop.kube.leader_election import LeaderElector, LeaseTiming
from dlop.kube.transport import Request, Response, StreamResponse

START_TIME = 1_800_000_000.0


class LeaseServer:
    """Stores leases by path, with resource versions and conflicts. `history` has the time and holder of every write."""

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
                return self._get(request.path)
            case "POST":
                return self._create(f"{request.path}/{body['metadata']['name']}", body)
            case "PUT":
                return self._replace(request.path, body)
            case other:
                raise AssertionError(other)

    def edit(self, spec: object) -> None:
        """Change the spec of the only lease, as with kubectl edit."""
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

    def _get(self, path: str) -> Response:
        lease = self.leases.get(path)
        return _status(404, "NotFound") if lease is None else _response(200, lease)

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
        return _response(200, lease)


@dataclass
class FaultyNetwork:
    """A transport to the server. Each rate is the probability of a fault per request."""

    server: LeaseServer
    rng: random.Random
    max_delay_seconds: float = 0.0
    lost_request_rate: float = 0.0
    lost_response_rate: float = 0.0
    error_rate: float = 0.0
    can_watch: bool = True
    cut: bool = False

    async def send(self, request: Request, *, timeout_seconds: float) -> Response:
        delivery = asyncio.create_task(self._deliver(request))
        self.server.in_flight.add(delivery)
        delivery.add_done_callback(self.server.in_flight.discard)
        delivery.add_done_callback(lambda task: None if task.cancelled() else task.exception())
        try:
            async with asyncio.timeout(timeout_seconds):
                return await asyncio.shield(delivery)
        except (TimeoutError, ConnectionError) as error:
            raise (AmbiguousWriteError if request.is_write else TransportError)("no response") from error

    async def _deliver(self, request: Request) -> Response:
        await self._delay()
        if self.cut or self.rng.random() < self.lost_request_rate:
            raise ConnectionResetError
        response = _status(500, "InternalError") if self.rng.random() < self.error_rate else self.server.handle(request)
        await self._delay()
        if self.cut or (request.is_write and self.rng.random() < self.lost_response_rate):
            raise ConnectionResetError
        return response

    async def _delay(self) -> None:
        await asyncio.sleep(self.rng.random() * self.max_delay_seconds)

    @asynccontextmanager
    async def stream(self, request: Request, *, idle_timeout_seconds: float) -> AsyncIterator[StreamResponse]:
        """A watch. It starts with the changes since the requested resource version."""
        if not self.can_watch or self.cut:
            raise TransportError("watch is not supported")
        changes: asyncio.Queue[bytes] = asyncio.Queue()
        resource_version = int(dict(request.query)["resourceVersion"])
        for lease in self.server.leases.values():
            if int(lease["metadata"]["resourceVersion"]) > resource_version:
                changes.put_nowait(msgspec.json.encode({"type": "MODIFIED", "object": lease}) + b"\n")
        self.server.watchers.add(changes)
        try:
            yield StreamResponse(200, {}, self._changes(changes))
        finally:
            self.server.watchers.discard(changes)

    async def _changes(self, changes: asyncio.Queue[bytes]) -> AsyncIterator[bytes]:
        while True:
            change = await changes.get()
            await self._delay()
            if self.cut:
                raise TransportError("the stream broke")
            yield change

    async def refresh_credentials(self) -> str:
        raise AssertionError

    async def close(self) -> None:
        raise AssertionError


def _response(code: int, body: dict[str, Any]) -> Response:
    return Response(code, {}, msgspec.json.encode(body))


def _status(code: int, reason: str) -> Response:
    return _response(code, {"kind": "Status", "code": code, "reason": reason, "message": reason})


# --- electors -----------------------------------------------------------------------------------------------------------


def now() -> float:
    return asyncio.get_running_loop().time()


def network_to(server: LeaseServer, **faults: float) -> FaultyNetwork:
    return FaultyNetwork(server, random.Random(1), **faults)  # type: ignore[arg-type]


def elector(network: FaultyNetwork, identity: str, *, seed: int = 0, timing: LeaseTiming = LeaseTiming()) -> LeaderElector:  # noqa: B008
    return LeaderElector(
        network,
        namespace="ns",
        name="dlop",
        identity=identity,
        rng=random.Random(seed),
        timing=timing,
        wall_clock=lambda: START_TIME + now(),
    )


async def run_forever() -> None:
    await asyncio.Event().wait()


async def stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
