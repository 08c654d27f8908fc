"""What is printed: plain columns and lines for pipes, colours for terminals, and nothing of a user's text taken for markup."""

from __future__ import annotations

import io

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlop.console.describe_page import WARNING
from dlop.console.duration import between, read_seconds, short
from dlop.console.log_output import LogOutput
from dlop.console.output import Screen
from dlop.console.tables import Table, duration, plain_lines
from dlop.jobs.log_lines import LogLine
from tests.unit.console.test_progress import view


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
def test_a_span_of_time_is_told_in_two_units(seconds: float, text: str) -> None:
    assert short(seconds) == text


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("0.5s", 0.5), ("2d", 172_800)])
def test_a_span_of_time_is_read_as_people_write_it(text: str, seconds: float) -> None:
    assert read_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "5 m", "-1", "nan", "inf", "1x", "m5", "5m3", "1e400"])
def test_what_is_no_span_of_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write it as 90s, 5m or 1h30m"):
        read_seconds(text)


def test_without_a_beginning_there_is_no_span() -> None:
    assert between("", None, now=5.0) == ""
    assert between("1970-01-01T00:00:00Z", "", now=5.0) == "5s"
    assert between("1970-01-01T00:00:00Z", "1970-01-01T00:01:00Z", now=5.0) == "1m"


def test_a_suspended_job_has_no_duration_for_nothing_of_it_runs() -> None:
    started = msgspec.structs.replace(view(), started_at="1970-01-01T00:00:00Z")
    assert duration(started, now=47.0) == "47s"
    assert duration(msgspec.structs.replace(started, phase="Suspended"), now=47.0) == ""


@given(rows=st.lists(st.tuples(st.text(max_size=9), st.text(max_size=9)), max_size=5))
def test_columns_are_aligned_and_no_cell_is_empty(rows: list[tuple[str, str]]) -> None:
    lines = plain_lines(Table(("A", "B"), tuple(rows)))
    assert len(lines) == len(rows) + 1
    start = lines[0].index("B")
    assert all(line[start - 1] == " " and line[start] != " " for line in lines)


def line(text: str, *, role: str = "Worker", index: int = 0, run: int = 0, is_note: bool = False) -> LogLine:
    return LogLine(role=role, index=index, pod=f"pod-{index}", container="main", run=run, text=text, time="T", is_note=is_note)


def test_lines_of_logs_for_pipes_are_plain_whatever_they_say() -> None:
    out, notes = io.StringIO(), io.StringIO()
    output = LogOutput(Screen(out), notes=Screen(notes))
    for each in (line("[red]x[/] :smile:"), line("y", index=10, run=2), line("gone", is_note=True), line("z", role="")):
        output.write(each)
    assert out.getvalue().splitlines() == ["worker-0 | [red]x[/] :smile:", "worker-10#3 | y", "pod-0       | z"]
    assert notes.getvalue() == "worker-0    | (gone)\n"


def test_on_a_terminal_each_replica_has_a_colour_and_the_text_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = io.StringIO()
    output = LogOutput(Screen(out, is_terminal=True))
    long = "[bold]" + "x" * 300
    output.write(line(long))
    output.write(line("y", index=1))
    first, second = out.getvalue().splitlines()
    assert first == f"\x1b[36mworker-0 | \x1b[0m{long}"
    assert second == "\x1b[32mworker-1 | \x1b[0my"


def test_a_table_on_a_terminal_has_colours_and_minds_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    table = Table(("NAME", "PHASE"), (("[x]", "Failed"),))
    for no_color in (False, True):
        if no_color:
            monkeypatch.setenv("NO_COLOR", "1")
        else:
            monkeypatch.delenv("NO_COLOR", raising=False)
        out = io.StringIO()
        Screen(out, is_terminal=True).table(table)
        assert "[x]" in out.getvalue()
        assert ("31m" in out.getvalue()) is not no_color


def test_a_pipe_gets_lines_without_styles() -> None:
    out = io.StringIO()
    screen = Screen(out)
    screen.lines([(WARNING, "look here")])
    screen.table(Table(("A",), (("",),)))
    assert out.getvalue() == "look here\nA\n-\n"
