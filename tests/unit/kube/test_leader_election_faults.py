"""Leader election with lost requests, lost responses, errors, delays and outages: at most one leader, and soon one again."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dlop.kube.leader_election import LeadershipLostError
from dlop.testing.virtual_time import virtual_time
from tests.thorough import examples
from tests.unit.kube.lease_server import FaultyNetwork, LeaseServer, elector, now


class Simulation:
    """Three electors that compete forever, each with its own network, and a check on the number of leaders."""

    def __init__(self, seed: int, *, delay: float, loss: float, errors: float) -> None:
        self.rng = random.Random(seed)
        self.server = LeaseServer()
        self.networks = [
            FaultyNetwork(
                self.server, self.rng, max_delay_seconds=delay, lost_request_rate=loss, lost_response_rate=loss, error_rate=errors
            )
            for _ in range(3)
        ]
        self.electors = [elector(network, f"elector-{number}", seed=seed + number) for number, network in enumerate(self.networks)]
        self.terms = [0, 0, 0]

    async def compete(self, number: int) -> None:
        while True:
            with suppress(LeadershipLostError):
                await self.electors[number].run(lambda: self.lead(number))

    async def lead(self, number: int) -> None:
        self.terms[number] += 1
        # Ends leadership by itself after a while, unless it is lost before.
        await asyncio.sleep(self.rng.uniform(1, 120))

    async def count_leaders(self) -> None:
        while True:
            leaders = [elector for elector in self.electors if elector.is_leader()]
            assert len(leaders) <= 1
            await asyncio.sleep(0.2)

    async def toggle_networks(self) -> None:
        while True:
            await asyncio.sleep(self.rng.uniform(1, 60))
            network = self.rng.choice(self.networks)
            network.cut = not network.cut
            network.can_watch = self.rng.random() < 0.5

    async def run(self, seconds: float) -> None:
        tasks = [asyncio.create_task(self.compete(number)) for number in range(3)]
        tasks += [asyncio.create_task(self.count_leaders()), asyncio.create_task(self.toggle_networks())]
        try:
            done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
            tasks.pop().cancel()
            await self.recover(tasks)
        finally:
            all_tasks: list[asyncio.Task[Any]] = [*tasks, *self.server.in_flight]
            for task in all_tasks:
                task.cancel()
            await asyncio.gather(*all_tasks, return_exceptions=True)

    async def recover(self, tasks: list[asyncio.Task[None]]) -> None:
        """Without faults there is a leader soon."""
        for network in self.networks:
            network.cut, network.max_delay_seconds, network.lost_request_rate, network.lost_response_rate, network.error_rate = (
                False,
                0,
                0,
                0,
                0,
            )
        deadline = now() + 15 + 5 + 2 * 4.4
        while not any(elector.is_leader() for elector in self.electors):
            assert now() < deadline
            assert not any(task.done() for task in tasks)
            await asyncio.sleep(0.05)


@settings(max_examples=examples(25), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    delay=st.sampled_from([0.0, 0.3, 2.0, 8.0, 30.0]),
    loss=st.sampled_from([0.0, 0.1, 0.4]),
    errors=st.sampled_from([0.0, 0.2]),
)
@virtual_time
async def test_there_is_at_most_one_leader_under_faults_and_one_soon_after_them(
    seed: int, delay: float, loss: float, errors: float
) -> None:
    await Simulation(seed, delay=delay, loss=loss, errors=errors).run(400)


@virtual_time
async def test_without_faults_every_elector_becomes_leader() -> None:
    simulation = Simulation(3, delay=0.05, loss=0.0, errors=0.0)
    await simulation.run(4000)
    assert all(simulation.terms)
