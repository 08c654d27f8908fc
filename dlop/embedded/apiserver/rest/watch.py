"""Watches: the changes of a resource as a stream of lines.

The store's history is the queue, so a slow reader costs nothing but the history it has not read; and one that falls
behind what the history holds is told 410, as on the real server. With a selector, an object that begins to match is
ADDED and one that ceases to is DELETED, whatever happened to it really.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

import msgspec

from dlop.embedded.apiserver.api_errors import expired, unreasoned
from dlop.embedded.apiserver.query_options import ListOptions
from dlop.embedded.apiserver.request_info import RequestInfo
from dlop.embedded.apiserver.responses import ResponseEncoder
from dlop.embedded.apiserver.rest.list import ListScope, View, parse_version
from dlop.embedded.apiserver.rest.update import served
from dlop.embedded.apiserver.store import ChangeType, CompactedError, StoredObject, StoreEvent
from dlop.kube.errors import GoneError

BOOKMARK_SECONDS = 60.0
# A last bookmark shortly before the end, so that the next watch can begin where this one ended.
_LAST_BOOKMARK_SECONDS = 2.0
# How long a watch runs that does not say; the real server takes between one and two times this.
_DEFAULT_SECONDS = 1800.0


# How many events are made into lines in one go: nobody else gets a turn meanwhile.
_AT_ONCE = 500


class ConnectionDroppedError(Exception):
    """The connection is to be torn down without an answer, or in the middle of one. Only faults on request raise it."""


@asynccontextmanager
async def closing(pieces: AsyncIterator[bytes]) -> AsyncIterator[AsyncIterator[bytes]]:
    """Close a stream at the end, also when it was not read to its end."""
    try:
        yield pieces
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRequest:
    """What a watch is to send."""

    since: int | None
    """The version to begin after, 0 for the current one; None: begin with everything that there is."""
    at_least: int
    """The first bookmark waits for this version."""
    bookmarks: bool
    seconds: float


def watch_request(asked: RequestInfo, options: ListOptions, randomness: random.Random) -> WatchRequest:
    """What a watch is to send.

    Raises:
        StatusError: for a version that cannot be read.
    """
    try:
        version = parse_version(options.resource_version or "0")
    except ValueError as error:
        raise unreasoned(str(error)) from None
    seconds = float(asked.number("timeoutSeconds"))
    return WatchRequest(
        since=None if _wants_initial_events(asked, version) else version,
        at_least=version,
        bookmarks=asked.flag("allowWatchBookmarks"),
        seconds=seconds if seconds > 0 else _DEFAULT_SECONDS * (1 + randomness.random()),
    )


def _wants_initial_events(asked: RequestInfo, version: int) -> bool:
    return asked.flag("sendInitialEvents") if "sendInitialEvents" in asked.query else version == 0


class Watch:
    """One running watch. It can be held back, ended and torn from outside."""

    def __init__(self, view: View, asked: RequestInfo, options: ListOptions, request: WatchRequest, presenter: ResponseEncoder) -> None:
        self.asked = asked
        self._view = view
        self._namespace = asked.target.namespace
        self._matches = None if options.selector.is_empty else options.selector.matches
        self._request = request
        self._presenter = presenter
        self._initial: list[StoredObject] = []
        self._owes_bookmark = request.since is None and request.bookmarks
        self._has_caught_up = False
        self._held = False
        self._ended = False
        self._torn = False
        # The place is taken when the watch is asked for: what happens before it is first read belongs to it.
        self._place = self._begin()

    def hold(self) -> None:
        """Send nothing until released."""
        self._held = True

    def release(self) -> None:
        """Send what was held back, and go on."""
        self._held = False
        self._wake()

    def end(self, *, torn: bool = False) -> None:
        """End the stream: properly, or `torn` as by a broken connection."""
        self._ended, self._torn = True, torn
        self._wake()

    def _wake(self) -> None:
        if self._place is not None:
            self._place.wake()

    async def lines(self) -> AsyncGenerator[bytes, None]:
        """The stream, in pieces of whole lines."""
        if self._place is None:
            yield self._too_old(self._view.floor)
            return
        try:
            async with aclosing(self._live_lines(self._place)) as pieces:
                async for lines in pieces:
                    yield lines
        except CompactedError as error:
            yield self._too_old(error.floor)
        if self._torn:
            raise ConnectionDroppedError

    async def _live_lines(self, place: ListScope) -> AsyncGenerator[bytes, None]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._request.seconds
        bookmark_at = _next_bookmark(loop.time(), deadline)
        while not self._ended and loop.time() < deadline:
            lines = b"" if self._held else self._next_lines(place)
            if not lines and loop.time() >= bookmark_at:
                lines = self._periodic_bookmark(place)
                bookmark_at = _next_bookmark(loop.time(), deadline)
            if lines:
                yield lines
            else:
                await _wait(place, until=min(deadline, bookmark_at), held=self._held)

    def _begin(self) -> ListScope | None:
        """The place in the history to begin from; None when it is no longer there."""
        storage, since = self.asked.type.storage, self._request.since
        if since is None:
            found = self._view.list(storage, namespace=self._namespace)
            self._initial = [stored for _, stored in found if self._shows(stored)]
        try:
            return self._view.cursor(storage, since=since or self._view.version)
        except CompactedError:
            return None

    def _next_lines(self, place: ListScope) -> bytes:
        if self._initial:
            stored, self._initial = self._initial[:_AT_ONCE], self._initial[_AT_ONCE:]
            return b"".join([self._presenter.event(ChangeType.ADDED, each) for each in stored])
        changes = place.take(_AT_ONCE)
        self._has_caught_up = len(changes) < _AT_ONCE
        lines = [line for change in changes if (line := self._line(change))]
        if self._owes_bookmark and self._position(place) >= self._request.at_least:
            self._owes_bookmark = False
            lines.append(self._presenter.bookmark(self._position(place), ends_initial_events=True))
        return b"".join(lines)

    def _line(self, change: StoreEvent) -> bytes:
        if self._namespace and change.key.namespace != self._namespace:
            return b""
        if self._matches is None:
            return self._presenter.event(change.type, change.after)
        before = change.before is not None and self._shows(change.before)
        after = change.type is not ChangeType.DELETED and self._shows(change.after)
        if after:
            return self._presenter.event(ChangeType.MODIFIED if before else ChangeType.ADDED, change.after)
        return self._presenter.event(ChangeType.DELETED, _last_seen(change)) if before else b""

    def _shows(self, stored: StoredObject) -> bool:
        return self._matches is None or self._matches(served(self.asked.type, stored.body))

    def _periodic_bookmark(self, place: ListScope) -> bytes:
        if self._held or self._owes_bookmark or not self._request.bookmarks:
            return b""
        return self._presenter.bookmark(self._position(place), ends_initial_events=False)

    def _position(self, place: ListScope) -> int:
        """The version up to which everything has been sent."""
        # With nothing left to take, all that has happened since has happened to other resources.
        return max(place.version, self._view.version) if self._has_caught_up else place.version

    def _too_old(self, floor: int) -> bytes:
        since = self._request.since if self._place is None else self._place.version
        return _error_line(expired(f"too old resource version: {since} ({floor})"))


async def _wait(place: ListScope, *, until: float, held: bool) -> None:
    try:
        async with asyncio.timeout_at(until):
            await (place.wait_for_wake() if held else place.wait())
    except TimeoutError:
        pass


def _last_seen(change: StoreEvent) -> StoredObject:
    """An object that is gone from the watcher's sight: its last matching state, under the version at which it went."""
    if change.type is ChangeType.DELETED or change.before is None:
        return change.after
    body = change.before.body
    numbered = {**body, "metadata": {**body["metadata"], "resourceVersion": str(change.version)}}
    return StoredObject(numbered, change.version)


def _next_bookmark(now: float, deadline: float) -> float:
    last = deadline - _LAST_BOOKMARK_SECONDS
    return min(now + BOOKMARK_SECONDS, last) if now < last else deadline


def _error_line(error: GoneError) -> bytes:
    return b'{"type":"ERROR","object":%b}\n' % msgspec.json.encode(error.status)
