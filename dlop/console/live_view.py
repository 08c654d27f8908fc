"""Progress of jobs on a terminal: a live table of replicas below the log lines."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dlop.api.progress import ReplicaState
from dlop.console.log_output import prefix_of
from dlop.console.progress import blocking_reasons, format_counts, format_seconds, job_title
from dlop.console.tables import STYLES
from dlop.jobs.log_lines import LogLine
from dlop.jobs.replicas import ReplicaView
from dlop.jobs.view import JobView

_REFRESH_SECONDS = 0.1
_COLORS = ("cyan", "magenta", "yellow", "green", "blue", "bright_cyan", "bright_magenta", "bright_yellow", "bright_green")
_NUMERIC_HEADERS = ("INDEX", "RESTARTS", "EXIT CODE")
_HEADERS = ("ROLE", "INDEX", "PHASE", "RESTARTS", "ADDRESS", "EXIT CODE", "REASON")
# Lines of a job in addition to its replicas: title, headers, pending reasons, and one for the cursor.
_OTHER_LINES = 6
_MIN_ROWS = 3
_PRIORITY_STATES = (ReplicaState.FAILED, ReplicaState.DISRUPTED, ReplicaState.PENDING, ReplicaState.MISSING)


class LiveView:
    """A table of all replicas, redrawn at a fixed interval."""

    def __init__(self, console: Console, *, clock: Callable[[], float]) -> None:
        """`clock` is monotonic, in seconds."""
        self._console = console
        self._clock = clock
        self._submitted_at: dict[str, float] = {}
        self._finished_after_seconds: dict[str, float] = {}
        self._views: dict[str, JobView] = {}
        self._lines: list[Text] = []
        self._colors: dict[str, str] = {}
        self._width = 0
        self._is_final_frame = False
        self._live = Live(console=console, auto_refresh=False, get_renderable=self._render)
        self._draw_task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._live.start()
        self._draw_task = asyncio.create_task(self._draw_periodically())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._draw_task is not None:
            self._draw_task.cancel()
            await asyncio.gather(self._draw_task, return_exceptions=True)
            self._draw_task = None
        with contextlib.suppress(BrokenPipeError):
            self._write_lines()
            # The final frame stays on the terminal and may be higher than it, so it is drawn only once.
            self._is_final_frame = True
            self._live.vertical_overflow = "visible"
            self._live.stop()

    def print_message(self, text: str, *, style: str = "") -> None:
        self._write(Text(text, style))

    def show_job(self, view: JobView, *, elapsed_seconds: float, label: str = "") -> None:
        self._views[view.uid] = view
        self._submitted_at[view.uid] = self._clock() - elapsed_seconds
        if view.is_finished:
            self._finished_after_seconds[view.uid] = elapsed_seconds

    def show_log_line(self, line: LogLine, *, job_label: str = "") -> None:
        """Keeps the colors of the line and drops other terminal sequences."""
        prefix = prefix_of(line, job_label=job_label)
        self._width = max(self._width, len(prefix))
        color = self._colors.setdefault(line.pod, _COLORS[len(self._colors) % len(_COLORS)])
        text = Text(line.text, "italic") if line.is_note else Text.from_ansi(line.text)
        self._write(Text.assemble((f"{prefix:{self._width}} | ", color), text))

    def _write(self, text: Text) -> None:
        self._lines.append(text)
        if self._draw_task is None:
            self._write_lines()

    async def _draw_periodically(self) -> None:
        while True:
            self._draw()
            await asyncio.sleep(_REFRESH_SECONDS)

    def _draw(self) -> None:
        self._write_lines()
        self._live.refresh()

    def _write_lines(self) -> None:
        if self._lines:
            lines, self._lines = self._lines, []
            self._console.print(Text("\n").join(lines), soft_wrap=True)

    def _render(self) -> RenderableType:
        return Group(*(part for view in self._views.values() for part in self._render_job(view)))

    def _render_job(self, view: JobView) -> Iterator[RenderableType]:
        elapsed = self._finished_after_seconds.get(view.uid, self._clock() - self._submitted_at[view.uid])
        phase = (view.phase, STYLES.get(view.phase, ""))
        yield Text.assemble((job_title(view), "bold"), "  ", phase, f"  {format_counts(view)}  {format_seconds(elapsed)}")
        max_rows = max(_MIN_ROWS, self._console.height // len(self._views) - _OTHER_LINES)
        yield _table(view, max_rows=None if self._is_final_frame else max_rows)
        yield from (Text(f"waiting: {reason}", "yellow") for reason in blocking_reasons(view)[:2])


def _table(view: JobView, *, max_rows: int | None) -> Table:
    """With `max_rows`, replicas that need attention are preferred."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for name in _HEADERS:
        table.add_column(name, justify="right" if name in _NUMERIC_HEADERS else "left", no_wrap=True)
    visible = _visible_replicas(view.replicas, max_rows)
    for replica in visible:
        table.add_row(*_row(replica))
    if len(visible) < len(view.replicas):
        table.add_row(Text(f"… and {len(view.replicas) - len(visible)} more", "dim"))
    return table


def _visible_replicas(replicas: tuple[ReplicaView, ...], max_rows: int | None) -> list[ReplicaView]:
    if max_rows is None or len(replicas) <= max_rows:
        return list(replicas)
    priorities = {state.value: priority for priority, state in enumerate(_PRIORITY_STATES)}
    positions = sorted(range(len(replicas)), key=lambda position: priorities.get(replicas[position].state, len(priorities)))
    return [replicas[position] for position in sorted(positions[: max_rows - 1])]


def _row(replica: ReplicaView) -> list[RenderableType]:
    return [
        Text(replica.role or "-"),
        str(replica.index),
        Text(replica.state, STYLES.get(replica.state, "")),
        str(replica.restarts or "-"),
        replica.address or "-",
        Text("-" if replica.exit_code is None else str(replica.exit_code), "red" if replica.exit_code else ""),
        Text(replica.reason if replica.reason not in ("Completed", "Error") else ""),
    ]
