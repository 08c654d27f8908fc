"""What the conformance cases have in common: a namespace of their own on a server, and words for what they expect of it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from dlop.kube.client import Body, Client
from dlop.kube.errors import NotFoundError, StatusError
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, Resource
from dlop.kube.transport import Request, Response
from dlop.kube.types import JsonObject
from dlop.kube.watch import WatchEvent, WatchEventType, read_events

SERVERS = ("in-process", "embedded", "real")
PATIENCE_SECONDS = 30.0
"""How long a case waits for what a server does on its own. A server that behaves needs a fraction of it."""
_PAUSE_SECONDS = 0.02

T = TypeVar("T")
Error = TypeVar("Error", bound=StatusError)


def only_on(*servers: str, because: str) -> pytest.MarkDecorator:
    """Run a case on these servers only; the sentence says why the others have nothing to say about it."""
    if not because or not set(servers) <= set(SERVERS):
        raise ValueError("a case for some servers only needs their names and a sentence that says why")
    return pytest.mark.only_on(*servers, because=because)


@dataclass(eq=False)
class Server:
    """One API server under test."""

    name: str
    client: Client
    compact: Callable[[], Awaitable[None]]
    """Forget the history, so that older versions can no longer be watched or listed."""
    stranger: Client | None = None
    """A client with a token that the server does not know; None where there are no tokens."""
    kubeconfig: Path | None = None
    """For programs that talk to the server themselves; None where there is no socket."""
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    installed: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Api:
    """A server, and a namespace on it that belongs to one case alone."""

    server: Server
    namespace: str

    @property
    def client(self) -> Client:
        """The client of the server, for calls that the shortcuts below do not have."""
        return self.server.client

    async def create(self, resource: Resource, body: Body, **options: Any) -> JsonObject:
        """Create in the case's namespace."""
        return await self.client.create(resource, body, namespace=self.place(resource), **options)

    async def get(self, resource: Resource, name: str, **options: Any) -> JsonObject:
        """Read from the case's namespace."""
        return await self.client.get(resource, name, namespace=self.place(resource), **options)

    async def list(self, resource: Resource, **options: Any) -> JsonObject:
        """List the case's namespace."""
        return await self.client.list(resource, namespace=self.place(resource), **options)

    async def names(self, resource: Resource, **options: Any) -> Sequence[str]:
        """The names of what a list finds, in its order."""
        return [item["metadata"]["name"] for item in (await self.list(resource, **options))["items"]]

    async def replace(self, resource: Resource, body: JsonObject, **options: Any) -> JsonObject:
        """Replace the object that carries the body's name."""
        return await self.client.replace(resource, body["metadata"]["name"], body, namespace=self.place(resource), **options)

    async def patch(self, resource: Resource, name: str, body: Body, **options: Any) -> JsonObject:
        """Patch in the case's namespace."""
        return await self.client.patch(resource, name, body, namespace=self.place(resource), **options)

    async def delete(self, resource: Resource, name: str, **options: Any) -> JsonObject:
        """Delete from the case's namespace."""
        return await self.client.delete(resource, name, namespace=self.place(resource), **options)

    def path(self, resource: Resource, name: str | None = None, subresource: str | None = None) -> str:
        """Where a resource of the case's namespace lives."""
        return resource.path(namespace=self.place(resource), name=name, subresource=subresource)

    def place(self, resource: Resource) -> str | None:
        """The case's namespace, for resources that have one."""
        return self.namespace if resource.namespaced else None

    async def raw(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Response:
        """Send exactly this, and give back whatever the server says to it."""
        request = Request(method, path, query=tuple((query or {}).items()), headers=dict(headers or {}), body=body)
        return await self.client.transport.send(request, timeout_seconds=PATIENCE_SECONDS)

    async def compact(self) -> None:
        """Make the server forget its history."""
        await self.server.compact()

    @asynccontextmanager
    async def watching(self, resource: Resource, **options: Any) -> AsyncIterator[Watching]:
        """Watch the case's namespace; without a version, from now on."""
        if "resource_version" not in options and not options.get("send_initial_events"):
            options["resource_version"] = (await self.list(resource))["metadata"]["resourceVersion"]
        options.setdefault("namespace", self.place(resource))
        options.setdefault("bookmarks", False)
        async with self.client.watch(resource, **options) as events:
            yield Watching(events)

    @asynccontextmanager
    async def streamed(self, resource: Resource, *, accept: str) -> AsyncIterator[Watching]:
        """Watch the case's namespace in another form, beginning with what is there."""
        query = (("watch", "true"), ("resourceVersion", "0"))
        request = Request("GET", self.path(resource), query=query, headers={"accept": accept})
        async with self.client.transport.stream(request, idle_timeout_seconds=PATIENCE_SECONDS) as response:
            assert response.status == 200
            yield Watching(read_events(response.chunks))

    async def eventually(self, read: Callable[[], Awaitable[T]], until: Callable[[T], object]) -> T:
        """Read again and again until the answer is as wanted, which a server that works in the background needs a moment for."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while True:
            found = await read()
            if until(found):
                return found
            if asyncio.get_running_loop().time() > deadline:
                raise AssertionError(f"still not so after {PATIENCE_SECONDS:.0f} s: {found}")
            await asyncio.sleep(_PAUSE_SECONDS)

    async def changed(self, resource: Resource, name: str, until: Callable[[JsonObject], object]) -> JsonObject:
        """The object as soon as it is as wanted."""
        return await self.eventually(lambda: self.get(resource, name), until)

    async def find(self, resource: Resource, name: str) -> JsonObject | None:
        """The object, or None."""
        try:
            return await self.get(resource, name)
        except NotFoundError:
            return None

    async def gone(self, resource: Resource, name: str) -> None:
        """Return once the object is no longer there."""
        await self.eventually(lambda: self.find(resource, name), lambda found: found is None)

    async def install(self, definition: JsonObject) -> None:
        """Install a CustomResourceDefinition once a server, and wait until its resources answer."""
        name = definition["metadata"]["name"]
        if name in self.server.installed:
            return
        await self.client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        await self.served(definition)
        self.server.installed.add(name)

    async def served(self, definition: JsonObject) -> None:
        """Return once every served version of a definition answers."""
        spec = definition["spec"]
        for version in spec["versions"]:
            resource = Resource(spec["group"], version["name"], spec["names"]["plural"], spec["names"]["kind"])
            if version["served"]:
                await self.eventually(lambda resource=resource: self._answers(resource), bool)  # type: ignore[misc]

    async def _answers(self, resource: Resource) -> bool:
        try:
            await self.client.list(resource)
        except StatusError:
            return False
        return True


class Watching:
    """The events of one watch, one at a time, none of them waited for forever."""

    def __init__(self, events: AsyncIterator[WatchEvent]) -> None:
        self._events = events

    async def next(self) -> tuple[WatchEventType, JsonObject]:
        """The next event."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            event = await anext(self._events)
        return event.type, event.decode()

    async def story(self, count: int) -> list[tuple[str, str]]:
        """The next events as pairs of type and name."""
        events = [await self.next() for _ in range(count)]
        return [(str(kind), found["metadata"]["name"]) for kind, found in events]

    async def rest(self) -> list[tuple[WatchEventType, JsonObject]]:
        """All events until the server ends the watch."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            return [(event.type, event.decode()) async for event in self._events]


async def refused(call: Awaitable[object], kind: type[Error]) -> Error:
    """The refusal that a call ends in."""
    with pytest.raises(kind) as caught:
        await call
    return caught.value


def failure(code: int, reason: str, message: str, details: JsonObject | None = None) -> JsonObject:
    """The Status of a refusal, whole, to be compared with what the server said."""
    status: JsonObject = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    status |= {"reason": reason, "code": code}
    return status if details is None else status | {"details": details}


def decoded(response: Response) -> JsonObject:
    """The JSON of an answer."""
    found: JsonObject = msgspec.json.decode(response.body)
    return found


def version_of(found: JsonObject) -> int:
    """The resourceVersion, as the number it is."""
    return int(found["metadata"]["resourceVersion"])


def without(found: JsonObject, *names: str) -> JsonObject:
    """The object without these fields of its metadata, and without managedFields, which the embedded server does not keep."""
    hidden = {*names, "managedFields"}
    return {**found, "metadata": {key: value for key, value in found["metadata"].items() if key not in hidden}}
