"""Crashes in the middle of a pass and stale caches do not change the final state of a job."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from dlop.api.constants import ATTEMPT_LABEL
from dlop.api.types import Options
from dlop.kube.types import JsonObject
from dlop.reconcile.plan import Plan
from tests.thorough import examples
from tests.unit.reconcile.ring import HELPER, TRAINER, ring
from tests.unit.reconcile.world import World

PODS = [f"ring-{role}-{index}" for role in ("trainer", "helper") for index in range(3)]
Fault = tuple[str, int]


@dataclass(frozen=True)
class Action:
    """An action on a pod or the job. An action on a pod that is not running does nothing."""

    name: str
    pod: str = ""
    number: int = 0
    role: str = ""

    def apply(self, world: World) -> None:
        if not self.pod or world.is_running(self.pod):
            self._actions(world)[self.name]()

    def _actions(self, world: World) -> dict[str, Callable[[], None]]:
        return {
            "run": world.run,
            "exit": lambda: world.exit(self.pod, self.number),
            "evict": lambda: world.fail(self.pod, reason="Evicted", code=137),
            "fail": lambda: world.fail(self.pod),
            "delete": lambda: world.delete_pod(self.pod),
            "vanish": lambda: world.remove_pod(self.pod),
            "interrupt": lambda: world.interrupt_delete(self.pod),
            "succeed and interrupt": lambda: self._succeed_and_interrupt(world),
            "scale": lambda: world.scale(self.role, self.number),
            "edit": lambda: world.set_image(TRAINER, f"example.org/train:{self.number}"),
            "wait": lambda: world.wait(self.number),
            "suspend": lambda: world.set_run_policy(suspend=True),
            "resume": lambda: world.set_run_policy(suspend=False),
        }

    def _succeed_and_interrupt(self, world: World) -> None:
        world.exit(self.pod, 0)
        world.interrupt_delete(self.pod)


actions = st.one_of(
    st.just(Action("run")),
    st.builds(Action, st.just("exit"), st.sampled_from(PODS), st.sampled_from([0, 0, 1, 137])),
    st.builds(Action, st.sampled_from(["evict", "fail", "delete", "vanish", "interrupt", "succeed and interrupt"]), st.sampled_from(PODS)),
    st.builds(Action, st.just("scale"), number=st.integers(0, 3), role=st.sampled_from([TRAINER, HELPER])),
    st.builds(Action, st.just("edit"), number=st.integers(1, 3)),
    st.builds(Action, st.just("wait"), number=st.sampled_from([5, 15, 700])),
    st.builds(Action, st.sampled_from(["suspend", "resume"])),
)
steps = st.lists(st.lists(actions, min_size=1, max_size=3), min_size=1, max_size=8)
specs = st.builds(
    lambda policy, scope, limits: ring(trainers=2, helpers=2, policy=policy, restartScope=scope, **limits),
    st.sampled_from(["Always", "OnFailure", "Never", "ExitCode"]),
    st.sampled_from(["Replica", "Role", "Job"]),
    st.sampled_from([{}, {"backoffLimit": 2}, {"disruptionLimit": 1}, {"cleanPodPolicy": "All"}]),
)
schedulers = st.sampled_from([Options(), Options(gang_scheduler_name="gangs")])
FRESH_CACHE_FAULTS = ("crash", "repeat", "confirm")
"""Faults of an operator whose caches show its own writes and the spec. The controller does not plan before they do."""


def pass_faults(kinds: tuple[str, ...]) -> st.SearchStrategy[Fault]:
    return st.tuples(st.sampled_from(kinds), st.integers(0, 6))


faults = st.lists(pass_faults((*FRESH_CACHE_FAULTS, "stale pods", "stale job")), max_size=12)


@given(spec=specs, options=schedulers, steps=steps, faults=faults)
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_run_with_crashes_and_stale_caches_ends_like_one_without(
    spec: JsonObject, options: Options, steps: list[list[Action]], faults: list[Fault]
) -> None:
    reference, faulty = World(copy.deepcopy(spec), options=options), World(copy.deepcopy(spec), options=options)
    remaining = list(faults)
    for step in [[Action("run")], *steps, [Action("resume"), Action("wait", number=700)], [Action("run")]]:
        for action in step:
            action.apply(reference)
            action.apply(faulty)
        reference.settle()
        settle_with_faults(faulty, remaining)
        assert final_state(faulty) == final_state(reference)
    event(reference.phase)


@given(spec=specs, options=schedulers, steps=steps)
@settings(max_examples=examples(80), deadline=None)
def test_the_plan_of_a_settled_job_is_empty_and_has_no_events(spec: JsonObject, options: Options, steps: list[list[Action]]) -> None:
    world = World(copy.deepcopy(spec), options=options)
    for step in [[Action("run")], *steps]:
        for action in step:
            action.apply(world)
        world.pass_time(3600)
        plan = world.plan()
        assert not world.effects(plan)
        assert not plan.events


@given(spec=specs, steps=st.lists(st.tuples(actions, pass_faults(FRESH_CACHE_FAULTS)), max_size=25))
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_only_actual_failures_and_disruptions_are_counted(spec: JsonObject, steps: list[tuple[Action, Fault]]) -> None:
    """Actions happen between and during passes."""
    world = World(copy.deepcopy(spec))
    world.settle()
    world.run()
    before, failures, disruptions = copy.deepcopy(world), 0, 0
    for action, fault in steps:
        is_applied = not action.pod or world.is_running(action.pod)
        action.apply(world)
        failures += is_applied and action.name in ("exit", "fail", "succeed and interrupt")
        disruptions += is_applied and action.name in ("evict", "delete", "vanish", "interrupt", "succeed and interrupt")
        before = one_pass(world, before, fault)
    world.settle()
    assert sum(world.record.get("restarts", {}).values()) <= failures
    assert sum(world.record.get("disruptions", {}).values()) <= disruptions
    assert not world.effects(world.plan())


def settle_with_faults(world: World, faults: list[Fault]) -> None:
    """Run up to four passes with a fault each, then settle."""
    before = copy.deepcopy(world)
    for _ in range(min(4, len(faults))):
        before = one_pass(world, before, faults.pop())
    world.settle()


def one_pass(world: World, before: World, fault: Fault) -> World:
    """One pass with a fault. Returns a copy of the world before its writes."""
    kind, writes = fault
    plan, version = plan_with_fault(world, before, kind)
    before = copy.deepcopy(world)
    if kind == "confirm":
        world.confirm_deletions(limit=writes)
    world.execute(plan, writes=writes if kind == "crash" else None, version=version)
    if kind == "repeat":
        world.execute(plan, version=version)
    return before


def plan_with_fault(world: World, before: World, kind: str) -> tuple[Plan, int]:
    """A plan from the current state, or partly from the state before the last pass."""
    if kind == "stale pods":
        return world.job().reconcile(before.snapshot(), world.now), world.version
    if kind == "stale job":
        return before.job().reconcile(world.snapshot(), world.now), before.version
    return world.plan(), world.version


def final_state(world: World) -> dict[str, object]:
    """The state that must not depend on crashes."""
    pods = {
        name: (pod["metadata"]["labels"][ATTEMPT_LABEL], pod["status"]["phase"], world.images()[name]) for name, pod in world.pods.items()
    }
    groups = {name: body["spec"] for (_, name), body in world.children.items()}
    return {"record": world.record, "conditions": world.conditions, "pods": pods, "services": sorted(world.services), "groups": groups}
