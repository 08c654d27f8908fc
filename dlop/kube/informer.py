"""Informer: keeps the cache of one resource in sync with the API server and calls handlers for every change.

It lists once, then watches. A watch that ends is resumed at its last resource version. The informer retries every
failure, so that the cache converges to the state of the server; see `ServerRetry` for the delays. A resource version that
is gone (410) is not a failure. The informer never awaits between a change of the cache and its handlers. Handlers run in
order, and a handler that fails does not affect the others. Long work yields to the event loop (`YieldBudget`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from random import Random
from typing import Generic

import msgspec
import structlog

from dlop.kube.cache import Cache, CacheChange, Replacement, parse_resource_version
from dlop.kube.client import Client
from dlop.kube.cooperative import YieldBudget
from dlop.kube.errors import GoneError, KubeError, StatusError, TransportError
from dlop.kube.objects import ObjectMeta, PartialObject, T, object_decoder
from dlop.kube.reflector import NextRequest, ReflectorState
from dlop.kube.resources import Resource
from dlop.kube.server_contact import ServerRetry
from dlop.kube.watch import WatchEvent, WatchEventType

log = structlog.get_logger(__name__)

_INITIAL_EVENTS_END = "k8s.io/initial-events-end"
# Extra time for the watchdog, so that it is not rescheduled for each of thousands of events per second.
_WATCHDOG_SLACK = 0.01

_decode_metadata = object_decoder(PartialObject)

Handler = Callable[[CacheChange[T]], None]
"""Called for every change. It must be fast: it enqueues work and does none itself."""


@dataclass(frozen=True, slots=True)
class InformerTimings:
    """Timeouts and back-off of an informer."""

    watch_seconds: tuple[int, int] = (300, 600)
    """Range of the timeout of a watch. It is random, so that the watches of a fleet do not end together."""
    idle_timeout_seconds: float = 150.0
    """A stream without an event or bookmark for this long counts as dead. Servers send a bookmark about every minute."""
    list_idle_timeout_seconds: float = 30.0
    """The same during a streaming list, when the server sends without pauses."""
    short_watch_seconds: float = 1.0
    """A watch that ends sooner and without an event is a failure. Without back-off it would be reopened in a hot loop."""
    initial_backoff_seconds: float = 0.8
    """Delay after the first failure. It doubles with each further failure and is multiplied by a random factor up to 2.

    During an outage of the server it does not grow.
    """
    max_backoff_seconds: float = 30.0
    backoff_reset_seconds: float = 120.0
    """After this long without a failure the back-off starts again."""


class _Handlers(Generic[T]):
    def __init__(self, resource_name: str, handlers: Iterable[Handler[T]]) -> None:
        self._resource_name = resource_name
        self._handlers = tuple(handlers)

    def notify(self, changes: Iterable[CacheChange[T]]) -> None:
        for change in changes:
            self._call(change)

    async def notify_cooperatively(self, changes: Iterable[CacheChange[T]]) -> None:
        """Like `notify`, but yields to the event loop between changes."""
        budget = YieldBudget()
        for change in changes:
            self._call(change)
            await budget.maybe_yield()

    def _call(self, change: CacheChange[T]) -> None:
        for handler in self._handlers:
            try:
                handler(change)
            except Exception:
                log.exception("informer handler failed", resource=self._resource_name, name=change.object.metadata.name)


class Informer(Generic[T]):
    """Informer for one resource, in one namespace or in all. Create it on a running event loop.

    `labels` are the label keys that the cache indexes.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        kind: type[T],
        *,
        rng: Random,
        namespace: str | None = None,
        label_selector: str | None = None,
        labels: Iterable[str] = (),
        keep_annotation: Callable[[str], bool] | None = None,
        handlers: Iterable[Handler[T]] = (),
        on_relist: Callable[[Resource], None] = lambda _: None,
        timings: InformerTimings = InformerTimings(),
    ) -> None:
        """`keep_annotation` selects the annotations to cache by name; None keeps all.

        `on_relist` is called after each list except the first, after the handlers have run for all its changes.
        """
        self.resource = resource
        self.cache: Cache[T] = Cache(labels=labels)
        self.last_error = ""
        """Why the cache is not in sync with the server; empty while it is."""
        self.malformed_count = 0
        """Number of objects that were skipped because they could not be decoded."""
        self._client = client
        self._namespace = namespace
        self._label_selector = label_selector
        self._decode_object = object_decoder(kind, keep_annotation=keep_annotation)
        self._handlers: _Handlers[T] = _Handlers(resource.qualified_name, handlers)
        self._on_relist = on_relist
        self._timings = timings
        self._rng = rng
        self._retry = ServerRetry(
            client.contact,
            rng=rng,
            first_seconds=timings.initial_backoff_seconds,
            cap_seconds=timings.max_backoff_seconds,
            reset_after_seconds=timings.backoff_reset_seconds,
        )
        self._state = ReflectorState()
        self._synced = asyncio.Event()
        self._is_stopped = False
        self._due_at = asyncio.get_running_loop().time()
        """When the current step of the loop ends at the latest."""
        self._requested_at = -math.inf
        self._gone_at = -math.inf
        """When a resource version was last gone."""
        self._list_seconds = 0.0
        """How long the last list took."""
        self._opened_at: float | None = None
        """When the current stream was opened; None before that."""
        self._version_at_open = 0
        """Version of the cache when the current stream started to deliver changes."""
        self._refreshes: list[asyncio.Future[None]] = []
        self._refreshing: tuple[asyncio.Future[None], ...] = ()
        self._interruptible: asyncio.Timeout | None = None
        """Watchdog of the current watch while a refresh may interrupt it."""

    # --- public state ------------------------------------------------------------------------------------------------

    @property
    def synced(self) -> bool:
        """Whether the first list is in the cache and the handlers have run for all its objects."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        await self._synced.wait()

    @property
    def overdue_seconds(self) -> float:
        """For how long the loop has been stuck.

        A loop that runs receives data, opens a new stream or retries in time, even if the server does not answer.
        """
        return max(0.0, asyncio.get_running_loop().time() - self._due_at)

    async def refresh(self) -> None:
        """Interrupt the watch and relist. Afterwards the cache is at least as new as the server at the time of the call.

        Raises:
            KubeError: the list failed. The informer continues to retry on its own.
            TransportError: the informer was stopped.
        """
        if self._is_stopped:
            raise self._stopped_error()
        refreshed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._refreshes.append(refreshed)
        if self._interruptible is not None and not self._interruptible.expired():
            self._interruptible.reschedule(asyncio.get_running_loop().time())
            self._interruptible = None
        try:
            await refreshed
        finally:
            if refreshed in self._refreshes:
                self._refreshes.remove(refreshed)

    # --- the loop ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the cache in sync until cancelled. Refreshes that are pending then fail."""
        try:
            while True:
                await self._run_once()
        finally:
            self._is_stopped = True
            self._fail_refreshes(self._stopped_error())

    async def _run_once(self) -> None:
        try:
            await self._send_next_request()
        except KubeError as error:
            if isinstance(error, GoneError) and self._may_relist_at_once():
                log.info("resource version is gone, relisting", resource=self.resource.qualified_name)
                await self._spread_relist()
            else:
                await self._back_off(error)
        except Exception as error:  # a bug; an informer that stops silently would be worse
            log.exception("informer failed", resource=self.resource.qualified_name)
            self._state.relist()
            await self._back_off(error)

    async def _send_next_request(self) -> None:
        self._requested_at = asyncio.get_running_loop().time()
        self._expect_progress()
        self._refreshing = tuple(self._refreshes)  # a later refresh needs a list that is sent later
        if self._refreshing:
            self._state.refresh()
        if self._state.next_request is NextRequest.PAGED_LIST:
            await self._list_pages()
        else:
            await self._watch()

    async def _back_off(self, error: Exception) -> None:
        delay = self._retry.delay_seconds(error, started_at=self._requested_at)
        last_error, self.last_error = self.last_error, f"cannot list or watch {self.resource.qualified_name}: {error}"
        if self.last_error != last_error:  # an outage may last for hours
            log.warning(
                "list or watch failed, retrying", resource=self.resource.qualified_name, error=str(error), delay_seconds=round(delay, 1)
            )
        self._fail_refreshes(error)
        self._due_at = asyncio.get_running_loop().time() + delay
        await self._retry.wait(delay)

    def _may_relist_at_once(self) -> bool:
        """Whether to relist without back-off. Not if the version of the relist was gone sooner than a list takes."""
        now = asyncio.get_running_loop().time()
        since_list = now - self._gone_at - self._list_seconds
        self._gone_at = now
        return since_list >= max(self._timings.short_watch_seconds, self._list_seconds)

    async def _spread_relist(self) -> None:
        # A compaction can end all watches together. The times of new requests are already random.
        if asyncio.get_running_loop().time() - self._requested_at >= self._timings.short_watch_seconds:
            await self._retry.spread()

    def _expect_progress(self) -> None:
        self._due_at = asyncio.get_running_loop().time() + self._idle_timeout_seconds

    def _stopped_error(self) -> TransportError:
        return TransportError(f"the informer of {self.resource.qualified_name} was stopped")

    # --- paged lists -------------------------------------------------------------------------------------------------

    async def _list_pages(self) -> None:
        try:
            replacement, version = await self._read_pages()
        except KubeError as error:
            if self._state.on_open_failed(error):
                return
            raise
        await self._swap(replacement, version)

    async def _read_pages(self) -> tuple[Replacement[T], int]:
        replacement = self.cache.replacement(initial=not self.synced)
        budget = YieldBudget()
        version = ""
        minimum_version = self._minimum_list_version()
        pages = self._client.pages(
            self.resource,
            namespace=self._namespace,
            label_selector=self._label_selector,
            resource_version=minimum_version,
            resource_version_match=None if minimum_version is None else "NotOlderThan",
        )
        async with aclosing(pages):
            async for page in pages:
                self._expect_progress()
                version = version or page.resource_version
                for item in page.items:
                    obj = self._decode(item)
                    if obj is not None:
                        replacement.put(obj)
                    await budget.maybe_yield()
        return replacement, _list_version(version)

    def _minimum_list_version(self) -> str | None:
        """None for a consistent read."""
        version = self.cache.resource_version
        return None if self._state.consistent_read or not version else str(version)

    # --- watches and streaming lists ---------------------------------------------------------------------------------

    async def _watch(self) -> None:
        self._version_at_open = self.cache.resource_version
        try:
            await self._run_stream()
        except KubeError as error:
            if self._opened_at is not None:
                self._on_stream_broken(error, open_seconds=asyncio.get_running_loop().time() - self._opened_at)
            elif self._state.on_open_failed(error):
                return
            raise
        self._record_progress()

    def _on_stream_broken(self, error: KubeError, *, open_seconds: float) -> None:
        soon_after_open = open_seconds < self._timings.short_watch_seconds
        # An ERROR event causes a list. Events before it must not reset the back-off.
        if not isinstance(error, StatusError):
            self._record_progress()
        if open_seconds > self._timings.max_backoff_seconds or not (isinstance(error, StatusError) or soon_after_open):
            self._retry.reset()  # a gateway that closes idle streams must not cause longer and longer delays
        self._state.on_stream_broken(error, soon_after_open=soon_after_open)

    def _record_progress(self) -> None:
        """Reset the back-off if the stream has delivered something new."""
        if self.cache.resource_version > self._version_at_open:
            self._state.on_progress()
            self._retry.reset()

    async def _run_stream(self) -> None:
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        self._opened_at = None
        listing = self._state.next_request is NextRequest.STREAMING_LIST
        try:
            async with asyncio.timeout(self._idle_timeout_seconds) as watchdog, self._open_stream(listing=listing) as stream:
                self._opened_at = loop.time()
                async with aclosing(self._read_stream(stream, watchdog)) as events:
                    if listing:
                        await self._consume_list(events, watchdog)
                    self.last_error = ""
                    self._expect_progress()
                    if not self._refresh_is_due:  # a refresh may have been requested before the stream was interruptible
                        self._interruptible = watchdog
                        await self._consume_changes(events)
        except TimeoutError as error:
            if self._opened_at is None or self._state.next_request is not NextRequest.WATCH:
                raise TransportError(f"no data for {self._idle_timeout_seconds:g} s") from error
            log.info("watch idle or refresh requested, reopening", resource=self.resource.qualified_name)
        finally:
            self._interruptible = None
        if self._refresh_is_due or self.cache.resource_version > self._version_at_open:
            return  # an overloaded server also ends watches; one that delivered events is reopened at once
        if loop.time() - started_at < self._timings.short_watch_seconds:
            raise TransportError(f"the server ended the watch after {loop.time() - started_at:.3f} s")

    def _open_stream(self, *, listing: bool) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        return self._client.watch(
            self.resource,
            namespace=self._namespace,
            label_selector=self._label_selector,
            resource_version=self._minimum_list_version() if listing else str(self.cache.resource_version),
            send_initial_events=listing,
            timeout_seconds=self._rng.randint(*self._timings.watch_seconds),
        )

    @property
    def _refresh_is_due(self) -> bool:
        """Whether the current watch must end for a refresh. A list in progress is completed first."""
        return bool(self._refreshes) and self._state.next_request is NextRequest.WATCH

    @property
    def _idle_timeout_seconds(self) -> float:
        is_watch = self._state.next_request is NextRequest.WATCH
        return self._timings.idle_timeout_seconds if is_watch else self._timings.list_idle_timeout_seconds

    async def _read_stream(self, stream: AsyncIterator[WatchEvent], watchdog: asyncio.Timeout) -> AsyncGenerator[WatchEvent, None]:
        """The events of a stream. Reschedules the watchdog and yields to the event loop between events."""
        loop = asyncio.get_running_loop()
        budget = YieldBudget()
        async for event in stream:
            now = loop.time()
            self._due_at = now + self._idle_timeout_seconds
            yield event
            if self._refresh_is_due:
                return
            ends = watchdog.when()
            if ends is None or ends < now + self._idle_timeout_seconds:
                watchdog.reschedule(now + self._idle_timeout_seconds * (1 + _WATCHDOG_SLACK))
            await budget.maybe_yield()

    async def _consume_list(self, events: AsyncIterator[WatchEvent], watchdog: asyncio.Timeout) -> None:
        replacement = self.cache.replacement(initial=not self.synced)
        async for event in events:
            if event.type is WatchEventType.BOOKMARK:
                bookmark = _bookmark_metadata(event)
                if bookmark.annotations.get(_INITIAL_EVENTS_END) == "true":
                    watchdog.reschedule(None)  # handlers may take longer than the idle timeout
                    await self._swap(replacement, _list_version(bookmark.resource_version))
                    return
                # The first bookmark of a streaming list has the annotation. Without it the list would never end.
                self._state.on_streaming_list_ignored()
                raise TransportError("the server does not support streaming lists")
            obj = self._decode(event.object)
            if obj is not None:
                (replacement.remove if event.type is WatchEventType.DELETED else replacement.put)(obj)
        raise TransportError("the stream ended before its list was complete")

    async def _consume_changes(self, events: AsyncIterator[WatchEvent]) -> None:
        async for event in events:
            if event.type is WatchEventType.BOOKMARK:
                self.cache.advance(parse_resource_version(_bookmark_metadata(event).resource_version))
                continue
            obj = self._decode(event.object)
            if obj is None:
                continue
            change = self.cache.remove(obj) if event.type is WatchEventType.DELETED else self.cache.put(obj)
            if change is not None:
                self._handlers.notify((change,))

    # --- updating the cache and calling handlers ---------------------------------------------------------------------

    def _decode(self, data: msgspec.Raw) -> T | None:
        try:
            obj = self._decode_object(data)
            if obj.metadata.name:
                return obj
            problem = "metadata.name is missing"
        except (ValueError, RecursionError) as error:
            problem = str(error)
        self.malformed_count += 1
        log.warning("malformed object skipped", resource=self.resource.qualified_name, problem=problem)
        return None

    async def _swap(self, replacement: Replacement[T], version: int) -> None:
        """Put a complete list into the cache.

        Handlers run for a relist without an await. For the first list they may yield, because nothing uses the cache
        before it is synced.
        """
        budget = YieldBudget()
        for _ in replacement.find_deletions():
            await budget.maybe_yield()
        changes = self.cache.swap(replacement, resource_version=version)
        self._state.on_listed()
        self._version_at_open = version
        self._list_seconds = asyncio.get_running_loop().time() - self._requested_at
        if self.synced:
            self._handlers.notify(changes)
            self._on_relist(self.resource)
        else:
            await self._handlers.notify_cooperatively(changes)
            self._synced.set()
        self.last_error = ""
        self._complete_refreshes()
        del changes
        for _ in replacement.release():
            await budget.maybe_yield()

    def _complete_refreshes(self) -> None:
        for refreshed in self._refreshing:
            if not refreshed.done():
                self._refreshes.remove(refreshed)
                refreshed.set_result(None)
        self._refreshing = ()

    def _fail_refreshes(self, error: Exception) -> None:
        for refreshed in self._refreshes:
            if not refreshed.done():
                refreshed.set_exception(error if isinstance(error, KubeError) else TransportError(str(error)))
        self._refreshes.clear()


def _list_version(resource_version: str) -> int:
    version = parse_resource_version(resource_version)
    if version == 0:
        raise TransportError(f"the list has no usable resourceVersion: {resource_version!r}")
    return version


def _bookmark_metadata(event: WatchEvent) -> ObjectMeta:
    try:
        return _decode_metadata(event.object).metadata
    except (ValueError, RecursionError):
        return ObjectMeta()  # ignore a malformed bookmark; the next one follows soon
