"""Checks actual values against a recording and collects unexpected differences.

Intended differences are listed in `golden_allowed_differences`. An object that may be absent when the objects were recorded must
match the recording as soon as it exists, and must exist at the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dlop.kube.types import JsonObject
from tests.frameworks.golden_allowed_differences import AllowedDifference, allowed_differences
from tests.frameworks.golden_diff import ABSENT, Difference, find_differences

AT_THE_END = "at the end"

Objects = dict[str, JsonObject]
"""Objects by path, such as `objects.pods[demo-worker-0]`."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A part of a recording and its actual counterpart."""

    step: str
    path: str
    recorded: Any
    actual: Any

    @property
    def differences(self) -> list[Difference]:
        return list(find_differences(self.recorded, self.actual, step=self.step, path=self.path))


@dataclass(slots=True)
class Report:
    """Unexpected differences, names of the allowed differences that occurred, and all comparisons."""

    unexpected: list[Difference] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    comparisons: list[Comparison] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join(str(difference) for difference in self.unexpected)


class RecordingChecker:
    """Checks one recording."""

    def __init__(self, golden: str, recording: JsonObject) -> None:
        self.report = Report()
        self._recording = recording
        self._allowed = allowed_differences(golden)
        self._awaited: Objects = {}

    @property
    def awaits_objects(self) -> bool:
        """Whether recorded objects have not been created yet."""
        return bool(self._awaited)

    def unexpected(self, comparison: Comparison) -> list[Difference]:
        return [difference for difference in comparison.differences if self._find_allowed(difference) is None]

    def add(self, comparison: Comparison) -> None:
        """Add the comparison to the report."""
        self.report.comparisons.append(comparison)
        self.report.unexpected += self.unexpected(comparison)
        self.report.used |= {allowed.name for difference in comparison.differences if (allowed := self._find_allowed(difference))}

    def compare_objects(self, step: str, recorded: Objects, actual: Objects) -> None:
        """Compare all objects after a step. An object that may be absent is awaited."""
        for path in sorted(recorded.keys() | actual.keys()):
            comparison = Comparison(step, path, recorded.get(path, ABSENT), actual.get(path, ABSENT))
            if comparison.actual is ABSENT and not self.unexpected(comparison):
                self._awaited[path] = recorded[path]
            self.add(comparison)

    def compare_awaited(self, step: str, actual: Objects) -> None:
        """Compare the awaited objects that exist now."""
        for path in sorted(self._awaited.keys() & actual.keys()):
            self.add(Comparison(step, path, self._awaited.pop(path), actual[path]))

    def close(self) -> None:
        """Report awaited objects that were never created."""
        for path, recorded in self._awaited.items():
            self.add(Comparison(AT_THE_END, path, recorded, ABSENT))

    def _find_allowed(self, difference: Difference) -> AllowedDifference | None:
        return next((allowed for allowed in self._allowed if allowed.covers(difference, self._recording)), None)
