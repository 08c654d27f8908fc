"""Client, watch and assertion helpers shared by the conformance tests."""

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
from dlop.kube.errors import InvalidError, NotFoundError, StatusError
from dlop.kube.resources import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS, LEASES, Resource
from dlop.kube.transport import Request, Response
from dlop.kube.types import JsonObject
from dlop.kube.watch import WatchEvent, WatchEventType, read_events
from tests.conformance.bodies import lease

SERVERS = ("in-process", "embedded", "real")
TIMEOUT_SECONDS = 30.0
"""Limit for asynchronous work of a server, such as garbage collection."""
_POLL_INTERVAL_SECONDS = 0.02
_SERVER_SET_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "managedFields")

T = TypeVar("T")
Error = TypeVar("Error", bound=StatusError)


def only_on(*servers: str, reason: str) -> pytest.MarkDecorator:
    """Run a test on these servers only."""
    if not reason or not set(servers) <= set(SERVERS):
        raise ValueError(f"only_on requires a reason and server names out of {SERVERS}")
    return pytest.mark.only_on(*servers, reason=reason)


def over_https(*, reason: str) -> pytest.MarkDecorator:
    """Run tests on the embedded server over HTTPS, in addition to the other servers."""
    if not reason:
        raise ValueError("over_https requires a reason")
    return pytest.mark.over_https(reason=reason)


