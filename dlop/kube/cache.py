"""Cache of the objects of one resource, indexed by name and owner, and orphans by label.

Only an informer changes a cache, and it never awaits between a change and its handlers, so a reader always sees a
state that the server once had. `resource_version` is the version of that state. A relist is prepared separately
(`Replacement`) and swapped in at once.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Generic

import msgspec

from dlop.kube.objects import KubeObject, T

Key = tuple[str, str]
"""Namespace and name. The namespace of a cluster-scoped object is empty.

A plain tuple, because the garbage collector stops tracking plain tuples of strings, but not named ones.
"""


class CacheChange(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """A change of one object, as passed to handlers.

    An addition has only `new`, a deletion only `old`, an update both. After a deletion that a relist found, `old` is the
    last known state. If the uids of an update differ, the object was deleted and recreated between two lists.
    """

    old: T | None
    new: T | None
    initial: bool = False
    """Whether the object is part of the first list and existed before the informer started."""

    @property
    def object(self) -> T:
        """The newest known state."""
        newest = self.new if self.new is not None else self.old
        assert newest is not None  # noqa: S101 - a change has at least one state
        return newest


def parse_resource_version(resource_version: str) -> int:
    """A resourceVersion as an integer; 0 if it is not a number. Versions rise with every change."""
    try:
        return int(resource_version)
    except ValueError:
        return 0


def object_key(obj: KubeObject) -> Key:
    metadata = obj.metadata
    return metadata.namespace, metadata.name


class Index(Generic[T]):
    """Keys by value. Keys keep their insertion order, so that reads are repeatable."""

    def __init__(self, value_of: Callable[[T], Hashable | None]) -> None:
        self._value_of = value_of
        self._keys: dict[Hashable, dict[Key, None]] = {}

    def keys(self, value: Hashable) -> Iterable[Key]:
        return self._keys.get(value, ())

    def update(self, key: Key, *, old: T | None, new: T | None) -> None:
        old_value = None if old is None else self._value_of(old)
        new_value = None if new is None else self._value_of(new)
        if old_value == new_value:
            return
        if old_value is not None:
            keys = self._keys[old_value]
            del keys[key]
            if not keys:  # otherwise the index would grow with every owner that ever existed
                del self._keys[old_value]
        if new_value is not None:
            self._keys.setdefault(new_value, {})[key] = None


def _owner_uid(obj: KubeObject) -> str | None:
    owner = obj.metadata.controller
    return None if owner is None else owner.uid


def _orphan_label(label: str) -> Callable[[KubeObject], Hashable | None]:
    def value_of(obj: KubeObject) -> tuple[str, str] | None:
        value = obj.metadata.labels.get(label)
        return None if value is None or obj.metadata.controller is not None else (obj.metadata.namespace, value)

    return value_of


class _Contents(Generic[T]):
    """Objects and their indexes, updated together."""

    def __init__(self, labels: Iterable[str]) -> None:
        self.objects: dict[Key, T] = {}
        self.by_owner: Index[T] = Index(_owner_uid)
        self.orphans: dict[str, Index[T]] = {label: Index(_orphan_label(label)) for label in labels}
        self._indexes = (self.by_owner, *self.orphans.values())

    def put(self, key: Key, obj: T) -> None:
        old = self.objects.get(key)
        self.objects[key] = obj
        for index in self._indexes:
            index.update(key, old=old, new=obj)

    def remove(self, key: Key) -> T | None:
        old = self.objects.pop(key, None)
        if old is not None:
            for index in self._indexes:
                index.update(key, old=old, new=None)
        return old


class Cache(Generic[T]):
    """The objects of one resource. `labels` are the label keys by which orphans are indexed."""

    def __init__(self, *, labels: Iterable[str] = ()) -> None:
        self._labels = tuple(labels)
        self._contents: _Contents[T] = _Contents(self._labels)
        self._version = 0
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._waiter_numbers = itertools.count()

    # --- reading -----------------------------------------------------------------------------------------------------

    @property
    def resource_version(self) -> int:
        """The resource version that the cache shows; 0 before the first list."""
        return self._version

    def get(self, name: str, *, namespace: str = "") -> T | None:
        return self._contents.objects.get((namespace, name))

    def owned_by(self, uid: str) -> list[T]:
        """The objects whose controller owner reference has this uid."""
        objects = self._contents.objects
        return [objects[key] for key in self._contents.by_owner.keys(uid)]

    def orphans(self, label: str, value: str, *, namespace: str = "") -> list[T]:
        """The objects of a namespace without a controller that have this label value. KeyError if the label is not indexed.

        Objects with a controller are not indexed, because a large job would have to go through all its objects in every pass.
        """
        objects = self._contents.objects
        return [objects[key] for key in self._contents.orphans[label].keys((namespace, value))]

    def keys(self) -> Iterable[Key]:
        return self._contents.objects.keys()

    def __iter__(self) -> Iterator[T]:
        return iter(self._contents.objects.values())

    def __len__(self) -> int:
        return len(self._contents.objects)

    def wait_for_version(self, resource_version: int) -> asyncio.Future[None]:
        """A future that is done as soon as the cache shows this resource version or a later one.

        Its callbacks run after the handlers of the change that brought the cache there.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._version >= resource_version:
            future.set_result(None)
        else:
            heapq.heappush(self._waiters, (resource_version, next(self._waiter_numbers), future))
        return future

    # --- changing (for the informer only) ----------------------------------------------------------------------------

    def put(self, obj: T) -> CacheChange[T] | None:
        """Store the object of an ADDED or MODIFIED event. None if the cache has this state or a newer one."""
        key = object_key(obj)
        old = self._contents.objects.get(key)
        if old is not None and not _supersedes(obj, old):
            return None
        self._contents.put(key, obj)
        self.advance(parse_resource_version(obj.metadata.resource_version))
        return CacheChange(old, obj)

    def remove(self, final: T) -> CacheChange[T] | None:
        """Remove the object of a DELETED event. None if it is not cached, or if a newer object of its name is."""
        key = object_key(final)
        old = self._contents.objects.get(key)
        if old is None or _supersedes(old, final):
            self.advance(parse_resource_version(final.metadata.resource_version))
            return None
        self._contents.remove(key)
        self.advance(parse_resource_version(final.metadata.resource_version))
        return CacheChange(final, None)

    def advance(self, resource_version: int) -> None:
        """Raise the version that the cache shows. An older version is ignored."""
        if resource_version > self._version:
            self._version = resource_version
            self._wake_waiters()

    def replacement(self, *, initial: bool = False) -> Replacement[T]:
        """Empty contents to fill from a list and to pass to `swap`. `initial` marks the first list."""
        return Replacement(self._contents, _Contents(self._labels), initial=initial)

    def swap(self, replacement: Replacement[T], *, resource_version: int) -> list[CacheChange[T]]:
        """Replace the contents. Returns the changes, deletions first.

        This is the only way to lower the version, for a server that was restored from a backup.
        """
        self._contents = replacement.contents
        self._version = resource_version
        self._wake_waiters()
        return replacement.changes()

    def _wake_waiters(self) -> None:
        while self._waiters and self._waiters[0][0] <= self._version:
            _, _, future = heapq.heappop(self._waiters)
            if not future.done():
                future.set_result(None)


