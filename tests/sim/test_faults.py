"""Faults at the writes and commits of the ring scenario do not change its outcome.

In a thorough run every fault is combined with every write or commit, and forks run to the end of the scenario. Otherwise a crash
follows every write, every third write or commit has each of the other faults, and forks run to the end of the next stage.
"""

from __future__ import annotations

import pytest

from dlop.testing.virtual_time import run as run_on_virtual_time
from tests.sim.faults import (
    FaultFactory,
    StaleOperator,
    add_second_leader,
    at_each_write,
    crash,
    delay_watches,
    lose_lease,
    lose_response,
    reject,
    run_with_faults,
    stale_server_at_each_commit,
)
from tests.sim.scenario_run import RunResult, run_scenario
from tests.sim.scenarios import RING
from tests.thorough import THOROUGH

_STAGES_AFTER = None if THOROUGH else 1
_INTERVAL = 1 if THOROUGH else 3


@pytest.fixture(scope="module")
def reference() -> RunResult:
    return run_on_virtual_time(run_scenario(RING))


def test_the_reference_run_reaches_all_stages_and_causes_no_writes_at_rest(reference: RunResult) -> None:
    assert list(reference.snapshots) == [
        *("restarted", "suspended", "resumed", "scaled up", "scaled down", "succeeded", "deleted by TTL"),
    ]
    assert reference.snapshots["deleted by TTL"] == {}
    assert reference.violations == []
    assert reference.errors == []
    assert reference.writes_when_idle == []
    assert reference.counts["deleted by TTL"]["pods default/ring-worker-0"] == (3, 3)
    assert reference.counts["deleted by TTL"]["pods default/ring-worker-1"] == (3, 3)
    assert reference.counts["deleted by TTL"]["pods default/ring-worker-2"] == (1, 1)


def check_at_writes(reference: RunResult, fault: FaultFactory, *, interval: int = _INTERVAL) -> None:
    setup = at_each_write(lambda number: {"fault": fault} if number % interval == 0 else {})
    forks = run_with_faults(RING, reference, setup, stages_after=_STAGES_AFTER)
    assert forks.failures == []
    assert forks.count == len(reference.writes) // interval > 0


def check_at_commits(reference: RunResult, stale_operator: StaleOperator) -> None:
    setup = stale_server_at_each_commit(lambda number: stale_operator if number % _INTERVAL == 0 else None)
    forks = run_with_faults(RING, reference, setup, stages_after=_STAGES_AFTER)
    assert forks.failures == []
    assert forks.count == reference.commits // _INTERVAL > 0


@pytest.mark.parametrize("fault", [lose_response, reject(409), reject(429), reject(500)], ids=["lost", "409", "429", "500"])
def test_a_failed_write_does_not_change_the_outcome(reference: RunResult, fault: FaultFactory) -> None:
    check_at_writes(reference, fault)


def test_a_crash_after_a_write_does_not_change_the_outcome(reference: RunResult) -> None:
    check_at_writes(reference, crash, interval=1)


@pytest.mark.parametrize("plural", ["pods", "ringjobs", None], ids=["pods", "jobs", "everything"])
def test_delayed_watch_events_do_not_change_the_outcome(reference: RunResult, plural: str | None) -> None:
    check_at_writes(reference, delay_watches(plural))


def test_two_operators_that_both_reconcile_do_not_change_the_outcome(reference: RunResult) -> None:
    check_at_writes(reference, add_second_leader)


def test_a_lost_lease_does_not_change_the_outcome(reference: RunResult) -> None:
    setup = at_each_write(lambda number: {"lease lost": lose_lease} if number % _INTERVAL == 0 else {}, elected=True)
    forks = run_with_faults(RING, reference, setup, stages_after=_STAGES_AFTER, expected_error="leader election lost")
    assert forks.failures == []
    assert forks.count == len(reference.writes) // _INTERVAL > 0


@pytest.mark.parametrize("syncs_last", ["pods", "ringjobs"])
def test_an_operator_that_restarts_on_a_stale_server_does_not_change_the_outcome(reference: RunResult, syncs_last: str) -> None:
    check_at_commits(reference, StaleOperator(alone=True, syncs_last=syncs_last))


@pytest.mark.parametrize("syncs_last", ["pods", "ringjobs"])
def test_a_second_operator_on_a_stale_server_does_not_change_the_outcome(reference: RunResult, syncs_last: str) -> None:
    """Only preconditions protect the current pods from the stale operator."""
    check_at_commits(reference, StaleOperator(alone=False, syncs_last=syncs_last))
