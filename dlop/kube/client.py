"""The verbs of the Kubernetes API over a transport: JSON in, JSON out, typed errors.

How a call is bounded, retried and guarded is told in `dlop.kube.request_pipeline`.
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

from dlop.kube import json_depth
from dlop.kube.errors import AmbiguousWriteError, TransportError, UnauthorizedError, error_from_response
from dlop.kube.request_pipeline import Limits, RequestPipeline, refused_again
from dlop.kube.resources import Resource
from dlop.kube.transport import JSON, Request, Response, StreamResponse, Transport
from dlop.kube.types import JsonObject
from dlop.kube.watch import WatchEvent, read_events

__all__ = ["FIELD_MANAGER", "Body", "Client", "Limits", "ListPage", "PatchType", "Propagation"]

# A name for the writer in managedFields and in the server's audit log.
FIELD_MANAGER = "dlop"

# How long beyond its own promised end a watch may stay silent before it counts as dead.
_WATCH_GRACE_SECONDS = 15.0

Body = Mapping[str, Any] | Sequence[Mapping[str, Any]] | bytes


class PatchType(StrEnum):
    """How the body of a patch is to be read."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class Propagation(StrEnum):
    """What a delete does to the objects that the deleted one owns."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


@dataclass(frozen=True, slots=True)
class ListPage:
    """One page of a list: the objects undecoded, the version that they are from, and the way to the next page."""

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
    """Calls one API server. Cheap to derive from: see `guarded` and `patient`."""

    def __init__(self, transport: Transport, *, limits: Limits = Limits(), may_write: Callable[[], bool] | None = None) -> None:  # noqa: B008
        self.transport = transport
        self.limits = limits
        self._calls = RequestPipeline(transport, limits=limits, may_write=may_write)

    def guarded(self, may_write: Callable[[], bool]) -> Client:
        """A client over the same connections and bounds whose writes are held back (NotLeaderError) while `may_write` says no."""
        twin = copy.copy(self)
        twin._calls = self._calls.guarded(may_write)
        return twin

    def patient(self, *, unless: Callable[[], bool]) -> Client:
        """A client over the same connections and bounds whose calls let others go first, where many are under way.

        A call that had to wait is given up (OutdatedError) when `unless` then says yes.
        """
        twin = copy.copy(self)
        twin._calls = self._calls.patient(unless=unless)
        return twin

    @property
    def has_room_for_writes(self) -> bool:
        """Whether a write would be sent at once, and not wait for others."""
        return self._calls.has_room_for_writes

    async def close(self) -> None:
        """Release every connection."""
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
        """The whole list, read page by page, as one list object."""
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
        """The pages of a list, all from one version of the store.

        Raises:
            GoneError: when the list took so long that its version was compacted away; start anew.
        """
        path = resource.path(namespace=namespace)
        filters = _query(labelSelector=label_selector, fieldSelector=field_selector, limit=page_size or self.limits.page_size)
        continue_token = ""
        while True:
            if continue_token:
                position = _query(**{"continue": continue_token})
            else:
                position = _query(resourceVersion=resource_version, resourceVersionMatch=resource_version_match)
            answer = await self.call("GET", path, query=filters + position)
            found = _decoded("GET", path, answer, _list_decoder)
            yield ListPage(found.items or [], found.metadata.resource_version, found.metadata.continue_)
            continue_token = found.metadata.continue_
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
        """Changes from `resource_version` on, for `timeout_seconds` at most; then the stream ends and is to be opened anew.

        With `send_initial_events` the stream begins with what is there now and says with a bookmark when it is through.
        A stream that stays silent for `idle_timeout_seconds` breaks off with a TransportError; without that number, one
        that outlives its own promised end.
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
            events = await stack.enter_async_context(aclosing(read_events(response.chunks)))
            yield events

    async def _open_watch(self, stack: AsyncExitStack, request: Request, idle_timeout_seconds: float) -> StreamResponse:
        deadline = asyncio.get_running_loop().time() + self.limits.timeout_seconds
        try:
            async with asyncio.timeout_at(deadline):
                return await self._stream_of_events(stack, request, idle_timeout_seconds, deadline)
        except TimeoutError as error:
            raise TransportError(f"the watch of {request.path} could not be opened in {self.limits.timeout_seconds:g} seconds") from error

    async def _stream_of_events(
        self, stack: AsyncExitStack, request: Request, idle_timeout_seconds: float, deadline: float
    ) -> StreamResponse:
        credentials_read_from = ""
        while True:
            response = await stack.enter_async_context(self.transport.stream(request, idle_timeout_seconds=idle_timeout_seconds))
            if response.status == 200:
                return response
            body = b"".join([chunk async for chunk in response.chunks])
            error = error_from_response(response.status, response.headers, body)
            if not isinstance(error, UnauthorizedError):
                raise error
            if credentials_read_from:
                raise refused_again(error, credentials_read_from)
            credentials_read_from = await self._calls.refresh_credentials(deadline)

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
        """Replace the whole object; with a resourceVersion in the body, only if it is still that version."""
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
        force: bool = False,
    ) -> JsonObject:
        """Change a part of the object. `force` belongs to an apply patch."""
        path = resource.path(namespace=namespace, name=name, subresource=subresource)
        query = _write_query(dry_run=dry_run, field_validation=field_validation) + _query(force="true" if force else None)
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
        """Delete an object, only if it still has this uid and version where they are given."""
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
        """Delete every object that the selectors match."""
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
        """Any request at all, with the retries, bounds and errors of this client. Returns only 2xx answers.

        Raises:
            StatusError: the server refused.
            TransportError: no answer, and nothing has changed.
            AmbiguousWriteError: no answer to a write, or one that does not say whether it happened.
            NotLeaderError: a write without leadership; nothing was sent.
            OutdatedError: of a patient client, nobody wanted it any more when its turn came.
        """
        headers = {"accept": accept}
        if body is not None:
            headers["content-type"] = content_type
            body = body if isinstance(body, bytes) else msgspec.json.encode(body)
        request = Request(method, path, query=query, headers=headers, body=body)
        return await self._calls.send(request, timeout_seconds=timeout_seconds)

    async def _object(
        self,
        method: str,
        path: str,
        *,
        query: tuple[tuple[str, str], ...] = (),
        body: Body | None = None,
        content_type: str = JSON,
    ) -> JsonObject:
        answer = await self.call(method, path, query=query, body=body, content_type=content_type)
        return _decoded(method, path, answer, _object_decoder)


def _decoded(method: str, path: str, answer: Response, decoder: msgspec.json.Decoder[Decoded]) -> Decoded:
    try:
        return json_depth.decode(answer.body, decoder)
    except ValueError as error:  # also for bytes that are no UTF-8
        # A login page of a gateway, for one. It is no proof that a write arrived, nor that it did not.
        kind = TransportError if method == "GET" else AmbiguousWriteError
        raise kind(f"{method} {path} was answered with something else than JSON ({error}): {answer.body[:200]!r}") from error


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
