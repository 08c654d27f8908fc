"""Leader election under lost requests, lost answers, errors, delays and cut wires: never two leaders, and soon one again."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dlop.kube.leader_election import LeadershipLostError
from dlop.testing.virtual_time import virtual_time
from tests.unit.kube.lease_server import LeaseServer, Wire, elector, now


class Weather:
    """Three electors that stand for ever, a wire for each, and somebody who counts leaders."""

    def __init__(self, seed: int, *, delay: float, loss: float, errors: float) -> None:
        self.rng = random.Random(seed)
        self.server = LeaseServer()
        self.wires = [
            Wire(self.server, self.rng, max_delay_seconds=delay, lost_request_rate=loss, lost_answer_rate=loss, error_rate=errors)
            for _ in range(3)
        ]
        self.electors = [elector(wire, f"elector-{number}", seed=seed + number) for number, wire in enumerate(self.wires)]
        self.led = [0, 0, 0]

    async def stand(self, number: int) -> None:
        while True:
            with suppress(LeadershipLostError):
                await self.electors[number].run(lambda: self.lead(number))

    async def lead(self, number: int) -> None:
        self.led[number] += 1
        # Leads until cut off, or gives up by itself after a while.
        await asyncio.sleep(self.rng.uniform(1, 120))

    async def count_leaders(self) -> None:
        while True:
            leaders = [elector for elector in self.electors if elector.is_leader()]
            assert len(leaders) <= 1
            await asyncio.sleep(0.2)

    async def cut_wires(self) -> None:
        while True:
            await asyncio.sleep(self.rng.uniform(1, 60))
            wire = self.rng.choice(self.wires)
            wire.cut = not wire.cut
            wire.can_watch = self.rng.random() < 0.5

    async def pass_by(self, seconds: float) -> None:
        tasks = [asyncio.create_task(self.stand(number)) for number in range(3)]
        tasks += [asyncio.create_task(self.count_leaders()), asyncio.create_task(self.cut_wires())]
        try:
            done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
            tasks.pop().cancel()
            await self.calm_down(tasks)
        finally:
            everything: list[asyncio.Task[Any]] = [*tasks, *self.server.in_flight]
            for task in everything:
                task.cancel()
            await asyncio.gather(*everything, return_exceptions=True)

    async def calm_down(self, tasks: list[asyncio.Task[None]]) -> None:
        """When the weather clears, somebody leads soon."""
        for wire in self.wires:
            wire.cut, wire.max_delay_seconds, wire.lost_request_rate, wire.lost_answer_rate, wire.error_rate = False, 0, 0, 0, 0
        deadline = now() + 15 + 5 + 2 * 4.4
        while not any(elector.is_leader() for elector in self.electors):
            assert now() < deadline
            assert not any(task.done() for task in tasks)
            await asyncio.sleep(0.05)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    delay=st.sampled_from([0.0, 0.3, 2.0, 8.0, 30.0]),
    loss=st.sampled_from([0.0, 0.1, 0.4]),
    errors=st.sampled_from([0.0, 0.2]),
)
@virtual_time
async def test_there_is_never_more_than_one_leader_in_any_weather_and_one_soon_after_it(
    seed: int, delay: float, loss: float, errors: float
) -> None:
    await Weather(seed, delay=delay, loss=loss, errors=errors).pass_by(400)


@virtual_time
async def test_in_fair_weather_everybody_leads_in_turn() -> None:
    weather = Weather(3, delay=0.05, loss=0.0, errors=0.0)
    await weather.pass_by(4000)
    assert all(weather.led)
