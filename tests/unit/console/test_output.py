"""Output: plain text for pipes, colors for terminals, and no interpretation of markup in user text."""

from __future__ import annotations

import io

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlop.console.describe_page import WARNING
from dlop.console.duration import format_duration, format_elapsed, parse_duration
from dlop.console.log_output import LogOutput
from dlop.console.output import Output
from dlop.console.tables import Table, duration, format_table, jobs_table, shorten
from dlop.jobs.log_lines import LogLine
from tests.unit.console.views import job_view


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.9, "0s"),
        (59, "59s"),
        (60, "1m"),
        (125, "2m5s"),
        (3600, "1h"),
        (3725, "1h2m"),
        (90_061, "1d1h"),
        (86_405, "1d"),
        (-5, "0s"),
    ],
)
def test_a_duration_is_formatted_with_two_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("0.5s", 0.5), ("2d", 172_800)])
def test_a_duration_is_parsed(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "5 m", "-1", "nan", "inf", "1x", "m5", "5m3", "1e400"])
def test_an_invalid_duration_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="use 90s, 5m or 1h30m"):
        parse_duration(text)


def test_without_a_start_there_is_no_elapsed_time() -> None:
    assert format_elapsed("", None, now=5.0) == ""
    assert format_elapsed("1970-01-01T00:00:00Z", "", now=5.0) == "5s"
    assert format_elapsed("1970-01-01T00:00:00Z", "1970-01-01T00:01:00Z", now=5.0) == "1m"


def test_a_suspended_job_has_no_duration() -> None:
    started = msgspec.structs.replace(job_view(), started_at="1970-01-01T00:00:00Z")
    assert duration(started, now=47.0) == "47s"
    assert duration(msgspec.structs.replace(started, phase="Suspended"), now=47.0) == ""


@given(rows=st.lists(st.tuples(st.text(max_size=9), st.text(max_size=9)), max_size=5))
def test_columns_are_aligned_and_no_cell_is_empty(rows: list[tuple[str, str]]) -> None:
    lines = format_table(Table(("A", "B"), tuple(rows)))
    assert len(lines) == len(rows) + 1
    start = lines[0].index("B")
    assert all(line[start - 1] == " " and line[start] != " " for line in lines)


def test_a_long_reason_is_cut_in_the_table_of_jobs() -> None:
    reason = "Unschedulable: 0/12 nodes are available: 12 Insufficient nvidia.com/gpu, 3 node(s) had untolerated taint"
    view = msgspec.structs.replace(job_view(), pending_reason=reason)
    header, row = format_table(jobs_table([view], now=0.0))
    cell = row[header.index("REASON") :]
    assert cell == "Unschedulable: 0/12 nodes are available: 12 Insufficient..."
    assert len(cell) <= 60


@given(text=st.text(max_size=100), width=st.integers(10, 80))
def test_a_shortened_text_fits_and_a_short_text_is_unchanged(text: str, width: int) -> None:
    normalized = " ".join(text.split())
    assert len(shorten(text, width)) <= width
    assert len(normalized) > width or shorten(text, width) == normalized


def line(text: str, *, role: str = "Worker", index: int = 0, run: int = 0, is_note: bool = False) -> LogLine:
    return LogLine(role=role, index=index, pod=f"pod-{index}", container="main", run=run, text=text, time="T", is_note=is_note)


def test_log_lines_are_plain_text_in_a_pipe() -> None:
    out, notes = io.StringIO(), io.StringIO()
    output = LogOutput(Output(out), notes=Output(notes))
    for log_line in (line("[red]x[/] :smile:"), line("y", index=10, run=2), line("no log", is_note=True), line("z", role="")):
        output.write(log_line)
    assert out.getvalue().splitlines() == ["worker-0 | [red]x[/] :smile:", "worker-10#3 | y", "pod-0       | z"]
    assert notes.getvalue() == "worker-0    | (no log)\n"


def test_on_a_terminal_the_prefix_is_colored_and_the_text_is_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = io.StringIO()
    output = LogOutput(Output(out, is_terminal=True))
    long = "[bold]" + "x" * 300
    output.write(line(long))
    output.write(line("y", index=1))
    first, second = out.getvalue().splitlines()
    assert first == f"\x1b[36mworker-0 | \x1b[0m{long}"
    assert second == "\x1b[32mworker-1 | \x1b[0my"


def test_a_table_on_a_terminal_has_colors_unless_no_color_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    table = Table(("NAME", "PHASE"), (("[x]", "Failed"),))
    for no_color in (False, True):
        if no_color:
            monkeypatch.setenv("NO_COLOR", "1")
        else:
            monkeypatch.delenv("NO_COLOR", raising=False)
        out = io.StringIO()
        Output(out, is_terminal=True).table(table)
        assert "[x]" in out.getvalue()
        assert ("31m" in out.getvalue()) is not no_color


def test_a_pipe_gets_lines_without_styles() -> None:
    out = io.StringIO()
    output = Output(out)
    output.lines([(WARNING, "a warning")])
    output.table(Table(("A",), (("",),)))
    assert out.getvalue() == "a warning\nA\n-\n"
