"""Schedules: cron lines with five fields, their shorthands such as `@hourly`, and fixed intervals (`@every 1h30m`).

When clocks change, a line with a fixed time runs once on that day, as in Debian's cron: a time that is skipped runs at the end of the
gap, and a time that occurs twice runs the first time. A line with a star as minute or hour runs in every matching minute.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

MAX_MISSED = 100
"""Missed runs are counted up to this number."""

_SHORTHANDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_FIELDS = ("minute", "hour", "day-of-month", "month", "day-of-week")
_EXAMPLE = "write minute, hour, day of month, month and day of week, such as '30 2 * * 1-5'"
_ZONE_PREFIX = re.compile(r"(?:CRON_TZ|TZ)=(\S*)\s*(.*)", re.DOTALL)
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:h|ms|m|s))+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)")
_UNIT_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_MAX_INTERVAL_SECONDS = 10 * 366 * 86_400
MAX_LENGTH = 256
"""Number of characters of a schedule."""
# Searching backwards starts this many runs early, because runs at a clock change are only exact when searching forwards.
_EXTRA_RUNS = 3
_FIRST_TIME, _LAST_TIME = datetime(1970, 1, 2, tzinfo=UTC).timestamp(), datetime(9900, 1, 1, tzinfo=UTC).timestamp()


class ScheduleError(ValueError):
    """A schedule or time zone cannot be read. The message continues a sentence that starts with the name of the field."""


@dataclass(frozen=True, slots=True)
class MissedRuns:
    """Runs that were due in some time."""

    latest: float | None
    """The time of the last one; None if there was none."""
    count: int
    """At most `MAX_MISSED` + 1."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """When something runs. All times are in seconds since the epoch."""

    line: str
    """A cron line with five fields; empty for an interval."""
    zone: tzinfo = UTC
    interval_seconds: int = 0

    def next_after(self, time: float, *, anchor: float) -> float | None:
        """The first run after `time`; None if there is none in the next 50 years. Intervals are counted from `anchor`."""
        if self.interval_seconds:
            return anchor + (max(0, int((time - anchor) // self.interval_seconds)) + 1) * self.interval_seconds
        return next(self._runs(time), None)

    def missed(self, *, after: float, until: float, anchor: float) -> MissedRuns:
        """The runs after `after` and not later than `until`. Intervals are counted from `anchor`, which is not later than `after`."""
        if until <= after:
            return MissedRuns(None, 0)
        if self.interval_seconds:
            return self._missed_intervals(after, until, anchor)
        latest, count = None, 0
        for run in self._runs(after):
            if run > until or count > MAX_MISSED:
                break
            latest, count = run, count + 1
        return MissedRuns(self._latest(until) if count > MAX_MISSED else latest, count)

    def _missed_intervals(self, after: float, until: float, anchor: float) -> MissedRuns:
        first, last = (int((time - anchor) // self.interval_seconds) for time in (after, until))
        return MissedRuns(anchor + last * self.interval_seconds if last > first else None, min(last - first, MAX_MISSED + 1))

    def _latest(self, until: float) -> float | None:
        """The last run not later than `until`, without going through all runs before it."""
        backwards = CronSim(self.line, self._local(until + 1), reverse=True)
        start = until
        for _ in range(_EXTRA_RUNS):
            start = min(start, next(backwards, self._local(start)).timestamp())
        latest = None
        for run in self._runs(start - 1):
            if run > until:
                break
            latest = run
        return latest

    def _runs(self, after: float) -> Iterator[float]:
        """All runs after a time, in ascending order."""
        latest = after
        # At a clock change, times of the local clock occur twice or not at all, so that runs may repeat or go back.
        for run in CronSim(self.line, self._local(after)):
            if run.timestamp() > latest:
                latest = run.timestamp()
                yield latest

    def _local(self, time: float) -> datetime:
        return datetime.fromtimestamp(int(min(max(time, _FIRST_TIME), _LAST_TIME)), self.zone)


def parse_schedule(text: str, *, zone: tzinfo | None = None) -> Schedule:
    """A schedule. `zone` is None if it is not set elsewhere: then it may be a prefix of the schedule, and is UTC otherwise.

    Raises:
        ScheduleError: the schedule is invalid.
    """
    if len(text) > MAX_LENGTH:
        raise ScheduleError(f"must have at most {MAX_LENGTH} characters, got {len(text)}")
    prefix = _ZONE_PREFIX.fullmatch(text.strip())
    if prefix is not None:
        if zone is not None:
            raise ScheduleError("must not have a time zone, because timeZone is set; remove the prefix")
        zone, text = parse_zone(prefix[1]), prefix[2]
    zone, text = zone or UTC, " ".join(text.split())
    if text.startswith("@every"):
        return Schedule("", zone, _parse_interval(text.removeprefix("@every").strip()))
    if text.startswith("@"):
        if text.lower() not in _SHORTHANDS:
            raise ScheduleError(f"must be a cron line, @every or one of {', '.join(_SHORTHANDS)}, got {text!r:.60}")
        return Schedule(_SHORTHANDS[text.lower()], zone)
    schedule = Schedule(text.replace("?", "*"), zone)
    _check_line(schedule.line, text)
    return schedule


def parse_zone(name: str) -> tzinfo:
    """A time zone of the IANA database, such as Europe/Paris.

    Raises:
        ScheduleError: there is no such zone.
    """
    try:
        return UTC if name in ("UTC", "Etc/UTC") else ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        raise ScheduleError(f"must be the name of a time zone, such as Europe/Paris, got {name!r:.60}") from None


def _parse_interval(text: str) -> int:
    """The seconds of a duration such as 1h30m."""
    if not _DURATION.fullmatch(text):
        raise ScheduleError(f"must have a duration after @every, such as 30m or 1h30m, got {text!r:.60}")
    seconds = int(sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _DURATION_PART.findall(text)))
    if not 1 <= seconds <= _MAX_INTERVAL_SECONDS:
        raise ScheduleError(f"must have an interval from 1 second to 10 years after @every, got {text!r:.60}")
    return seconds


def _check_line(line: str, text: str) -> None:
    fields = line.split()
    if len(fields) != len(_FIELDS):
        raise ScheduleError(f"must have five fields, got {len(fields)} in {text!r:.80}; {_EXAMPLE}")
    try:
        CronSim(line, datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        raise ScheduleError(f"{_explain(str(error), fields)}; {_EXAMPLE}") from None


def _is_valid(fields: list[str]) -> bool:
    try:
        CronSim(" ".join(fields), datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError:
        return False
    return True


def _explain(error: str, fields: list[str]) -> str:
    """What is wrong with a line. The parser names the field, as in `Bad minute`."""
    name = error.removeprefix("Bad ")
    if name not in _FIELDS:
        return f"is not a cron line: {error}"
    if name == "day-of-month" and _is_valid(["*", "*", fields[2], "*", "*"]):
        # The parser also rejects days that are in none of the months.
        return f"never occurs: no month in {fields[3]!r:.60} has a day in {fields[2]!r:.60}"
    return f"has an invalid {name} field, {fields[_FIELDS.index(name)]!r:.60}"
