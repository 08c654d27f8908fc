"""Writes of an owner that the cache does not show yet.

A create is expected by name and a delete by uid, before the call is made. An expectation ends when the cache shows the
change, or when the server's response says that it will not happen. If the outcome of a call is unknown, the object is
read from the server after a short delay, with retries until the server responds. Objects whose creates a relist did not
show are also read, because they may have been created and deleted in between.

There are no counters that could drift, and expectations never expire. Expectations save work; correctness does not
depend on them.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

import structlog

from dlop.kube.errors import KubeError
from dlop.kube.resources import Resource

log = structlog.get_logger(__name__)


class Child(NamedTuple):
    """An object of an owner. `uid` is set for an expected delete and empty for an expected create."""

    resource: Resource
    namespace: str
    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True)
class ResolvedExpectation:
    """What the server returned for a child whose last write had an unknown outcome."""

    owner_uid: str
    child: Child
    resource_version: str | None
    """Of the object with the child's name; None if there is no such object."""


Lookup = Callable[[Child], Awaitable[str | None]]
"""Gets the object with a child's name from the server. Returns its resourceVersion, or None if it does not exist."""


class Expectations:
    """Expected creates and deletes of all owners."""

    def __init__(self, *, lookup: Lookup, on_resolved: Callable[[ResolvedExpectation], None], resolve_after_seconds: float = 2.0) -> None:
        self._lookup = lookup
        self._on_resolved = on_resolved
        self._resolve_after_seconds = resolve_after_seconds
        # Numbered, so that an uncertain call is not confused with a later call for the same name.
        self._owners: dict[str, dict[Child, int]] = {}
        self._numbers = itertools.count()
        self._uncertain: asyncio.Queue[tuple[str, Child, int]] = asyncio.Queue()

    # --- around a call -----------------------------------------------------------------------------------------------

    def expect(self, owner_uid: str, child: Child) -> None:
        """Record a create (child without uid) or a delete (child with uid). Call this before the request is sent."""
        self._owners.setdefault(owner_uid, {})[child] = next(self._numbers)

    def observe(self, owner_uid: str, child: Child) -> None:
        """End an expectation: the cache shows the change, the object already existed, or the server rejected the call."""
        children = self._owners.get(owner_uid)
        if children is None:
            return
        children.pop(child, None)
        if not children:
            del self._owners[owner_uid]

    def mark_uncertain(self, owner_uid: str, child: Child) -> None:
        """The call was sent and no response arrived. Ask the server, unless the cache shows the change first."""
        number = self._number(owner_uid, child)
        if number is not None:
            self._uncertain.put_nowait((owner_uid, child, number))

    def mark_creates_uncertain(self, resource: Resource) -> None:
        """After a relist, ask the server about every create that is still expected: the object may be deleted already."""
        for owner_uid, children in self._owners.items():
            for child, number in children.items():
                if child.resource == resource and not child.uid:
                    self._uncertain.put_nowait((owner_uid, child, number))

    def forget(self, owner_uid: str) -> None:
        """Drop all expectations of a deleted owner."""
        self._owners.pop(owner_uid, None)

    # --- queries -----------------------------------------------------------------------------------------------------

    def expects(self, owner_uid: str, child: Child) -> bool:
        return self._number(owner_uid, child) is not None

    def satisfied(self, owner_uid: str) -> bool:
        """Whether the owner has no expected creates or deletes."""
        return owner_uid not in self._owners

    def __len__(self) -> int:
        """Number of owners with expectations."""
        return len(self._owners)

    # --- resolving uncertain calls -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Resolve uncertain calls until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                owner_uid, child, number = await self._uncertain.get()
                group.create_task(self._resolve(owner_uid, child, number), name=f"resolve {child.resource.plural}/{child.name}")

    async def _resolve(self, owner_uid: str, child: Child, number: int) -> None:
        while True:
            await asyncio.sleep(self._resolve_after_seconds)
            if self._number(owner_uid, child) != number:
                return
            try:
                resource_version = await self._lookup(child)
            except KubeError as error:
                log.warning("cannot resolve uncertain write", child=child.name, namespace=child.namespace, error=str(error))
                continue
            if self._number(owner_uid, child) == number:
                self.observe(owner_uid, child)
                self._on_resolved(ResolvedExpectation(owner_uid, child, resource_version))
            return

    def _number(self, owner_uid: str, child: Child) -> int | None:
        children = self._owners.get(owner_uid)
        return None if children is None else children.get(child)