@dataclass(eq=False)
class ApiServer:
    """An API server under test."""

    name: str
    client: Client
    compact: Callable[[], Awaitable[None]]
    """Drops the history, so that older resource versions can no longer be watched or listed."""
    unauthorized_client: Client | None = None
    """Client with an unknown token; None if the server does not authenticate."""
    kubeconfig: Path | None = None
    """None if the server does not listen on a socket."""
    namespace_numbers: itertools.count[int] = field(default_factory=itertools.count)
    installed_crds: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Api:
    """A server and a namespace on it that only one test uses. Namespaced requests go to that namespace."""

    server: ApiServer
    namespace: str

    @property
    def client(self) -> Client:
        return self.server.client

    async def create(self, resource: Resource, body: Body, **options: Any) -> JsonObject:
        return await self.client.create(resource, body, namespace=self.namespace_for(resource), **options)

    async def create_with_warnings(self, resource: Resource, body: JsonObject, *, field_validation: str | None = None) -> str:
        """Returns the Warning header of the response, or an empty string."""
        query = () if field_validation is None else (("fieldValidation", field_validation),)
        response = await self.client.call("POST", self.path(resource), query=query, body=body)
        return response.headers.get("warning", "")

    async def create_leases(self, *names: str) -> None:
        for name in names:
            await self.create(LEASES, lease(name))

    async def get(self, resource: Resource, name: str, **options: Any) -> JsonObject:
        return await self.client.get(resource, name, namespace=self.namespace_for(resource), **options)

    async def get_or_none(self, resource: Resource, name: str) -> JsonObject | None:
        try:
            return await self.get(resource, name)
        except NotFoundError:
            return None

    async def get_json(self, path: str, *, accept: str = "application/json", **query: str) -> JsonObject:
        return decode_json(await self.client.call("GET", path, query=tuple(query.items()), accept=accept))

    async def list(self, resource: Resource, **options: Any) -> JsonObject:
        return await self.client.list(resource, namespace=self.namespace_for(resource), **options)

    async def list_names(self, resource: Resource, **options: Any) -> Sequence[str]:
        return [item["metadata"]["name"] for item in (await self.list(resource, **options))["items"]]

    async def list_pages(self, resource: Resource, *, page_size: int) -> Sequence[Sequence[str]]:
        """Names of the objects of each page."""
        pages = self.client.pages(resource, namespace=self.namespace_for(resource), page_size=page_size)
        return [[msgspec.json.decode(item)["metadata"]["name"] for item in page.items] async for page in pages]

    async def replace(self, resource: Resource, body: JsonObject, **options: Any) -> JsonObject:
        return await self.client.replace(resource, body["metadata"]["name"], body, namespace=self.namespace_for(resource), **options)

    async def patch(self, resource: Resource, name: str, body: Body, **options: Any) -> JsonObject:
        return await self.client.patch(resource, name, body, namespace=self.namespace_for(resource), **options)

    async def delete(self, resource: Resource, name: str, **options: Any) -> JsonObject:
        return await self.client.delete(resource, name, namespace=self.namespace_for(resource), **options)

    def path(self, resource: Resource, name: str | None = None, subresource: str | None = None) -> str:
        return resource.path(namespace=self.namespace_for(resource), name=name, subresource=subresource)

    def namespace_for(self, resource: Resource) -> str | None:
        """None for cluster-scoped resources."""
        return self.namespace if resource.namespaced else None

    async def send(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Response:
        """Send a request as it is. Error responses are returned, not raised."""
        request = Request(method, path, query=tuple((query or {}).items()), headers=dict(headers or {}), body=body)
        return await self.client.transport.send(request, timeout_seconds=TIMEOUT_SECONDS)

    async def is_responsive(self) -> bool:
        """Whether the server still stores and lists objects."""
        name = (await self.create(CONFIG_MAPS, {"metadata": {"generateName": "probe-"}}))["metadata"]["name"]
        return name in await self.list_names(CONFIG_MAPS)

    async def compact(self) -> None:
        await self.server.compact()

    @asynccontextmanager
    async def watch(self, resource: Resource, **options: Any) -> AsyncIterator[WatchStream]:
        """Watch the namespace, by default from the current resource version and without bookmarks."""
        if "resource_version" not in options and not options.get("send_initial_events"):
            options["resource_version"] = (await self.list(resource))["metadata"]["resourceVersion"]
        options.setdefault("namespace", self.namespace_for(resource))
        options.setdefault("bookmarks", False)
        async with self.client.watch(resource, **options) as events:
            yield WatchStream(events)

    @asynccontextmanager
    async def watch_as(self, resource: Resource, *, accept: str) -> AsyncIterator[WatchStream]:
        """Watch the namespace in another representation. Existing objects are sent first."""
        query = (("watch", "true"), ("resourceVersion", "0"))
        request = Request("GET", self.path(resource), query=query, headers={"accept": accept})
        async with self.client.transport.stream(request, idle_timeout_seconds=TIMEOUT_SECONDS) as response:
            assert response.status == 200
            yield WatchStream(read_events(response.chunks))

    async def wait_until(self, read: Callable[[], Awaitable[T]], condition: Callable[[T], object]) -> T:
        """Poll until the condition holds, and return the value that met it."""
        deadline = asyncio.get_running_loop().time() + TIMEOUT_SECONDS
        while True:
            value = await read()
            if condition(value):
                return value
            if asyncio.get_running_loop().time() > deadline:
                raise AssertionError(f"condition not met after {TIMEOUT_SECONDS:.0f} s, last value: {value}")
            await asyncio.sleep(_POLL_INTERVAL_SECONDS)

    async def wait_for(self, resource: Resource, name: str, condition: Callable[[JsonObject], object]) -> JsonObject:
        """Poll an object until the condition holds."""
        return await self.wait_until(lambda: self.get(resource, name), condition)

    async def wait_for_deletion(self, resource: Resource, name: str) -> None:
        await self.wait_until(lambda: self.get_or_none(resource, name), lambda obj: obj is None)

    async def wait_for_termination(self, resource: Resource, name: str) -> JsonObject:
        """Poll an object until it has a deletion timestamp."""
        return await self.wait_for(resource, name, lambda obj: "deletionTimestamp" in obj["metadata"])

    async def install(self, definition: JsonObject) -> None:
        """Create a CRD unless this server has it, and wait until its resources are served."""
        name = definition["metadata"]["name"]
        if name in self.server.installed_crds:
            return
        await self.client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        await self.wait_until_served(definition)
        self.server.installed_crds.add(name)

    async def wait_until_served(self, definition: JsonObject) -> None:
        """Poll until every served version of a CRD can be listed."""
        spec = definition["spec"]
        for version in spec["versions"]:
            resource = Resource(spec["group"], version["name"], spec["names"]["plural"], spec["names"]["kind"])
            if version["served"]:
                await self.wait_until(lambda resource=resource: self.is_served(resource), bool)  # type: ignore[misc]

    async def is_served(self, resource: Resource) -> bool:
        try:
            await self.client.list(resource)
        except StatusError:
            return False
        return True


class WatchStream:
    """Events of one watch. Reads fail after `TIMEOUT_SECONDS`."""

    def __init__(self, events: AsyncIterator[WatchEvent]) -> None:
        self._events = events

    async def next(self) -> tuple[WatchEventType, JsonObject]:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            event = await anext(self._events)
        return event.type, event.decode()

    async def next_changes(self, count: int) -> list[tuple[str, str]]:
        """The next events as pairs of type and name, without bookmarks, which a server may send at any time."""
        changes: list[tuple[str, str]] = []
        while len(changes) < count:
            event_type, obj = await self.next()
            if event_type is not WatchEventType.BOOKMARK:
                changes.append((str(event_type), obj["metadata"]["name"]))
        return changes

    async def read_to_end(self) -> list[tuple[WatchEventType, JsonObject]]:
        """All events until the server closes the watch."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return [(event.type, event.decode()) async for event in self._events]


async def expect_error(call: Awaitable[object], error_type: type[Error]) -> Error:
    """Await a call that must raise, and return the error."""
    with pytest.raises(error_type) as caught:
        await call
    return caught.value


async def validation_error(call: Awaitable[object]) -> str:
    """The message of the validation error of a call, or an empty string if the call succeeds."""
    try:
        await call
    except InvalidError as error:
        return str(error)
    return ""


def failure_status(code: int, reason: str, message: str, details: JsonObject | None = None) -> JsonObject:
    """The complete Status object of a failed request."""
    status: JsonObject = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    status |= {"reason": reason, "code": code}
    return status if details is None else status | {"details": details}


def decode_json(response: Response) -> JsonObject:
    body: JsonObject = msgspec.json.decode(response.body)
    return body


def resource_version_of(obj: JsonObject) -> int:
    return int(obj["metadata"]["resourceVersion"])


def without_metadata(obj: JsonObject, *fields: str) -> JsonObject:
    """The object without these metadata fields and without managedFields, which the embedded server does not keep."""
    removed = {*fields, "managedFields"}
    return {**obj, "metadata": {key: value for key, value in obj["metadata"].items() if key not in removed}}


def without_server_fields(obj: JsonObject) -> JsonObject:
    """The object without kind, apiVersion and the metadata that is different for each object."""
    metadata = {name: value for name, value in obj["metadata"].items() if name not in _SERVER_SET_METADATA}
    content = {name: value for name, value in obj.items() if name not in ("kind", "apiVersion", "metadata")}
    return content | ({"metadata": metadata} if metadata else {})
