"""Watch: the changes of a resource as a stream of JSON lines.

Watches read from the history of the store, so a slow reader needs no buffer. A reader that falls behind the history
gets 410. With a selector, an object that starts to match is ADDED and one that stops matching is DELETED.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

import msgspec

from dlop.embedded.apiserver.api_errors import error_without_reason, expired
from dlop.embedded.apiserver.query_options import ListOptions
from dlop.embedded.apiserver.request_info import RequestInfo
from dlop.embedded.apiserver.responses import ResponseEncoder
from dlop.embedded.apiserver.rest.list import EventCursor, StoreReader, parse_version
from dlop.embedded.apiserver.rest.update import to_served_version
from dlop.embedded.apiserver.store import ChangeType, CompactedError, StoredObject, StoreEvent
from dlop.kube.errors import GoneError

BOOKMARK_SECONDS = 60.0
# A final bookmark shortly before the end, so that the next watch can continue from there.
_LAST_BOOKMARK_SECONDS = 2.0
# Minimum duration of a watch without timeoutSeconds. As in kube-apiserver, the actual one is up to twice as long.
_DEFAULT_SECONDS = 1800.0

# Number of events that are encoded without yielding to the event loop.
_BATCH_SIZE = 500


class ConnectionDroppedError(Exception):
    """Drop the connection without a response or within one. Only raised for injected faults."""


@asynccontextmanager
async def closing(chunks: AsyncIterator[bytes]) -> AsyncIterator[AsyncIterator[bytes]]:
    """Close a stream on exit, even if it was not read to its end."""
    try:
        yield chunks
    finally:
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRequest:
    """The watch-specific parameters of a request."""

    since: int | None
    """Start after this version, 0 for the current one. None starts with ADDED events for all existing objects."""
    at_least: int
    """The bookmark that ends the initial events is not sent before this version."""
    bookmarks: bool
    seconds: float


def watch_request(info: RequestInfo, options: ListOptions, rng: random.Random) -> WatchRequest:
    """Parse the watch-specific parameters of a request.

    Raises:
        StatusError: the resourceVersion is malformed.
    """
    try:
        version = parse_version(options.resource_version or "0")
    except ValueError as error:
        raise error_without_reason(str(error)) from None
    seconds = float(info.number("timeoutSeconds"))
    return WatchRequest(
        since=None if _wants_initial_events(info, version) else version,
        at_least=version,
        bookmarks=info.flag("allowWatchBookmarks"),
        seconds=seconds if seconds > 0 else _DEFAULT_SECONDS * (1 + rng.random()),
    )


def _wants_initial_events(info: RequestInfo, version: int) -> bool:
    return info.flag("sendInitialEvents") if "sendInitialEvents" in info.query else version == 0


class Watch:
    """A running watch. Fault injection can hold, end and abort it."""

    def __init__(self, view: StoreReader, info: RequestInfo, options: ListOptions, request: WatchRequest, encoder: ResponseEncoder) -> None:
        self.request_info = info
        self._view = view
        self._namespace = info.target.namespace
        self._matches = None if options.selector.is_empty else options.selector.matches
        self._request = request
        self._encoder = encoder
        self._initial: list[StoredObject] = []
        self._initial_bookmark_pending = request.since is None and request.bookmarks
        self._has_caught_up = False
        self._held = False
        self._sendable = 0
        self._ended = False
        self._aborted = False
        # Open the cursor now, so that changes before the first read are not missed.
        self._cursor = self._open_cursor()

    def hold(self) -> None:
        """Send nothing until released."""
        self._held = True

    def send_next(self) -> None:
        """Send the next event, although the watch is held."""
        self._sendable += 1
        self._wake()

    def release(self) -> None:
        """Send the held events and continue."""
        self._held = False
        self._wake()

    def end(self, *, abort: bool = False) -> None:
        """End the stream, or with `abort` drop the connection."""
        self._ended, self._aborted = True, abort
        self._wake()

    def _wake(self) -> None:
        if self._cursor is not None:
            self._cursor.wake()

    async def lines(self) -> AsyncGenerator[bytes, None]:
        """The stream, in chunks of complete lines."""
        if self._cursor is None:
            yield self._too_old(self._view.floor)
            return
        try:
            async with aclosing(self._live_lines(self._cursor)) as chunks:
                async for lines in chunks:
                    yield lines
        except CompactedError as error:
            yield self._too_old(error.floor)
        if self._aborted:
            raise ConnectionDroppedError

    async def _live_lines(self, cursor: EventCursor) -> AsyncGenerator[bytes, None]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._request.seconds
        bookmark_at = _next_bookmark(loop.time(), deadline)
        while not self._ended and loop.time() < deadline:
            lines = self._held_line(cursor) if self._held else self._next_lines(cursor)
            if not lines and loop.time() >= bookmark_at:
                lines = self._periodic_bookmark(cursor)
                bookmark_at = _next_bookmark(loop.time(), deadline)
            if lines:
                yield lines
            else:
                await _wait(cursor, until=min(deadline, bookmark_at), held=self._held)

    def _open_cursor(self) -> EventCursor | None:
        """The cursor at the start version; None if it is compacted."""
        storage, since = self.request_info.type.storage, self._request.since
        if since is None:
            objects = self._view.list(storage, namespace=self._namespace)
            self._initial = [stored for _, stored in objects if self._is_selected(stored)]
        try:
            return self._view.cursor(storage, since=since or self._view.version)
        except CompactedError:
            return None

    def _next_lines(self, cursor: EventCursor) -> bytes:
        if self._initial:
            batch, self._initial = self._initial[:_BATCH_SIZE], self._initial[_BATCH_SIZE:]
            return b"".join([self._encoder.encode_event(ChangeType.ADDED, stored) for stored in batch])
        changes = cursor.take(_BATCH_SIZE)
        self._has_caught_up = len(changes) < _BATCH_SIZE
        lines = [line for change in changes if (line := self._line(change))]
        if self._initial_bookmark_pending and self._position(cursor) >= self._request.at_least:
            self._initial_bookmark_pending = False
            lines.append(self._encoder.encode_bookmark(self._position(cursor), ends_initial_events=True))
        return b"".join(lines)

    def _held_line(self, cursor: EventCursor) -> bytes:
        while self._sendable and (changes := cursor.take(1)):
            if line := self._line(changes[0]):
                self._sendable -= 1
                return line
        return b""

    def _line(self, change: StoreEvent) -> bytes:
        if self._namespace and change.key.namespace != self._namespace:
            return b""
        if self._matches is None:
            return self._encoder.encode_event(change.type, change.after)
        before = change.before is not None and self._is_selected(change.before)
        after = change.type is not ChangeType.DELETED and self._is_selected(change.after)
        if after:
            return self._encoder.encode_event(ChangeType.MODIFIED if before else ChangeType.ADDED, change.after)
        return self._encoder.encode_event(ChangeType.DELETED, _last_seen(change)) if before else b""

    def _is_selected(self, stored: StoredObject) -> bool:
        return self._matches is None or self._matches(to_served_version(self.request_info.type, stored.body))

    def _periodic_bookmark(self, cursor: EventCursor) -> bytes:
        if self._held or self._initial_bookmark_pending or not self._request.bookmarks:
            return b""
        return self._encoder.encode_bookmark(self._position(cursor), ends_initial_events=False)

    def _position(self, cursor: EventCursor) -> int:
        """The version up to which all changes have been sent."""
        # If there are no more changes to take, all newer changes are of other resources.
        return max(cursor.version, self._view.version) if self._has_caught_up else cursor.version

    def _too_old(self, floor: int) -> bytes:
        since = self._request.since if self._cursor is None else self._cursor.version
        return _error_line(expired(f"too old resource version: {since} ({floor})"))


async def _wait(cursor: EventCursor, *, until: float, held: bool) -> None:
    try:
        async with asyncio.timeout_at(until):
            await (cursor.wait_for_wake() if held else cursor.wait())
    except TimeoutError:
        pass


def _last_seen(change: StoreEvent) -> StoredObject:
    """The object of a DELETED event: its last matching state with the version of the change."""
    if change.type is ChangeType.DELETED or change.before is None:
        return change.after
    body = change.before.body
    versioned_body = {**body, "metadata": {**body["metadata"], "resourceVersion": str(change.version)}}
    return StoredObject(versioned_body, change.version)


def _next_bookmark(now: float, deadline: float) -> float:
    last = deadline - _LAST_BOOKMARK_SECONDS
    return min(now + BOOKMARK_SECONDS, last) if now < last else deadline


def _error_line(error: GoneError) -> bytes:
    return b'{"type":"ERROR","object":%b}\n' % msgspec.json.encode(error.status)
