"""Figures, their goals, and how they are told: what all benchmarks share."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kubernetes_build import KUBERNETES_VERSION, AssetsError, ensure_assets
from real_cluster import ClusterError


class MeasureError(Exception):
    """Something could not be measured; the message says what and why."""


@dataclass(frozen=True)
class Goal:
    """What a figure is to be: at most, or at least, or neither."""

    at_most: float | None = None
    at_least: float | None = None

    def __str__(self) -> str:
        """In a few characters; empty where there is none."""
        if self.at_most is not None:
            return f"<= {self.at_most:,g}"
        return "" if self.at_least is None else f">= {self.at_least:,g}"

    def met(self, value: float | None) -> bool | None:
        """Whether it is met; None where there is no goal or no figure."""
        if value is None:
            return None
        if self.at_most is not None:
            return value <= self.at_most
        return None if self.at_least is None else value >= self.at_least


@dataclass(frozen=True)
class Row:
    """One figure and its goal: at most, or at least."""

    name: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None
    beside: float | None = None
    """The same figure of something else, measured in the same run."""

    @property
    def goal(self) -> Goal:
        """What the figure itself is to be."""
        return Goal(self.at_most, self.at_least)

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None where there is none."""
        return self.goal.met(self.value)

    @property
    def ratio(self) -> float | None:
        """The figure against the one beside it; None where there is none, or nothing to divide by."""
        return self.value / self.beside if self.beside else None


def parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """The arguments that every benchmark takes."""
    made = argparse.ArgumentParser(prog=f"hack/bench {name}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    made.add_argument("--quick", action="store_true", help="measure next to nothing: is everything there?")
    return made


def tell(measure: Callable[[], list[Row]], *, json_path: Path | None, needs_control_plane: bool = True, beside: str = "") -> int:
    """Measure, print the table, write the figures where they are wanted, and return the exit code.

    `beside` says what the figures beside the figures are of.
    """
    try:
        if needs_control_plane:
            ensure_assets()
        rows = measure()
    except (AssetsError, ClusterError, MeasureError) as error:
        print(f"hack/bench: {error}", file=sys.stderr)
        return 1
    print(table(rows, beside=beside))
    if json_path is not None:
        json_path.write_text(json.dumps(report(rows), indent=2) + "\n")
    return 0


def table(rows: Sequence[Row], *, beside: str = "") -> str:
    """The figures for people; with those beside them, if something is."""
    width = max(62, *(len(row.name) + len(row.unit) + 5 for row in rows))
    more = f"  {'':6}  {beside:>10}  {'ratio':>7}" if beside else ""
    lines = [f"{'':{width}}{'measured':>10}  {'goal':>9}{more}"]
    for row in rows:
        verdict = _VERDICTS[row.met]
        line = f"{f'{row.name} ({row.unit})':{width}}{row.value:>10,.4g}  {row.goal!s:>9}  {verdict:6}"
        lines.append(f"{line}{_beside(row)}".rstrip())
    return "\n".join(lines)


_VERDICTS = {True: "met", False: "MISSED", None: ""}


def _beside(row: Row) -> str:
    if row.beside is None:
        return ""
    ratio = "" if row.ratio is None else f"{row.ratio:.3f}"
    return f"  {row.beside:>10,.4g}  {ratio:>7}"


def report(rows: Sequence[Row]) -> dict[str, object]:
    """The figures for programs."""
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "kubernetes": KUBERNETES_VERSION}
    return {"machine": machine, "rows": [{**asdict(row), "met": row.met, "ratio": row.ratio} for row in rows]}


def say(line: str) -> None:
    """Tell how it goes. The figures go to the standard output, this does not."""
    print(line, file=sys.stderr, flush=True)
