"""Read your writes: an owner is not looked at before the caches show what was last written for it.

Every write's resourceVersion is noted for the owner. `ready` compares the notes with what the caches show; if one is
behind, the caller is called back once, as soon as it has caught up. Nothing polls. A cache that does not catch up in time
(its watch sends no bookmarks, or the server's store was set back) is refreshed from the server: a refresh begun after
a write has seen that write, whatever the numbers say.
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
    """A cache that knows which version of the server's store it shows."""

    @property
    def resource_version(self) -> int:
        """The version that is shown."""
        ...

    def reached(self, resource_version: int) -> asyncio.Future[None]:
        """Done as soon as this version, or a later one, is shown."""
        ...


Refresh = Callable[[Resource], Awaitable[None]]
"""Makes the cache of a resource show at least what the server has at the time of the call (a consistent list)."""


@dataclass(slots=True)
class _Owner:
    written: dict[Resource, int] = field(default_factory=dict)
    wake: Callable[[], None] | None = None
    waits_for: Resource | None = None
    deadline: float = 0.0
    future: asyncio.Future[None] | None = None


class ReadYourWrites:
    """What was written for every owner, and who waits for it to show."""

    def __init__(self, caches: Mapping[Resource, VersionedCache], *, refresh: Refresh, patience_seconds: float = 10.0) -> None:
        self._caches = caches
        self._refresh = refresh
        self._patience_seconds = patience_seconds
        self._owners: dict[str, _Owner] = {}
        # Owners in the order in which they began to wait, and so also in the order of their deadlines.
        self._waiting: dict[str, _Owner] = {}
        self._somebody_waits = asyncio.Event()

    def wrote(self, owner_uid: str, resource: Resource, resource_version: str) -> None:
        """Note the version that a write was answered with. Resources without a cache, and what is no number, do not matter."""
        if resource not in self._caches or not resource_version.isdecimal():
            return
        version = int(resource_version)
        if version <= self._caches[resource].resource_version:
            return
        written = self._owners.setdefault(owner_uid, _Owner()).written
        written[resource] = max(version, written.get(resource, 0))

    def ready(self, owner_uid: str, *, wake: Callable[[], None]) -> bool:
        """Whether the caches show all that was written for the owner. If not, `wake` is called once, when they do."""
        owner = self._owners.get(owner_uid)
        if owner is None:
            return True
        behind = self._first_behind(owner)
        if behind is None:
            self.forget(owner_uid)
            return True
        owner.wake = wake
        if owner_uid not in self._waiting:
            owner.deadline = asyncio.get_running_loop().time() + self._patience_seconds
            self._waiting[owner_uid] = owner
            self._somebody_waits.set()
            self._wait(owner_uid, owner, behind)
        return False

    def forget(self, owner_uid: str) -> None:
        """The owner is gone, or nothing more is to be waited for."""
        owner = self._owners.pop(owner_uid, None)
        self._waiting.pop(owner_uid, None)
        if owner is not None and owner.future is not None:
            owner.future.cancel()

    def __len__(self) -> int:
        """How many owners have writes that were not yet seen to show."""
        return len(self._owners)

    # --- waiting -----------------------------------------------------------------------------------------------------

    def _first_behind(self, owner: _Owner) -> Resource | None:
        for resource, version in list(owner.written.items()):
            if self._caches[resource].resource_version < version:
                return resource
            del owner.written[resource]
        return None

    def _wait(self, owner_uid: str, owner: _Owner, resource: Resource) -> None:
        if owner.future is not None:
            owner.future.cancel()
        owner.waits_for = resource
        owner.future = self._caches[resource].reached(owner.written[resource])
        owner.future.add_done_callback(lambda future: None if future.cancelled() else self._look_again(owner_uid, owner))

    def _look_again(self, owner_uid: str, owner: _Owner) -> None:
        if self._waiting.get(owner_uid) is not owner:
            return
        behind = self._first_behind(owner)
        if behind is not None:
            self._wait(owner_uid, owner, behind)
            return
        self.forget(owner_uid)
        if owner.wake is not None:
            owner.wake()

    # --- caches that do not catch up ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Refresh caches that lag until cancelled. Belongs into the task group of whoever uses the gate."""
        loop = asyncio.get_running_loop()
        while True:
            if not self._waiting:
                self._somebody_waits.clear()
                await self._somebody_waits.wait()
                continue  # whoever came may be gone again
            first = next(iter(self._waiting.values()))
            if first.deadline > loop.time():
                await asyncio.sleep(first.deadline - loop.time())
            elif first.waits_for is not None:
                await self._catch_up(first.waits_for)

    async def _catch_up(self, resource: Resource) -> None:
        written = {owner_uid: owner.written.get(resource, 0) for owner_uid, owner in self._owners.items()}
        try:
            await self._refresh(resource)
        except KubeError as error:
            log.warning("cannot refresh a cache that lags behind", resource=resource.qualified_name, error=str(error))
            written = {}
        for owner_uid, version in written.items():
            self._has_shown(owner_uid, resource, version)
        self._be_patient_again()

    def _has_shown(self, owner_uid: str, resource: Resource, version: int) -> None:
        owner = self._owners.get(owner_uid)
        if owner is None:
            return
        if owner.written.get(resource, 0) <= version:
            owner.written.pop(resource, None)
        if owner_uid in self._waiting:
            self._look_again(owner_uid, owner)

    def _be_patient_again(self) -> None:
        now = asyncio.get_running_loop().time()
        late = [owner_uid for owner_uid, owner in self._waiting.items() if owner.deadline <= now]
        for owner_uid in late:
            owner = self._waiting.pop(owner_uid)
            owner.deadline = now + self._patience_seconds
            self._waiting[owner_uid] = owner
