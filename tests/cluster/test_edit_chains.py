"""Five hundred jobs on the real API server whose specs are edited again and again, rightly and wrongly.

In the end each one is as if it had been made with its last spec, the operator is alive, and nothing goes on any more.
"""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
from real_cluster import RealCluster

from dlop.kube.client import Client, Limits
from dlop.kube.http.transport import connect
from tests.cluster.chain_world import Pair, World, world_of_jobs
from tests.cluster.edit_chains import Chain, Sort, drawn
from tests.cluster.ring_jobs import operator_process, tail, until_in_step

CHAINS = 500
AT_ONCE = 50
WITHIN_SECONDS = 180
ONE_CHAIN_WITHIN_SECONDS = 60
REST_SECONDS = 3.0


@pytest.mark.timeout(2 * WITHIN_SECONDS)
def test_after_any_chain_of_edits_a_job_is_like_a_fresh_one_with_the_last_spec(real_cluster: RealCluster, tmp_path: Path) -> None:
    chains = drawn(CHAINS)
    assert len(chains) == CHAINS
    _demand_variety(chains)
    log = tmp_path / "operator.log"
    asyncio.run(_live_through(chains, real_cluster, log))
    assert "a pass failed" not in log.read_text(), tail(log)


def _demand_variety(chains: list[Chain]) -> None:
    """Chains that are all alike would show nothing."""
    sorts = Counter(step.sort for chain in chains for step in chain.steps)
    assert all(sorts[sort] >= CHAINS // 50 for sort in Sort), sorts
    assert CHAINS // 10 < sum(chain.pods_run for chain in chains) < CHAINS * 3 // 4
    assert min(Counter(chain.kind.name for chain in chains).values()) >= CHAINS // 50


async def _live_through(chains: list[Chain], cluster: RealCluster, log: Path) -> None:
    client = Client(await connect(cluster.kubeconfig_path), limits=Limits(writes_in_flight=AT_ONCE))
    try:
        async with asyncio.timeout(WITHIN_SECONDS), world_of_jobs(client) as world:
            flags = ("--framework", "tests.cluster.chain_kinds:CrewJob,tests.cluster.chain_kinds:FreeCrewJob", "--log-format", "json")
            where = ("--namespaces", ",".join(world.places.all()), "--bind-address", "127.0.0.1:0", "--leader-election=false")
            async with operator_process(cluster, log, *flags, *where) as process:
                await until_in_step(log)
                pairs = await _run(world, chains)
                await _demand_rest(log)
                assert not [pair.name for pair in pairs if world.complaints(pair)], "what was equal is so no more"
                assert process.returncode is None, tail(log)
    finally:
        await client.close()


async def _run(world: World, chains: list[Chain]) -> list[Pair]:
    """Run all chains, and give back those whose jobs still are there: those that go on trying for ever are deleted."""
    places = asyncio.Semaphore(AT_ONCE)

    async def run(pair: Pair) -> list[str]:
        async with places:
            return await _run_one(world, pair)

    pairs = [world.pair(chain, number) for number, chain in enumerate(chains)]
    found = await asyncio.gather(*(run(pair) for pair in pairs))
    wrong = [f"{pair.name}, {pair.chain}\n" + "\n".join(lines) for pair, lines in zip(pairs, found, strict=True) if lines]
    assert len(found) == CHAINS
    assert not wrong, f"{len(wrong)} chains lead elsewhere:\n\n" + "\n\n".join(wrong[:10])
    refused = [pair for pair in pairs if world.is_refused(pair)]
    await asyncio.gather(*map(world.delete, refused))
    return [pair for pair in pairs if pair not in refused]


async def _run_one(world: World, pair: Pair) -> list[str]:
    """What is wrong in the end, if anything still is when there was time enough."""
    try:
        async with asyncio.timeout(ONE_CHAIN_WITHIN_SECONDS):
            await world.live_through(pair)
            await world.until(pair, lambda: not world.complaints(pair))
    except AssertionError as error:
        return [str(error)]
    except TimeoutError:
        return world.complaints(pair) or ["it came to an end too late"]
    return []


async def _demand_rest(log: Path) -> None:
    """There comes a time in which no pass is made."""
    while True:
        before = await asyncio.to_thread(_passes, log)
        await asyncio.sleep(REST_SECONDS)
        if await asyncio.to_thread(_passes, log) == before:
            return


def _passes(log: Path) -> float:
    """How many passes the operator has made so far; that it answers also tells that it is alive."""
    with urllib.request.urlopen(f"{_address(log)}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("controller_runtime_reconcile_total{"))


def _address(log: Path) -> str:
    """Where the operator says that it can be asked."""
    lines = (json.loads(line) for line in log.read_text().splitlines() if line.startswith("{"))
    return next(f"http://{line['host']}:{line['port']}" for line in lines if line["msg"] == "probes and metrics are served")
