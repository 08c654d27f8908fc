"""Every cell of the truth table, run through a small world."""

from __future__ import annotations

import pytest
from restart_matrix import TABLE, Answer, Cause, Cell, cells, truth_table_markdown

from dlop.api.spec import RestartScope
from tests.unit.reconcile.ring import HELPER, TRAINER, ring
from tests.unit.reconcile.world import GRACE_SECONDS, World

STRUCK = {True: "ring-trainer-0", False: "ring-helper-0"}
EXIT_CODES = {Cause.EXIT_0: 0, Cause.EXIT_1_TO_127: 1, Cause.EXIT_128_TO_255: 137}
NODE_LOST_SECONDS = 60


def running_world(cell: Cell) -> World:
    limits = {"backoffLimit": cell.backoff_limit, "disruptionLimit": cell.disruption_limit}
    given = {name: limit for name, limit in limits.items() if limit is not None}
    world = World(ring(helpers=2, policy=cell.policy, restartScope=cell.scope.value, cleanPodPolicy="None", **given))
    world.settle()
    world.run()
    world.settle()
    assert world.phase == "Running"
    return world


def strike(world: World, cause: Cause, name: str) -> None:
    match cause:
        case Cause.EXIT_0 | Cause.EXIT_1_TO_127 | Cause.EXIT_128_TO_255:
            world.exit(name, EXIT_CODES[cause])
        case Cause.FAILED:
            world.fail(name)
        case Cause.EVICTED:
            world.fail(name, reason="Evicted", code=137)
        case Cause.DELETED:
            world.delete_pod(name)
        case Cause.VANISHED:
            world.lose(name)
        case Cause.NODE_LOST:
            world.lost_nodes.add(name)
            world.delete_pod(name)


def recover(world: World) -> None:
    """All comes to rest; where a node is lost, time has to pass; then everything that waits begins to run."""
    world.settle()
    if world.lost_nodes and world.look_again_at is not None:
        assert world.look_again_at == world.now + GRACE_SECONDS + NODE_LOST_SECONDS
        world.now = world.look_again_at
        world.settle()
    world.lost_nodes.clear()
    world.run()
    world.settle()


def restarted_pods(cell: Cell, before: dict[str, str]) -> set[str]:
    """The pods that have to be other ones afterwards."""
    name = STRUCK[cell.decides]
    is_by_node = cell.scope is RestartScope.REPLICA and cell.cause in EXIT_CODES and cell.policy in ("Always", "OnFailure")
    if cell.answer in (Answer.DONE, Answer.FAILED) or cell.exceeds or is_by_node:
        return set()
    if cell.scope is RestartScope.JOB:
        return set(before)
    return {name} if cell.scope is RestartScope.REPLICA else {each for each in before if each.startswith(name[:-1])}


@pytest.mark.parametrize("cell", list(cells()), ids=str)
def test_what_happens_to_a_replica_has_the_answer_of_the_table(cell: Cell) -> None:
    world = running_world(cell)
    before, name = world.uids(), STRUCK[cell.decides]
    strike(world, cell.cause, name)
    recover(world)
    if cell.answer is Answer.DONE:
        assert world.phase == "Running"
        strike(world, cell.cause, name.replace("0", "1"))
        recover(world)

    role = TRAINER if cell.decides else HELPER
    assert world.phase == cell.phase
    assert world.record.get("restarts", {}) == ({role: 1} if cell.answer is Answer.RESTARTED else {})
    assert world.record.get("disruptions", {}) == ({role: 1} if cell.answer is Answer.REPLACED else {})
    started_again = {each for each, uid in before.items() if world.uids().get(each, uid) != uid}
    assert started_again == restarted_pods(cell, before)
    assert world.record.get("attempt", 0) == int(bool(started_again) and cell.scope is RestartScope.JOB)
    assert world.record.get("roleAttempts", {}) == ({role: 1} if started_again and cell.scope is RestartScope.ROLE else {})
    if cell.exceeds:
        assert cell.exceeds in [event.reason for event in world.events]
    assert not world.effects(world.plan())


def test_every_cause_policy_and_scope_has_exactly_one_answer() -> None:
    found = [(cell.cause, cell.policy, cell.scope, cell.decides, cell.backoff_limit, cell.disruption_limit) for cell in cells()]
    assert len(found) == len(set(found)) == len(Cause) * 4 * 3 * 2 * 5


def test_the_page_shows_every_row_of_the_table() -> None:
    page = truth_table_markdown()
    assert all(page.count(f"| {row.cause.value} |") == sum(other.cause is row.cause for other in TABLE) for row in TABLE)
    assert "**job fails**" in page
