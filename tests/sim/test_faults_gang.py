"""Faults in a scenario with gang scheduling: there is one pod group at a time, and no pod before it is admitted.

Writes get in turn a crash and one of the other faults, and each write of a pod group gets all of them. Every second commit, or each in
a thorough run, gets an operator on a stale server. Forks run to the end of the stage after their fault.
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
from tests.sim.scenario_run import RunResult, run_scenario
from tests.sim.scenarios import GANG
from tests.thorough import THOROUGH

_FAULTS = {**WRITE_FAULTS, "pod group events delayed": delay_watches("podgroups")}
_IN_TURN = [name for name in _FAULTS if name != "crash"]
_INTERVAL = 1 if THOROUGH else 2
pytestmark = pytest.mark.timeout(900 if THOROUGH else 120)
_POD_GROUP = "podgroups.scheduling.volcano.sh default/ring"


@pytest.fixture(scope="module")
def reference() -> RunResult:
    return run_on_virtual_time(run_scenario(GANG))


def test_the_reference_run_reaches_all_stages_and_causes_no_writes_at_rest(reference: RunResult) -> None:
    assert list(reference.snapshots) == ["restarted", "scaled up", "suspended", "resumed", "succeeded", "deleted by TTL"]
    assert reference.snapshots["deleted by TTL"] == reference.snapshots["suspended"].get("pods ring-worker-0", {}) == {}
    assert reference.counts["deleted by TTL"][_POD_GROUP] == (2, 2)
    assert reference.counts["suspended"][_POD_GROUP] == (1, 1)
    assert [write.request.method for write in reference.writes if "podgroups" in write.request.path] == [
        *("POST", "PATCH", "DELETE"),
        *("POST", "DELETE"),
    ]
    assert reference.violations == []
    assert reference.errors == []
    assert reference.writes_when_idle == []


def test_faults_at_a_write_do_not_change_the_outcome(reference: RunResult) -> None:
    pod_group_writes = {number for number, write in enumerate(reference.writes, start=1) if "podgroups" in write.request.path}

    def sample(number: int) -> Mapping[str, FaultFactory]:
        if THOROUGH or number in pod_group_writes:
            return _FAULTS
        name = "crash" if number % 2 else _IN_TURN[number // 2 % len(_IN_TURN)]
        return {name: _FAULTS[name]}

    forks = run_with_faults(GANG, reference, at_each_write(sample), stages_after=1)
    assert forks.failures == []
    assert forks.count == sum(len(sample(number)) for number, _ in enumerate(reference.writes, start=1))


def test_an_operator_on_a_stale_server_does_not_change_the_outcome(reference: RunResult) -> None:
    resources = ("pods", "podgroups", GANG.framework.job_type.resource.plural)
    operators = [StaleOperator(alone=alone, syncs_last=resource) for resource in resources for alone in (True, False)]
    setup = stale_server_at_each_commit(lambda number: operators[number // _INTERVAL % len(operators)] if number % _INTERVAL == 0 else None)
    forks = run_with_faults(GANG, reference, setup, stages_after=1)
    assert forks.failures == []
    assert forks.count == reference.commits // _INTERVAL > 0
