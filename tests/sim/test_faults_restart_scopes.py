"""Faults in scenarios with restart scopes Job and Role, with disruptions, and with another status dialect.

A sample, to save time. Writes get in turn a crash and one of the other faults, or all faults in a thorough run. Every second commit,
or each in a thorough run, gets an operator on a stale server, in turn with the first operator dead or alive, and with pods or jobs
synced last. Forks run to the end of the stage after their fault, and to the end of the scenario if the job is finished by then.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from dlop.testing.virtual_time import run as run_on_virtual_time
from tests.sim.faults import WRITE_FAULTS, FaultFactory, StaleOperator, at_each_write, run_with_faults, stale_server_at_each_commit
from tests.sim.scenario_run import RunResult, Scenario, run_scenario
from tests.sim.scenarios import JOB_SCOPE, MXNET, ROLE_SCOPE
from tests.thorough import THOROUGH

_IN_TURN = [name for name in WRITE_FAULTS if name != "crash"]
_INTERVAL = 1 if THOROUGH else 2
pytestmark = pytest.mark.timeout(900 if THOROUGH else 120)
_SCENARIOS = [JOB_SCOPE, ROLE_SCOPE, MXNET]


@pytest.fixture(scope="module", params=_SCENARIOS, ids=str)
def scenario(request: pytest.FixtureRequest) -> Scenario:
    parameter: Scenario = request.param
    return parameter


@pytest.fixture(scope="module")
def reference(scenario: Scenario) -> RunResult:
    return run_on_virtual_time(run_scenario(scenario))


def sample(number: int) -> Mapping[str, FaultFactory]:
    if THOROUGH:
        return WRITE_FAULTS
    name = "crash" if number % 2 else _IN_TURN[number // 2 % len(_IN_TURN)]
    return {name: WRITE_FAULTS[name]}


def test_the_reference_run_reaches_all_stages_and_causes_no_writes_at_rest(reference: RunResult) -> None:
    assert list(reference.snapshots) == ["restarted", "evicted", "pod deleted", "node lost", "succeeded", "deleted by TTL"]
    assert reference.snapshots["deleted by TTL"] == {}
    assert reference.violations == []
    assert reference.errors == []
    assert reference.writes_when_idle == []


def pod_creates(scenario: Scenario) -> dict[str, int]:
    """Number of creates by pod name."""
    counts = run_on_virtual_time(run_scenario(scenario)).counts["deleted by TTL"]
    return {name.removeprefix("pods default/"): created for name, (created, _) in counts.items() if name.startswith("pods ")}


def test_with_restart_scope_job_each_pod_is_created_once_per_attempt() -> None:
    assert pod_creates(JOB_SCOPE) == {"pair-server-0": 5, "pair-worker-0": 5, "pair-worker-1": 5}


def test_with_restart_scope_role_pods_of_other_roles_are_not_restarted() -> None:
    assert pod_creates(ROLE_SCOPE) == {"pair-server-0": 2, "pair-worker-0": 4, "pair-worker-1": 4}


def test_with_restart_scope_replica_other_pods_are_not_restarted() -> None:
    assert pod_creates(MXNET) == {"mx-scheduler-r-0": 3, "mx-server-r-0": 2, "mx-worker-r-0": 1, "mx-worker-r-1": 2}


def test_faults_at_a_write_do_not_change_the_outcome(scenario: Scenario, reference: RunResult) -> None:
    forks = run_with_faults(scenario, reference, at_each_write(sample), stages_after=1)
    assert forks.failures == []
    assert forks.count == sum(len(sample(number)) for number, _ in enumerate(reference.writes, start=1))


def test_an_operator_on_a_stale_server_does_not_change_the_outcome(scenario: Scenario, reference: RunResult) -> None:
    jobs = scenario.framework.job_type.resource.plural
    operators = [StaleOperator(alone=alone, syncs_last=resource) for resource in ("pods", jobs) for alone in (True, False)]
    setup = stale_server_at_each_commit(lambda number: operators[number // _INTERVAL % 4] if number % _INTERVAL == 0 else None)
    forks = run_with_faults(scenario, reference, setup, stages_after=1)
    assert forks.failures == []
    assert forks.count == reference.commits // _INTERVAL > 0
