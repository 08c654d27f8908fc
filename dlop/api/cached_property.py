"""`cached_property` without a lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class cached_property(Generic[T]):  # noqa: N801 - used as a decorator, like the built-in property
    """Like `functools.cached_property`, without the lock that it takes before Python 3.12: every pass evaluates a dozen of these."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self._name = ""
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        # This is a non-data descriptor: the entry in the instance's __dict__ takes precedence from now on.
        value = instance.__dict__[self._name] = self._compute(instance)
        return value
