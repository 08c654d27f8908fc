"""However often the operator dies in the middle of a pass, or decides by an old copy of things: the job ends up the same."""

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
from tests.unit.reconcile.ring import HELPER, TRAINER, ring
from tests.unit.reconcile.world import World

PODS = [f"ring-{role}-{index}" for role in ("trainer", "helper") for index in range(3)]
Fault = tuple[str, int]


@dataclass(frozen=True)
class Happening:
    """Something that happens to a pod or to the job, if it can."""

    what: str
    pod: str = ""
    number: int = 0
    role: str = ""

    def happen(self, world: World) -> None:
        if not self.pod or world.is_running(self.pod):
            self._deeds(world)[self.what]()

    def _deeds(self, world: World) -> dict[str, Callable[[], None]]:
        return {
            "run": world.run,
            "exit": lambda: world.exit(self.pod, self.number),
            "evict": lambda: world.fail(self.pod, reason="Evicted", code=137),
            "fail": lambda: world.fail(self.pod),
            "delete": lambda: world.delete_pod(self.pod),
            "vanish": lambda: world.lose(self.pod),
            "scale": lambda: world.scale(self.role, self.number),
            "edit": lambda: world.set_image(TRAINER, f"example.org/train:{self.number}"),
            "wait": lambda: world.wait(self.number),
            "suspend": lambda: world.set_run_policy(suspend=True),
            "resume": lambda: world.set_run_policy(suspend=False),
        }


happenings = st.one_of(
    st.just(Happening("run")),
    st.builds(Happening, st.just("exit"), st.sampled_from(PODS), st.sampled_from([0, 0, 1, 137])),
    st.builds(Happening, st.sampled_from(["evict", "fail", "delete", "vanish"]), st.sampled_from(PODS)),
    st.builds(Happening, st.just("scale"), number=st.integers(0, 3), role=st.sampled_from([TRAINER, HELPER])),
    st.builds(Happening, st.just("edit"), number=st.integers(1, 3)),
    st.builds(Happening, st.just("wait"), number=st.sampled_from([5, 15, 700])),
    st.builds(Happening, st.sampled_from(["suspend", "resume"])),
)
steps = st.lists(st.lists(happenings, min_size=1, max_size=3), min_size=1, max_size=8)
specs = st.builds(
    lambda policy, scope, limits: ring(trainers=2, helpers=2, policy=policy, restartScope=scope, **limits),
    st.sampled_from(["Always", "OnFailure", "Never", "ExitCode"]),
    st.sampled_from(["Replica", "Role", "Job"]),
    st.sampled_from([{}, {"backoffLimit": 2}, {"disruptionLimit": 1}, {"cleanPodPolicy": "All"}]),
)
schedulers = st.sampled_from([Options(), Options(gang_scheduler_name="gangs")])
OF_THE_SIGHTED = ("crash", "repeat", "let go")
"""Faults of an operator that sees its own writes and the spec. Before it does, the control loop does not ask for a plan."""


def faults_of_a_pass(kinds: tuple[str, ...]) -> st.SearchStrategy[Fault]:
    return st.tuples(st.sampled_from(kinds), st.integers(0, 6))


faults = st.lists(faults_of_a_pass((*OF_THE_SIGHTED, "old pods", "old job")), max_size=12)


@given(spec=specs, options=schedulers, steps=steps, faults=faults)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_run_with_crashes_and_old_copies_ends_like_one_without(
    spec: JsonObject, options: Options, steps: list[list[Happening]], faults: list[Fault]
) -> None:
    plain, faulty = World(copy.deepcopy(spec), options=options), World(copy.deepcopy(spec), options=options)
    troubles = list(faults)
    for step in [[Happening("run")], *steps, [Happening("resume"), Happening("wait", number=700)], [Happening("run")]]:
        for happening in step:
            happening.happen(plain)
            happening.happen(faulty)
        plain.settle()
        settle_with_faults(faulty, troubles)
        assert essence(faulty) == essence(plain)
    event(plain.phase)


@given(spec=specs, options=schedulers, steps=steps)
@settings(max_examples=80, deadline=None)
def test_at_rest_a_plan_is_empty_and_says_nothing(spec: JsonObject, options: Options, steps: list[list[Happening]]) -> None:
    world = World(copy.deepcopy(spec), options=options)
    for step in [[Happening("run")], *steps]:
        for happening in step:
            happening.happen(world)
        world.pass_time(3600)
        plan = world.plan()
        assert not world.effects(plan)
        assert not plan.events


@given(spec=specs, steps=st.lists(st.tuples(happenings, faults_of_a_pass(OF_THE_SIGHTED)), max_size=25))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_nothing_is_counted_that_did_not_happen(spec: JsonObject, steps: list[tuple[Happening, Fault]]) -> None:
    """Things happen while the operator is in the middle of something else, again and again."""
    world = World(copy.deepcopy(spec))
    world.settle()
    world.run()
    before, failures, disruptions = copy.deepcopy(world), 0, 0
    for happening, fault in steps:
        could_happen = not happening.pod or world.is_running(happening.pod)
        happening.happen(world)
        failures += could_happen and happening.what in ("exit", "fail")
        disruptions += could_happen and happening.what in ("evict", "delete", "vanish")
        before = one_pass(world, before, fault)
    world.settle()
    assert sum(world.record.get("restarts", {}).values()) <= failures
    assert sum(world.record.get("disruptions", {}).values()) <= disruptions
    assert not world.effects(world.plan())


def settle_with_faults(world: World, faults: list[Fault]) -> None:
    """Passes with a fault in each, as long as there are any left; then as many as it takes."""
    before = copy.deepcopy(world)
    for _ in range(min(4, len(faults))):
        before = one_pass(world, before, faults.pop())
    world.settle()


def one_pass(world: World, before: World, fault: Fault) -> World:
    """One pass in which something goes wrong. Returns the world as it was."""
    what, writes = fault
    plan, version = planned(world, before, what)
    before = copy.deepcopy(world)
    if what == "let go":
        world.let_go(most=writes)
    world.carry_out(plan, writes=writes if what == "crash" else None, version=version)
    if what == "repeat":
        world.carry_out(plan, version=version)
    return before


def planned(world: World, before: World, what: str) -> tuple[Plan, int]:
    """A plan by what is there, or partly by what was there before the last pass."""
    if what == "old pods":
        return world.job().reconcile(before.snapshot(), world.now), world.version
    if what == "old job":
        return before.job().reconcile(world.snapshot(), world.now), before.version
    return world.plan(), world.version


def essence(world: World) -> dict[str, object]:
    """What must not depend on how often the operator died."""
    record = {name: value for name, value in world.record.items() if name not in ("writtenOff", "counted")}
    pods = {
        name: (pod["metadata"]["labels"][ATTEMPT_LABEL], pod["status"]["phase"], world.images()[name]) for name, pod in world.pods.items()
    }
    groups = {name: body["spec"] for (_, name), body in world.others.items()}
    return {"record": record, "conditions": world.conditions, "pods": pods, "services": sorted(world.services), "groups": groups}
