"""Every write of the reference run, and everything that can go wrong with it: the world comes out the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from dlop.local.apiserver.faults import Match
from dlop.local.apiserver.store import Change
from dlop.settings import Settings
from dlop.testing.kit import OperatorKit
from dlop.testing.running import RunningOperator
from dlop.testing.virtual_time import run as run_virtually
from dlop.testing.wire import AnswerLost, Crash, Meanwhile, Refused, Trouble
from tests.sim.reference import Disturb, Run, live

# How long watch events are withheld, or a server is stuck.
_LAG_SECONDS = 25.0
# How much the world moves on before somebody looks at it as it was: longer than a replacement takes.
_LATE_SECONDS = 20.0

# Patient, so that a run is not made of renewals.
_ELECTED = Settings.model_validate(
    {
        "leader_election": True,
        "bind_address": "off",
        "lease_duration_seconds": 40,
        "renew_deadline_seconds": 30,
        "retry_period_seconds": 10,
    }
)


@pytest.fixture(scope="module")
def reference() -> Run:
    return run_virtually(live())


def demand_same(run: Run, reference: Run, *, story: str) -> None:
    """Fail unless the run shows the same world as the reference, made with as many creates and deletes."""
    told = f"{story}; writes: {[str(write) for write in run.writes]}"
    assert run.violations == [], told
    assert run.errors == [], told
    for stage, picture in reference.pictures.items():
        assert run.pictures[stage] == picture, f"{stage}: {told}"
    assert run.counts == reference.counts, told
    assert run.writes_at_rest == [], told


def test_the_reference_run_does_what_it_tells_and_is_quiet_afterwards(reference: Run) -> None:
    assert list(reference.pictures) == ["restarted", "suspended", "resumed", "scaled up", "scaled down", "succeeded", "gone"]
    assert reference.pictures["gone"] == {}
    assert reference.violations == []
    assert reference.errors == []
    assert reference.writes_at_rest == []
    assert reference.counts["pods default/ring-worker-0"] == (3, 3)
    assert reference.counts["pods default/ring-worker-1"] == (3, 3)
    assert reference.counts["pods default/ring-worker-2"] == (1, 1)


def each_write(reference: Run) -> Iterator[int]:
    yield from range(1, len(reference.writes) + 1)


def troubled(number: int, trouble: Trouble) -> Disturb:
    async def disturb(kit: OperatorKit) -> None:
        operator = await kit.start_operator()
        operator.wire.trouble_at(number, trouble)

    return disturb


@pytest.mark.parametrize(
    "trouble", [AnswerLost(), Refused(409), Refused(429, retry_after_seconds=1), Refused(500)], ids=["lost", "409", "429", "500"]
)
def test_a_write_that_goes_wrong_changes_nothing_in_the_end(reference: Run, trouble: Trouble) -> None:
    for number in each_write(reference):
        run = run_virtually(live(troubled(number, trouble)))
        demand_same(run, reference, story=f"{trouble} at write {number}, {reference.writes[number - 1]}")


def test_an_operator_that_crashes_after_a_write_is_taken_over_from_without_a_trace(reference: Run) -> None:
    for number in each_write(reference):
        run = run_virtually(live(crashed(number)))
        demand_same(run, reference, story=f"crash after write {number}, {reference.writes[number - 1]}")


def crashed(number: int) -> Disturb:
    async def disturb(kit: OperatorKit) -> None:
        operator = await kit.start_operator()
        operator.wire.trouble_at(number, Crash())
        kit.later(lambda: when_dead(operator, kit.start_operator))

    return disturb


async def when_dead(operator: RunningOperator, start: Callable[[], Awaitable[object]]) -> None:
    await operator.wire.was_cut.wait()
    await operator.crash()
    await start()


def test_an_operator_that_comes_back_to_a_server_stuck_in_the_past_changes_nothing(reference: Run) -> None:
    for version in reference.versions:
        run = run_virtually(live(stuck(version, first_lives_on=False)))
        demand_same(run, reference, story=f"successor on a server stuck at version {version}")


def test_a_rival_on_a_server_stuck_in_the_past_does_no_harm(reference: Run) -> None:
    """Only preconditions stand between what the rival believes and the pods of today."""
    for version in reference.versions:
        run = run_virtually(live(stuck(version, first_lives_on=True)))
        demand_same(run, reference, story=f"rival on a server stuck at version {version}")


def stuck(version: int, *, first_lives_on: bool) -> Disturb:
    """The world goes on after a commit. Then another operator starts, on a server that still shows that very moment."""

    async def disturb(kit: OperatorKit) -> None:
        operator = await kit.start_operator()

        async def come_late() -> None:
            await asyncio.sleep(_LATE_SECONDS)
            if not first_lives_on:
                await operator.crash()
            server, view = kit.cluster.lagging_server(version=version)
            await kit.start_operator(server)
            await asyncio.sleep(_LAG_SECONDS)
            kit.cluster.store.listeners.append(lambda change: view.advance(change.version))
            view.advance()

        def begin(change: Change) -> None:
            if change.version == version:
                kit.later(come_late)

        kit.cluster.store.listeners.append(begin)

    return disturb


@pytest.mark.parametrize("plural", ["pods", "ringjobs", None], ids=["pods", "jobs", "everything"])
def test_watch_events_that_come_late_change_nothing(reference: Run, plural: str | None) -> None:
    for number in each_write(reference):
        run = run_virtually(live(withheld(number, plural)))
        demand_same(run, reference, story=f"watch of {plural} withheld at write {number}, {reference.writes[number - 1]}")


def withheld(number: int, plural: str | None) -> Disturb:
    async def disturb(kit: OperatorKit) -> None:
        server = kit.new_server()
        operator = await kit.start_operator(server)

        def hold() -> None:
            held = server.faults.hold_watches(match=Match(plural=plural))
            asyncio.get_running_loop().call_later(_LAG_SECONDS, held.release)

        operator.wire.trouble_at(number, Meanwhile(hold))

    return disturb


def test_two_operators_that_both_believe_to_lead_do_no_harm(reference: Run) -> None:
    for number in each_write(reference):
        run = run_virtually(live(joined(number)))
        demand_same(run, reference, story=f"second operator from write {number} on, {reference.writes[number - 1]}")


def joined(number: int) -> Disturb:
    async def disturb(kit: OperatorKit) -> None:
        operator = await kit.start_operator()
        operator.wire.trouble_at(number, Meanwhile(lambda: kit.later(kit.start_operator)))

    return disturb


def test_a_leader_that_loses_its_lease_is_followed_without_a_trace(reference: Run) -> None:
    for number in each_write(reference):
        run = run_virtually(live(deposed(number)))
        (told,) = run.errors
        assert "leadership is lost" in told
        run.errors.clear()
        demand_same(run, reference, story=f"lease lost at write {number}, {reference.writes[number - 1]}")


def deposed(number: int) -> Disturb:
    """A leader and a standby. From a write on, the leader reaches everything but its lease."""

    async def disturb(kit: OperatorKit) -> None:
        leader = await kit.start_operator(settings=_ELECTED)
        await leader.operator.wait_synced()
        await kit.start_operator(settings=_ELECTED)

        def lose_lease() -> None:
            leader.wire.cut_leases()
            kit.later(leader.until_leadership_is_lost)

        leader.wire.trouble_at(number, Meanwhile(lose_lease))

    return disturb
