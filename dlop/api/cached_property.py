"""A property that is found out when it is first asked for, and kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class cached_property(Generic[T]):  # noqa: N801 - it is written like the built-in property
    """Like `functools.cached_property`, without the lock that it takes before Python 3.12: a pass has a dozen of these."""

    def __init__(self, find_out: Callable[[Any], T]) -> None:
        self._find_out = find_out
        self._name = ""
        self.__doc__ = find_out.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        # What the instance itself has goes before this: it is not asked for again.
        found = instance.__dict__[self._name] = self._find_out(instance)
        return found
