"""Runs every cell of the restart matrix in the simulated cluster."""

from __future__ import annotations

import pytest
from restart_matrix import TABLE, Action, Cause, Cell, cells, restart_matrix_markdown

from dlop.api.spec import RestartScope
from tests.unit.reconcile.ring import HELPER, TRAINER, ring
from tests.unit.reconcile.world import GRACE_SECONDS, World

TARGETS = {True: "ring-trainer-0", False: "ring-helper-0"}
EXIT_CODES = {Cause.EXIT_0: 0, Cause.EXIT_1_TO_127: 1, Cause.EXIT_128_TO_255: 137}
NODE_LOST_SECONDS = 60


def running_world(cell: Cell) -> World:
    limits = {"backoffLimit": cell.backoff_limit, "disruptionLimit": cell.disruption_limit}
    run_policy = {name: limit for name, limit in limits.items() if limit is not None}
    world = World(ring(helpers=2, policy=cell.policy, restartScope=cell.scope.value, cleanPodPolicy="None", **run_policy))
    world.settle()
    world.run()
    world.settle()
    assert world.phase == "Running"
    return world


def inject(world: World, cause: Cause, name: str) -> None:
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
            world.remove_pod(name)
        case Cause.NODE_LOST:
            world.lost_nodes.add(name)
            world.delete_pod(name)


def recover(world: World) -> None:
    """Settle, advance the time if a node is lost, and start all pending pods."""
    world.settle()
    if world.lost_nodes and world.requeue_at is not None:
        assert world.requeue_at == world.now + GRACE_SECONDS + NODE_LOST_SECONDS
        world.now = world.requeue_at
        world.settle()
    world.lost_nodes.clear()
    world.run()
    world.settle()


def restarted_pods(cell: Cell, before: dict[str, str]) -> set[str]:
    """The pods that must have been replaced."""
    name = TARGETS[cell.is_required]
    is_by_kubelet = cell.scope is RestartScope.REPLICA and cell.cause in EXIT_CODES and cell.policy in ("Always", "OnFailure")
    if cell.action in (Action.DONE, Action.FAILED) or cell.exceeds or is_by_kubelet:
        return set()
    if cell.scope is RestartScope.JOB:
        return set(before)
    return {name} if cell.scope is RestartScope.REPLICA else {pod for pod in before if pod.startswith(name[:-1])}


@pytest.mark.parametrize("cell", list(cells()), ids=str)
def test_the_planner_implements_the_restart_matrix(cell: Cell) -> None:
    world = running_world(cell)
    before, name = world.uids(), TARGETS[cell.is_required]
    inject(world, cell.cause, name)
    recover(world)
    if cell.action is Action.DONE:
        assert world.phase == "Running"
        inject(world, cell.cause, name.replace("0", "1"))
        recover(world)

    role = TRAINER if cell.is_required else HELPER
    assert world.phase == cell.phase
    assert world.record.get("restarts", {}) == ({role: 1} if cell.action is Action.RESTARTED else {})
    assert world.record.get("disruptions", {}) == ({role: 1} if cell.action is Action.REPLACED else {})
    replaced = {pod for pod, uid in before.items() if world.uids().get(pod, uid) != uid}
    assert replaced == restarted_pods(cell, before)
    assert world.record.get("attempt", 0) == int(bool(replaced) and cell.scope is RestartScope.JOB)
    assert world.record.get("roleAttempts", {}) == ({role: 1} if replaced and cell.scope is RestartScope.ROLE else {})
    if cell.exceeds:
        assert cell.exceeds in [event.reason for event in world.events]
    assert not world.effects(world.plan())


def test_every_cause_policy_and_scope_has_exactly_one_action() -> None:
    combinations = [(cell.cause, cell.policy, cell.scope, cell.is_required, cell.backoff_limit, cell.disruption_limit) for cell in cells()]
    assert len(combinations) == len(set(combinations)) == len(Cause) * 4 * 3 * 2 * 5


def test_the_markdown_has_every_row_of_the_table() -> None:
    markdown = restart_matrix_markdown()
    assert all(markdown.count(f"| {row.cause.value} |") == sum(other.cause is row.cause for other in TABLE) for row in TABLE)
    assert "**job fails**" in markdown
