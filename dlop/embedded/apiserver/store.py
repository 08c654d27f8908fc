"""The versioned store: every object, every change in order, and who waits for the next one.

One counter numbers all changes of all resources, as etcd does. Objects are never changed in place: a change stores a
new body, so bodies can be shared freely between the store, its history and its readers. Nothing here awaits.
"""

from __future__ import annotations

import asyncio
import bisect
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import msgspec

from dlop.kube.types import JsonObject

# How many past changes of one resource can be watched from. The real server keeps minutes; this keeps a bounded number.
DEFAULT_HISTORY_LIMIT = 20_000
# How many bodies stay unpacked, the latest ones: what was just written is what is read next. The cost of a change would
# else grow with the number of objects, by the time that garbage collection takes.
_UNPACKED_LIMIT = 64


class Key(NamedTuple):
    """Where an object is kept. `storage` is shared by all versions of a resource, e.g. `pods` or `example.org/widgets`."""

    storage: str
    namespace: str
    name: str


class ChangeType(StrEnum):
    """What happened to an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class StoredObject:
    """One version of one object. The body is read-only by agreement; its encoding is made once, when first asked for."""

    __slots__ = ("_body", "_encoded", "version")

    def __init__(self, body: JsonObject, version: int) -> None:
        self._body: JsonObject | None = body
        self.version = version
        self._encoded: bytes | None = None

    @property
    def body(self) -> JsonObject:
        """The object as plain data."""
        if self._body is not None:
            return self._body
        decoded: JsonObject = msgspec.json.decode(self.encoded)
        return decoded

    @property
    def encoded(self) -> bytes:
        """The body as JSON."""
        if self._encoded is None:
            self._encoded = msgspec.json.encode(self._body)
        return self._encoded

    def pack(self) -> None:
        """Keep only the encoding: a fifth of the memory, and nothing that the garbage collector has to walk through."""
        self._encoded = self.encoded
        self._body = None


_Place = tuple[str, str]


class StoreEvent(NamedTuple):
    """One step of the store's history. `after` of a deletion is the last state, under the version of the deletion."""

    type: ChangeType
    key: Key
    after: StoredObject
    before: StoredObject | None

    @property
    def version(self) -> int:
        """The number of this change."""
        return self.after.version


class CompactedError(Exception):
    """The asked-for version is older than what the history still holds."""

    def __init__(self, floor: int) -> None:
        self.floor = floor
        super().__init__(f"versions up to {floor} are compacted")


@dataclass(slots=True)
class _Shelf:
    """All objects of one storage in key order, and the changes made to them."""

    objects: dict[tuple[str, str], StoredObject] = field(default_factory=dict)
    order: list[tuple[str, str]] = field(default_factory=list)
    changes: list[StoreEvent] = field(default_factory=list)
    dropped: int = 0  # how many changes have left `changes` at the front: positions of cursors count them
    waiters: dict[asyncio.Future[None], None] = field(default_factory=dict)  # in the order in which they came


