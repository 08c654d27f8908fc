"""Keeps Python's garbage collector out of the way of the event loop, and gives back what only the start needed.

A full collection walks through every container object of the process, and the loop stands still meanwhile. Most of what
there is to walk through is code: it was loaded at the start and stays until the end.
"""

from __future__ import annotations

import ctypes
import gc

# Collections that come often enough to be short, and seldom enough to cost little: by default there is one for every 700
# new objects, which is a single answer of the server.
_THRESHOLDS = (10_000, 20, 50)


def tune_garbage_collection() -> None:
    """Leave all that is loaded by now out of every later collection. To be called once a program is about to begin its work."""
    gc.set_threshold(*_THRESHOLDS)
    gc.collect()
    gc.freeze()


def give_back_memory() -> None:
    """Give the system back what long lists needed for a moment. The C library would keep it for ever, where it can be asked."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
