"""Every write of the reference run, and everything that can go wrong with it: the world comes out the same.

This is the full product: each trouble at each write, or at each commit, and every run is followed to the end of the job.
"""

from __future__ import annotations

import pytest

from dlop.testing.virtual_time import run as run_virtually
from tests.sim.faults import (
    FaultFactory,
    Latecomer,
    answer_lost,
    at_each_write,
    crashed,
    deposed,
    explored,
    joined,
    refused,
    stuck_at_each_commit,
    withheld,
)
from tests.sim.stories import RING
from tests.sim.telling import Run, live


@pytest.fixture(scope="module")
def reference() -> Run:
    return run_virtually(live(RING))


def test_the_reference_run_does_what_it_tells_and_is_quiet_afterwards(reference: Run) -> None:
    assert list(reference.pictures) == ["restarted", "suspended", "resumed", "scaled up", "scaled down", "succeeded", "gone"]
    assert reference.pictures["gone"] == {}
    assert reference.violations == []
    assert reference.errors == []
    assert reference.writes_at_rest == []
    assert reference.counts["gone"]["pods default/ring-worker-0"] == (3, 3)
    assert reference.counts["gone"]["pods default/ring-worker-1"] == (3, 3)
    assert reference.counts["gone"]["pods default/ring-worker-2"] == (1, 1)


def demand_no_trace(reference: Run, fault: FaultFactory) -> None:
    branches = explored(RING, reference, at_each_write(lambda _: {"trouble": fault}))
    assert branches.problems == []
    assert branches.count == len(reference.writes)


@pytest.mark.parametrize("fault", [answer_lost, refused(409), refused(429), refused(500)], ids=["lost", "409", "429", "500"])
def test_a_write_that_goes_wrong_changes_nothing_in_the_end(reference: Run, fault: FaultFactory) -> None:
    demand_no_trace(reference, fault)


def test_an_operator_that_crashes_after_a_write_is_taken_over_from_without_a_trace(reference: Run) -> None:
    demand_no_trace(reference, crashed)


@pytest.mark.parametrize("plural", ["pods", "ringjobs", None], ids=["pods", "jobs", "everything"])
def test_watch_events_that_come_late_change_nothing(reference: Run, plural: str | None) -> None:
    demand_no_trace(reference, withheld(plural))


def test_two_operators_that_both_believe_to_lead_do_no_harm(reference: Run) -> None:
    demand_no_trace(reference, joined)


def test_a_leader_that_loses_its_lease_is_followed_without_a_trace(reference: Run) -> None:
    disturb = at_each_write(lambda _: {"lease lost": deposed}, elected=True)
    branches = explored(RING, reference, disturb, expected_error="leadership is lost")
    assert branches.problems == []
    assert branches.count == len(reference.writes)


@pytest.mark.parametrize("sees_last", ["pods", "ringjobs"])
def test_an_operator_that_comes_back_to_a_server_stuck_in_the_past_changes_nothing(reference: Run, sees_last: str) -> None:
    demand_no_harm(reference, Latecomer(alone=True, sees_last=sees_last))


@pytest.mark.parametrize("sees_last", ["pods", "ringjobs"])
def test_a_rival_on_a_server_stuck_in_the_past_does_no_harm(reference: Run, sees_last: str) -> None:
    """Only preconditions stand between what the rival believes and the pods of today."""
    demand_no_harm(reference, Latecomer(alone=False, sees_last=sees_last))


def demand_no_harm(reference: Run, latecomer: Latecomer) -> None:
    branches = explored(RING, reference, stuck_at_each_commit(lambda _: latecomer))
    assert branches.problems == []
    assert branches.count == reference.commits
