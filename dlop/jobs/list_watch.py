"""List objects, then watch them.

Lost connections, closed watches and compacted resource versions are handled by reconnecting or relisting. Callers see the final
state of every object but may miss intermediate ones. Only errors that a retry cannot fix are raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Generic, TypeVar

from dlop.kube.client import Client
from dlop.kube.errors import GoneError, ServerError, StatusError, TooManyRequestsError, TransportError
from dlop.kube.objects import PartialObject, T, object_decoder
from dlop.kube.resources import Resource
from dlop.kube.retry_backoff import ExponentialBackoff
from dlop.kube.watch import WatchEvent, WatchEventType

# A watch that closes sooner without an event counts as an error, so that it is not reopened in a tight loop.
_SHORT_WATCH_SECONDS = 1.0
# A stream without an event or bookmark for this long is considered dead. Servers send a bookmark about every minute.
_IDLE_TIMEOUT_SECONDS = 150.0
_QUEUE_SIZE = 64

_decode_partial = object_decoder(PartialObject)
Item = TypeVar("Item")
_Queue = asyncio.Queue[tuple[int, Item] | BaseException | None]


@dataclass(frozen=True, slots=True)
class ChangeSet(Generic[T]):
    """Created or updated objects, and deleted ones in their last state. The first one has all objects, possibly none."""

    upserted: tuple[T, ...] = ()
    deleted: tuple[T, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchScope:
    """A selection of objects of one resource."""

    resource: Resource
    namespace: str | None = None
    label_selector: str | None = None
    field_selector: str | None = None


async def list_and_watch(
    client: Client, scope: WatchScope, kind: type[T], *, rng: Random | None = None
) -> AsyncGenerator[ChangeSet[T], None]:
    """All objects, then every change. Never ends by itself.

    Raises:
        KubeError: the first list failed, or an error that a retry cannot fix.
    """
    watcher = _ListWatcher(client, scope, kind)
    # The randomness only spreads the retries of many clients.
    backoff = ExponentialBackoff(rng=rng or Random(), first_seconds=0.5, cap_seconds=30.0, reset_after_seconds=120.0)  # noqa: S311
    yield await watcher.list_all()
    while True:
        try:
            if not watcher.resource_version:
                yield await watcher.list_all()
            async with aclosing(watcher.watch_changes()) as changes:
                async for change_set in changes:
                    yield change_set
        except GoneError:
            watcher.resource_version = ""
        except (TransportError, ServerError, TooManyRequestsError) as error:
            # Relist, which also skips an event that cannot be decoded.
            watcher.resource_version = ""
            retry_after = error.retry_after_seconds if isinstance(error, StatusError) else None
            await asyncio.sleep(backoff.delay_seconds(now=asyncio.get_running_loop().time(), retry_after_seconds=retry_after))


class _ListWatcher(Generic[T]):
    def __init__(self, client: Client, scope: WatchScope, kind: type[T]) -> None:
        self.resource_version = ""
        """Where the next watch starts; empty if a list is needed first."""
        self._client = client
        self._scope = scope
        self._decode = object_decoder(kind)
        self._known: dict[str, T] = {}
        """By UID. An object of the same name may have replaced another one."""

    async def list_all(self) -> ChangeSet[T]:
        scope, objects, resource_version = self._scope, list[T](), ""
        pages = self._client.pages(
            scope.resource, namespace=scope.namespace, label_selector=scope.label_selector, field_selector=scope.field_selector
        )
        async for page in pages:
            resource_version = resource_version or page.resource_version
            objects += [self._decode(item) for item in page.items]
        before, self._known = self._known, {item.metadata.uid: item for item in objects}
        self.resource_version = resource_version
        return ChangeSet(tuple(objects), tuple(item for uid, item in before.items() if uid not in self._known))

    async def watch_changes(self) -> AsyncGenerator[ChangeSet[T], None]:
        scope, opened_at, is_idle = self._scope, asyncio.get_running_loop().time(), True
        async with self._client.watch(
            scope.resource,
            namespace=scope.namespace,
            label_selector=scope.label_selector,
            field_selector=scope.field_selector,
            resource_version=self.resource_version,
            idle_timeout_seconds=_IDLE_TIMEOUT_SECONDS,
        ) as events:
            async for event in events:
                is_idle = False
                change_set = self._to_change_set(event)
                if change_set is not None:
                    yield change_set
        if is_idle and asyncio.get_running_loop().time() - opened_at < _SHORT_WATCH_SECONDS:
            raise TransportError(f"the watch of {scope.resource.qualified_name} was closed as soon as it was opened")

    def _to_change_set(self, event: WatchEvent) -> ChangeSet[T] | None:
        if event.type is WatchEventType.BOOKMARK:
            self.resource_version = _decode_partial(event.object).metadata.resource_version
            return None
        item = self._decode(event.object)
        self.resource_version = item.metadata.resource_version
        if event.type is WatchEventType.DELETED:
            self._known.pop(item.metadata.uid, None)
            return ChangeSet(deleted=(item,))
        self._known[item.metadata.uid] = item
        return ChangeSet(upserted=(item,))


@asynccontextmanager
async def merge(*sources: AsyncGenerator[Item, None]) -> AsyncIterator[AsyncGenerator[tuple[int, Item], None]]:
    """Merge generators. Each item comes with the index of its source; ends when all sources have ended."""
    queue: _Queue[Item] = asyncio.Queue(maxsize=_QUEUE_SIZE)

    async def pump(index: int, source: AsyncGenerator[Item, None]) -> None:
        try:
            async for item in source:
                await queue.put((index, item))
        except Exception as error:  # noqa: BLE001 - raised to the reader
            await queue.put(error)
        else:
            await queue.put(None)
        finally:
            await source.aclose()

    tasks = [asyncio.create_task(pump(index, source)) for index, source in enumerate(sources)]
    try:
        yield _drain(queue, sources=len(tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _drain(queue: _Queue[Item], *, sources: int) -> AsyncGenerator[tuple[int, Item], None]:
    while sources:
        item = await queue.get()
        if item is None:
            sources -= 1
        elif isinstance(item, BaseException):
            raise item
        else:
            yield item
