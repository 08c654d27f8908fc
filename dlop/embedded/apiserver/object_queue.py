"""What the server does on its own after a change: garbage collection, emptying namespaces, establishing CRDs.

Such work is noted while the change is made and carried out right after it, one piece at a time and in order, in the
same event loop. So it never happens inside a request, as on the real server, and yet always in the same order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import structlog

log = structlog.get_logger(__name__)


class Background:
    """A queue of small synchronous pieces of work."""

    def __init__(self) -> None:
        self._noted: deque[Callable[[], None]] = deque()
        self._scheduled = False

    def later(self, work: Callable[[], None]) -> None:
        """Do `work` after the current call, behind everything noted before it."""
        self._noted.append(work)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._work_one)

    def _work_one(self) -> None:
        # One piece a turn of the loop: emptying a large namespace must not keep requests waiting.
        self._scheduled = False
        work = self._noted.popleft()
        try:
            work()
        except Exception:
            # A bug in one piece must not end garbage collection for the rest of the cluster's life.
            log.exception("background work failed")
        if self._noted:
            self._schedule()
