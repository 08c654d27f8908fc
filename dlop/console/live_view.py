"""Jobs while they run, at a terminal: a table that follows them, and what replicas write above it."""

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
from dlop.console.progress import counted, obstacles, seconds, title
from dlop.console.tables import STYLES
from dlop.jobs.log_lines import LogLine
from dlop.jobs.replicas import ReplicaView
from dlop.jobs.view import JobView

_EVERY_SECONDS = 0.1
_COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "bright_cyan", "bright_magenta", "bright_yellow", "bright_green")
_NUMBERS = ("INDEX", "RESTARTS", "EXIT CODE")
_HEADERS = ("ROLE", "INDEX", "PHASE", "RESTARTS", "ADDRESS", "EXIT CODE", "REASON")
# The lines of a job that are not for replicas: its head, the headers, what it waits for, and one for the cursor.
_OTHER_LINES = 6
_FEWEST_ROWS = 3
_WORTH_A_LOOK = (ReplicaState.FAILED, ReplicaState.DISRUPTED, ReplicaState.PENDING, ReplicaState.MISSING)


class LiveScreen:
    """A table of all replicas. Pictures are drawn a few times a second, however much happens."""

    def __init__(self, console: Console, *, clock: Callable[[], float]) -> None:
        """`clock` gives seconds since anything."""
        self._console = console
        self._clock = clock
        self._submitted_at: dict[str, float] = {}
        self._took_seconds: dict[str, float] = {}
        self._views: dict[str, JobView] = {}
        self._lines: list[Text] = []
        self._colours: dict[str, str] = {}
        self._width = 0
        self._is_last_picture = False
        self._live = Live(console=console, auto_refresh=False, get_renderable=self._picture)
        self._drawing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._live.start()
        self._drawing = asyncio.create_task(self._draw_again_and_again())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._drawing is not None:
            self._drawing.cancel()
            await asyncio.gather(self._drawing, return_exceptions=True)
            self._drawing = None
        with contextlib.suppress(BrokenPipeError):
            self._write_lines()
            # The last picture stays on the screen, and may be longer than it: so it is drawn only once.
            self._is_last_picture = True
            self._live.vertical_overflow = "visible"
            self._live.stop()

    def say(self, text: str, *, style: str = "") -> None:
        """A sentence for the user."""
        self._write(Text(text, style))

    def show(self, view: JobView, *, elapsed_seconds: float) -> None:
        """Keep it for the next picture."""
        self._views[view.uid] = view
        self._submitted_at[view.uid] = self._clock() - elapsed_seconds
        if view.is_over:
            self._took_seconds[view.uid] = elapsed_seconds

    def hear(self, line: LogLine) -> None:
        """A replica has written something. Its colours stay; whatever else it does to terminals is dropped."""
        prefix = prefix_of(line)
        self._width = max(self._width, len(prefix))
        colour = self._colours.setdefault(line.pod, _COLOURS[len(self._colours) % len(_COLOURS)])
        text = Text(line.text, "italic") if line.is_note else Text.from_ansi(line.text)
        self._write(Text.assemble((f"{prefix:{self._width}} | ", colour), text))

    def _write(self, text: Text) -> None:
        self._lines.append(text)
        if self._drawing is None:
            self._write_lines()

    async def _draw_again_and_again(self) -> None:
        while True:
            self._draw()
            await asyncio.sleep(_EVERY_SECONDS)

    def _draw(self) -> None:
        self._write_lines()
        self._live.refresh()

    def _write_lines(self) -> None:
        if self._lines:
            lines, self._lines = self._lines, []
            self._console.print(Text("\n").join(lines), soft_wrap=True)

    def _picture(self) -> RenderableType:
        return Group(*(part for view in self._views.values() for part in self._picture_of(view)))

    def _picture_of(self, view: JobView) -> Iterator[RenderableType]:
        elapsed = self._took_seconds.get(view.uid, self._clock() - self._submitted_at[view.uid])
        phase = (view.phase, STYLES.get(view.phase, ""))
        yield Text.assemble((title(view), "bold"), "  ", phase, f"  {counted(view)}  {seconds(elapsed)}")
        room = max(_FEWEST_ROWS, self._console.height // len(self._views) - _OTHER_LINES)
        yield _table(view, room=None if self._is_last_picture else room)
        yield from (Text(f"waits: {sentence}", "yellow") for sentence in obstacles(view)[:2])


def _table(view: JobView, *, room: int | None) -> Table:
    """All replicas, or as many as there is room for: then those that are worth a look come first."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for name in _HEADERS:
        table.add_column(name, justify="right" if name in _NUMBERS else "left", no_wrap=True)
    shown = _shown(view.replicas, room)
    for replica in shown:
        table.add_row(*_row(replica))
    if len(shown) < len(view.replicas):
        table.add_row(Text(f"… and {len(view.replicas) - len(shown)} more", "dim"))
    return table


def _shown(replicas: tuple[ReplicaView, ...], room: int | None) -> list[ReplicaView]:
    if room is None or len(replicas) <= room:
        return list(replicas)
    order = {state.value: place for place, state in enumerate(_WORTH_A_LOOK)}
    numbers = sorted(range(len(replicas)), key=lambda number: order.get(replicas[number].state, len(order)))
    return [replicas[number] for number in sorted(numbers[: room - 1])]


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
