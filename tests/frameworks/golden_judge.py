"""Lays what a recording has beside what was found, and says what is wrong. Nothing here talks to anybody.

What may differ is written down in `golden_differences`; everything else is wrong. An object that is allowed to be missing when the
objects were recorded has to be as recorded once it is there, and it has to come.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dlop.kube.types import JsonObject
from tests.frameworks.golden_comparison import ABSENT, Difference, differences
from tests.frameworks.golden_differences import Allowed, allowed_for

IN_THE_END = "in the end"

Objects = dict[str, JsonObject]
"""By their paths: `objects.pods[demo-worker-0]`."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A part of a recording, and what was found in its place."""

    moment: str
    path: str
    recorded: Any
    ours: Any

    @property
    def differences(self) -> list[Difference]:
        """Every place where the two are not the same."""
        return list(differences(self.recorded, self.ours, moment=self.moment, path=self.path))


@dataclass(slots=True)
class Report:
    """What came of it: what is wrong, which of the allowed differences there were, and all that was compared."""

    wrong: list[Difference] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    compared: list[Comparison] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join(str(difference) for difference in self.wrong)


class Judge:
    """The one who decides, for one recording."""

    def __init__(self, golden: str, recording: JsonObject) -> None:
        self.report = Report()
        self._recording = recording
        self._allowed = allowed_for(golden)
        self._awaited: Objects = {}

    @property
    def awaits_objects(self) -> bool:
        """Whether objects that were recorded have not been seen yet."""
        return bool(self._awaited)

    def wrong(self, comparison: Comparison) -> list[Difference]:
        """What is different and must not be."""
        return [difference for difference in comparison.differences if self._reason(difference) is None]

    def keep(self, comparison: Comparison) -> None:
        """Put it into the report."""
        self.report.compared.append(comparison)
        self.report.wrong += self.wrong(comparison)
        self.report.used |= {reason.name for each in comparison.differences if (reason := self._reason(each))}

    def compare_objects(self, moment: str, recorded: Objects, ours: Objects) -> None:
        """All objects of a moment. One that may be missing is awaited."""
        for path in sorted(recorded.keys() | ours.keys()):
            comparison = Comparison(moment, path, recorded.get(path, ABSENT), ours.get(path, ABSENT))
            if comparison.ours is ABSENT and not self.wrong(comparison):
                self._awaited[path] = recorded[path]
            self.keep(comparison)

    def compare_awaited(self, moment: str, ours: Objects) -> None:
        """Those that have come since."""
        for path in sorted(self._awaited.keys() & ours.keys()):
            self.keep(Comparison(moment, path, self._awaited.pop(path), ours[path]))

    def close(self) -> None:
        """Nothing more will come."""
        for path, recorded in self._awaited.items():
            self.keep(Comparison(IN_THE_END, path, recorded, ABSENT))

    def _reason(self, difference: Difference) -> Allowed | None:
        return next((allowed for allowed in self._allowed if allowed.covers(difference, self._recording)), None)
