from __future__ import annotations

import zlib
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlop.api.record import (
    BackoffState,
    Blocked,
    LastFailure,
    Record,
    RecordBuilder,
    format_backoffs,
    format_counts,
    format_indexes,
    parse_backoffs,
    parse_counts,
    parse_indexes,
    parse_record,
    record_to_json,
)
from dlop.api.spec import JobSpec, RoleSpec
from dlop.kube.timestamps import earliest, format_time, parse_time

NOW = 1_800_000_000


@given(st.frozensets(st.integers(0, 200)) | st.frozensets(st.integers(0, 99_999), min_size=200))
def test_indexes_are_parsed_as_they_were_formatted(indexes: frozenset[int]) -> None:
    assert parse_indexes(format_indexes(indexes)) == indexes


def test_consecutive_indexes_become_one_range() -> None:
    assert format_indexes([7, 0, 1, 2, 3]) == "0-3,7"


def test_the_numbers_of_a_long_list_are_relative() -> None:
    assert parse_indexes("+0-3,4,2-1") == {0, 1, 2, 3, 7, 9, 10}
    assert format_indexes([*range(4), *range(7, 2_000, 2)]).startswith("+0-3,4,2,2,2")


@pytest.mark.parametrize("text", ["0-99999999999", "", "x", "1-", "-1", "1,,2", "1 2", "3-1", "+", "1,+2", "+999999,1", "+0-999999,1"])
def test_malformed_ranges_are_empty(text: str) -> None:
    assert parse_indexes(text) == frozenset()


@given(st.dictionaries(st.integers(0, 200), st.integers(1, 5)))
def test_counts_are_parsed_as_they_were_formatted(counts: dict[int, int]) -> None:
    assert parse_counts(format_counts(counts)) == counts


@pytest.mark.parametrize("counts", [{"x": "0"}, {"-1": "0"}, {"99999999999": "0"}, {"1": "x"}, {"": "0"}])
def test_malformed_counts_are_left_out(counts: dict[str, str]) -> None:
    assert parse_counts(counts | {"2": "5"}) == {5: 2}


@given(st.dictionaries(st.integers(0, 50), st.tuples(st.integers(1, 3), st.integers(0, 100))))
def test_backoffs_are_parsed_as_they_were_formatted(times: dict[int, tuple[int, int]]) -> None:
    backoffs = {f"Worker/{index}": BackoffState(failures, format_time(NOW + time)) for index, (failures, time) in times.items()}
    backoffs |= {"Master": BackoffState(1, format_time(NOW)), "*": BackoffState(2, format_time(NOW))}
    assert parse_backoffs(format_backoffs(backoffs)) == backoffs


def test_many_backoffs_end_up_to_thirty_seconds_later() -> None:
    backoffs = {f"Worker/{index}": BackoffState(1, format_time(NOW + index)) for index in range(2_000)}
    stored = parse_backoffs(format_backoffs(backoffs))
    delays = [(parse_time(stored[unit].not_before) or 0) - (parse_time(backoffs[unit].not_before) or 0) for unit in backoffs]
    assert min(delays) == 0
    assert 0 < max(delays) < 30
    assert len(format_backoffs(backoffs)) < 100


Pattern = Callable[[int, int], int]
"""The value of an index out of this number of values."""


@pytest.mark.parametrize("values", [2, 3, 7, 30])
@pytest.mark.parametrize(
    "pattern",
    [lambda index, values: index % values, lambda index, values: zlib.crc32(b"%d" % index) % values],
    ids=["alternating", "random"],
)
def test_a_record_with_everything_about_ten_thousand_replicas_is_below_150_kb(pattern: Pattern, values: int) -> None:
    """No two neighbors are equal in the alternating pattern, so that every index is a range of its own."""
    indexes = range(10_000)
    spec = JobSpec(roles=(RoleSpec(name="Worker", replicas=10_000),))
    builder = RecordBuilder(Record(), spec, first_pods={"Worker": "train-worker-0"})
    for state, stored in enumerate((builder.completed_indexes, builder.failed_indexes, builder.started_indexes)):
        stored["Worker"] = {index for index in indexes if pattern(index, 3) == state}
    builder.replacements["Worker"] = {index: 1 + pattern(index, values) for index in indexes}
    builder.counted_restarts["Worker"] = {index: 1 + pattern(index + 1, values) for index in indexes}
    for index in indexes:
        not_before = NOW - 600 + pattern(index, 900)
        builder.backoffs[f"Worker/{index}"] = BackoffState(1 + pattern(index + 2, values), format_time(not_before))
    record = builder.build()
    assert len(msgspec.json.encode(record_to_json(record))) < 150_000
    rebuilt = RecordBuilder(record, spec, first_pods={"Worker": "train-worker-0"})
    assert rebuilt.build() == record
    assert (rebuilt.replacements, rebuilt.counted_restarts) == (builder.replacements, builder.counted_restarts)


