"""Edits at any moment: what the operator replaces because of an edit is neither a failure nor a disruption.

Edits, writes of the operator, crashes, stale caches and the progress of pods interleave in any order. The caches may be behind users
and nodes, but not behind the operator's own writes: the control loop asks for no plan before they show these.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlop.api.child_objects import Create
from dlop.api.constants import REPLICA_INDEX_LABEL, REPLICA_TYPE_LABEL
from dlop.api.record import indexes_of
from dlop.kube.timestamps import format_time
from dlop.kube.types import JsonObject
from dlop.reconcile.plan import Delete, Plan
from tests.unit.reconcile.ring import HELPER, TRAINER, NamedJob, RenamedJob, named_ring, role
from tests.unit.reconcile.world import Effect, World

ALL = 99
SCOPES = ("Replica", "Role", "Job")
COUNTS = ("restarts", "disruptions", "retries", "lastFailure", "attempt", "roleAttempts", "failed", "writtenOff")
"""What a record contains only if something was counted."""

Place = tuple[str, int]
"""The role and the index of a replica."""


@dataclass
class EditedWorld(World):
    """A world whose operator reads from two caches and can be stopped after every write."""

    seen_job: World = field(init=False, repr=False)
    seen_pods: World = field(init=False, repr=False)
    to_write: list[Effect] = field(default_factory=list)
    """The rest of the current pass."""
    is_behind: bool = False
    """Whether a write of this pass was refused because the caches are stale: then the status is not written."""
    completed: set[Place] = field(default_factory=set)
    """Replicas that are completed in the record, and that no edit has removed from the spec since."""
    failures: int = 0
    disruptions: int = 0

    def __post_init__(self) -> None:
        self.see_job()
        self.see_pods()

    # --- the operator ---

    def see_job(self) -> None:
        self.seen_job = World(self.spec, kind=self.kind, status=self.status, generation=self.generation, version=self.version)

    def see_pods(self) -> None:
        self.seen_pods = World(self.spec, pods=copy.deepcopy(self.pods), services=copy.deepcopy(self.services))

    def begin_pass(self) -> None:
        """Plan by what the caches show. If the last pass is not finished, the operator has crashed, and its rest is never written."""
        plan = self.seen_job.job().reconcile(self.seen_pods.snapshot(), self.now)
        self.to_write = self.effects(plan, version=self.seen_job.version)

    def write(self, writes: int) -> None:
        """The next writes of the current pass."""
        for _ in range(min(writes, len(self.to_write))):
            self.to_write.pop(0)()

    def effects(self, plan: Plan, *, version: int | None = None) -> list[Effect]:
        self.is_behind = False
        assert len({deletion.uid for deletion in plan.deletions}) == len(plan.deletions), "something is deleted twice"
        return super().effects(plan, version=version)

    def _create(self, creation: Create) -> None:
        before = self.writes.total()
        super()._create(creation)
        self.is_behind |= self.writes.total() == before
        self.see_pods()

    def _check_pod(self, body: JsonObject) -> None:
        """The spec may have been edited after the plan was made: the pod need not be one that it asks for."""
        body["status"] = {"phase": "Pending"}
        assert place_of(body) not in self.completed, f"{place_of(body)} runs a second time"

    def _delete(self, deletion: Delete) -> None:
        before = self.writes.total()
        super()._delete(deletion)
        self.is_behind |= self.writes.total() == before
        self.see_pods()

    def _write_status(self, status: JsonObject, *, version: int | None) -> None:
        before = self.version
        if not self.is_behind:
            super()._write_status(status, version=version)
        if self.version > before:
            self.see_job()
            self.completed |= self.places("completed")

    # --- nodes ---

    def one_of(self, number: int, *, phase: str) -> list[str]:
        """The name of one pod in this phase that is not being deleted; empty if there is none."""
        names = [name for name, pod in self.pods.items() if pod["status"]["phase"] == phase and "deletionTimestamp" not in pod["metadata"]]
        return [names[number % len(names)]] if names else []

    def run_one(self, number: int) -> None:
        for name in self.one_of(number, phase="Pending"):
            self.run(name)

    def complete_one(self, number: int) -> None:
        """Only helpers complete: the job goes on without them."""
        for name in self.one_of(number, phase="Running"):
            if place_of(self.pods[name])[0] == HELPER:
                self.exit(name, 0)

    def lose_one(self, number: int) -> None:
        """A failure or a disruption that no edit has caused."""
        for name in self.one_of(number, phase="Running"):
            kind = number % 5
            self.failures += kind < 2
            self.disruptions += kind >= 2
            losses: tuple[Effect, ...] = (
                lambda name=name: self.exit(name, 137),  # type: ignore[misc]
                lambda name=name: self.fail(name),  # type: ignore[misc]
                lambda name=name: self.fail(name, reason="Evicted", code=137),  # type: ignore[misc]
                lambda name=name: self.delete_pod(name),  # type: ignore[misc]
                lambda name=name: self.lose(name),  # type: ignore[misc]
            )
            losses[kind]()

    def stop(self, number: int) -> None:
        """The containers of the pods that are being deleted end, and the pods are still there."""
        for pod in self.pods.values():
            if "deletionTimestamp" in pod["metadata"] and pod["status"]["phase"] == "Running":
                ended = {"exitCode": (0, 143)[number % 2], "finishedAt": format_time(self.now)}
                pod["status"]["containerStatuses"][0]["state"] = {"terminated": ended}
                pod["status"]["phase"] = "Failed" if number % 2 else "Succeeded"

    # --- users ---

    def edit(self, change: Callable[[Any], None]) -> None:
        super().edit(change)
        self.completed &= self.asked()

    def rename(self, number: int, *names: str) -> None:
        self.edit(lambda spec: spec["names"].update(dict.fromkeys(names, f"n{number}")))

    def remove_helpers(self) -> None:
        self.edit(lambda spec: spec["replicaSpecs"].pop(HELPER, None))

    def scale_role(self, name: str, replicas: int) -> None:
        """This also brings back a role that was removed."""
        self.edit(lambda spec: spec["replicaSpecs"].setdefault(name, role(replicas)).update(replicas=replicas))

    def edit_image(self, name: str, number: int) -> None:
        if name in self.spec["replicaSpecs"]:
            self.set_image(name, f"example.org/train:{number}")

    # --- what the tests ask ---

    def settle_running(self) -> None:
        """The operator crashes for the last time; then it goes on until there is nothing to do and all pods run."""
        self.to_write = []
        for _ in range(5):
            self.settle()
            self.run()
            self.wait(700)
        self.see_job()
        self.see_pods()

    def asked(self) -> set[Place]:
        return {(name, index) for name, spec in self.spec["replicaSpecs"].items() for index in range(spec["replicas"])}

    def places(self, name: str) -> set[Place]:
        """The replicas in a field of the record."""
        return {(role, index) for role, ranges in self.record.get(name, {}).items() for index in indexes_of(ranges)}

    def count(self, name: str) -> int:
        counts: Iterable[int] = self.record.get(name, {}).values()
        return sum(counts)

    def check_nothing_is_counted(self) -> None:
        for name in COUNTS:
            assert name not in self.record, f"{name}: {self.record[name]}"
        assert self.completed <= self.places("completed")

    def check_counts(self) -> None:
        assert self.count("restarts") <= self.failures
        assert self.count("disruptions") <= self.disruptions

    def check_at_rest(self) -> None:
        """Each replica has one pod, which runs and is claimed; only a completed one may have none. There are no other pods."""
        places = [place_of(pod) for pod in self.pods.values()]
        assert len(places) == len(set(places))
        assert self.asked() - self.completed <= set(places) <= self.asked()
        assert self.kind is not RenamedJob or self.pods.keys() <= self.wanted()
        running = {place_of(pod) for name, pod in self.pods.items() if self.is_running(name)}
        assert self.places("started") == running == self.asked() - self.completed

    def check_a_loss_is_counted(self) -> None:
        """In the wider scopes, replicas that are completed start again with the others."""
        before = self.count("disruptions")
        self.completed.clear()
        for name in self.one_of(0, phase="Running"):
            self.lose(name)
            self.settle()
            assert self.count("disruptions") == before + 1


def place_of(pod: JsonObject) -> Place:
    labels: Mapping[str, str] = pod["metadata"]["labels"]
    return labels[REPLICA_TYPE_LABEL].capitalize(), int(labels[REPLICA_INDEX_LABEL])


@dataclass(frozen=True)
class Step:
    """One thing that happens."""

    what: str
    number: int = 0
    role: str = TRAINER

    def happen(self, world: EditedWorld) -> None:
        deeds: dict[str, Callable[[], None]] = {
            "see job": world.see_job,
            "see pods": world.see_pods,
            "plan": world.begin_pass,
            "write": lambda: world.write(self.number),
            "run": world.run,
            "run one": lambda: world.run_one(self.number),
            "complete": lambda: world.complete_one(self.number),
            "lose": lambda: world.lose_one(self.number),
            "stop": lambda: world.stop(self.number),
            "wait": lambda: world.wait(self.number),
            "rename": lambda: world.rename(self.number, self.role),
            "rename all": lambda: world.rename(self.number, TRAINER, HELPER),
            "scale": lambda: world.scale_role(self.role, self.number),
            "image": lambda: world.edit_image(self.role, self.number),
            "scope": lambda: world.set_run_policy(restartScope=SCOPES[self.number]),
            "remove": world.remove_helpers,
            "suspend": lambda: world.set_run_policy(suspend=True),
            "resume": lambda: world.set_run_policy(suspend=False),
        }
        if self.what == "let go":
            world.let_go(most=self.number)
        else:
            deeds[self.what]()


roles = st.sampled_from([TRAINER, HELPER])
# Few names, so that an edit is often taken back.
names = st.sampled_from([0, 0, 1, 1, 2])
edits = st.one_of(
    st.builds(Step, st.just("rename"), names, roles),
    st.builds(Step, st.just("rename all"), names),
    st.builds(Step, st.just("rename all"), names),
    st.builds(Step, st.just("scale"), st.integers(0, 3), roles),
    st.builds(Step, st.just("image"), st.integers(1, 3), roles),
    st.builds(Step, st.sampled_from(["scope", "suspend", "resume", "remove"]), st.integers(0, 2)),
)
progress = st.one_of(
    st.just(Step("run")),
    st.builds(Step, st.sampled_from(["run one", "stop"]), st.integers(0, 5)),
    st.builds(Step, st.just("let go"), st.sampled_from([1, 2, ALL])),
    st.builds(Step, st.just("wait"), st.sampled_from([5, 31, 100])),
)
completions = st.builds(Step, st.just("complete"), st.integers(0, 5))
losses = st.builds(Step, st.just("lose"), st.integers(0, 29))
writes = st.builds(Step, st.just("write"), st.one_of(st.just(ALL), st.integers(0, 8)))
SEEN = [Step("see job"), Step("see pods")]
views = st.sampled_from([SEEN, SEEN, SEEN, SEEN[:1], SEEN[1:], []])


def passes(others: st.SearchStrategy[Step]) -> st.SearchStrategy[list[Step]]:
    """One pass after the other. Before each, things happen that the caches may not show; each may be stopped, or stop for a while."""
    happenings = st.booleans().flatmap(lambda is_edit: edits if is_edit else others)
    writing = st.one_of(writes.map(lambda first: [first]), st.tuples(writes, happenings, writes).map(list))
    one = st.tuples(st.lists(happenings, max_size=2), views, st.just([Step("plan")]), writing)
    return st.lists(one, max_size=8).map(lambda several: [step for parts in several for part in parts for step in part])


def running(kind: type[NamedJob], policy: str, scope: str) -> EditedWorld:
    world = EditedWorld(named_ring(policy=policy, restartScope=scope), kind=kind)
    world.settle_running()
    return world


kinds = st.sampled_from([RenamedJob, RenamedJob, NamedJob])
scopes = st.sampled_from(SCOPES)


@given(kind=kinds, policy=st.sampled_from(["OnFailure", "Never", "ExitCode"]), scope=scopes, steps=passes(progress | completions))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_an_edit_replaces_is_not_counted(kind: type[NamedJob], policy: str, scope: str, steps: list[Step]) -> None:
    world = running(kind, policy, scope)
    for step in steps:
        step.happen(world)
        world.check_nothing_is_counted()
    world.set_run_policy(suspend=False)
    world.settle_running()
    world.check_nothing_is_counted()
    world.check_at_rest()
    world.check_a_loss_is_counted()


@given(kind=kinds, policy=st.sampled_from(["OnFailure", "ExitCode"]), scope=scopes, steps=passes(progress | losses))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_losses_between_edits_are_counted_once_at_most(kind: type[NamedJob], policy: str, scope: str, steps: list[Step]) -> None:
    world = running(kind, policy, scope)
    for step in steps:
        step.happen(world)
        world.check_counts()
    world.set_run_policy(suspend=False)
    world.settle_running()
    world.check_counts()
    world.check_at_rest()
