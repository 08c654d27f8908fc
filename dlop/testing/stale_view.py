"""A second server that lags behind: the same store, seen as it was a while ago.

In a highly available control plane each API server reads through its own cache, and one may be behind. Reads and
watches of such a server show an older version, a list that asks for a newer one is told to come again, and writes go
through to the true store all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from weakref import WeakKeyDictionary

from dlop.embedded.apiserver.server import ApiServer
from dlop.embedded.apiserver.store import Key, Store, StoreCursor, StoredObject, StoreEvent
from dlop.embedded.cluster import EmbeddedCluster


def add_stale_server(cluster: EmbeddedCluster, *, version: int | None = None) -> tuple[ApiServer, StaleView]:
    """Add an API server that shows the store as of `version`, by default the current one, until its view advances."""
    view = StaleView(cluster.store, version=version)
    return cluster.add_server(view), view


class StaleView:
    """The store as of a version that moves only when it is told to."""

    def __init__(self, store: Store, *, version: int | None = None) -> None:
        """By default the view stays at what the store holds now."""
        self._store = store
        self._version = store.version if version is None else version
        # In the order in which they came, unlike a set: the same run shall go the same way every time.
        self._cursors: WeakKeyDictionary[StaleCursor, None] = WeakKeyDictionary()

    @property
    def version(self) -> int:
        """The version of the newest change that is seen."""
        return self._version

    @property
    def floor(self) -> int:
        """Versions below this are refused."""
        return self._store.floor

    def advance(self, version: int | None = None) -> None:
        """See everything up to a version, by default all that there is now."""
        self._version = max(self._version, self._store.version if version is None else version)
        for cursor in self._cursors:
            cursor.wake()

    def get(self, key: Key) -> StoredObject | None:
        """The object as it is seen."""
        for found, stored in self.list(key.storage, namespace=key.namespace):
            if found == key:
                return stored
        return None

    def list(
        self, storage: str, *, namespace: str = "", version: int | None = None, after: tuple[str, str] | None = None
    ) -> Iterator[tuple[Key, StoredObject]]:
        """The objects in key order as they are seen, or at an even older version."""
        seen = self._version if version is None else min(version, self._version)
        return self._store.list(storage, namespace=namespace, version=seen, after=after)

    def cursor(self, storage: str, *, since: int) -> StaleCursor:
        """A place in the history that ends where the view ends."""
        cursor = StaleCursor(self, self._store.cursor(storage, since=since))
        self._cursors[cursor] = None
        return cursor


class StaleCursor:
    """A reader's place that waits at the end of what the view sees."""

    def __init__(self, view: StaleView, cursor: StoreCursor) -> None:
        self._view = view
        self._cursor = cursor
        self._ahead: list[StoreEvent] = []  # taken from the store, not seen yet
        self._waiter: asyncio.Future[None] | None = None
        self.version = cursor.version

    def take(self, at_most: int = 1000) -> list[StoreEvent]:
        """The next changes that are seen, oldest first."""
        self._ahead += self._cursor.take(at_most)
        seen = [change for change in self._ahead if change.version <= self._view.version]
        self._ahead = self._ahead[len(seen) :]
        if seen:
            self.version = seen[-1].version
        return seen

    async def wait(self) -> None:
        """Return when the view has moved, or when somebody calls `wake`."""
        await self.wait_for_wake()

    async def wait_for_wake(self) -> None:
        """Return when somebody calls `wake`."""
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def wake(self) -> None:
        """End a wait that is under way."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
