"""The objects of one resource as the server last told them, found by name, by owner or by label.

Only an informer changes a cache, and it never awaits between a change and its handlers, so a reader always sees a
state that the server once had. The cache knows which version of the server's store it shows: `resource_version`.
A relist is prepared aside (`Replacement`) and swapped in at once.
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
"""Where an object is found: namespace and name. The namespace of a cluster-wide object is empty.

A plain tuple, because the garbage collector soon stops looking at those; at named ones it looks again and again.
"""


class CacheChange(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """What happened to one object, as handlers see it.

    `old` alone is a deletion, `new` alone an addition. Both are an update; if their uids differ, the one object was
    deleted and another of its name created, unseen, in between.
    """

    old: T | None
    new: T | None
    initial: bool = False
    """Part of the first list: nothing happened just now, it was there before anyone looked."""
    unseen: bool = False
    """A deletion found out by a relist: `old` is the last known state, not the final one."""

    @property
    def object(self) -> T:
        """The newest known state."""
        found = self.new if self.new is not None else self.old
        assert found is not None  # noqa: S101 - a change is about something
        return found


def version_number(resource_version: str) -> int:
    """A resourceVersion as the number that it is; they rise with every change. What is no number counts as zero."""
    try:
        return int(resource_version)
    except ValueError:
        return 0


def key_of(found: KubeObject) -> Key:
    """Where an object is found."""
    metadata = found.metadata
    return metadata.namespace, metadata.name


class Index(Generic[T]):
    """Which keys share a value. Keys stay in the order in which they came, so that reads are repeatable."""

    def __init__(self, value_of: Callable[[T], Hashable | None]) -> None:
        self._value_of = value_of
        self._keys: dict[Hashable, dict[Key, None]] = {}

    def keys(self, value: Hashable) -> Iterable[Key]:
        """The keys of the objects that have this value."""
        return self._keys.get(value, ())

    def update(self, key: Key, *, old: T | None, new: T | None) -> None:
        """Note what has become of the object at `key`."""
        before = None if old is None else self._value_of(old)
        after = None if new is None else self._value_of(new)
        if before == after:
            return
        if before is not None:
            keys = self._keys[before]
            del keys[key]
            if not keys:  # a value that nobody has any more must not stay behind: owners come and go for ever
                del self._keys[before]
        if after is not None:
            self._keys.setdefault(after, {})[key] = None

    def __len__(self) -> int:
        return len(self._keys)


def _owner_uid(found: KubeObject) -> str | None:
    owner = found.metadata.controller
    return None if owner is None else owner.uid


def _label_value(label: str) -> Callable[[KubeObject], Hashable | None]:
    def value_of(found: KubeObject) -> tuple[str, str] | None:
        value = found.metadata.labels.get(label)
        return None if value is None else (found.metadata.namespace, value)

    return value_of


class _Contents(Generic[T]):
    """Objects and their indexes, always in step."""

    def __init__(self, labels: Iterable[str]) -> None:
        self.objects: dict[Key, T] = {}
        self.by_owner: Index[T] = Index(_owner_uid)
        self.by_label: dict[str, Index[T]] = {label: Index(_label_value(label)) for label in labels}
        self._indexes = (self.by_owner, *self.by_label.values())

    def put(self, key: Key, found: T) -> None:
        old = self.objects.get(key)
        self.objects[key] = found
        for index in self._indexes:
            index.update(key, old=old, new=found)

    def remove(self, key: Key) -> T | None:
        old = self.objects.pop(key, None)
        if old is not None:
            for index in self._indexes:
                index.update(key, old=old, new=None)
        return old


class Cache(Generic[T]):
    """The objects of one resource. `labels` names the labels that objects can be found by."""

    def __init__(self, *, labels: Iterable[str] = ()) -> None:
        self._labels = tuple(labels)
        self._contents: _Contents[T] = _Contents(self._labels)
        self._version = 0
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._waiter_numbers = itertools.count()

    # --- reading -----------------------------------------------------------------------------------------------------

    @property
    def resource_version(self) -> int:
        """The version of the server's store that is shown here; 0 before the first list."""
        return self._version

    def get(self, name: str, *, namespace: str = "") -> T | None:
        """The object of that name, if there is one."""
        return self._contents.objects.get((namespace, name))

    def owned_by(self, uid: str) -> list[T]:
        """The objects whose controller has this uid."""
        objects = self._contents.objects
        return [objects[key] for key in self._contents.by_owner.keys(uid)]

    def labelled(self, label: str, value: str, *, namespace: str = "") -> list[T]:
        """The objects of a namespace whose label has this value. The cache must have been told of the label."""
        objects = self._contents.objects
        return [objects[key] for key in self._contents.by_label[label].keys((namespace, value))]

    def keys(self) -> Iterable[Key]:
        """Where objects are."""
        return self._contents.objects.keys()

    def __iter__(self) -> Iterator[T]:
        return iter(self._contents.objects.values())

    def __len__(self) -> int:
        return len(self._contents.objects)

    def index_sizes(self) -> dict[str, int]:
        """How many values each index holds: the owners under an empty name, the labels under their own."""
        sizes = {label: len(index) for label, index in self._contents.by_label.items()}
        return {"": len(self._contents.by_owner), **sizes}

    def reached(self, resource_version: int) -> asyncio.Future[None]:
        """Done as soon as the cache shows this version of the server's store, or a later one.

        Its callbacks run after the handlers of the change that brought the cache there.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._version >= resource_version:
            future.set_result(None)
        else:
            heapq.heappush(self._waiters, (resource_version, next(self._waiter_numbers), future))
        return future

    # --- changing (for the informer only) ----------------------------------------------------------------------------

    def put(self, found: T) -> CacheChange[T] | None:
        """Take in one object of a watch event. None when that state, or a newer one, is here already."""
        key = key_of(found)
        old = self._contents.objects.get(key)
        if old is not None and not _supersedes(found, old):
            return None
        self._contents.put(key, found)
        self.advance(version_number(found.metadata.resource_version))
        return CacheChange(old, found)

    def remove(self, final: T) -> CacheChange[T] | None:
        """Take out the object of a DELETED event. None when it is not here, or when a newer one of its name is."""
        key = key_of(final)
        old = self._contents.objects.get(key)
        if old is None or _supersedes(old, final):
            self.advance(version_number(final.metadata.resource_version))
            return None
        self._contents.remove(key)
        self.advance(version_number(final.metadata.resource_version))
        return CacheChange(final, None)

    def advance(self, resource_version: int) -> None:
        """Note that the server's store has moved on. Versions only rise; an older one says nothing new."""
        if resource_version > self._version:
            self._version = resource_version
            self._wake()

    def replacement(self, *, initial: bool = False) -> Replacement[T]:
        """An empty set of contents, to be filled from a list (the first one, if `initial`) and swapped in."""
        return Replacement(self._contents, _Contents(self._labels), initial=initial)

    def swap(self, replacement: Replacement[T], *, resource_version: int) -> list[CacheChange[T]]:
        """Show the replacement from now on: deletions first, then what is new or has changed.

        This alone may take the version back: when the server itself was restored from a backup.
        """
        self._contents = replacement.contents
        self._version = resource_version
        self._wake()
        return replacement.changes()

    def _wake(self) -> None:
        while self._waiters and self._waiters[0][0] <= self._version:
            _, _, future = heapq.heappop(self._waiters)
            if not future.done():
                future.set_result(None)


