from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlop.api.record import Blocked, LastFailure, Record, indexes_of, plain, ranges_of, record_in
from dlop.api.spec import JobSpec, RoleSpec
from dlop.kube.timestamps import earliest, format_time, parse_time
from dlop.reconcile.record_builder import RecordBuilder


@given(st.frozensets(st.integers(0, 200)))
def test_any_set_of_indexes_survives_being_written_as_ranges(indexes: frozenset[int]) -> None:
    assert indexes_of(ranges_of(indexes)) == indexes


def test_neighbours_become_one_range() -> None:
    assert ranges_of([7, 0, 1, 2, 3]) == "0-3,7"


@pytest.mark.parametrize("text", ["0-99999999999", "", "x", "1-", "-1", "1,,2", "1 2", "3-1"])
def test_what_is_no_range_is_no_index(text: str) -> None:
    assert indexes_of(text) == frozenset()


def test_a_record_is_read_back_as_it_was_written() -> None:
    record = Record(
        attempt=2,
        restarts={"Worker": 3},
        completed={"Worker": "0-1"},
        written_off=["a"],
        last_failure=LastFailure(pod="p", exit_code=1),
        blocked=Blocked(object="pod p", reason="Unschedulable"),
    )
    assert record_in({"dlop": plain(record)}) == record


def test_an_empty_record_takes_no_room() -> None:
    assert plain(Record()) == {}


@pytest.mark.parametrize("status", [{}, {"dlop": None}, {"dlop": 7}, {"dlop": {"attempt": "two"}}, {"dlop": {"restarts": [1]}}])
def test_a_record_that_makes_no_sense_is_none(status: dict[str, object]) -> None:
    assert record_in(status) is None


def test_the_attempt_of_a_role_is_that_of_the_job_and_its_own() -> None:
    assert Record(attempt=2, role_attempts={"Worker": 1}).attempt_of("Worker") == 3


def test_what_the_spec_no_longer_asks_for_is_forgotten_and_what_was_counted_is_not() -> None:
    record = Record(completed={"Worker": "0-5", "Gone": "0"}, started={"Worker": "2-6"}, restarts={"Gone": 4}, counted={"a": 1, "b": 2})
    spec = JobSpec(roles=(RoleSpec(name="Worker", replicas=3),))
    closed = RecordBuilder(record, spec, first_pods={"Worker": "train-worker-0"}).close(living=["b"])
    assert (closed.completed, closed.started) == ({"Worker": "0-2"}, {"Worker": "2"})
    assert (closed.restarts, closed.counted) == ({"Gone": 4}, {"b": 2})


def test_claims_to_pods_of_other_names_are_released() -> None:
    record = Record(
        started={"Kept": "0", "Renamed": "0-1", "Old": "1", "Gone": "0"},
        completed={"Renamed": "2"},
        claimed_as={"Kept": "kept-0", "Renamed": "first-0", "Gone": "gone-0"},
    )
    spec = JobSpec(roles=tuple(RoleSpec(name=name, replicas=3) for name in ("Kept", "Renamed", "Old")))
    closed = RecordBuilder(record, spec, first_pods={"Kept": "kept-0", "Renamed": "second-0", "Old": "old-0"}).close(living=[])
    assert closed.started == {"Kept": "0", "Old": "1"}
    assert closed.claimed_as == {"Kept": "kept-0", "Old": "old-0"}
    assert closed.completed == {"Renamed": "2"}


def test_moments_are_told_to_the_second_and_nonsense_tells_none() -> None:
    assert format_time(1_800_000_000.9) == "2027-01-15T08:00:00Z"
    assert parse_time("2027-01-15T08:00:00Z") == 1_800_000_000
    assert [parse_time(text) for text in ("soon", "2027-01-15T08:00:00", "", None, 7)] == [None] * 5
    assert earliest(None, 3, 2) == 2
    assert earliest(None) is None
