"""What was asked of the server for an owner and has not shown up in the cache yet.

A create is expected by name and a delete by uid, before the call is made. It ends when the cache shows it, or when the
server's answer says that it will not happen. When no answer came, nobody knows: then, after a short while, the server
itself is asked about that name, again and again until it answers. It is asked as well about creates that a list in place
of a watch has not shown: those objects may have come and gone. There are no counters that could go wrong and no time
after which an expectation is simply given up. Expectations save work; correctness never rests on them.
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
    """An object that belongs to an owner. Where its deletion is expected, `uid` tells it from its namesakes."""

    resource: Resource
    namespace: str
    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a look at the server has shown of a child that nobody was sure about."""

    owner_uid: str
    child: Child
    resource_version: str | None
    """Of the object of that name; None when there is none."""


Look = Callable[[Child], Awaitable[str | None]]
"""Asks the server for the object of a child's name: its resourceVersion, or None when there is none."""


class Expectations:
    """Expected creates and deletes of every owner."""

    def __init__(self, *, look: Look, on_resolved: Callable[[Resolved], None], resolve_after_seconds: float = 2.0) -> None:
        self._look = look
        self._on_resolved = on_resolved
        self._resolve_after_seconds = resolve_after_seconds
        # Each expectation has a number, so that an old doubt is never taken for one about a later call for the same name.
        self._owners: dict[str, dict[Child, int]] = {}
        self._numbers = itertools.count()
        self._doubts: asyncio.Queue[tuple[str, Child, int]] = asyncio.Queue()

    # --- around a call -----------------------------------------------------------------------------------------------

    def expect(self, owner_uid: str, child: Child) -> None:
        """Note a create (a child without uid) or a delete (one with) that is about to be asked for."""
        self._owners.setdefault(owner_uid, {})[child] = next(self._numbers)

    def settle(self, owner_uid: str, child: Child) -> None:
        """The child was seen in the cache as expected, was there already, or the server refused."""
        children = self._owners.get(owner_uid)
        if children is None:
            return
        children.pop(child, None)
        if not children:
            del self._owners[owner_uid]

    def doubt(self, owner_uid: str, child: Child) -> None:
        """The call was sent and no answer came: ask the server, unless the cache shows the child first."""
        number = self._number(owner_uid, child)
        if number is not None:
            self._doubts.put_nowait((owner_uid, child, number))

    def doubt_creates(self, resource: Resource) -> None:
        """The cache may have missed objects that are gone again: ask the server about every create that is still expected."""
        for owner_uid, children in self._owners.items():
            for child, number in children.items():
                if child.resource == resource and not child.uid:
                    self._doubts.put_nowait((owner_uid, child, number))

    def forget(self, owner_uid: str) -> None:
        """The owner is gone."""
        self._owners.pop(owner_uid, None)

    # --- asking ------------------------------------------------------------------------------------------------------

    def expects(self, owner_uid: str, child: Child) -> bool:
        """Whether this very create or delete is under way."""
        return self._number(owner_uid, child) is not None

    def are_met(self, owner_uid: str) -> bool:
        """Whether nothing is under way for the owner."""
        return owner_uid not in self._owners

    def __len__(self) -> int:
        """How many owners something is expected for."""
        return len(self._owners)

    # --- resolving doubts --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Resolve doubts until cancelled. Belongs into the task group of whoever uses the expectations."""
        async with asyncio.TaskGroup() as group:
            while True:
                owner_uid, child, number = await self._doubts.get()
                group.create_task(self._resolve(owner_uid, child, number), name=f"resolve {child.resource.plural}/{child.name}")

    async def _resolve(self, owner_uid: str, child: Child, number: int) -> None:
        while True:
            await asyncio.sleep(self._resolve_after_seconds)
            if self._number(owner_uid, child) != number:
                return
            try:
                resource_version = await self._look(child)
            except KubeError as error:
                log.warning("cannot find out whether a write happened", child=child.name, namespace=child.namespace, error=str(error))
                continue
            if self._number(owner_uid, child) == number:
                self.settle(owner_uid, child)
                self._on_resolved(Resolved(owner_uid, child, resource_version))
            return

    def _number(self, owner_uid: str, child: Child) -> int | None:
        children = self._owners.get(owner_uid)
        return None if children is None else children.get(child)
