"""Tunes Python's garbage collector, and returns memory to the operating system after startup.

A full collection visits every container object and blocks the event loop. Most of these objects are code and, with many jobs, the state
of jobs. Both are rarely part of a reference cycle, so they are excluded from later collections.
"""

from __future__ import annotations

import ctypes
import gc
import time
from typing import Any

# Python's default of 700 new objects per collection is less than one response of the API server. A collection of 10,000 objects would take
# several milliseconds.
_THRESHOLDS = (2_000, 20, 100)
_MAX_FULL_COLLECTION_SECONDS = 0.02
_FULL = 2


def tune_garbage_collection() -> None:
    """Set the thresholds, and exclude all current objects from later collections. Call it once, at the end of startup."""
    gc.set_threshold(*_THRESHOLDS)
    gc.collect()
    gc.freeze()
    gc.callbacks.append(FullCollectionLimit())


class FullCollectionLimit:
    """Excludes all current objects from later collections if a full collection has taken too long.

    Unreachable cycles of these objects are not freed. Their number is small, because the next exclusion needs as many new objects.
    """

    def __init__(self) -> None:
        self._started_at = 0.0

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        if info["generation"] != _FULL:
            return
        if phase == "start":
            self._started_at = time.thread_time()
        elif time.thread_time() - self._started_at > _MAX_FULL_COLLECTION_SECONDS:
            gc.freeze()


def release_free_memory() -> None:
    """Return the free memory that the initial lists needed to the operating system. Does nothing without glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
