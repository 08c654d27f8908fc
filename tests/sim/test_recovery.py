"""How soon the operator writes again after an outage of the API server."""

from __future__ import annotations

import pytest

from dlop.testing.virtual_time import virtual_time
from tests.sim.operator_env import operator_env, ring, settle


@pytest.mark.parametrize("leader_election", [False, True])
@pytest.mark.parametrize("down_seconds", [8, 600])
@virtual_time
async def test_a_job_whose_writes_failed_is_continued_two_seconds_after_the_outage(*, leader_election: bool, down_seconds: float) -> None:
    async with operator_env() as env, env.run_operator(leader_election=leader_election):
        await settle(5)
        await env.submit(ring())
        env.faults.fail_before(None, times=1_000_000)
        await settle(0.1)  # until the operator has seen the job
        env.faults.drop_watches()
        await settle(down_seconds)
        env.faults.clear()
        await settle(2)
        assert len(await env.pods()) == 3
