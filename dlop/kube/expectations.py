"""Writes of an owner that the cache does not show yet.

A create is expected by name and a delete by uid, before the call is made. An expectation ends when the cache shows the
change, or when the server's response says that it will not happen. If the outcome of a call is unknown, the object is
read from the server after a short delay, with retries and back-off until the server responds. Objects whose creates a relist
did not show are also read, because they may have been created and deleted in between. However often a call is marked as
uncertain, its object is read once, and only a few objects are read at the same time.

There are no counters that could drift, and expectations never expire. Expectations save work; correctness does not
depend on them.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

import structlog

from dlop.kube.errors import KubeError
from dlop.kube.resources import Resource
from dlop.kube.workqueue import RetryDelays, WorkQueue

log = structlog.get_logger(__name__)

# Less than the read slots of a client, so that lookups that time out do not block other reads.
_PARALLEL_LOOKUPS = 8
_MAX_RETRY_SECONDS = 20.0


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


class _UncertainCall(NamedTuple):
    owner_uid: str
    child: Child
    number: int


Lookup = Callable[[Child], Awaitable[str | None]]
"""Gets the object with a child's name from the server. Returns its resourceVersion, or None if it does not exist."""


class Expectations:
    """Expected creates and deletes of all owners."""

    def __init__(
        self,
        *,
        lookup: Lookup,
        on_resolved: Callable[[ResolvedExpectation], None],
        rng: Random,
        resolve_after_seconds: float = 2.0,
    ) -> None:
        self._lookup = lookup
        self._on_resolved = on_resolved
        self._resolve_after_seconds = resolve_after_seconds
        # Numbered, so that an uncertain call is not confused with a later call for the same name.
        self._owners: dict[str, dict[Child, int]] = {}
        self._numbers = itertools.count()
        self._uncertain: WorkQueue[_UncertainCall] = WorkQueue(
            rng=rng,
            retry_delays=RetryDelays(base_seconds=2 * resolve_after_seconds, cap_seconds=_MAX_RETRY_SECONDS),
            namespace_of=lambda call: call.child.namespace,
        )

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
            self._uncertain.add_after(_UncertainCall(owner_uid, child, number), self._resolve_after_seconds)

    def mark_creates_uncertain(self, resource: Resource) -> None:
        """After a relist, ask the server about every create that is still expected: the object may be deleted already.

        A lookup that waits for its back-off is made sooner, because the server responds again.
        """
        for owner_uid, children in self._owners.items():
            for child, number in children.items():
                if child.resource == resource and not child.uid:
                    self._uncertain.add_after(_UncertainCall(owner_uid, child, number), self._resolve_after_seconds)

    def forget(self, owner_uid: str) -> None:
        """Drop all expectations of a deleted owner."""
        self._owners.pop(owner_uid, None)

    def clear(self) -> None:
        """Drop all expectations."""
        self._owners.clear()

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
            for number in range(_PARALLEL_LOOKUPS):
                group.create_task(self._resolve_calls(), name=f"resolve uncertain calls {number}")

    async def _resolve_calls(self) -> None:
        while True:
            call = await self._uncertain.get()
            try:
                await self._resolve(call)
            finally:
                self._uncertain.done(call)

    async def _resolve(self, call: _UncertainCall) -> None:
        owner_uid, child, number = call
        if self._number(owner_uid, child) == number:
            try:
                resource_version = await self._lookup(child)
            except KubeError as error:
                log.warning("cannot resolve uncertain write", child=child.name, namespace=child.namespace, error=str(error))
                self._uncertain.add_rate_limited(call)
                return
            if self._number(owner_uid, child) == number:
                self.observe(owner_uid, child)
                self._on_resolved(ResolvedExpectation(owner_uid, child, resource_version))
        self._uncertain.forget(call)

    def _number(self, owner_uid: str, child: Child) -> int | None:
        children = self._owners.get(owner_uid)
        return None if children is None else children.get(child)
