"""Schedules: lines, intervals, time zones, changes of clocks, missed runs and errors."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlop.api.schedule import MAX_LENGTH, MAX_MISSED, MissedRuns, Schedule, ScheduleError, parse_schedule, parse_zone

START = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
FIELDS = "write minute, hour, day of month, month and day of week, such as '30 2 * * 1-5'"


def time_of(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def runs(schedule: Schedule, after: float, count: int, *, anchor: float | None = None) -> list[float]:
    times: list[float] = []
    time: float | None = after
    while len(times) < count:
        assert time is not None
        time = schedule.next_after(time, anchor=after if anchor is None else anchor)
        assert time is not None
        times.append(time)
    return times


def local_runs(line: str, zone: str, after: str, count: int) -> list[str]:
    schedule = parse_schedule(line, zone=parse_zone(zone))
    times = runs(schedule, time_of(after, zone), count)
    return [datetime.fromtimestamp(time, ZoneInfo(zone)).strftime("%d %H:%M %Z") for time in times]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("30 2 * * *", ["2026-01-01T02:30", "2026-01-02T02:30"]),
        ("*/20 * * * *", ["2026-01-01T00:20", "2026-01-01T00:40"]),
        ("0 0 29 2 *", ["2028-02-29", "2032-02-29"]),
        ("0 12 * * MON-FRI", ["2026-01-01T12:00", "2026-01-02T12:00"]),
        ("0 12 ? * 7", ["2026-01-04T12:00", "2026-01-11T12:00"]),
        ("0 0 13 * 5", ["2026-01-02", "2026-01-09"]),
        ("@hourly", ["2026-01-01T01:00", "2026-01-01T02:00"]),
        ("@Daily", ["2026-01-02", "2026-01-03"]),
        ("@weekly", ["2026-01-04", "2026-01-11"]),
        ("@monthly", ["2026-02-01", "2026-03-01"]),
        ("@annually", ["2027-01-01", "2028-01-01"]),
        ("  5\t4 * * *  ", ["2026-01-01T04:05", "2026-01-02T04:05"]),
        ("@every 1h30m", ["2026-01-01T01:30", "2026-01-01T03:00"]),
        ("@every 1.5m", ["2026-01-01T00:01:30", "2026-01-01T00:03"]),
    ],
)
def test_a_schedule_has_these_runs(line: str, expected: list[str]) -> None:
    assert runs(parse_schedule(line), START, 2, anchor=START) == [time_of(text) for text in expected]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", f"must have five fields, got 0 in ''; {FIELDS}"),
        ("* * * *", f"must have five fields, got 4 in '* * * *'; {FIELDS}"),
        ("0 * * * * *", f"must have five fields, got 6 in '0 * * * * *'; {FIELDS}"),
        ("60 * * * *", f"has an invalid minute field, '60'; {FIELDS}"),
        ("* 24 * * *", f"has an invalid hour field, '24'; {FIELDS}"),
        ("* * 0 * *", f"has an invalid day-of-month field, '0'; {FIELDS}"),
        ("* * * 13 *", f"has an invalid month field, '13'; {FIELDS}"),
        ("* * * * 8", f"has an invalid day-of-week field, '8'; {FIELDS}"),
        ("*/0 * * * *", f"has an invalid minute field, '*/0'; {FIELDS}"),
        ("5-1 * * * *", f"has an invalid minute field, '5-1'; {FIELDS}"),
        ("a b c d e", f"has an invalid minute field, 'a'; {FIELDS}"),
        ("\u0663 * * * *", f"has an invalid minute field, '\u0663'; {FIELDS}"),
        ("0 0 31 2 *", f"never occurs: no month in '2' has a day in '31'; {FIELDS}"),
        ("0 0 31 4,6 *", f"never occurs: no month in '4,6' has a day in '31'; {FIELDS}"),
        ("0 0 32 2 *", f"has an invalid day-of-month field, '32'; {FIELDS}"),
        ("@often", "must be a cron line, @every or one of @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly, got '@often'"),
        ("@every", "must have a duration after @every, such as 30m or 1h30m, got ''"),
        ("@every soon", "must have a duration after @every, such as 30m or 1h30m, got 'soon'"),
        ("@every -5m", "must have a duration after @every, such as 30m or 1h30m, got '-5m'"),
        ("@every 100ms", "must have an interval from 1 second to 10 years after @every, got '100ms'"),
        ("@every 99999999h", "must have an interval from 1 second to 10 years after @every, got '99999999h'"),
        ("TZ=Mars/Olympus 0 0 * * *", "must be the name of a time zone, such as Europe/Paris, got 'Mars/Olympus'"),
        ("9" * 5000, f"must have at most {MAX_LENGTH} characters, got 5000"),
    ],
)
def test_a_bad_line_is_explained(line: str, message: str) -> None:
    with pytest.raises(ScheduleError) as error:
        parse_schedule(line)
    assert str(error.value) == message


@pytest.mark.parametrize("name", ["", "Mars/Olympus", "../../etc/passwd", "/etc/localtime", "a\0b", "Europe", "x" * 5000, "\udcff"])
def test_a_bad_time_zone_is_explained(name: str) -> None:
    with pytest.raises(ScheduleError, match="must be the name of a time zone, such as Europe/Paris, got"):
        parse_zone(name)


def test_a_time_zone_must_not_be_set_twice() -> None:
    assert parse_schedule("CRON_TZ=Asia/Tokyo 0 9 * * *").zone == ZoneInfo("Asia/Tokyo")
    with pytest.raises(ScheduleError) as error:
        parse_schedule("CRON_TZ=Asia/Tokyo 0 9 * * *", zone=UTC)
    assert str(error.value) == "must not have a time zone, because timeZone is set; remove the prefix"


@given(st.text(max_size=40) | st.lists(st.text("0123456789*/,-?#LWMON@ ", max_size=8), max_size=6).map(" ".join))
def test_any_text_is_a_schedule_or_an_error(text: str) -> None:
    try:
        schedule = parse_schedule(text)
    except ScheduleError as error:
        assert str(error)  # noqa: PT017 - most texts are errors
        return
    time = schedule.next_after(START, anchor=START)
    assert time is None or time > START


# --- clocks --------------------------------------------------------------------------------------------------------------


def test_lines_follow_the_local_clock() -> None:
    assert local_runs("0 9 * * *", "America/New_York", "2026-03-07T00:00", 2) == ["07 09:00 EST", "08 09:00 EDT"]


def test_a_fixed_time_that_is_skipped_runs_once_at_the_end_of_the_gap() -> None:
    assert local_runs("30 2 * * *", "Europe/Paris", "2026-03-28T12:00", 2) == ["29 03:00 CEST", "30 02:30 CEST"]


def test_a_fixed_time_that_occurs_twice_runs_once() -> None:
    assert local_runs("30 2 * * *", "Europe/Paris", "2026-10-24T12:00", 2) == ["25 02:30 CEST", "26 02:30 CET"]


def test_a_fixed_time_does_not_run_again_in_the_hour_that_is_repeated() -> None:
    schedule = parse_schedule("30 2 * * *", zone=parse_zone("Europe/Paris"))
    in_second_hour = time_of("2026-10-25T01:10")  # 02:10 CET
    assert schedule.next_after(in_second_hour, anchor=START) == time_of("2026-10-26T01:30")


def test_every_hour_runs_in_every_hour_although_the_clock_changes() -> None:
    assert local_runs("0 * * * *", "Europe/Paris", "2026-10-25T01:30", 3) == ["25 02:00 CEST", "25 02:00 CET", "25 03:00 CET"]
    assert local_runs("0 * * * *", "Europe/Paris", "2026-03-29T00:30", 3) == ["29 01:00 CET", "29 03:00 CEST", "29 04:00 CEST"]


def test_zones_that_are_not_whole_hours_from_utc_are_right() -> None:
    schedule = parse_schedule("0 0 * * *", zone=parse_zone("Asia/Kathmandu"))
    assert schedule.next_after(START, anchor=START) == time_of("2026-01-01T18:15")


def test_intervals_do_not_follow_the_local_clock() -> None:
    schedule = parse_schedule("@every 24h", zone=parse_zone("Europe/Paris"))
    start = time_of("2026-03-28T12:00", "Europe/Paris")
    assert runs(schedule, start, 2, anchor=start) == [start + 86_400, start + 172_800]


# --- missed runs ---------------------------------------------------------------------------------------------------------


LINES = st.sampled_from(
    ["* * * * *", "*/7 * * * *", "30 2 * * *", "15 */3 * * *", "0 0 1 * *", "0 12 * * 1", "@every 7m", "@every 5h", "@every 90s"]
)
ZONES = st.sampled_from(["UTC", "Europe/Paris", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe"])
SPANS = st.floats(0, 40 * 86_400)


@given(LINES, ZONES, SPANS, SPANS)
def test_missed_runs_are_those_that_follow_each_other(line: str, zone: str, offset: float, span: float) -> None:
    schedule = parse_schedule(line, zone=parse_zone(zone))
    anchor = time_of("2026-03-10T00:00")
    after, until = anchor + offset, anchor + offset + span
    missed = schedule.missed(after=after, until=until, anchor=anchor)
    latest, count, time = None, 0, schedule.next_after(after, anchor=anchor)
    while time is not None and time <= until:
        latest, count, time = time, count + 1, schedule.next_after(time, anchor=anchor)
    assert missed == MissedRuns(latest, min(count, MAX_MISSED + 1))


def test_years_of_missed_runs_are_not_gone_through_one_by_one() -> None:
    until = START + 20 * 365 * 86_400
    assert parse_schedule("* * * * *").missed(after=START, until=until, anchor=START) == MissedRuns(until, MAX_MISSED + 1)


def test_intervals_are_counted_from_the_anchor_although_only_some_runs_are_asked_for() -> None:
    schedule = parse_schedule("@every 1h")
    missed = schedule.missed(after=START + 5000, until=START + 7300, anchor=START)
    assert missed == MissedRuns(START + 7200, 1)


def test_nothing_is_missed_before_the_clock_reaches_the_anchor() -> None:
    for line in ("* * * * *", "@every 1s"):
        assert parse_schedule(line).missed(after=START, until=START - 5, anchor=START) == MissedRuns(None, 0)
        assert parse_schedule(line).missed(after=START, until=START, anchor=START) == MissedRuns(None, 0)
