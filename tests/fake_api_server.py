"""Fake API server: serves pods from memory, with lists, watches and injected faults.

It is a `Transport`, so a real `Client` uses it. All streams follow one history of changes. `cut`, `silence` and
`lag_behind` change the behavior of streams; `faults` holds one fault per upcoming request; `kill` refuses all requests.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum
from random import Random
from typing import Any

import msgspec

from dlop.kube.client import Client
from dlop.kube.errors import TransportError
from dlop.kube.informer import Informer
from dlop.kube.objects import Pod
from dlop.kube.resources import PODS
from dlop.kube.transport import Request, Response, StreamResponse

JsonObject = dict[str, Any]
BOOKMARK_SECONDS = 60.0
LABEL = "job"


class Fault(Enum):
    """How one request is answered."""

    NONE = "served normally"
    REFUSED = "connection refused"
    TOO_MANY = "429 with Retry-After"
    ERROR = "500 in plain text"
    STARTING = "503 with Retry-After, as by a server that starts"
    GONE = "410"
    FORBIDDEN = "403"
    ENDED = "an empty response"
    SILENT = "an open connection without any data"
    GARBAGE = "a line that is not JSON"
    TORN = "half a line"


class Cut(Enum):
    """How a running stream ends."""

    CLEAN = "with a complete response"
    TORN = "inside a line"
    BROKEN = "with a connection error"
    GONE = "with an ERROR event: 410"
    SERVER_ERROR = "with an ERROR event: 500"


class _Stream:
    """One open watch."""

    def __init__(self, position: int) -> None:
        self.position = position
        self.ending: Cut | None = None
        self.silent = False
        self.wake = asyncio.Event()


class FakeApiServer:
    """Serves one resource."""

    def __init__(self, *, streams_lists: bool = True, page_size: int = 3) -> None:
        self.objects: dict[str, JsonObject] = {}
        self.version = 10
        self.floor = 0
        self.history: list[tuple[int, str, JsonObject]] = []
        self.faults: deque[Fault] = deque()
        self.requests: list[tuple[float, str]] = []
        """Loop time and type of each request: `list`, `stream` (a streaming list) or `watch`."""
        self.queries: list[dict[str, str]] = []
        self.streams_lists = streams_lists
        self._page_size = page_size
        self._is_down = False
        self._uids = 0
        self._visible: int | None = None
        self._streams: dict[_Stream, None] = {}  # in the order of the requests

    # --- changing objects --------------------------------------------------------------------------------------------

    def put(self, name: str, *, job: str = "a", **fields: Any) -> JsonObject:
        """Create or update the pod."""
        old = self.objects.get(name)
        if old is None:
            self._uids += 1
        uid = old["metadata"]["uid"] if old else f"uid-{self._uids}"
        owner = {"apiVersion": "x/v1", "kind": "Job", "name": job, "uid": f"owner-{job}", "controller": True}
        metadata = {"name": name, "namespace": "ns", "uid": uid, "labels": {LABEL: job}, "ownerReferences": [owner]}
        return self._commit("MODIFIED" if old else "ADDED", {"metadata": metadata, **fields})

    def delete(self, name: str) -> None:
        """Delete the pod, if it exists."""
        old = self.objects.get(name)
        if old is not None:
            self._commit("DELETED", old)
            del self.objects[name]

    def _commit(self, kind: str, body: JsonObject) -> JsonObject:
        self.version += 1
        body = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}
        self.objects[body["metadata"]["name"]] = body
        self.history.append((self.version, kind, body))
        self._wake_all()
        return body

    @property
    def kinds(self) -> list[str]:
        """The type of each request."""
        return [kind for _, kind in self.requests]

    @property
    def open_streams(self) -> int:
        return len(self._streams)

    # --- faults ------------------------------------------------------------------------------------------------------

    def compact(self) -> None:
        """Make older resource versions unavailable."""
        self.floor = self.version

    def cut(self, how: Cut) -> None:
        """End every open stream."""
        for stream in self._streams:
            stream.ending = how
        self._wake_all()

    def kill(self) -> None:
        """Break all streams and refuse all requests until `start`."""
        self._is_down = True
        self.cut(Cut.BROKEN)

    def start(self) -> None:
        """Serve requests again."""
        self._is_down = False

    def silence(self) -> None:
        """Send nothing more on open streams, as on a half-open connection."""
        for stream in self._streams:
            stream.silent = True
        self._wake_all()

    def lag_behind(self) -> None:
        """Hide later changes, as an API server that has lost its connection to etcd does."""
        self._visible = self.version
        self._wake_all()

    def catch_up(self) -> None:
        """Stop lagging behind."""
        self._visible = None
        self._wake_all()

    def recover(self) -> None:
        """Remove all faults."""
        self.faults.clear()
        self.catch_up()

    def _wake_all(self) -> None:
        for stream in self._streams:
            stream.wake.set()

    # --- serving -----------------------------------------------------------------------------------------------------

    async def send(self, request: Request, *, timeout_seconds: float) -> Response:
        """Serve a page of a list."""
        query = self._record_request(request)
        fault = self._next_fault()
        if fault is Fault.REFUSED:
            raise TransportError("connection refused")
        if fault is Fault.SILENT:
            await asyncio.sleep(timeout_seconds)
            raise TransportError("no response in time")
        error = _fault_response(fault) or self._version_error(query.get("resourceVersion"), listing=True)
        if error is not None:
            return error
        if fault in (Fault.GARBAGE, Fault.TORN, Fault.ENDED):
            return Response(200, {}, {Fault.GARBAGE: b"<html>", Fault.TORN: b'{"metadata":', Fault.ENDED: b""}[fault])
        return self._page(query)

    @asynccontextmanager
    async def stream(self, request: Request, *, idle_timeout_seconds: float) -> AsyncIterator[StreamResponse]:
        """Serve a watch."""
        query = self._record_request(request)
        fault = self._next_fault()
        if fault is Fault.REFUSED:
            raise TransportError("connection refused")
        listing = "sendInitialEvents" in query
        error = _fault_response(fault) or self._version_error(query.get("resourceVersion"), listing=listing)
        if listing and not self.streams_lists:
            error = _status(422, "Invalid", "sendInitialEvents is forbidden for watch")
        if error is not None:
            yield StreamResponse(error.status, error.headers, _single_chunk(error.body))
        else:
            yield StreamResponse(200, {}, self._lines(query, fault, float(query["timeoutSeconds"]), idle_timeout_seconds))

    async def refresh_credentials(self) -> str:
        return "the test"

    async def close(self) -> None:
        pass

    def _record_request(self, request: Request) -> dict[str, str]:
        query = dict(request.query)
        kind = "stream" if "sendInitialEvents" in query else "watch" if "watch" in query else "list"
        self.requests.append((asyncio.get_running_loop().time(), kind))
        self.queries.append(query)
        return query

    def _next_fault(self) -> Fault:
        if self._is_down:
            return Fault.REFUSED
        return self.faults.popleft() if self.faults else Fault.NONE

    def _version_error(self, version: str | None, *, listing: bool) -> Response | None:
        if version is None or (listing and int(version) <= self._visible_version):
            return None
        if listing:
            return _status(504, "Timeout", "Too large resource version", cause="ResourceVersionTooLarge")
        return _status(410, "Expired", "too old resource version") if int(version) < self.floor else None

    @property
    def _visible_version(self) -> int:
        return self.version if self._visible is None else self._visible

    def _state(self, query: dict[str, str]) -> tuple[int, list[JsonObject]]:
        """The version and objects of a read. A read with a resourceVersion may be stale; one without is consistent."""
        version = self._visible_version if "resourceVersion" in query else self.version
        state: dict[str, JsonObject] = {}
        for at, kind, body in self.history:
            if at <= version:
                state.pop(body["metadata"]["name"], None)
                if kind != "DELETED":
                    state[body["metadata"]["name"]] = body
        return version, sorted(state.values(), key=lambda body: str(body["metadata"]["name"]))

    def _page(self, query: dict[str, str]) -> Response:
        at, _, after = query.get("continue", "").partition("/")
        if at and int(at) < self.floor:
            return _status(410, "Expired", "the continue token is too old")
        visible, self._visible = self._visible, int(at) if at else self._visible
        version, state = self._state({"resourceVersion": at} if at else query)
        self._visible = visible
        rest = [body for body in state if body["metadata"]["name"] > after]
        page, more = rest[: self._page_size], len(rest) > self._page_size
        token = f"{version}/{page[-1]['metadata']['name']}" if more else ""
        return Response(200, {}, msgspec.json.encode({"metadata": {"resourceVersion": str(version), "continue": token}, "items": page}))

    async def _lines(
        self, query: dict[str, str], fault: Fault, timeout_seconds: float, idle_timeout_seconds: float
    ) -> AsyncIterator[bytes]:
        if fault in (Fault.GARBAGE, Fault.TORN, Fault.ENDED):
            yield {Fault.GARBAGE: b"nonsense\n", Fault.TORN: b'{"type":"ADDED","obj', Fault.ENDED: b""}[fault]
            return
        stream = _Stream(int(query.get("resourceVersion", 0)))
        stream.silent = fault is Fault.SILENT
        self._streams[stream] = None
        try:
            if "sendInitialEvents" in query and not stream.silent:
                stream.position, state = self._state(query)
                for body in state:
                    yield _line("ADDED", body)
                yield _line("BOOKMARK", _bookmark(stream.position, {"k8s.io/initial-events-end": "true"}))
            async for line in self._follow(stream, timeout_seconds, idle_timeout_seconds):
                yield line
        finally:
            self._streams.pop(stream, None)

    async def _follow(self, stream: _Stream, timeout_seconds: float, idle_timeout_seconds: float) -> AsyncIterator[bytes]:
        ends = asyncio.get_running_loop().time() + timeout_seconds
        while not stream.silent and (left := ends - asyncio.get_running_loop().time()) > 0:
            for at, kind, body in self.history:
                if stream.position < at <= self._visible_version:
                    stream.position = at
                    yield _line(kind, body)
            if stream.ending is not None:
                async for line in _ending(stream.ending):
                    yield line
                return
            stream.wake.clear()
            try:
                async with asyncio.timeout(min(left, BOOKMARK_SECONDS)):  # wait_for in Python 3.11 can swallow a cancellation
                    await stream.wake.wait()
            except TimeoutError:
                stream.position = max(stream.position, self._visible_version)
                yield _line("BOOKMARK", _bookmark(stream.position))
        if stream.silent:
            await asyncio.sleep(idle_timeout_seconds)
            raise TransportError("idle timeout")


async def _ending(how: Cut) -> AsyncIterator[bytes]:
    match how:
        case Cut.TORN:
            yield b'{"type":"MODIFIED","object":{"metadata":{"na'
        case Cut.BROKEN:
            raise TransportError("connection reset by peer")
        case Cut.GONE:
            yield _line("ERROR", msgspec.json.decode(_status(410, "Expired", "too old resource version").body))
        case Cut.SERVER_ERROR:
            yield _line("ERROR", msgspec.json.decode(_status(500, "InternalError", "etcd has no leader").body))


async def _single_chunk(body: bytes) -> AsyncIterator[bytes]:
    yield body


def _line(kind: str, body: JsonObject) -> bytes:
    return msgspec.json.encode({"type": kind, "object": body}) + b"\n"


def _bookmark(version: int, annotations: dict[str, str] | None = None) -> JsonObject:
    return {"metadata": {"resourceVersion": str(version), "annotations": annotations or {}}}


def _status(code: int, reason: str, message: str, *, cause: str = "") -> Response:
    details = {"causes": [{"reason": cause}]} if cause else {}
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message, "details": details}
    return Response(code, {}, msgspec.json.encode(body))


def _fault_response(fault: Fault) -> Response | None:
    if fault is Fault.TOO_MANY:
        return Response(429, {"retry-after": "2"}, b"slow down")
    if fault is Fault.STARTING:
        return Response(503, {"retry-after": "5"}, _status(503, "ServiceUnavailable", "not all known HTTP paths are installed").body)
    if fault is Fault.ERROR:
        return Response(500, {}, b"no")
    if fault is Fault.FORBIDDEN:
        return _status(403, "Forbidden", 'pods is forbidden: User "dlop" cannot list resource "pods"')
    return _status(410, "Expired", "too old resource version") if fault is Fault.GONE else None


# --- informers --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def running_informer(server: FakeApiServer, *, synced: bool = True, **options: Any) -> AsyncIterator[Informer[Pod]]:
    """An informer that runs while the context is open."""
    informer: Informer[Pod] = Informer(Client(server), PODS, Pod, rng=Random(1), **options)
    task = asyncio.create_task(informer.run())
    if synced:
        await informer.wait_synced()
    try:
        yield informer
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()


async def run_ready_callbacks() -> None:
    """Let the event loop run everything that is ready."""
    for _ in range(50):
        await asyncio.sleep(0)


def names(informer: Informer[Pod]) -> list[str]:
    return sorted(pod.metadata.name for pod in informer.cache)
