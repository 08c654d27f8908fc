"""What was read out of specs, kept for the next pass: a job is looked at many times before its spec changes.

The key is the spec itself, so nothing can be out of date. The least used readings are dropped; a job that is looked at
again after a long time is read again.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from dlop.api.spec import JobSpec, Problem

MOST_KEPT = 1024


@dataclass(frozen=True, slots=True)
class Reading:
    """One spec: as plain data, as its kind understands it, and what is wrong with it. Shared: never to be changed."""

    raw: Any
    spec: JobSpec
    problems: tuple[Problem, ...]


class Readings:
    """Readings by kind and spec."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._kept: OrderedDict[tuple[type[Any], bytes], Reading] = OrderedDict()

    def get(self, kind: type[Any], spec: bytes) -> Reading | None:
        """The reading of a spec, if it is still known."""
        found = self._kept.get((kind, spec))
        if found is not None:
            self._kept.move_to_end((kind, spec))
        return found

    def keep(self, kind: type[Any], spec: bytes, reading: Reading) -> Reading:
        """Keep a reading, and give it back."""
        self._kept[kind, spec] = reading
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return reading

    def __len__(self) -> int:
        return len(self._kept)