def test_a_record_is_parsed_as_it_was_written() -> None:
    record = Record(
        attempt=2,
        restarts={"Worker": 3},
        completed_indexes={"Worker": "0-1"},
        replacements={"Worker": {"1": "0-3", "2": "7"}},
        backoffs={"Worker/0-3,7": BackoffState(2, "2027-01-15T08:00:00Z")},
        last_failure=LastFailure(pod="p", exit_code=1),
        blocked=Blocked(object="pod p", reason="Unschedulable"),
    )
    assert parse_record({"dlop": record_to_json(record)}) == record


def test_an_empty_record_is_an_empty_object() -> None:
    assert record_to_json(Record()) == {}


@pytest.mark.parametrize("status", [{}, {"dlop": None}, {"dlop": 7}, {"dlop": {"attempt": "two"}}, {"dlop": {"restarts": [1]}}])
def test_a_malformed_record_is_none(status: dict[str, object]) -> None:
    assert parse_record(status) is None


def test_the_attempt_of_a_role_is_the_sum_of_job_and_role_attempts() -> None:
    assert Record(attempt=2, role_attempts={"Worker": 1}).attempt_of("Worker") == 3


def test_removed_indexes_are_dropped_and_counters_are_kept() -> None:
    record = Record(
        completed_indexes={"Worker": "0-5", "Removed": "0"},
        started_indexes={"Worker": "2-6"},
        restarts={"Removed": 4},
        counted_restarts={"Worker": {"1": "0,7"}, "Removed": {"2": "0"}},
        replacements={"Worker": {"3": "0-7"}, "Removed": {"1": "0"}},
    )
    spec = JobSpec(roles=(RoleSpec(name="Worker", replicas=3),))
    built = RecordBuilder(record, spec, first_pods={"Worker": "train-worker-0"}).build()
    assert (built.completed_indexes, built.started_indexes) == ({"Worker": "0-2"}, {"Worker": "2"})
    assert built.restarts == {"Removed": 4}
    # The pods of removed indexes and roles may still exist when these are added again.
    assert (built.counted_restarts, built.replacements) == (record.counted_restarts, record.replacements)


def test_claims_under_other_pod_names_are_released() -> None:
    record = Record(
        started_indexes={"Kept": "0", "Renamed": "0-1", "Old": "1", "Removed": "0"},
        completed_indexes={"Renamed": "2"},
        claimed_as={"Kept": "kept-0", "Renamed": "first-0", "Removed": "removed-0"},
    )
    spec = JobSpec(roles=tuple(RoleSpec(name=name, replicas=3) for name in ("Kept", "Renamed", "Old")))
    built = RecordBuilder(record, spec, first_pods={"Kept": "kept-0", "Renamed": "second-0", "Old": "old-0"}).build()
    assert built.started_indexes == {"Kept": "0", "Old": "1"}
    assert built.claimed_as == {"Kept": "kept-0", "Old": "old-0"}
    assert built.completed_indexes == {"Renamed": "2"}


def test_times_have_whole_seconds_and_malformed_times_are_none() -> None:
    assert format_time(1_800_000_000.9) == "2027-01-15T08:00:00Z"
    assert parse_time("2027-01-15T08:00:00Z") == 1_800_000_000
    assert [parse_time(text) for text in ("soon", "2027-01-15T08:00:00", "", None, 7)] == [None] * 5
    assert earliest(None, 3, 2) == 2
    assert earliest(None) is None
