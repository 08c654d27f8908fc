"""The same troubles where pods are placed together: there is one group at a time, and nothing comes before it is let in.

Each write meets a crash and one further trouble, in turn, and each write to a group meets all of them; each commit meets an
operator on a server that is stuck there. A run is followed to the end of the stage after its trouble.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from dlop.testing.virtual_time import run as run_virtually
from tests.sim.faults import WRITE_FAULTS, FaultFactory, Latecomer, at_each_write, explored, stuck_at_each_commit, withheld
from tests.sim.stories import GANG
from tests.sim.telling import Run, live

_FAULTS = {**WRITE_FAULTS, "groups come late": withheld("podgroups")}
_IN_TURN = [name for name in _FAULTS if name != "crash"]
_GROUPS = "podgroups.scheduling.volcano.sh default/ring"


@pytest.fixture(scope="module")
def reference() -> Run:
    return run_virtually(live(GANG))


def test_the_run_does_what_it_tells_and_is_quiet_afterwards(reference: Run) -> None:
    assert list(reference.pictures) == ["restarted", "scaled up", "suspended", "resumed", "succeeded", "gone"]
    assert reference.pictures["gone"] == reference.pictures["suspended"].get("pods ring-worker-0", {}) == {}
    assert reference.counts["gone"][_GROUPS] == (2, 2)
    assert reference.counts["suspended"][_GROUPS] == (1, 1)
    assert [write.request.method for write in reference.writes if "podgroups" in write.request.path] == [
        *("POST", "PATCH", "DELETE"),
        *("POST", "DELETE"),
    ]
    assert reference.violations == []
    assert reference.errors == []
    assert reference.writes_at_rest == []


def test_whatever_goes_wrong_at_a_write_changes_nothing_in_the_end(reference: Run) -> None:
    about_groups = {number for number, write in enumerate(reference.writes, start=1) if "podgroups" in write.request.path}

    def sample(number: int) -> Mapping[str, FaultFactory]:
        names = _FAULTS if number in about_groups else ("crash", _IN_TURN[number % len(_IN_TURN)])
        return {name: _FAULTS[name] for name in names}

    branches = explored(GANG, reference, at_each_write(sample), stages_after=1)
    assert branches.problems == []
    assert branches.count == 2 * len(reference.writes) + (len(_FAULTS) - 2) * len(about_groups)


def test_an_operator_on_a_server_stuck_in_the_past_changes_nothing(reference: Run) -> None:
    seen_last = ("pods", "podgroups", GANG.framework.job_type.resource.plural)
    latecomers = [Latecomer(alone=alone, sees_last=resource) for resource in seen_last for alone in (True, False)]
    branches = explored(GANG, reference, stuck_at_each_commit(lambda number: latecomers[number % len(latecomers)]), stages_after=1)
    assert branches.problems == []
    assert branches.count == reference.commits
