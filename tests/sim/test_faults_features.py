"""Faults in scenarios with features that not all jobs use, such as elastic roles, members, host ports and a start order of the job.

A sample, to save time: writes get in turn a crash and one of the other faults, and each write of a status gets a crash. In a thorough run
all writes get all faults. Every fourth commit, or each in a thorough run, gets an operator on a stale server. Forks run to the end of the
stage after their fault.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from dlop.testing.virtual_time import run as run_on_virtual_time
from tests.sim.faults import (
    WRITE_FAULTS,
    FaultFactory,
    StaleOperator,
    at_each_write,
    delay_watches,
    run_with_faults,
    stale_server_at_each_commit,
)
from tests.sim.feature_scenarios import HOST_PORTS, ORDERED, QUEUED, SPOT, SYNCED, TENSORBOARD
from tests.sim.scenario_run import RunResult, Scenario, run_scenario
from tests.sim.scenarios import ADOPTED, ELASTIC, FAULT_TOLERANT, HOST_NETWORK, PARAMETER_SERVERS, SCALED_BY_PLANS
from tests.thorough import THOROUGH

_FAULTS = {
    **WRITE_FAULTS,
    "node events delayed": delay_watches("nodes"),
    "config map events delayed": delay_watches("configmaps"),
    "workload events delayed": delay_watches("workloads"),
}
_IN_TURN = [name for name in _FAULTS if name != "crash"]
_INTERVAL = 1 if THOROUGH else 4
_STAGES = {
    ELASTIC: ["running", "grown", "evicted", "shrunk", "suspended", "resumed", "succeeded", "deleted by TTL"],
    FAULT_TOLERANT: ["running", "grown", "evicted", "failed", "shrunk", "succeeded", "deleted by TTL"],
    SCALED_BY_PLANS: [
        *("master running", "workers running", "replaced", "held", "shrunk", "new master", "succeeded", "deleted by TTL"),
    ],
    ADOPTED: [
        *("master running", "adopted", "new master", "replaced", "suspended", "resumed", "adopted again", "succeeded", "deleted by TTL"),
    ],
    PARAMETER_SERVERS: ["restarted", "evicted", "scaled up", "suspended", "resumed", "succeeded", "deleted by TTL"],
    HOST_NETWORK: ["running", "evicted", "scaled up", "suspended", "resumed", "succeeded", "deleted by TTL"],
    ORDERED: ["running", "evicted", "suspended", "resumed", "succeeded", "deleted by TTL"],
    HOST_PORTS: ["running", "evicted", "workers added", "server added", "suspended", "resumed", "succeeded", "deleted by TTL"],
    SPOT: ["running", "evicted", "fallen back", "evicted on demand", "succeeded", "deleted by TTL"],
    SYNCED: ["cloned", "suspended", "blocked", "resumed", "succeeded", "deleted by TTL"],
    TENSORBOARD: [
        *("running", "board evicted", "configured", "evicted", "suspended", "resumed"),
        *("succeeded", "evicted after the end", "board deleted", "deleted by TTL"),
    ],
    QUEUED: [
        *("queued", "running", "pod evicted", "preempted", "admitted again", "queued with another size", "scaled up"),
        *("suspended", "queued again", "resumed", "succeeded", "deleted by TTL"),
    ],
}
pytestmark = pytest.mark.timeout(900 if THOROUGH else 120)


@pytest.fixture(scope="module", params=_STAGES, ids=str)
def scenario(request: pytest.FixtureRequest) -> Scenario:
    parameter: Scenario = request.param
    return parameter


@pytest.fixture(scope="module")
def reference(scenario: Scenario) -> RunResult:
    return run_on_virtual_time(run_scenario(scenario))


def test_the_reference_run_reaches_all_stages_and_causes_no_writes_at_rest(scenario: Scenario, reference: RunResult) -> None:
    assert list(reference.snapshots) == _STAGES[scenario]
    assert reference.snapshots["deleted by TTL"] == {}
    assert reference.violations == []
    assert reference.errors == []
    assert reference.writes_when_idle == []


def test_faults_at_a_write_do_not_change_the_outcome(scenario: Scenario, reference: RunResult) -> None:
    def sample(number: int) -> Mapping[str, FaultFactory]:
        if THOROUGH:
            return _FAULTS
        is_status = reference.writes[number - 1].request.path.endswith("/status") if number <= len(reference.writes) else False
        name = "crash" if number % 2 or is_status else _IN_TURN[number // 2 % len(_IN_TURN)]
        return {name: _FAULTS[name]}

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
