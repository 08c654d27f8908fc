"""The virtual time of the testing kit, under the name that the tests of the plumbing know."""

from __future__ import annotations

from dlop.testing.virtual_time import Deadlock, VirtualTimeLoop, run, virtual_time

__all__ = ["Deadlock", "VirtualTimeLoop", "run", "virtual_time"]
