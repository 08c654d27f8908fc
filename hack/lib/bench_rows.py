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
class Row:
    """One figure and its goal: at most, or at least."""

    name: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def goal(self) -> str:
        """The goal in a few characters; empty where there is none."""
        if self.at_most is not None:
            return f"<= {self.at_most:,g}"
        return "" if self.at_least is None else f">= {self.at_least:,g}"

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None where there is none."""
        if self.at_most is not None:
            return self.value <= self.at_most
        return None if self.at_least is None else self.value >= self.at_least


def parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """The arguments that every benchmark takes."""
    made = argparse.ArgumentParser(prog=f"hack/bench {name}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    made.add_argument("--quick", action="store_true", help="measure next to nothing: is everything there?")
    return made


def tell(measure: Callable[[], list[Row]], *, json_path: Path | None, needs_control_plane: bool = True) -> int:
    """Measure, print the table, write the figures where they are wanted, and return the exit code."""
    try:
        if needs_control_plane:
            ensure_assets()
        rows = measure()
    except (AssetsError, ClusterError, MeasureError) as error:
        print(f"hack/bench: {error}", file=sys.stderr)
        return 1
    print(table(rows))
    if json_path is not None:
        json_path.write_text(json.dumps(report(rows), indent=2) + "\n")
    return 0


def table(rows: Sequence[Row]) -> str:
    """The figures for people."""
    width = max(62, *(len(row.name) + len(row.unit) + 5 for row in rows))
    lines = [f"{'':{width}}{'measured':>10}  {'goal':>9}"]
    for row in rows:
        verdict = {True: "met", False: "MISSED", None: ""}[row.met]
        lines.append(f"{f'{row.name} ({row.unit})':{width}}{row.value:>10,.4g}  {row.goal:>9}  {verdict}".rstrip())
    return "\n".join(lines)


def report(rows: Sequence[Row]) -> dict[str, object]:
    """The figures for programs."""
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "kubernetes": KUBERNETES_VERSION}
    return {"machine": machine, "rows": [{**asdict(row), "met": row.met} for row in rows]}


def say(line: str) -> None:
    """Tell how it goes. The figures go to the standard output, this does not."""
    print(line, file=sys.stderr, flush=True)
