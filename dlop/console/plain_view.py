"""Progress of jobs as plain lines, for pipes, files and CI."""

from __future__ import annotations

from typing import Protocol, Self, TextIO

from dlop.console.log_output import prefix_of
from dlop.console.progress import blocking_reasons, describe_changes, job_title
from dlop.jobs.log_lines import LogLine
from dlop.jobs.view import JobView

_COMPARED_CHARACTERS = 60


class ProgressView(Protocol):
    """Shows the progress of jobs. An async context manager."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...

    def print_message(self, text: str, *, style: str = "") -> None:
        """The style applies to terminals only."""
        ...

    def show_job(self, view: JobView, *, elapsed_seconds: float, label: str = "") -> None:
        """Show a changed job. `elapsed_seconds` is the time since its submission; it stops when the job has finished.

        `label` is that of `job_labels`.
        """
        ...

    def show_log_line(self, line: LogLine, *, job_label: str = "") -> None: ...


class PlainView:
    """Prefixes each line about a job with the time since its submission."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._views: dict[str, JobView] = {}
        self._shown_reasons: set[tuple[str, str]] = set()
        self._width = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def print_message(self, text: str, *, style: str = "") -> None:
        self._write(text)

    def show_job(self, view: JobView, *, elapsed_seconds: float, label: str = "") -> None:
        elapsed = f"{elapsed_seconds:6.1f}s"
        for line in describe_changes(self._views.get(view.uid), view, job_label=label):
            self._write(f"{elapsed}  {line}")
        for reason in blocking_reasons(view):
            # Compare the ends only. The start names the pods, and more pods may join with the same reason.
            key = (view.uid, reason[-_COMPARED_CHARACTERS:])
            if key not in self._shown_reasons:
                self._shown_reasons.add(key)
                self._write(f"{elapsed}  {job_title(view)} is waiting: {reason}")
        self._views[view.uid] = view

    def show_log_line(self, line: LogLine, *, job_label: str = "") -> None:
        prefix = prefix_of(line, job_label=job_label)
        self._width = max(self._width, len(prefix))
        self._write(f"{prefix:{self._width}} | {line.text}")

    def _write(self, text: str) -> None:
        self._stream.write(f"{text}\n")
        self._stream.flush()


class QuietView(PlainView):
    """Shows log lines only, because standard output is for JSON."""

    def print_message(self, text: str, *, style: str = "") -> None:
        pass

    def show_job(self, view: JobView, *, elapsed_seconds: float, label: str = "") -> None:
        pass
