"""Results of benchmarks, their goals, and the table and JSON output."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kubernetes_build import AssetsError, ensure_assets, kubernetes_version
from real_cluster import ClusterError


class MeasureError(Exception):
    """A measurement failed."""


@dataclass(frozen=True)
class Goal:
    """An upper limit, a lower limit, or neither."""

    at_most: float | None = None
    at_least: float | None = None

    def __str__(self) -> str:
        if self.at_most is not None:
            return f"<= {self.at_most:,g}"
        return "" if self.at_least is None else f">= {self.at_least:,g}"

    def met(self, value: float | None) -> bool | None:
        """Whether the goal is met; None without a goal or a value."""
        if value is None:
            return None
        if self.at_most is not None:
            return value <= self.at_most
        return None if self.at_least is None else value >= self.at_least


@dataclass(frozen=True)
class Row:
    """One result and its goal."""

    name: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None
    reference: float | None = None
    """The same result of the reference kind, measured in the same run."""

    @property
    def goal(self) -> Goal:
        return Goal(self.at_most, self.at_least)

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None without a goal."""
        return self.goal.met(self.value)

    @property
    def ratio(self) -> float | None:
        """The value divided by the reference; None without a reference or if it is 0."""
        return self.value / self.reference if self.reference else None


def build_parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """The arguments that all benchmarks share."""
    parser = argparse.ArgumentParser(
        prog=f"hack/bench {name}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to this file")
    parser.add_argument("--quick", action="store_true", help="only check that all measurements work")
    return parser


def run_benchmark(
    measure: Callable[[], list[Row]], *, json_path: Path | None, needs_control_plane: bool = True, reference: str = ""
) -> int:
    """Measure, print the table, write the JSON file, and return the exit code.

    `reference` is the title of the column with the reference results; empty without one.
    """
    try:
        if needs_control_plane:
            ensure_assets()
        rows = measure()
    except (AssetsError, ClusterError, MeasureError) as error:
        print(f"hack/bench: {error}", file=sys.stderr)
        return 1
    print(table(rows, reference=reference))
    if json_path is not None:
        json_path.write_text(json.dumps(to_json(rows), indent=2) + "\n")
    return 0


def table(rows: Sequence[Row], *, reference: str = "") -> str:
    """The results as a table, with a reference column if `reference` is not empty."""
    width = max(62, *(len(row.name) + len(row.unit) + 5 for row in rows))
    extra = f"  {'':6}  {reference:>10}  {'ratio':>7}" if reference else ""
    lines = [f"{'':{width}}{'measured':>10}  {'goal':>9}{extra}"]
    for row in rows:
        verdict = _VERDICTS[row.met]
        line = f"{f'{row.name} ({row.unit})':{width}}{row.value:>10,.4g}  {row.goal!s:>9}  {verdict:6}"
        lines.append(f"{line}{_format_reference(row)}".rstrip())
    return "\n".join(lines)


_VERDICTS = {True: "met", False: "MISSED", None: ""}


def _format_reference(row: Row) -> str:
    if row.reference is None:
        return ""
    ratio = "" if row.ratio is None else f"{row.ratio:.3f}"
    return f"  {row.reference:>10,.4g}  {ratio:>7}"


def to_json(rows: Sequence[Row]) -> dict[str, object]:
    """The results as JSON."""
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "kubernetes": kubernetes_version()}
    return {"machine": machine, "rows": [{**asdict(row), "met": row.met, "ratio": row.ratio} for row in rows]}


def log_progress(line: str) -> None:
    """Print a line to standard error, because standard output is for the results."""
    print(line, file=sys.stderr, flush=True)
