"""Print log lines, prefixed with their replica in its own color."""

from __future__ import annotations

import sys

from dlop.console.output import Output
from dlop.console.progress import with_label
from dlop.jobs.log_lines import LogLine

_COLORS = ("cyan", "green", "magenta", "blue", "yellow", "bright_cyan", "bright_green", "bright_magenta", "bright_blue", "bright_yellow")


class LogOutput:
    """Prints log lines. Notes about logs go to standard error."""

    def __init__(
        self, output: Output, *, timestamps: bool = False, as_json: bool = False, prefixes: bool = True, notes: Output | None = None
    ) -> None:
        self._output = output
        self._notes = notes or Output(sys.stderr)
        self._timestamps = timestamps
        self._as_json = as_json
        self._prefixes = prefixes
        self._width = 0
        self._colors: dict[str, str] = {}

    def write(self, line: LogLine) -> None:
        if self._as_json:
            self._output.json(line, on_one_line=True)
        elif line.is_note:
            self._notes.line(f"{self._prefix(line)}({line.text})", style="dim")
        else:
            self._write_text(line)

    def _write_text(self, line: LogLine) -> None:
        timestamp = f"{line.time} " if self._timestamps and line.time else ""
        prefix = self._prefix(line) if self._prefixes else ""
        if self._output.is_terminal and prefix:
            self._output.console.print(prefix, style=self._color(line), end="", markup=False, soft_wrap=True)
        self._output.line(f"{'' if self._output.is_terminal else prefix}{timestamp}{line.text}")

    def _prefix(self, line: LogLine) -> str:
        name = prefix_of(line)
        self._width = max(self._width, len(name))
        return f"{name:<{self._width}} | "

    def _color(self, line: LogLine) -> str:
        return self._colors.setdefault(line.pod, _COLORS[len(self._colors) % len(_COLORS)])


def prefix_of(line: LogLine, *, job_label: str = "") -> str:
    """`worker-0`, or the pod name if the role is unknown; `worker-0#2` for the second run. After the label of the job, if it has one."""
    name = with_label(f"{line.role.lower()}-{line.index}" if line.role else line.pod, job_label)
    return f"{name}#{line.run + 1}" if line.run > 0 else name
