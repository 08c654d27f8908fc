"""What many objects have in common is kept once: a job's pods have one owner, and all the pods of a cluster a few words."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, TypeVar

# When there are more they are all let go, and kept anew as they come: objects that have much in common come together.
MOST_KEPT = 16_384

Value = TypeVar("Value", bound=Hashable)


class Interner:
    """Values that cannot change, each of them once."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._kept: dict[Any, Any] = {}

    def one(self, value: Value) -> Value:
        """The first one of all that are equal to this one."""
        if len(self._kept) >= self._most:
            self._kept.clear()
        kept: Value = self._kept.setdefault(value, value)
        return kept

    def __len__(self) -> int:
        return len(self._kept)
