"""Keeps a cache in step with one resource of the server, and tells handlers of every change.

It lists once, then watches; a watch that ends is taken up where it stopped. Whatever the network or the server does, it
goes on trying, ever more patiently, and the cache ends up equal to the server's truth. Between a change of the cache
and its handlers there is never an await. Long work is cut in slices, so that the loop is never held up.

Who is told of the changes of a cache, and how: at once, in order, and one that fails does not hurt the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from random import Random
from typing import Generic

import msgspec
import structlog

from dlop.kube.backoff import Backoff
from dlop.kube.cache import Cache, CacheChange, Replacement, version_number
from dlop.kube.client import Client
from dlop.kube.cooperative import Slices
from dlop.kube.errors import KubeError, StatusError, TransportError
from dlop.kube.list_watch_state import ListWatchState, Step
from dlop.kube.objects import ObjectMeta, PartialObject, T, reader
from dlop.kube.resources import Resource
from dlop.kube.watch import WatchEvent, WatchEventType

log = structlog.get_logger(__name__)

_INITIAL_EVENTS_END = "k8s.io/initial-events-end"
# The watchdog gets this much more than it needs, so that it is not fed with each of thousands of events a second.
_FEEDING_SLACK = 0.01

_read_partial = reader(PartialObject)


@dataclass(frozen=True, slots=True)
class InformerTimings:
    """How patient an informer is."""

    watch_seconds: tuple[int, int] = (300, 600)
    """A watch is asked for a random time between these, so that the watches of a fleet do not end together."""
    quiet_seconds: float = 150.0
    """A stream without an event or bookmark for so long is taken for dead. Servers send a bookmark about every minute."""
    list_quiet_seconds: float = 30.0
    """The same while a streamed list is under way: then the server has something to say all the time."""
    short_watch_seconds: float = 1.0
    """A watch that ends sooner and without news is a failure: without a pause it would be opened and ended in a hot loop."""
    first_pause_seconds: float = 0.8
    """How long to wait after a first failure; twice as long after each further one, and at random up to twice that."""
    longest_pause_seconds: float = 30.0
    healthy_seconds: float = 120.0
    """After so long without a failure, the next one is a first one."""


class Informer(Generic[T]):
    """One resource, in one namespace or in all. `labels` names the labels that the cache can be asked by."""

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
        handlers: Iterable[Handler[T]] = (),
        relisted: Callable[[Resource], None] = lambda _: None,
        pace: InformerTimings = InformerTimings(),
    ) -> None:
        """`relisted` is called after each list but the first, when the handlers have been told of all that it shows."""
        self.resource = resource
        self.cache: Cache[T] = Cache(labels=labels)
        self.last_error = ""
        """Why the cache is not in step with the server, as a sentence; empty while it is."""
        self.malformed_count = 0
        """How many objects were skipped because they made no sense at all."""
        self._client = client
        self._namespace = namespace
        self._label_selector = label_selector
        self._read = reader(kind)
        self._handlers: Handlers[T] = Handlers(resource.qualified_name, handlers)
        self._relisted = relisted
        self._pace = pace
        self._rng = rng
        self._backoff = Backoff(
            rng=rng,
            first_seconds=pace.first_pause_seconds,
            cap_seconds=pace.longest_pause_seconds,
            reset_after_seconds=pace.healthy_seconds,
        )
        self._course = ListWatchState()
        self._synced = asyncio.Event()
        self._last_contact: float | None = None
        self._opened_at: float | None = None
        """When the present stream was opened; None before it is."""
        self._version_before = 0
        """What the cache showed when the present stream began to bring changes."""
        self._refreshes: list[asyncio.Future[None]] = []
        self._refreshing: tuple[asyncio.Future[None], ...] = ()
        self._interruptible: asyncio.Timeout | None = None
        """The watchdog of a stream that may be cut without harm."""

    # --- what others ask ---------------------------------------------------------------------------------------------

    @property
    def synced(self) -> bool:
        """Whether the first list is in the cache and every handler has been told of it."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Wait until `synced`."""
        await self._synced.wait()

    @property
    def last_contact_seconds_ago(self) -> float | None:
        """How long ago the server was last heard of; None before the first time."""
        return None if self._last_contact is None else asyncio.get_running_loop().time() - self._last_contact

    def add_handler(self, handler: Handler[T]) -> None:
        """Tell one more handler of every change, beginning with what is in the cache already."""
        self._handlers.add(handler, present=self.cache)

    async def refresh(self) -> None:
        """Show at least what the server has at the time of this call: cut the stream and list anew.

        Raises:
            KubeError: when that failed. The informer goes on trying in its own time.
        """
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
        """Keep the cache in step until cancelled."""
        while True:
            try:
                await self._next_step()
            except KubeError as error:
                await self._pause(error)
            except Exception as error:  # whatever it was, a cache that silently stops following is worse
                log.exception("an informer stumbled", resource=self.resource.qualified_name)
                self._course.list_again()
                await self._pause(error)

    async def _next_step(self) -> None:
        self._refreshing = tuple(self._refreshes)  # who asks later is not served by the list that is asked for now
        if self._refreshing:
            self._course.refresh()
        if self._course.step is Step.PAGED_LIST:
            await self._list_in_pages()
        else:
            await self._watch()

    async def _pause(self, error: Exception) -> None:
        retry_after = error.retry_after_seconds if isinstance(error, StatusError) else None
        now = asyncio.get_running_loop().time()
        delay = self._backoff.delay_seconds(now=now, retry_after_seconds=retry_after)
        self.last_error = f"{self.resource.qualified_name} cannot be followed: {error}"
        log.warning("an informer tries again", resource=self.resource.qualified_name, error=str(error), delay_seconds=round(delay, 1))
        self._fail_refreshes(error)
        await asyncio.sleep(delay)

    # --- listing in pages --------------------------------------------------------------------------------------------

    async def _list_in_pages(self) -> None:
        try:
            replacement, version = await self._read_pages()
        except KubeError as error:
            self._course.not_opened(error)
            raise
        await self._swap(replacement, version)

    async def _read_pages(self) -> tuple[Replacement[T], int]:
        replacement = self.cache.replacement(initial=not self.synced)
        slices = Slices()
        version = ""
        since = self._list_from()
        pages = self._client.pages(
            self.resource,
            namespace=self._namespace,
            label_selector=self._label_selector,
            resource_version=since,
            resource_version_match=None if since is None else "NotOlderThan",
        )
        async with aclosing(pages):
            async for page in pages:
                self._last_contact = asyncio.get_running_loop().time()
                version = version or page.resource_version
                for item in page.items:
                    found = self._decode(item)
                    if found is not None:
                        replacement.put(found)
                    await slices.breathe()
        return replacement, _version_of_list(version)

    def _list_from(self) -> str | None:
        version = self.cache.resource_version
        return None if self._course.from_any_version or not version else str(version)

    # --- watching ----------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        self._version_before = self.cache.resource_version
        try:
            await self._follow()
        except KubeError as error:
            if self._opened_at is not None:
                self._after_a_break(error, open_seconds=asyncio.get_running_loop().time() - self._opened_at)
            elif self._course.not_opened(error):
                return
            raise
        self._note_progress()

    def _after_a_break(self, error: KubeError, *, open_seconds: float) -> None:
        # An error that the server sends within a stream leads to a list: news before it are no reason for haste.
        if not isinstance(error, StatusError):
            self._note_progress()
        if open_seconds > self._pace.longest_pause_seconds:
            self._backoff.reset()  # a gateway that ends quiet streams is no reason for ever longer pauses
        self._course.broken(error, at_once=open_seconds < self._pace.short_watch_seconds)

    def _note_progress(self) -> None:
        """A stream that has brought news makes the next failure a first one."""
        if self.cache.resource_version > self._version_before:
            self._course.progressed()
            self._backoff.reset()

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._opened_at = None
        listing = self._course.step is Step.STREAMED_LIST
        try:
            async with asyncio.timeout(self._quiet_seconds) as watchdog, self._open(listing=listing) as stream:
                self._opened_at = loop.time()
                async with aclosing(self._paced(stream, watchdog)) as events:
                    if listing:
                        await self._take_list(events, watchdog)
                    self.last_error = ""
                    if not self._refresh_is_due:  # one that was asked for before the stream could be interrupted
                        self._interruptible = watchdog
                        await self._take_changes(events)
        except TimeoutError as error:
            if self._opened_at is None or self._course.step is not Step.WATCH:
                raise TransportError(f"nothing was heard for {self._quiet_seconds:g} s") from error
            log.info("a watch has gone quiet, or a refresh is asked for: it is cut", resource=self.resource.qualified_name)
        finally:
            self._interruptible = None
        if self._refresh_is_due or self.cache.resource_version > self._version_before:
            return  # a server that cannot keep up ends watches too; what has brought news may go on at once
        if loop.time() - began < self._pace.short_watch_seconds:
            raise TransportError(f"the server ended the watch after {loop.time() - began:.3f} s")

    def _open(self, *, listing: bool) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        return self._client.watch(
            self.resource,
            namespace=self._namespace,
            label_selector=self._label_selector,
            resource_version=self._list_from() if listing else str(self.cache.resource_version),
            send_initial_events=listing,
            timeout_seconds=self._rng.randint(*self._pace.watch_seconds),
        )

    @property
    def _refresh_is_due(self) -> bool:
        """Whether the present stream is to end for a new list. A list that is under way is completed first."""
        return bool(self._refreshes) and self._course.step is Step.WATCH

    @property
    def _quiet_seconds(self) -> float:
        return self._pace.quiet_seconds if self._course.step is Step.WATCH else self._pace.list_quiet_seconds

    async def _paced(self, stream: AsyncIterator[WatchEvent], watchdog: asyncio.Timeout) -> AsyncGenerator[WatchEvent, None]:
        """The events of a stream, while the watchdog is fed and the loop gets its turns."""
        loop = asyncio.get_running_loop()
        slices = Slices()
        async for event in stream:
            self._last_contact = now = loop.time()
            yield event
            if self._refresh_is_due:
                return
            ends = watchdog.when()
            if ends is None or ends < now + self._quiet_seconds:
                watchdog.reschedule(now + self._quiet_seconds * (1 + _FEEDING_SLACK))
            await slices.breathe()

    async def _take_list(self, events: AsyncIterator[WatchEvent], watchdog: asyncio.Timeout) -> None:
        replacement = self.cache.replacement(initial=not self.synced)
        async for event in events:
            if event.type is WatchEventType.BOOKMARK:
                mark = _bookmark(event)
                if mark.annotations.get(_INITIAL_EVENTS_END) == "true":
                    watchdog.reschedule(None)  # the handlers may take their time
                    await self._swap(replacement, _version_of_list(mark.resource_version))
                    return
                # The first bookmark of a streamed list is the one that ends it. Without this, the wait for that one might never end.
                self._course.sent_no_list()
                raise TransportError("the server does not stream lists")
            found = self._decode(event.object)
            if found is not None:
                (replacement.remove if event.type is WatchEventType.DELETED else replacement.put)(found)
        raise TransportError("the stream ended before its list was complete")

    async def _take_changes(self, events: AsyncIterator[WatchEvent]) -> None:
        async for event in events:
            if event.type is WatchEventType.BOOKMARK:
                self.cache.advance(version_number(_bookmark(event).resource_version))
                continue
            found = self._decode(event.object)
            if found is None:
                continue
            change = self.cache.remove(found) if event.type is WatchEventType.DELETED else self.cache.put(found)
            if change is not None:
                self._handlers.tell((change,))

    # --- into the cache and out to the handlers ----------------------------------------------------------------------

    def _decode(self, data: msgspec.Raw) -> T | None:
        try:
            found = self._read(data)
            if found.metadata.name:
                return found
            problem = "it has no name"
        except (ValueError, RecursionError) as error:
            problem = str(error)
        self.malformed_count += 1
        log.warning("an object makes no sense and is skipped", resource=self.resource.qualified_name, problem=problem)
        return None

    async def _swap(self, replacement: Replacement[T], version: int) -> None:
        """Show the list from now on.

        Handlers are told of a relist without an await. Of the first list they are told in slices, however long it is: nobody
        works from the cache before it is synced.
        """
        slices = Slices()
        for _ in replacement.find_deletions():
            await slices.breathe()
        changes = self.cache.swap(replacement, resource_version=version)
        self._course.listed()
        self._version_before = version
        if self.synced:
            self._handlers.tell(changes)
            self._relisted(self.resource)
        else:
            await self._handlers.tell_in_slices(changes)
            self._synced.set()
        self.last_error = ""
        self._end_refreshes()
        del changes
        for _ in replacement.let_go():
            await slices.breathe()

    def _end_refreshes(self) -> None:
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


