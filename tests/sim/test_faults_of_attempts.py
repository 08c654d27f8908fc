"""The same troubles where a whole job or role is started anew, where pods are taken away, and in another dialect.

A sample, for the sake of time. Each write meets a crash, a lost answer and one further trouble, in turn; each commit
meets an operator on a server that is stuck there, in turn with the first one dead or alive, and pods or jobs seen last.
A run is followed to the end of the stage after its trouble, and to the end of the job if that has ended by then.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from dlop.testing.virtual_time import run as run_virtually
from tests.sim.faults import WRITE_FAULTS, FaultFactory, Latecomer, at_each_write, explored, stuck_at_each_commit
from tests.sim.stories import MXNET, ROLE_BY_ROLE, WHOLE_JOB
from tests.sim.telling import Run, Story, live

_ALWAYS = ("crash", "answer lost")
_IN_TURN = [name for name in WRITE_FAULTS if name not in _ALWAYS]
_STORIES = [WHOLE_JOB, ROLE_BY_ROLE, MXNET]


@pytest.fixture(scope="module", params=_STORIES, ids=str)
def story(request: pytest.FixtureRequest) -> Story:
    found: Story = request.param
    return found


@pytest.fixture(scope="module")
def reference(story: Story) -> Run:
    return run_virtually(live(story))


def sample(number: int) -> Mapping[str, FaultFactory]:
    return {name: WRITE_FAULTS[name] for name in (*_ALWAYS, _IN_TURN[number % len(_IN_TURN)])}


def test_the_run_does_what_it_tells_and_is_quiet_afterwards(reference: Run) -> None:
    assert list(reference.pictures) == ["restarted", "evicted", "deleted", "node lost", "succeeded", "gone"]
    assert reference.pictures["gone"] == {}
    assert reference.violations == []
    assert reference.errors == []
    assert reference.writes_at_rest == []


def pods_made(story: Story) -> dict[str, int]:
    counts = run_virtually(live(story)).counts["gone"]
    return {name.removeprefix("pods default/"): created for name, (created, _) in counts.items() if name.startswith("pods ")}


def test_a_job_that_is_started_anew_as_a_whole_makes_each_pod_once_for_each_attempt() -> None:
    assert pods_made(WHOLE_JOB) == {"pair-server-0": 5, "pair-worker-0": 5, "pair-worker-1": 5}


def test_a_role_that_is_started_anew_leaves_the_others_alone() -> None:
    assert pods_made(ROLE_BY_ROLE) == {"pair-server-0": 2, "pair-worker-0": 4, "pair-worker-1": 4}


def test_a_replica_that_is_started_anew_leaves_all_others_alone() -> None:
    assert pods_made(MXNET) == {"mx-scheduler-r-0": 3, "mx-server-r-0": 2, "mx-worker-r-0": 1, "mx-worker-r-1": 2}


def test_whatever_goes_wrong_at_a_write_changes_nothing_in_the_end(story: Story, reference: Run) -> None:
    branches = explored(story, reference, at_each_write(sample), stages_after=1)
    assert branches.problems == []
    assert branches.count == 3 * len(reference.writes)


def test_an_operator_on_a_server_stuck_in_the_past_changes_nothing(story: Story, reference: Run) -> None:
    jobs = story.framework.job_type.resource.plural
    latecomers = [Latecomer(alone=alone, sees_last=resource) for resource in ("pods", jobs) for alone in (True, False)]
    branches = explored(story, reference, stuck_at_each_commit(lambda number: latecomers[number % 4]), stages_after=1)
    assert branches.problems == []
    assert branches.count == reference.commits
