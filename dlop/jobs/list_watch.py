"""Objects as they are now, and then every change to them, for as long as somebody listens.

Lost connections, watches that end and versions that are compacted away are made good: what is told is complete, though
states in between may be left out. Only what waiting cannot mend is raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Generic, TypeVar

from dlop.kube.backoff import Backoff
from dlop.kube.client import Client
from dlop.kube.errors import GoneError, ServerError, StatusError, TooManyRequestsError, TransportError
from dlop.kube.objects import PartialObject, T, reader
from dlop.kube.resources import Resource
from dlop.kube.watch import WatchEvent, WatchEventType

# A watch that ends sooner, without news, was not a good one: opened again at once it would end again at once.
_SHORT_WATCH_SECONDS = 1.0
# A stream without an event or bookmark for so long is taken for dead. Servers send a bookmark about every minute.
_QUIET_SECONDS = 150.0
_AHEAD = 64

_read_partial = reader(PartialObject)
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class News(Generic[T]):
    """What is new or has changed, and what is gone, as it was last. The first news are all that there is, be it nothing."""

    there: tuple[T, ...] = ()
    gone: tuple[T, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchScope:
    """Which objects of a resource are meant."""

    resource: Resource
    namespace: str | None = None
    label_selector: str | None = None
    field_selector: str | None = None


async def follow(client: Client, scope: WatchScope, kind: type[T], *, rng: Random | None = None) -> AsyncGenerator[News[T], None]:
    """What there is, then every change. It never ends by itself.

    Raises:
        KubeError: what is meant cannot be read, or not even once.
    """
    following = _Following(client, scope, kind)
    # Chance only spreads the tries of many clients.
    backoff = Backoff(rng=rng or Random(), first_seconds=0.5, cap_seconds=30.0, reset_after_seconds=120.0)  # noqa: S311
    yield await following.listed()
    while True:
        try:
            if not following.version:
                yield await following.listed()
            async with aclosing(following.watched()) as changes:
                async for news in changes:
                    yield news
        except GoneError:
            following.version = ""
        except (TransportError, ServerError, TooManyRequestsError) as error:
            # A list also gets past an event that cannot be read.
            following.version = ""
            patience = error.retry_after_seconds if isinstance(error, StatusError) else None
            await asyncio.sleep(backoff.delay_seconds(now=asyncio.get_running_loop().time(), retry_after_seconds=patience))


class _Following(Generic[T]):
    def __init__(self, client: Client, scope: WatchScope, kind: type[T]) -> None:
        self.version = ""
        """Where the next watch begins; empty when only a list can tell."""
        self._client = client
        self._scope = scope
        self._read = reader(kind)
        self._known: dict[tuple[str, str], T] = {}

    async def listed(self) -> News[T]:
        scope, found, version = self._scope, list[T](), ""
        pages = self._client.pages(
            scope.resource, namespace=scope.namespace, label_selector=scope.label_selector, field_selector=scope.field_selector
        )
        async for page in pages:
            version = version or page.resource_version
            found += [self._read(item) for item in page.items]
        before, self._known = self._known, {_key(each): each for each in found}
        self.version = version
        return News(tuple(found), tuple(each for key, each in before.items() if key not in self._known))

    async def watched(self) -> AsyncGenerator[News[T], None]:
        scope, opened_at, is_silent = self._scope, asyncio.get_running_loop().time(), True
        async with self._client.watch(
            scope.resource,
            namespace=scope.namespace,
            label_selector=scope.label_selector,
            field_selector=scope.field_selector,
            resource_version=self.version,
            idle_timeout_seconds=_QUIET_SECONDS,
        ) as events:
            async for event in events:
                is_silent = False
                news = self._news(event)
                if news is not None:
                    yield news
        if is_silent and asyncio.get_running_loop().time() - opened_at < _SHORT_WATCH_SECONDS:
            raise TransportError(f"the watch of {scope.resource.qualified_name} ended as soon as it was opened")

    def _news(self, event: WatchEvent) -> News[T] | None:
        if event.type is WatchEventType.BOOKMARK:
            self.version = _read_partial(event.object).metadata.resource_version
            return None
        found = self._read(event.object)
        self.version = found.metadata.resource_version
        if event.type is WatchEventType.DELETED:
            self._known.pop(_key(found), None)
            return News(gone=(found,))
        self._known[_key(found)] = found
        return News(there=(found,))


def _key(found: T) -> tuple[str, str]:
    return found.metadata.namespace, found.metadata.name


@asynccontextmanager
async def merged(*sources: AsyncGenerator[Item, None]) -> AsyncIterator[AsyncGenerator[tuple[int, Item], None]]:
    """What several sources say, as it comes, each with the number of its source. It ends when all of them have ended."""
    queue: asyncio.Queue[tuple[int, Item] | BaseException | None] = asyncio.Queue(maxsize=_AHEAD)

    async def pump(number: int, source: AsyncGenerator[Item, None]) -> None:
        try:
            async for item in source:
                await queue.put((number, item))
        except Exception as error:  # noqa: BLE001 - whoever reads gets it
            await queue.put(error)
        else:
            await queue.put(None)
        finally:
            await source.aclose()

    tasks = [asyncio.create_task(pump(number, source)) for number, source in enumerate(sources)]
    try:
        yield _items(queue, ends=len(tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _items(queue: asyncio.Queue[tuple[int, Item] | BaseException | None], *, ends: int) -> AsyncGenerator[tuple[int, Item], None]:
    while ends:
        item = await queue.get()
        if item is None:
            ends -= 1
        elif isinstance(item, BaseException):
            raise item
        else:
            yield item