def _version_of_list(resource_version: str) -> int:
    version = version_number(resource_version)
    if version == 0:
        raise TransportError(f"the server's list has no usable resourceVersion: {resource_version!r}")
    return version


def _bookmark(event: WatchEvent) -> ObjectMeta:
    try:
        return _read_partial(event.object).metadata
    except (ValueError, RecursionError):
        return ObjectMeta()  # says nothing; the next one will


log = structlog.get_logger(__name__)

Handler = Callable[[CacheChange[T]], None]


class Handlers(Generic[T]):
    """The handlers of one resource. A handler is a plain function and quick: it notes work, it does none."""

    def __init__(self, resource_name: str, handlers: Iterable[Handler[T]]) -> None:
        self._resource_name = resource_name
        self._handlers = tuple(handlers)

    def add(self, handler: Handler[T], *, present: Iterable[T]) -> None:
        """Tell one more handler from now on, beginning with what is there already."""
        self._handlers += (handler,)
        for found in present:
            self._tell((handler,), CacheChange(None, found, initial=True))

    def tell(self, changes: Iterable[CacheChange[T]]) -> None:
        """Tell every handler of every change, without an await."""
        for change in changes:
            self._tell(self._handlers, change)

    async def tell_in_slices(self, changes: Iterable[CacheChange[T]]) -> None:
        """The same for a first list of any length. Whoever is added meanwhile is told of the whole cache anyway."""
        handlers = self._handlers
        slices = Slices()
        for change in changes:
            self._tell(handlers, change)
            await slices.breathe()

    def _tell(self, handlers: tuple[Handler[T], ...], change: CacheChange[T]) -> None:
        for handler in handlers:
            try:
                handler(change)
            except Exception:
                log.exception("a handler failed", resource=self._resource_name, name=change.object.metadata.name)
