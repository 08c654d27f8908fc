"""Lines of logs: who wrote them, in a colour of their own."""

from __future__ import annotations

import sys

from dlop.console.output import Screen
from dlop.jobs.log_lines import LogLine

_COLOURS = ("cyan", "green", "magenta", "blue", "yellow", "bright_cyan", "bright_green", "bright_magenta", "bright_blue", "bright_yellow")


class LogOutput:
    """Writes lines as they come. Notes are no part of any log, and go to the standard error."""

    def __init__(
        self, screen: Screen, *, timestamps: bool = False, as_json: bool = False, prefixes: bool = True, notes: Screen | None = None
    ) -> None:
        self._screen = screen
        self._notes = notes or Screen(sys.stderr)
        self._timestamps = timestamps
        self._as_json = as_json
        self._prefixes = prefixes
        self._width = 0
        self._colours: dict[str, str] = {}

    def write(self, line: LogLine) -> None:
        """One more line."""
        if self._as_json:
            self._screen.json(line, on_one_line=True)
        elif line.is_note:
            self._notes.line(f"{self._prefix(line)}({line.text})", style="dim")
        else:
            self._write_text(line)

    def _write_text(self, line: LogLine) -> None:
        moment = f"{line.time} " if self._timestamps and line.time else ""
        prefix = self._prefix(line) if self._prefixes else ""
        if self._screen.is_terminal and prefix:
            self._screen.console.print(prefix, style=self._colour(line), end="", markup=False, soft_wrap=True)
        self._screen.line(f"{'' if self._screen.is_terminal else prefix}{moment}{line.text}")

    def _prefix(self, line: LogLine) -> str:
        name = prefix_of(line)
        self._width = max(self._width, len(name))
        return f"{name:<{self._width}} | "

    def _colour(self, line: LogLine) -> str:
        return self._colours.setdefault(line.pod, _COLOURS[len(self._colours) % len(_COLOURS)])


def prefix_of(line: LogLine) -> str:
    """`worker-0`, or the pod where the role is not known; with the number of the run from the second on."""
    name = f"{line.role.lower()}-{line.index}" if line.role else line.pod
    return f"{name}#{line.run + 1}" if line.run > 0 else name
