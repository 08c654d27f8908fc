"""Jobs while they run, as plain lines: for pipes, files and CI. Where a machine reads the end, nothing is said before."""

from __future__ import annotations

from typing import Protocol, Self, TextIO

from dlop.console.log_output import prefix_of
from dlop.console.progress import changes, obstacles, title
from dlop.jobs.log_lines import LogLine
from dlop.jobs.view import JobView

_TOLD_APART_BY = 60


class JobScreen(Protocol):
    """Where jobs are followed. An async context manager."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...

    def say(self, text: str, *, style: str = "") -> None:
        """A sentence for the user; its style shows on a terminal only."""
        ...

    def show(self, view: JobView, *, elapsed_seconds: float) -> None:
        """A job has changed. The time since it was submitted stands still when it is over."""
        ...

    def hear(self, line: LogLine) -> None:
        """A replica has written something."""
        ...


class LineScreen:
    """Each line about a job has the time since it was submitted."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._views: dict[str, JobView] = {}
        self._obstacles: set[tuple[str, str]] = set()
        self._width = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """There is nothing to end."""

    def say(self, text: str, *, style: str = "") -> None:
        """A sentence for the user."""
        self._write(text)

    def show(self, view: JobView, *, elapsed_seconds: float) -> None:
        """Tell what is different."""
        moment = f"{elapsed_seconds:6.1f}s"
        for line in changes(self._views.get(view.uid), view):
            self._write(f"{moment}  {line}")
        for sentence in obstacles(view):
            # The same trouble of ever more pods ends with the same words, and is told once.
            if (view.uid, sentence[-_TOLD_APART_BY:]) not in self._obstacles:
                self._obstacles.add((view.uid, sentence[-_TOLD_APART_BY:]))
                self._write(f"{moment}  {title(view)} waits: {sentence}")
        self._views[view.uid] = view

    def hear(self, line: LogLine) -> None:
        """A replica has written something."""
        prefix = prefix_of(line)
        self._width = max(self._width, len(prefix))
        self._write(f"{prefix:{self._width}} | {line.text}")

    def _write(self, text: str) -> None:
        self._stream.write(f"{text}\n")
        self._stream.flush()


class QuietScreen(LineScreen):
    """Tells nothing but what replicas have written, if anybody wants to hear that."""

    def say(self, text: str, *, style: str = "") -> None:
        """Keep it."""

    def show(self, view: JobView, *, elapsed_seconds: float) -> None:
        """Keep it."""
