"""Who is told of the changes of a cache, and how: at once, in order, and one that fails does not hurt the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic

import structlog

from dlop.kube.cache import Change
from dlop.kube.cooperative import Slices
from dlop.kube.objects import T

log = structlog.get_logger(__name__)

Handler = Callable[[Change[T]], None]


class Handlers(Generic[T]):
    """The handlers of one resource. A handler is a plain function and quick: it notes work, it does none."""

    def __init__(self, resource_name: str, handlers: Iterable[Handler[T]]) -> None:
        self._resource_name = resource_name
        self._handlers = tuple(handlers)

    def add(self, handler: Handler[T], *, present: Iterable[T]) -> None:
        """Tell one more handler from now on, beginning with what is there already."""
        self._handlers += (handler,)
        for found in present:
            self._tell((handler,), Change(None, found, initial=True))

    def tell(self, changes: Iterable[Change[T]]) -> None:
        """Tell every handler of every change, without an await."""
        for change in changes:
            self._tell(self._handlers, change)

    async def tell_in_slices(self, changes: Iterable[Change[T]]) -> None:
        """The same for a first list of any length. Whoever is added meanwhile is told of the whole cache anyway."""
        handlers = self._handlers
        slices = Slices()
        for change in changes:
            self._tell(handlers, change)
            await slices.breathe()

    def _tell(self, handlers: tuple[Handler[T], ...], change: Change[T]) -> None:
        for handler in handlers:
            try:
                handler(change)
            except Exception:
                log.exception("a handler failed", resource=self._resource_name, name=change.object.metadata.name)
