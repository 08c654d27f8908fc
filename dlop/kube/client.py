"""Client for the verbs of the Kubernetes API: JSON in, JSON out, typed errors.

See `dlop.kube.request_pipeline` for limits, retries and the leadership guard.
"""

from __future__ import annotations

import asyncio
import copy
import functools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from dlop.kube.errors import AmbiguousWriteError, TransportError, UnauthorizedError, error_from_response
from dlop.kube.objects import decode_json
from dlop.kube.request_pipeline import ClientLimits, RequestPipeline, rejected_credentials_error
from dlop.kube.resources import Resource
from dlop.kube.server_contact import ServerContact
from dlop.kube.transport import JSON, Request, Response, StreamResponse, Transport
from dlop.kube.types import JsonObject
from dlop.kube.watch import WatchEvent, read_events

__all__ = ["FIELD_MANAGER", "Body", "Client", "ClientLimits", "ListPage", "PatchType", "Propagation"]

# Field manager in managedFields and in the audit log.
FIELD_MANAGER = "dlop"

# A watch without data counts as dead this long after its requested timeout.
_WATCH_GRACE_SECONDS = 15.0

Body = Mapping[str, Any] | Sequence[Mapping[str, Any]] | bytes


class PatchType(StrEnum):
    """Content type of a patch."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"


class Propagation(StrEnum):
    """What happens to the dependents of a deleted object."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


@dataclass(frozen=True, slots=True)
class ListPage:
    """One page of a list, with undecoded objects. The continue token is empty on the last page."""

    items: list[msgspec.Raw]
    resource_version: str
    continue_token: str


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


_list_decoder = msgspec.json.Decoder(_List)
_object_decoder = msgspec.json.Decoder(dict[str, Any])

Decoded = TypeVar("Decoded")