class StoreCursor:
    """A reader's place in the history of one storage. It holds no copy of anything: the history is the queue."""

    def __init__(self, store: Store, storage: str, since: int) -> None:
        self._store = store
        self._shelf = store._shelf(storage)
        self._position = self._shelf.dropped + bisect.bisect_right(self._shelf.changes, since, key=lambda change: change.version)
        self._waiter: asyncio.Future[None] | None = None
        self.version = since

    def take(self, at_most: int = 1000) -> list[StoreEvent]:
        """The next changes, oldest first; empty when there is nothing new.

        Raises:
            CompactedError: when changes that this reader has not seen were dropped.
        """
        start = self._position - self._shelf.dropped
        if start < 0:
            raise CompactedError(self._store.floor)
        taken = self._shelf.changes[start : start + at_most]
        self._position += len(taken)
        if taken:
            self.version = taken[-1].version
        return taken

    async def wait(self) -> None:
        """Return when there may be something to take, or when somebody calls `wake`."""
        if self._position - self._shelf.dropped < len(self._shelf.changes):
            return
        waiter = asyncio.get_running_loop().create_future()
        self._shelf.waiters[waiter] = None
        try:
            await self._until(waiter)
        finally:
            self._shelf.waiters.pop(waiter, None)

    async def wait_for_wake(self) -> None:
        """Return when somebody calls `wake`, whatever there is to take."""
        await self._until(asyncio.get_running_loop().create_future())

    async def _until(self, waiter: asyncio.Future[None]) -> None:
        self._waiter = waiter
        try:
            await waiter
        finally:
            self._waiter = None

    def wake(self) -> None:
        """End a wait that is under way."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Store:
    """Objects by key, numbered changes, and a history that can be read from any version it still holds."""

    def __init__(self, *, history_limit: int = DEFAULT_HISTORY_LIMIT) -> None:
        self.version = 1
        self.floor = 0
        """Watching and listing from a version below this is refused."""
        self._history_limit = history_limit
        self._shelves: dict[str, _Shelf] = {}
        self._unpacked: deque[StoredObject] = deque()
        self.listeners: list[Callable[[StoreEvent], None]] = []
        """Called with every change, right after it is made. A listener must not change the store; it may note work for later."""

    def get(self, key: Key) -> StoredObject | None:
        """The object now, or None."""
        return self._shelf(key.storage).objects.get((key.namespace, key.name))

    def list(
        self, storage: str, *, namespace: str = "", version: int | None = None, after: tuple[str, str] | None = None
    ) -> Iterator[tuple[Key, StoredObject]]:
        """The objects in key order, now or as they were at `version`; an empty namespace means all of them.

        With `after`, only those behind this namespace and name.

        Raises:
            CompactedError: when `version` is no longer held.
        """
        shelf = self._shelf(storage)
        objects: dict[_Place, StoredObject] = shelf.objects
        order: Sequence[_Place] = shelf.order
        if version is not None and version < self.version:
            objects, order = self._rewound(shelf, version)
        start = bisect.bisect_right(order, after) if after else bisect.bisect_left(order, (namespace, ""))
        for place in order[start:]:
            if namespace and place[0] != namespace:
                return
            yield Key(storage, *place), objects[place]

    def count(self, storage: str) -> int:
        """How many objects there are."""
        return len(self._shelf(storage).objects)

    def create(self, key: Key, body: JsonObject) -> StoredObject:
        """Store a new object. The key must be free."""
        place = (key.namespace, key.name)
        shelf = self._shelf(key.storage)
        if place in shelf.objects:
            raise KeyError(f"{key} is taken")
        stored = self._numbered(body)
        bisect.insort(shelf.order, place)
        shelf.objects[place] = stored
        self._record(shelf, StoreEvent(ChangeType.ADDED, key, stored, None))
        return stored

    def update(self, key: Key, body: JsonObject) -> StoredObject:
        """Store a new version of an object that is there."""
        place = (key.namespace, key.name)
        shelf = self._shelf(key.storage)
        before = shelf.objects[place]
        stored = shelf.objects[place] = self._numbered(body)
        self._record(shelf, StoreEvent(ChangeType.MODIFIED, key, stored, before))
        return stored

    def delete(self, key: Key) -> StoredObject:
        """Remove an object; returns its last state, numbered with the deletion."""
        place = (key.namespace, key.name)
        shelf = self._shelf(key.storage)
        before = shelf.objects.pop(place)
        del shelf.order[bisect.bisect_left(shelf.order, place)]
        last = self._numbered(before.body)
        self._record(shelf, StoreEvent(ChangeType.DELETED, key, last, before))
        return last

    def cursor(self, storage: str, *, since: int) -> StoreCursor:
        """A place in the history right after version `since`.

        Raises:
            CompactedError: when the history no longer reaches back so far.
        """
        if since < self.floor:
            raise CompactedError(self.floor)
        return StoreCursor(self, storage, since)

    def compact(self, version: int | None = None) -> None:
        """Forget the changes up to `version`, by default all of them."""
        self.floor = max(self.floor, self.version if version is None else version)
        for shelf in self._shelves.values():
            _drop(shelf, bisect.bisect_right(shelf.changes, self.floor, key=lambda change: change.version))

    def _shelf(self, storage: str) -> _Shelf:
        shelf = self._shelves.get(storage)
        if shelf is None:
            shelf = self._shelves[storage] = _Shelf()
        return shelf

    def _numbered(self, body: JsonObject) -> StoredObject:
        self.version += 1
        stored = StoredObject({**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}, self.version)
        self._unpacked.append(stored)
        if len(self._unpacked) > _UNPACKED_LIMIT:
            self._unpacked.popleft().pack()
        return stored

    def _record(self, shelf: _Shelf, change: StoreEvent) -> None:
        shelf.changes.append(change)
        if len(shelf.changes) > self._history_limit:
            # Half at a time: dropping one by one would move the whole list for every change.
            excess = len(shelf.changes) - self._history_limit // 2
            self.floor = max(self.floor, shelf.changes[excess - 1].version)
            _drop(shelf, excess)
        for waiter in shelf.waiters:
            if not waiter.done():
                waiter.set_result(None)
        for listener in self.listeners:
            listener(change)

    def _rewound(self, shelf: _Shelf, version: int) -> tuple[dict[_Place, StoredObject], Sequence[_Place]]:
        if version < self.floor:
            raise CompactedError(self.floor)
        if not shelf.changes or shelf.changes[-1].version <= version:
            return shelf.objects, shelf.order  # only other resources have changed since
        objects = dict(shelf.objects)
        for change in reversed(shelf.changes):
            if change.version <= version:
                break
            place = (change.key.namespace, change.key.name)
            if change.before is None:
                del objects[place]
            else:
                objects[place] = change.before
        return objects, sorted(objects)


def _drop(shelf: _Shelf, count: int) -> None:
    del shelf.changes[:count]
    shelf.dropped += count
