"""Tunes Python's garbage collector, and returns memory to the operating system after startup.

A full collection visits every container object and blocks the event loop. Most of these objects are code, which is loaded
at startup and never freed.
"""

from __future__ import annotations

import ctypes
import gc

# Python's default of 700 new objects per collection is less than one response of the API server.
_THRESHOLDS = (10_000, 20, 50)


def tune_garbage_collection() -> None:
    """Raise the thresholds, and exclude all current objects from later collections. Call it once, at the end of startup."""
    gc.set_threshold(*_THRESHOLDS)
    gc.collect()
    gc.freeze()


def release_free_memory() -> None:
    """Return the free memory that the initial lists needed to the operating system. Does nothing without glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
