"""Read-your-writes gate: an owner is not reconciled before the caches show the last writes for it.

The resourceVersion of every write is recorded for the owner. `ready` compares it with the versions of the caches. If a
cache is behind, the caller is notified once, as soon as it has caught up. Nothing polls. A cache that does not catch up
in time (its watch sends no bookmarks, or etcd was restored from a backup) is refreshed from the server. A refresh that
starts after a write includes that write, regardless of the versions. A refresh that fails or takes too long is repeated
later; meanwhile the other caches are refreshed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from dlop.kube.errors import KubeError
from dlop.kube.resources import Resource

log = structlog.get_logger(__name__)


class VersionedCache(Protocol):
    """The part of `Cache` that the gate needs."""

    @property
    def resource_version(self) -> int:
        """The resource version that the cache shows."""
        ...

    def wait_for_version(self, resource_version: int) -> asyncio.Future[None]:
        """A future that is done as soon as the cache shows this version or a later one."""
        ...


Refresh = Callable[[Resource], Awaitable[None]]
"""Updates the cache of a resource with a consistent list."""


@dataclass(slots=True)
class _Owner:
    written: dict[Resource, int] = field(default_factory=dict)
    wake: Callable[[], None] | None = None
    waits_for: Resource | None = None
    deadline: float = 0.0
    future: asyncio.Future[None] | None = None


class ReadYourWrites:
    """The recorded writes of all owners, and the owners that wait for a cache."""

    def __init__(
        self,
        caches: Mapping[Resource, VersionedCache],
        *,
        refresh: Refresh,
        refresh_after_seconds: float = 10.0,
        refresh_timeout_seconds: float = 60.0,
    ) -> None:
        self._caches = caches
        self._refresh = refresh
        self._refresh_after_seconds = refresh_after_seconds
        self._refresh_timeout_seconds = refresh_timeout_seconds
        self._owners: dict[str, _Owner] = {}
        # In the order in which the owners started to wait, which is also the order of their deadlines.
        self._waiting: dict[str, _Owner] = {}
        self._has_waiting = asyncio.Event()

    def record_write(self, owner_uid: str, resource: Resource, resource_version: str) -> None:
        """Record the version in the response to a write. Resources without a cache and non-numeric versions are ignored."""
        if resource not in self._caches or not resource_version.isdecimal():
            return
        version = int(resource_version)
        if version <= self._caches[resource].resource_version:
            return
        written = self._owners.setdefault(owner_uid, _Owner()).written
        written[resource] = max(version, written.get(resource, 0))

    def ready(self, owner_uid: str, *, wake: Callable[[], None]) -> bool:
        """Whether the caches show all writes for the owner. If not, `wake` is called once, when they do."""
        owner = self._owners.get(owner_uid)
        if owner is None:
            return True
        stale = self._first_stale(owner)
        if stale is None:
            self.forget(owner_uid)
            return True
        owner.wake = wake
        if owner_uid not in self._waiting:
            owner.deadline = asyncio.get_running_loop().time() + self._refresh_after_seconds
            self._waiting[owner_uid] = owner
            self._has_waiting.set()
            self._wait(owner_uid, owner, stale)
        return False

    def forget(self, owner_uid: str) -> None:
        """Drop the writes of an owner. A waiting caller is not notified."""
        owner = self._owners.pop(owner_uid, None)
        self._waiting.pop(owner_uid, None)
        if owner is not None and owner.future is not None:
            owner.future.cancel()

    def __len__(self) -> int:
        """Number of owners with recorded writes."""
        return len(self._owners)

    # --- waiting -----------------------------------------------------------------------------------------------------

    def _first_stale(self, owner: _Owner) -> Resource | None:
        """The first resource whose cache does not show the owner's writes. Drops the writes that are shown.

        A resource that is no longer cached is not stale.
        """
        for resource, version in list(owner.written.items()):
            cache = self._caches.get(resource)
            if cache is not None and cache.resource_version < version:
                return resource
            del owner.written[resource]
        return None

    def _wait(self, owner_uid: str, owner: _Owner, resource: Resource) -> None:
        if owner.future is not None:
            owner.future.cancel()
        owner.waits_for = resource
        owner.future = self._caches[resource].wait_for_version(owner.written[resource])
        owner.future.add_done_callback(lambda future: None if future.cancelled() else self._recheck(owner_uid, owner))

    def _recheck(self, owner_uid: str, owner: _Owner) -> None:
        if self._waiting.get(owner_uid) is not owner:
            return
        stale = self._first_stale(owner)
        if stale is not None:
            self._wait(owner_uid, owner, stale)
            return
        self.forget(owner_uid)
        if owner.wake is not None:
            owner.wake()

    # --- caches that do not catch up ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Refresh caches that do not catch up, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            if not self._waiting:
                self._has_waiting.clear()
                await self._has_waiting.wait()
                continue  # the owner may no longer be waiting
            first = next(iter(self._waiting.values()))
            if first.deadline > loop.time():
                await asyncio.sleep(first.deadline - loop.time())
            elif first.waits_for is not None:
                await self._refresh_cache(first.waits_for)

    async def _refresh_cache(self, resource: Resource) -> None:
        written = {owner_uid: owner.written.get(resource, 0) for owner_uid, owner in self._owners.items()}
        try:
            async with asyncio.timeout(self._refresh_timeout_seconds):
                await self._refresh(resource)
        except (KubeError, TimeoutError) as error:
            log.warning("cannot refresh stale cache", resource=resource.qualified_name, error=str(error) or "timeout")
            self._extend_deadlines(resource)
            return
        for owner_uid, version in written.items():
            self._confirm_write(owner_uid, resource, version)
        self._extend_deadlines(resource)

    def _confirm_write(self, owner_uid: str, resource: Resource, version: int) -> None:
        owner = self._owners.get(owner_uid)
        if owner is None:
            return
        if owner.written.get(resource, 0) <= version:
            owner.written.pop(resource, None)
        if owner_uid in self._waiting:
            self._recheck(owner_uid, owner)

    def _extend_deadlines(self, resource: Resource) -> None:
        """Move the owners that still wait for the resource behind the others, so that one cache does not keep the gate busy."""
        now = asyncio.get_running_loop().time()
        overdue = [owner_uid for owner_uid, owner in self._waiting.items() if owner.waits_for == resource and owner.deadline <= now]
        for owner_uid in overdue:
            owner = self._waiting.pop(owner_uid)
            owner.deadline = now + self._refresh_after_seconds
            self._waiting[owner_uid] = owner