class Replacement(Generic[T]):
    """New contents of a cache, compared with the current ones while they are filled.

    The current contents do not change meanwhile. Unchanged objects keep their current instance, so that a relist
    without changes allocates nothing that lasts.
    """

    def __init__(self, current: _Contents[T], contents: _Contents[T], *, initial: bool) -> None:
        self.contents = contents
        self._current = current.objects
        self._unchecked = iter(current.objects.items())
        self._initial = initial
        self._deletions: list[CacheChange[T]] = []
        self._changes: dict[Key, CacheChange[T]] = {}

    def put(self, obj: T) -> None:
        """Add an object, or a newer state of it."""
        key = object_key(obj)
        old = self._current.get(key)
        if old is not None and _same_state(obj, old):
            obj = old
            self._changes.pop(key, None)
        else:
            self._changes[key] = CacheChange(old, obj, self._initial)
        self.contents.put(key, obj)

    def remove(self, final: T) -> None:
        """Remove an object that was deleted during a streaming list."""
        key = object_key(final)
        self._changes.pop(key, None)
        self.contents.remove(key)

    def find_deletions(self) -> Iterator[None]:
        """Find deleted objects after the last `put`. Yields after each object, so that the caller can yield to the loop."""
        for key, old in self._unchecked:
            if key not in self.contents.objects:
                self._deletions.append(CacheChange(old, None))
            yield

    def changes(self) -> list[CacheChange[T]]:
        """Differences from the current contents, deletions first."""
        for _ in self.find_deletions():
            pass
        return self._deletions + list(self._changes.values())

    def release(self) -> Iterator[None]:
        """Free the old contents after the swap. Yields after each object: freeing ten thousand at once blocks the loop."""
        dicts: tuple[dict[Key, Any], ...] = (self._changes, self._current)
        for objects in dicts:
            while objects:
                objects.popitem()
                yield


def _same_state(one: KubeObject, other: KubeObject) -> bool:
    return one.metadata.resource_version == other.metadata.resource_version and one.metadata.uid == other.metadata.uid


def _supersedes(obj: KubeObject, old: KubeObject) -> bool:
    """Whether `obj` is newer than `old`. An API server that lags behind etcd may repeat older states."""
    return parse_resource_version(obj.metadata.resource_version) > parse_resource_version(old.metadata.resource_version)
