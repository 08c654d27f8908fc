"""Versioned in-memory object store with a watchable history.

As in etcd, one counter numbers the changes of all resources. Bodies are never modified in place, so the store, its
history and its readers can share them. All operations except `StoreCursor.wait` are synchronous.
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

from dlop.kube.errors import RequestTooLargeError
from dlop.kube.types import JsonObject

# Number of changes per resource that the history keeps.
DEFAULT_HISTORY_LIMIT = 20_000
# Number of most recently written bodies that are kept decoded, because they are likely to be read next. Decoded bodies
# slow down Python's garbage collector, so that the cost of a change would grow with the number of objects.
_DECODED_LIMIT = 64
MAX_OBJECT_BYTES = 1_572_864
"""The limit of etcd for one request."""


class ObjectKey(NamedTuple):
    """Key of an object. All versions of a resource have the same `storage`, such as `pods` or `widgets.example.org`."""

    storage: str
    namespace: str
    name: str


class ChangeType(StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class StoredObject:
    """One version of one object. Callers must not modify the body. The encoding is computed on first use."""

    __slots__ = ("_body", "_encoded", "version")

    def __init__(self, body: JsonObject, version: int) -> None:
        self._body: JsonObject | None = body
        self.version = version
        self._encoded: bytes | None = None

    @property
    def body(self) -> JsonObject:
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
        """Keep only the encoding, which needs a fifth of the memory and is cheap for the garbage collector."""
        self._encoded = self.encoded
        self._body = None


_NamespacedName = tuple[str, str]


class StoreEvent(NamedTuple):
    """One change. `after` of a deletion is the last state with the version of the deletion."""

    type: ChangeType
    key: ObjectKey
    after: StoredObject
    before: StoredObject | None

    @property
    def version(self) -> int:
        return self.after.version


class CompactedError(Exception):
    """The requested version is older than the history."""

    def __init__(self, floor: int) -> None:
        self.floor = floor
        super().__init__(f"versions up to {floor} are compacted")


@dataclass(slots=True)
class _ObjectTable:
    """The objects of one resource in key order, and their changes."""

    objects: dict[tuple[str, str], StoredObject] = field(default_factory=dict)
    order: list[tuple[str, str]] = field(default_factory=list)
    changes: list[StoreEvent] = field(default_factory=list)
    dropped: int = 0  # number of changes removed from the front of `changes`; cursor positions include them
    waiters: dict[asyncio.Future[None], None] = field(default_factory=dict)  # a dict, because it keeps the order


class StoreCursor:
    """A position in the history of one resource."""

    def __init__(self, store: Store, storage: str, since: int) -> None:
        self._store = store
        self._table = store._table(storage)
        self._position = self._table.dropped + bisect.bisect_right(self._table.changes, since, key=lambda change: change.version)
        self._waiter: asyncio.Future[None] | None = None
        self.version = since

    def take(self, at_most: int = 1000) -> list[StoreEvent]:
        """The next changes, oldest first; empty if there are none.

        Raises:
            CompactedError: unread changes were compacted.
        """
        start = self._position - self._table.dropped
        if start < 0:
            raise CompactedError(self._store.floor)
        changes = self._table.changes[start : start + at_most]
        self._position += len(changes)
        if changes:
            self.version = changes[-1].version
        return changes

    async def wait(self) -> None:
        """Wait until there may be changes to take, or until `wake` is called."""
        if self._position - self._table.dropped < len(self._table.changes):
            return
        waiter = asyncio.get_running_loop().create_future()
        self._table.waiters[waiter] = None
        try:
            await self._await_waiter(waiter)
        finally:
            self._table.waiters.pop(waiter, None)

    async def wait_for_wake(self) -> None:
        """Wait until `wake` is called, even if there are changes to take."""
        await self._await_waiter(asyncio.get_running_loop().create_future())

    async def _await_waiter(self, waiter: asyncio.Future[None]) -> None:
        self._waiter = waiter
        try:
            await waiter
        finally:
            self._waiter = None

    def wake(self) -> None:
        """End a pending wait."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Store:
    def __init__(self, *, history_limit: int = DEFAULT_HISTORY_LIMIT) -> None:
        self.version = 1
        self.floor = 0
        """The compacted version. Watches and lists of older versions fail."""
        self._history_limit = history_limit
        self._tables: dict[str, _ObjectTable] = {}
        self._decoded: deque[StoredObject] = deque()
        self.listeners: list[Callable[[StoreEvent], None]] = []
        """Called after every change. A listener must not change the store, but may queue work."""

    def get(self, key: ObjectKey) -> StoredObject | None:
        return self._table(key.storage).objects.get((key.namespace, key.name))

    def list(
        self, storage: str, *, namespace: str = "", version: int | None = None, after: tuple[str, str] | None = None
    ) -> Iterator[tuple[ObjectKey, StoredObject]]:
        """The objects in key order, of the current or an older `version`. An empty namespace means all namespaces.

        `after` is a namespace and name; only objects with greater keys are listed.

        Raises:
            CompactedError: `version` is compacted.
        """
        table = self._table(storage)
        objects: dict[_NamespacedName, StoredObject] = table.objects
        order: Sequence[_NamespacedName] = table.order
        if version is not None and version < self.version:
            objects, order = self._at_version(table, version)
        start = bisect.bisect_right(order, after) if after else bisect.bisect_left(order, (namespace, ""))
        for name in order[start:]:
            if namespace and name[0] != namespace:
                return
            yield ObjectKey(storage, *name), objects[name]

    def count(self, storage: str) -> int:
        return len(self._table(storage).objects)

    def create(self, key: ObjectKey, body: JsonObject) -> StoredObject:
        """Store a new object.

        Raises:
            KeyError: the key exists.
        """
        name = (key.namespace, key.name)
        table = self._table(key.storage)
        if name in table.objects:
            raise KeyError(f"{key} exists")
        stored = self._with_new_version(body)
        bisect.insort(table.order, name)
        table.objects[name] = stored
        self._record(table, StoreEvent(ChangeType.ADDED, key, stored, None))
        return stored

    def update(self, key: ObjectKey, body: JsonObject) -> StoredObject:
        """Store a new version of an existing object."""
        name = (key.namespace, key.name)
        table = self._table(key.storage)
        before = table.objects[name]
        stored = table.objects[name] = self._with_new_version(body)
        self._record(table, StoreEvent(ChangeType.MODIFIED, key, stored, before))
        return stored

    def delete(self, key: ObjectKey) -> StoredObject:
        """Remove an object. Returns its last state with the version of the deletion."""
        name = (key.namespace, key.name)
        table = self._table(key.storage)
        before = table.objects.pop(name)
        del table.order[bisect.bisect_left(table.order, name)]
        last = self._with_new_version(before.body)
        self._record(table, StoreEvent(ChangeType.DELETED, key, last, before))
        return last

    def cursor(self, storage: str, *, since: int) -> StoreCursor:
        """A cursor over the changes after version `since`.

        Raises:
            CompactedError: `since` is compacted.
        """
        if since < self.floor:
            raise CompactedError(self.floor)
        return StoreCursor(self, storage, since)

    def compact(self, version: int | None = None) -> None:
        """Drop the changes up to `version`, by default all of them."""
        self.floor = max(self.floor, self.version if version is None else version)
        for table in self._tables.values():
            _drop_changes(table, bisect.bisect_right(table.changes, self.floor, key=lambda change: change.version))

    def _table(self, storage: str) -> _ObjectTable:
        table = self._tables.get(storage)
        if table is None:
            table = self._tables[storage] = _ObjectTable()
        return table

    def _with_new_version(self, body: JsonObject) -> StoredObject:
        version = self.version + 1
        stored = StoredObject({**body, "metadata": {**body["metadata"], "resourceVersion": str(version)}}, version)
        if len(stored.encoded) > MAX_OBJECT_BYTES:
            raise RequestTooLargeError({"kind": "Status", "status": "Failure", "code": 500, "message": "etcdserver: request is too large"})
        self.version = version
        self._decoded.append(stored)
        if len(self._decoded) > _DECODED_LIMIT:
            self._decoded.popleft().pack()
        return stored

    def _record(self, table: _ObjectTable, change: StoreEvent) -> None:
        table.changes.append(change)
        if len(table.changes) > self._history_limit:
            # Drop half at once, because dropping one by one would move the list on every change.
            excess = len(table.changes) - self._history_limit // 2
            self.floor = max(self.floor, table.changes[excess - 1].version)
            _drop_changes(table, excess)
        for waiter in table.waiters:
            if not waiter.done():
                waiter.set_result(None)
        for listener in self.listeners:
            listener(change)

    def _at_version(self, table: _ObjectTable, version: int) -> tuple[dict[_NamespacedName, StoredObject], Sequence[_NamespacedName]]:
        if version < self.floor:
            raise CompactedError(self.floor)
        if not table.changes or table.changes[-1].version <= version:
            return table.objects, table.order  # only other resources have changed since
        objects = dict(table.objects)
        for change in reversed(table.changes):
            if change.version <= version:
                break
            name = (change.key.namespace, change.key.name)
            if change.before is None:
                del objects[name]
            else:
                objects[name] = change.before
        return objects, sorted(objects)


def _drop_changes(table: _ObjectTable, count: int) -> None:
    del table.changes[:count]
    table.dropped += count
