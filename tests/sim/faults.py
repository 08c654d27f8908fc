"""What can go wrong, each at every write or commit of a story; and what is then compared.

For every trouble there is one run, the trunk, in which nothing goes wrong, and a branch of it at every write (or commit)
in which something does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from dlop.embedded.apiserver.faults import Match
from dlop.embedded.apiserver.server import ApiServer
from dlop.kube.transport import Request
from dlop.operator.settings import Settings
from dlop.testing.faulty_transport import AnswerLost, Crash, Fault, Refused, SideEffect
from dlop.testing.kit import OperatorKit
from dlop.testing.operator_runner import RunningOperator
from dlop.testing.stale_view import add_stale_server
from dlop.testing.virtual_time import run as run_virtually
from tests.sim.branches import Branches
from tests.sim.telling import Disturb, Run, Story, Telling, live

# How long watch events are withheld, or a server is stuck.
_LAG_SECONDS = 25.0
# How far apart two watches of a server are, when it gets on at last: longer than a pass takes.
_APART_SECONDS = 3.0
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


# --- at a write ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scene:
    """Where something goes wrong: an operator, and a server that it has for itself."""

    kit: OperatorKit
    operator: RunningOperator
    server: ApiServer


FaultFactory = Callable[[Scene], Fault]
"""Makes something go wrong with the write that is about to be sent."""


def answer_lost(_: Scene) -> Fault:
    return AnswerLost()


def refused(code: int) -> FaultFactory:
    return lambda _: Refused(code, retry_after_seconds=1 if code == 429 else None)


def crashed(scene: Scene) -> Fault:
    """The operator is dead after the write, and another one takes over."""

    async def take_over() -> None:
        await scene.operator.wire.was_cut.wait()
        await scene.operator.crash()
        await scene.kit.start_operator()

    scene.kit.later(take_over)
    return Crash()


def withheld(plural: str | None) -> FaultFactory:
    """After the write, watches of one resource or of all fall silent for a while."""

    def fault(scene: Scene) -> Fault:
        def hold() -> None:
            held = scene.server.faults.hold_watches(match=Match(plural=plural))
            asyncio.get_running_loop().call_later(_LAG_SECONDS, held.release)

        return SideEffect(hold)

    return fault


def joined(scene: Scene) -> Fault:
    """After the write there is a second operator that believes to lead."""
    return SideEffect(lambda: scene.kit.later(scene.kit.start_operator))


def deposed(scene: Scene) -> Fault:
    """From the write on, the leader reaches everything but its lease."""

    def lose_lease() -> None:
        scene.operator.wire.cut_leases()
        scene.kit.later(scene.operator.until_leadership_is_lost)

    return SideEffect(lose_lease)


WRITE_FAULTS: Mapping[str, FaultFactory] = {
    "crash": crashed,
    "answer lost": answer_lost,
    "409": refused(409),
    "429": refused(429),
    "500": refused(500),
    "pods come late": withheld("pods"),
    "everything comes late": withheld(None),
    "second operator": joined,
}


def at_each_write(faults: Callable[[int], Mapping[str, FaultFactory]], *, elected: bool = False) -> Disturb:
    """`faults` tells by the number of a write what goes wrong with it, each in a branch of its own."""

    async def disturb(telling: Telling) -> None:
        scene = await _scene(telling.kit, elected=elected)

        def choose(number: int, request: Request) -> Fault | None:
            for name, fault in faults(number).items():
                if telling.branch(f"{name} at write {number}, {request.method} {request.path}"):
                    return fault(scene)
            return None

        scene.operator.wire.trouble_by(choose)

    return disturb


async def _scene(kit: OperatorKit, *, elected: bool) -> Scene:
    server = kit.new_server()
    if not elected:
        return Scene(kit, await kit.start_operator(server), server)
    leader = await kit.start_operator(server, settings=_ELECTED)
    await leader.operator.wait_synced()
    await kit.start_operator(settings=_ELECTED)
    return Scene(kit, leader, server)


# --- at a commit -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Latecomer:
    """An operator that comes to a world that it sees as it was. When its server gets on, some of it is seen before the rest."""

    alone: bool
    """Whether the first operator is dead by then."""
    sees_last: str
    """The resource that is seen after all others."""

    def __str__(self) -> str:
        return f"{'successor' if self.alone else 'rival'} that sees {self.sees_last} last"


def stuck_at_each_commit(latecomer: Callable[[int], Latecomer]) -> Disturb:
    """The world goes on after a commit. Then another operator starts, on a server that still shows that very moment.

    `latecomer` tells by the number of the commit who that is.
    """

    async def disturb(telling: Telling) -> None:
        kit = telling.kit
        operator = await kit.start_operator()

        async def come_late(who: Latecomer, version: int) -> None:
            await asyncio.sleep(_LATE_SECONDS)
            if who.alone:
                await operator.crash()
            server, view = add_stale_server(kit.cluster, version=version)
            await kit.start_operator(server)
            await asyncio.sleep(_LAG_SECONDS)
            held = server.faults.hold_watches(match=Match(plural=who.sees_last))
            kit.cluster.store.listeners.append(lambda change: view.advance(change.version))
            view.advance()
            await asyncio.sleep(_APART_SECONDS)
            held.release()

        def begin() -> None:
            number, version = telling.run.commits, kit.cluster.store.version
            who = latecomer(number)
            if telling.branch(f"{who}, on a server stuck at commit {number}, version {version}"):
                kit.later(lambda: come_late(who, version))

        telling.at_each_commit(begin)

    return disturb


# --- what came of it -------------------------------------------------------------------------------------------------


def explored(
    story: Story, reference: Run, disturb: Disturb, *, stages_after: int | None = None, expected_error: str | None = None
) -> Branches:
    """Live through a story and all its branches, and compare each with the reference.

    `expected_error` is what has to be logged in every branch, once, and nothing else.
    """
    branches = Branches()

    def compared() -> list[str]:
        run = run_virtually(live(story, disturb, branches=branches, stages_after=stages_after))
        expected = [expected_error] if expected_error and branches.story else []
        return list(differences(run, reference, expected_errors=expected))

    branches.explore(compared)
    return branches


def differences(run: Run, reference: Run, *, expected_errors: list[str]) -> Iterator[str]:
    """In what way a run is not as it should be."""
    yield from run.violations
    if len(run.errors) != len(expected_errors) or any(want not in have for want, have in zip(expected_errors, run.errors, strict=True)):
        yield f"errors: {run.errors}"
    for stage, picture in run.pictures.items():
        yield from _unlike(picture, reference.pictures[stage], f"{stage}: ")
        yield from _unlike(run.counts[stage], reference.counts[stage], f"{stage}: creates and deletes of ")
    yield from (f"written at rest: {write}" for write in run.writes_at_rest)


def _unlike(found: Mapping[str, object], expected: Mapping[str, object], told: str) -> Iterator[str]:
    for name in sorted({*found, *expected}):
        if found.get(name) != expected.get(name):
            yield f"{told}{name}: {found.get(name)} and not {expected.get(name)}"