class Client:
    """Client of one API server. `guarded` and `low_priority` return variants that share its connections and limits."""

    def __init__(self, transport: Transport, *, limits: ClientLimits = ClientLimits(), may_write: Callable[[], bool] | None = None) -> None:  # noqa: B008
        self.transport = transport
        self.limits = limits
        self.contact = ServerContact()
        self._pipeline = RequestPipeline(transport, limits=limits, may_write=may_write, contact=self.contact)

    def guarded(self, may_write: Callable[[], bool]) -> Client:
        """A client whose writes raise NotLeaderError while `may_write` returns false."""
        clone = copy.copy(self)
        clone._pipeline = self._pipeline.guarded(may_write)
        return clone

    def low_priority(self, *, cancel_if: Callable[[], bool]) -> Client:
        """A client whose calls let others go first while slots are scarce.

        A call that had to wait for a slot raises RequestCancelledError if `cancel_if` returns true afterwards.
        """
        clone = copy.copy(self)
        clone._pipeline = self._pipeline.low_priority(cancel_if=cancel_if)
        return clone

    @property
    def has_free_write_slot(self) -> bool:
        """Whether a write would be sent without waiting for a slot."""
        return self._pipeline.has_free_write_slot

    async def close(self) -> None:
        await self.transport.close()

    # --- reading -----------------------------------------------------------------------------------------------------

    async def get(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        resource_version: str | None = None,
    ) -> JsonObject:
        """One object, or a subresource of it (`status`, `scale`)."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return await self._object("GET", path, query=_query(resourceVersion=resource_version))

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        resource_version: str | None = None,
        resource_version_match: str | None = None,
    ) -> JsonObject:
        """The complete list as one list object, read page by page."""
        items: list[JsonObject] = []
        page = ListPage([], "", "")
        async for page in self.pages(
            resource,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            resource_version=resource_version,
            resource_version_match=resource_version_match,
        ):
            items += [msgspec.json.decode(item) for item in page.items]
        return {
            "apiVersion": resource.api_version,
            "kind": f"{resource.kind}List",
            "metadata": {"resourceVersion": page.resource_version},
            "items": items,
        }

    async def pages(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        resource_version: str | None = None,
        resource_version_match: str | None = None,
        page_size: int | None = None,
    ) -> AsyncGenerator[ListPage, None]:
        """The pages of a list, all at one resource version.

        Raises:
            GoneError: the resource version was compacted while the list was read; start again.
        """
        path = resource.path(namespace=namespace)
        filters = _query(labelSelector=label_selector, fieldSelector=field_selector, limit=page_size or self.limits.page_size)
        continue_token = ""
        while True:
            if continue_token:
                position = _query(**{"continue": continue_token})
            else:
                position = _query(resourceVersion=resource_version, resourceVersionMatch=resource_version_match)
            response = await self.call("GET", path, query=filters + position)
            page = _decode("GET", path, response, _list_decoder)
            yield ListPage(page.items or [], page.metadata.resource_version, page.metadata.continue_)
            continue_token = page.metadata.continue_
            if not continue_token:
                return

    @asynccontextmanager
    async def watch(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        resource_version: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        send_initial_events: bool = False,
        bookmarks: bool = True,
        timeout_seconds: int = 300,
        idle_timeout_seconds: float | None = None,
    ) -> AsyncIterator[AsyncGenerator[WatchEvent, None]]:
        """Watch for changes after `resource_version`. The server ends the stream after `timeout_seconds`.

        With `send_initial_events` the stream starts with the existing objects, followed by a bookmark. A stream without
        data for `idle_timeout_seconds` raises TransportError; the default is somewhat more than `timeout_seconds`.
        """
        query = _query(
            watch="true",
            resourceVersion=resource_version,
            labelSelector=label_selector,
            fieldSelector=field_selector,
            allowWatchBookmarks="true" if bookmarks else None,
            sendInitialEvents="true" if send_initial_events else None,
            resourceVersionMatch="NotOlderThan" if send_initial_events else None,
            timeoutSeconds=timeout_seconds,
        )
        request = Request("GET", resource.path(namespace=namespace), query=query, headers={"accept": JSON})
        idle_timeout_seconds = idle_timeout_seconds or timeout_seconds + _WATCH_GRACE_SECONDS
        async with AsyncExitStack() as stack:
            response = await self._open_watch(stack, request, idle_timeout_seconds)
            stack.enter_context(self.contact.open_stream())
            events = await stack.enter_async_context(aclosing(read_events(response.chunks)))
            yield events

    async def _open_watch(self, stack: AsyncExitStack, request: Request, idle_timeout_seconds: float) -> StreamResponse:
        deadline = asyncio.get_running_loop().time() + self.limits.timeout_seconds
        try:
            async with asyncio.timeout_at(deadline):
                return await self._open_stream(stack, request, idle_timeout_seconds, deadline)
        except TimeoutError as error:
            raise TransportError(f"cannot open watch of {request.path} within {self.limits.timeout_seconds:g} seconds") from error

    async def _open_stream(self, stack: AsyncExitStack, request: Request, idle_timeout_seconds: float, deadline: float) -> StreamResponse:
        credentials_origin = ""
        while True:
            response = await stack.enter_async_context(self.transport.stream(request, idle_timeout_seconds=idle_timeout_seconds))
            self._pipeline.record_response(response.status)
            if response.status == 200:
                return response
            body = b"".join([chunk async for chunk in response.chunks])
            error = error_from_response(response.status, response.headers, body)
            if not isinstance(error, UnauthorizedError):
                raise error
            if credentials_origin:
                raise rejected_credentials_error(error, credentials_origin)
            credentials_origin = await self._pipeline.refresh_credentials(deadline)

    # --- writing -----------------------------------------------------------------------------------------------------

    async def create(
        self,
        resource: Resource,
        body: Body,
        *,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str | None = None,
        dry_run: bool = False,
        field_validation: str | None = None,
    ) -> JsonObject:
        """Create an object, or post to a subresource of the object `name` (`binding`, `eviction`)."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return await self._object("POST", path, query=_write_query(dry_run=dry_run, field_validation=field_validation), body=body)

    async def replace(
        self,
        resource: Resource,
        name: str,
        body: Body,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        dry_run: bool = False,
        field_validation: str | None = None,
    ) -> JsonObject:
        """Replace an object. With a resourceVersion in the body, raises ConflictError if the object has changed."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        return await self._object("PUT", path, query=_write_query(dry_run=dry_run, field_validation=field_validation), body=body)

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Body,
        *,
        patch_type: PatchType = PatchType.MERGE,
        namespace: str | None = None,
        subresource: str | None = None,
        dry_run: bool = False,
        field_validation: str | None = None,
    ) -> JsonObject:
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        query = _write_query(dry_run=dry_run, field_validation=field_validation)
        return await self._object("PATCH", path, query=query, body=body, content_type=patch_type)

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
        propagation: Propagation | None = None,
        dry_run: bool = False,
    ) -> JsonObject:
        """Delete an object. `uid` and `resource_version` are preconditions; ConflictError if they do not match."""
        options = _delete_options(
            uid=uid, resource_version=resource_version, grace_seconds=grace_seconds, propagation=propagation, dry_run=dry_run
        )
        return await self._object("DELETE", resource.path(namespace=namespace, name=name), body=options)

    async def delete_collection(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        grace_seconds: int | None = None,
        propagation: Propagation | None = None,
    ) -> JsonObject:
        """Delete all objects that match the selectors."""
        query = _query(labelSelector=label_selector, fieldSelector=field_selector)
        options = _delete_options(grace_seconds=grace_seconds, propagation=propagation)
        return await self._object("DELETE", resource.path(namespace=namespace), query=query, body=options)

    # --- one call ----------------------------------------------------------------------------------------------------

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: tuple[tuple[str, str], ...] = (),
        body: Body | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout_seconds: float | None = None,
    ) -> Response:
        """Send any request, with the retries, limits and errors of this client. Returns only 2xx responses.

        Raises:
            StatusError: the server rejected the request.
            TransportError: no response, and nothing has changed.
            AmbiguousWriteError: no response to a write, or one that does not say whether the write happened.
            NotLeaderError: a write without leadership; nothing was sent.
            RequestCancelledError: a low-priority call was cancelled by `cancel_if`; nothing was sent.
        """
        headers = {"accept": accept}
        if body is not None:
            headers["content-type"] = content_type
            body = body if isinstance(body, bytes) else msgspec.json.encode(body)
        request = Request(method, path, query=query, headers=headers, body=body)
        return await self._pipeline.send(request, timeout_seconds=timeout_seconds)

    async def _object(
        self,
        method: str,
        path: str,
        *,
        query: tuple[tuple[str, str], ...] = (),
        body: Body | None = None,
        content_type: str = JSON,
    ) -> JsonObject:
        response = await self.call(method, path, query=query, body=body, content_type=content_type)
        return _decode(method, path, response, _object_decoder)


def _decode(method: str, path: str, response: Response, decoder: msgspec.json.Decoder[Decoded]) -> Decoded:
    try:
        return decode_json(response.body, decoder)
    except ValueError as error:  # also raised for bytes that are not UTF-8
        # For example a gateway's login page. It does not say whether a write reached the server.
        error_type = TransportError if method == "GET" else AmbiguousWriteError
        raise error_type(f"the response to {method} {path} is not JSON ({error}): {response.body[:200]!r}") from error


def _query(**parameters: str | int | None) -> tuple[tuple[str, str], ...]:
    return tuple((name, str(value)) for name, value in parameters.items() if value is not None)


@functools.cache
def _write_query(*, dry_run: bool, field_validation: str | None) -> tuple[tuple[str, str], ...]:
    return _query(fieldManager=FIELD_MANAGER, dryRun="All" if dry_run else None, fieldValidation=field_validation)


def _delete_options(
    *,
    uid: str | None = None,
    resource_version: str | None = None,
    grace_seconds: int | None = None,
    propagation: Propagation | None = None,
    dry_run: bool = False,
) -> JsonObject:
    options: JsonObject = {"apiVersion": "v1", "kind": "DeleteOptions"}
    preconditions = {name: value for name, value in (("uid", uid), ("resourceVersion", resource_version)) if value is not None}
    if preconditions:
        options["preconditions"] = preconditions
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    if propagation is not None:
        options["propagationPolicy"] = str(propagation)
    if dry_run:
        options["dryRun"] = ["All"]
    return options