class Replacement(Generic[T]):
    """New contents in the making, compared with the present ones as they grow.

    The present contents do not change meanwhile. Of an object that is unchanged the present copy is kept, so that a
    relist of what is known already leaves no memory behind.
    """

    def __init__(self, present: _Contents[T], contents: _Contents[T], *, initial: bool) -> None:
        self.contents = contents
        self._present = present.objects
        self._unchecked = iter(present.objects.items())
        self._initial = initial
        self._deletions: list[CacheChange[T]] = []
        self._changes: dict[Key, CacheChange[T]] = {}

    def put(self, found: T) -> None:
        """Add an object, or a newer state of it."""
        key = key_of(found)
        old = self._present.get(key)
        if old is not None and _same_state(found, old):
            found = old
            self._changes.pop(key, None)
        else:
            self._changes[key] = CacheChange(old, found, self._initial)
        self.contents.put(key, found)

    def remove(self, final: T) -> None:
        """Take an object out again."""
        key = key_of(final)
        self._changes.pop(key, None)
        self.contents.remove(key)

    def find_deletions(self) -> Iterator[None]:
        """Once all objects are in, look for those that are no more, one at a time: a long search need not be done at once."""
        for key, old in self._unchecked:
            if key not in self.contents.objects:
                self._deletions.append(CacheChange(old, None, unseen=True))
            yield

    def changes(self) -> list[CacheChange[T]]:
        """What differs from the present contents: deletions first."""
        for _ in self.find_deletions():
            pass
        return self._deletions + list(self._changes.values())

    def let_go(self) -> Iterator[None]:
        """Give up what was shown before, one object at a time: to free ten thousand pods at once would hold up the loop."""
        piles: tuple[dict[Key, Any], ...] = (self._changes, self._present)
        for pile in piles:
            while pile:
                pile.popitem()
                yield


def _same_state(one: KubeObject, other: KubeObject) -> bool:
    return one.metadata.resource_version == other.metadata.resource_version and one.metadata.uid == other.metadata.uid


def _supersedes(found: KubeObject, old: KubeObject) -> bool:
    """Whether a state is newer than another. A server that lags behind may repeat what is known already."""
    return version_number(found.metadata.resource_version) > version_number(old.metadata.resource_version)
