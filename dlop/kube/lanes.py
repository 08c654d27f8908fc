"""Ready keys in line: first in, first out within a namespace, and namespaces take turns. Every step is O(1)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Item(Generic[K]):
    """All that is known of one key: the entry that waits for it, if any, and the work going on, if any."""

    __slots__ = ("due", "key", "namespace", "pending_initial", "ready", "ready_since", "started_at", "work_initial")

    def __init__(self, key: K, namespace: str) -> None:
        self.key = key
        self.namespace = namespace
        self.ready = False
        self.ready_since = 0.0
        self.due: float | None = None
        self.pending_initial = True
        self.started_at: float | None = None
        self.work_initial = False

    @property
    def is_idle(self) -> bool:
        """Neither waiting nor being worked on."""
        return not self.ready and self.due is None and self.started_at is None


class Lane(Generic[K]):
    """Ready keys of one priority: first in, first out within a namespace, and namespaces take turns."""

    def __init__(self) -> None:
        self._turns: OrderedDict[str, OrderedDict[K, Item[K]]] = OrderedDict()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def push(self, item: Item[K]) -> None:
        """Line up behind the other keys of the namespace."""
        keys = self._turns.get(item.namespace)
        if keys is None:
            keys = self._turns[item.namespace] = OrderedDict()
        keys[item.key] = item
        self._length += 1

    def pop(self) -> Item[K]:
        """The oldest key of the namespace whose turn it is; the namespace then goes to the end of the row."""
        namespace, keys = self._turns.popitem(last=False)
        _, item = keys.popitem(last=False)
        if keys:
            self._turns[namespace] = keys
        self._length -= 1
        return item

    def remove(self, item: Item[K]) -> None:
        """Leave the lane without having been handed out."""
        keys = self._turns[item.namespace]
        del keys[item.key]
        if not keys:
            del self._turns[item.namespace]
        self._length -= 1
