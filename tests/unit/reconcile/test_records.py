from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlop.api.record import Blocked, LastFailure, Record, RecordBuilder, format_indexes, parse_indexes, parse_record, record_to_json
from dlop.api.spec import JobSpec, RoleSpec
from dlop.kube.timestamps import earliest, format_time, parse_time


@given(st.frozensets(st.integers(0, 200)))
def test_indexes_are_parsed_as_they_were_formatted(indexes: frozenset[int]) -> None:
    assert parse_indexes(format_indexes(indexes)) == indexes


def test_consecutive_indexes_become_one_range() -> None:
    assert format_indexes([7, 0, 1, 2, 3]) == "0-3,7"


@pytest.mark.parametrize("text", ["0-99999999999", "", "x", "1-", "-1", "1,,2", "1 2", "3-1"])
def test_malformed_ranges_are_empty(text: str) -> None:
    assert parse_indexes(text) == frozenset()


def test_a_record_is_parsed_as_it_was_written() -> None:
    record = Record(
        attempt=2,
        restarts={"Worker": 3},
        completed_indexes={"Worker": "0-1"},
        accounted_pods=["a"],
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
        counted_restarts={"a": 1, "b": 2},
    )
    spec = JobSpec(roles=(RoleSpec(name="Worker", replicas=3),))
    built = RecordBuilder(record, spec, first_pods={"Worker": "train-worker-0"}).build(live_uids=["b"])
    assert (built.completed_indexes, built.started_indexes) == ({"Worker": "0-2"}, {"Worker": "2"})
    assert (built.restarts, built.counted_restarts) == ({"Removed": 4}, {"b": 2})


def test_claims_under_other_pod_names_are_released() -> None:
    record = Record(
        started_indexes={"Kept": "0", "Renamed": "0-1", "Old": "1", "Removed": "0"},
        completed_indexes={"Renamed": "2"},
        claimed_as={"Kept": "kept-0", "Renamed": "first-0", "Removed": "removed-0"},
    )
    spec = JobSpec(roles=tuple(RoleSpec(name=name, replicas=3) for name in ("Kept", "Renamed", "Old")))
    built = RecordBuilder(record, spec, first_pods={"Kept": "kept-0", "Renamed": "second-0", "Old": "old-0"}).build(live_uids=[])
    assert built.started_indexes == {"Kept": "0", "Old": "1"}
    assert built.claimed_as == {"Kept": "kept-0", "Old": "old-0"}
    assert built.completed_indexes == {"Renamed": "2"}


def test_times_have_whole_seconds_and_malformed_times_are_none() -> None:
    assert format_time(1_800_000_000.9) == "2027-01-15T08:00:00Z"
    assert parse_time("2027-01-15T08:00:00Z") == 1_800_000_000
    assert [parse_time(text) for text in ("soon", "2027-01-15T08:00:00", "", None, 7)] == [None] * 5
    assert earliest(None, 3, 2) == 2
    assert earliest(None) is None
