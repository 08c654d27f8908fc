"""Work queue of the built-in controllers: garbage collection, namespace deletion, CRD registration.

Work that a change triggers runs after the request, in the same event loop and in order, so that runs are reproducible.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import structlog

log = structlog.get_logger(__name__)


class ObjectQueue:
    """A FIFO queue of short synchronous functions."""

    def __init__(self) -> None:
        self._pending: deque[Callable[[], None]] = deque()
        self._scheduled = False

    def add(self, work: Callable[[], None]) -> None:
        """Run `work` after the current call and after all work that was added before."""
        self._pending.append(work)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run_next)

    def _run_next(self) -> None:
        # One item per iteration of the event loop, so that the deletion of a large namespace does not block requests.
        self._scheduled = False
        work = self._pending.popleft()
        try:
            work()
        except Exception:
            # A bug in one item must not stop the queue.
            log.exception("queued work failed")
        if self._pending:
            self._schedule()
