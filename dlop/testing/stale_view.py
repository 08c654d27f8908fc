"""An API server with a stale watch cache.

In a highly available control plane, every API server has its own watch cache, and one may lag behind. Its reads and watches show an
older version, a list of a newer version must be retried, and writes go to the current store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from weakref import WeakKeyDictionary

from dlop.embedded.apiserver.server import ApiServer
from dlop.embedded.apiserver.store import ObjectKey, Store, StoreCursor, StoredObject, StoreEvent
from dlop.embedded.cluster import EmbeddedCluster


def add_stale_server(cluster: EmbeddedCluster, *, version: int | None = None) -> tuple[ApiServer, StaleView]:
    """Add an API server that shows the store as of `version`, by default the current one, until its view advances."""
    view = StaleView(cluster.store, version=version)
    return cluster.add_server(view), view


class StaleView:
    """The store as of a version that changes only by `advance`."""

    def __init__(self, store: Store, *, version: int | None = None) -> None:
        """`version` defaults to the current version of the store."""
        self._store = store
        self._version = store.version if version is None else version
        # Not a set, because its order would not be reproducible.
        self._cursors: WeakKeyDictionary[StaleCursor, None] = WeakKeyDictionary()

    @property
    def version(self) -> int:
        """The version of the newest visible change."""
        return self._version

    @property
    def floor(self) -> int:
        """The oldest version that is not compacted."""
        return self._store.floor

    def advance(self, version: int | None = None) -> None:
        """Show all changes up to a version, by default the current one."""
        self._version = max(self._version, self._store.version if version is None else version)
        for cursor in self._cursors:
            cursor.wake()

    def get(self, key: ObjectKey) -> StoredObject | None:
        for listed_key, stored in self.list(key.storage, namespace=key.namespace):
            if listed_key == key:
                return stored
        return None

    def list(
        self, storage: str, *, namespace: str = "", version: int | None = None, after: tuple[str, str] | None = None
    ) -> Iterator[tuple[ObjectKey, StoredObject]]:
        """The visible objects in key order, or those of an even older version."""
        visible = self._version if version is None else min(version, self._version)
        return self._store.list(storage, namespace=namespace, version=visible, after=after)

    def cursor(self, storage: str, *, since: int) -> StaleCursor:
        """A cursor over the visible changes."""
        cursor = StaleCursor(self, self._store.cursor(storage, since=since))
        self._cursors[cursor] = None
        return cursor


class StaleCursor:
    """A cursor that stops at the version of the view."""

    def __init__(self, view: StaleView, cursor: StoreCursor) -> None:
        self._view = view
        self._cursor = cursor
        self._ahead: list[StoreEvent] = []  # read from the store, not visible yet
        self._waiter: asyncio.Future[None] | None = None
        self.version = cursor.version

    def take(self, at_most: int = 1000) -> list[StoreEvent]:
        """The next visible changes, oldest first."""
        self._ahead += self._cursor.take(at_most)
        visible = [change for change in self._ahead if change.version <= self._view.version]
        self._ahead = self._ahead[len(visible) :]
        if visible:
            self.version = visible[-1].version
        return visible

    async def wait(self) -> None:
        """Wait until the view advances or `wake` is called."""
        await self.wait_for_wake()

    async def wait_for_wake(self) -> None:
        """Wait until `wake` is called."""
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def wake(self) -> None:
        """End the current wait."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
