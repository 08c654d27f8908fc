"""Spec changes at any time: replacements because of a change are neither failures nor disruptions.

Spec changes, writes of the operator, crashes, stale caches and the progress of pods interleave in any order. The caches may lag
behind users and nodes, but not behind the operator's own writes, because the controller does not plan before they show these.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dlop.api.child_objects import Create
from dlop.api.constants import REPLICA_INDEX_LABEL, REPLICA_TYPE_LABEL
from dlop.api.record import parse_indexes
from dlop.kube.timestamps import format_time
from dlop.kube.types import JsonObject
from dlop.reconcile.plan import Delete, Plan
from tests.unit.reconcile.ring import HELPER, TRAINER, NamedJob, RenamedJob, named_ring, role
from tests.unit.reconcile.world import Effect, World

ALL = 99
SCOPES = ("Replica", "Role", "Job")
COUNTS = ("restarts", "disruptions", "backoffs", "lastFailure", "attempt", "roleAttempts", "failedIndexes", "replacements")
"""Fields of a record that exist only if something was counted."""

ReplicaKey = tuple[str, int]
"""Role and index of a replica."""


@dataclass
class EditedWorld(World):
    """A world whose operator reads from two caches and can crash after every write."""

    cached_job: World = field(init=False, repr=False)
    cached_pods: World = field(init=False, repr=False)
    pending_writes: list[Effect] = field(default_factory=list)
    """The remaining writes of the current pass."""
    is_stale: bool = False
    """Whether a write of this pass was rejected because the caches are stale. The status is not written then."""
    completed: set[ReplicaKey] = field(default_factory=set)
    """Replicas that are completed in the record and have not been removed from the spec since."""
    failures: int = 0
    disruptions: int = 0

    def __post_init__(self) -> None:
        self.sync_job()
        self.sync_pods()

    # --- the operator ---

    def sync_job(self) -> None:
        self.cached_job = World(self.spec, kind=self.kind, status=self.status, generation=self.generation, version=self.version)

    def sync_pods(self) -> None:
        self.cached_pods = World(self.spec, pods=copy.deepcopy(self.pods), services=copy.deepcopy(self.services))

    def begin_pass(self) -> None:
        """Plan from the caches. If the last pass has writes left, the operator has crashed and they are discarded."""
        plan = self.cached_job.job().reconcile(self.cached_pods.snapshot(), self.now)
        self.pending_writes = self.effects(plan, version=self.cached_job.version)

    def write(self, writes: int) -> None:
        """Execute the next writes of the current pass."""
        for _ in range(min(writes, len(self.pending_writes))):
            self.pending_writes.pop(0)()

    def effects(self, plan: Plan, *, version: int | None = None) -> list[Effect]:
        self.is_stale = False
        assert len({delete.uid for delete in plan.deletes}) == len(plan.deletes), "an object is deleted twice"
        return super().effects(plan, version=version)

    def _create(self, create: Create) -> None:
        before = self.writes.total()
        super()._create(create)
        self.is_stale |= self.writes.total() == before
        self.sync_pods()

    def _check_pod(self, body: JsonObject) -> None:
        """The pod need not be in the spec, which may have changed after planning."""
        body["status"] = {"phase": "Pending"}
        assert replica_key(body) not in self.completed, f"{replica_key(body)} is started after it has completed"

    def _delete(self, delete: Delete) -> None:
        before = self.writes.total()
        super()._delete(delete)
        self.is_stale |= self.writes.total() == before
        self.sync_pods()

    def _write_status(self, status: JsonObject, *, version: int | None) -> None:
        before = self.version
        if not self.is_stale:
            super()._write_status(status, version=version)
        if self.version > before:
            self.sync_job()
            self.completed |= self.replicas_in("completedIndexes")

    # --- nodes ---

    def select_pod(self, number: int, *, phase: str) -> list[str]:
        """The name of one pod in this phase that is not terminating; empty if there is none."""
        names = [name for name, pod in self.pods.items() if pod["status"]["phase"] == phase and "deletionTimestamp" not in pod["metadata"]]
        return [names[number % len(names)]] if names else []

    def run_one(self, number: int) -> None:
        for name in self.select_pod(number, phase="Pending"):
            self.run(name)

    def complete_one(self, number: int) -> None:
        """Complete a helper. Trainers do not complete, because the job would finish."""
        for name in self.select_pod(number, phase="Running"):
            if replica_key(self.pods[name])[0] == HELPER:
                self.exit(name, 0)

    def lose_one(self, number: int) -> None:
        """A failure or disruption that no change of the spec has caused."""
        for name in self.select_pod(number, phase="Running"):
            kind = number % 5
            self.failures += kind < 2
            self.disruptions += kind >= 2
            losses: tuple[Effect, ...] = (
                lambda name=name: self.exit(name, 137),  # type: ignore[misc]
                lambda name=name: self.fail(name),  # type: ignore[misc]
                lambda name=name: self.fail(name, reason="Evicted", code=137),  # type: ignore[misc]
                lambda name=name: self.delete_pod(name),  # type: ignore[misc]
                lambda name=name: self.remove_pod(name),  # type: ignore[misc]
            )
            losses[kind]()

    def stop(self, number: int) -> None:
        """The containers of terminating pods exit while the pods still exist."""
        for pod in self.pods.values():
            if "deletionTimestamp" in pod["metadata"] and pod["status"]["phase"] == "Running":
                terminated = {"exitCode": (0, 143)[number % 2], "finishedAt": format_time(self.now)}
                pod["status"]["containerStatuses"][0]["state"] = {"terminated": terminated}
                pod["status"]["phase"] = "Failed" if number % 2 else "Succeeded"

    # --- users ---

    def edit(self, change: Callable[[Any], None]) -> None:
        super().edit(change)
        self.completed &= self.desired()

    def rename(self, number: int, *names: str) -> None:
        self.edit(lambda spec: spec["names"].update(dict.fromkeys(names, f"n{number}")))

    def remove_helpers(self) -> None:
        self.edit(lambda spec: spec["replicaSpecs"].pop(HELPER, None))

    def scale_role(self, name: str, replicas: int) -> None:
        """Scale a role, and add it again if it was removed."""
        self.edit(lambda spec: spec["replicaSpecs"].setdefault(name, role(replicas)).update(replicas=replicas))

    def edit_image(self, name: str, number: int) -> None:
        if name in self.spec["replicaSpecs"]:
            self.set_image(name, f"example.org/train:{number}")

    # --- assertions ---

    def settle_running(self) -> None:
        """Discard pending writes, and settle until all pods run."""
        self.pending_writes = []
        for _ in range(5):
            self.settle()
            self.run()
            self.wait(700)
        self.sync_job()
        self.sync_pods()

    def desired(self) -> set[ReplicaKey]:
        return {(name, index) for name, spec in self.spec["replicaSpecs"].items() for index in range(spec["replicas"])}

    def replicas_in(self, name: str) -> set[ReplicaKey]:
        """The replicas in an index field of the record."""
        return {(role, index) for role, ranges in self.record.get(name, {}).items() for index in parse_indexes(ranges)}

    def count(self, name: str) -> int:
        counts: Iterable[int] = self.record.get(name, {}).values()
        return sum(counts)

    def check_nothing_counted(self) -> None:
        for name in COUNTS:
            assert name not in self.record, f"{name}: {self.record[name]}"
        assert self.completed <= self.replicas_in("completedIndexes")

    def check_counts(self) -> None:
        assert self.count("restarts") <= self.failures
        assert self.count("disruptions") <= self.disruptions

    def check_settled(self) -> None:
        """Each replica has one running and claimed pod, or has completed. There are no other pods."""
        keys = [replica_key(pod) for pod in self.pods.values()]
        assert len(keys) == len(set(keys))
        assert self.desired() - self.completed <= set(keys) <= self.desired()
        assert self.kind is not RenamedJob or self.pods.keys() <= self.desired_pods()
        running = {replica_key(pod) for name, pod in self.pods.items() if self.is_running(name)}
        assert self.replicas_in("startedIndexes") == running == self.desired() - self.completed

    def check_disruption_is_counted(self) -> None:
        """In the scopes Role and Job, completed replicas restart with the others."""
        before = self.count("disruptions")
        self.completed.clear()
        for name in self.select_pod(0, phase="Running"):
            self.remove_pod(name)
            self.settle()
            assert self.count("disruptions") == before + 1


def replica_key(pod: JsonObject) -> ReplicaKey:
    labels: Mapping[str, str] = pod["metadata"]["labels"]
    return labels[REPLICA_TYPE_LABEL].capitalize(), int(labels[REPLICA_INDEX_LABEL])


@dataclass(frozen=True)
class Step:
    """One action."""

    name: str
    number: int = 0
    role: str = TRAINER

    def apply(self, world: EditedWorld) -> None:
        actions: dict[str, Callable[[], None]] = {
            "sync job": world.sync_job,
            "sync pods": world.sync_pods,
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
        if self.name == "confirm":
            world.confirm_deletions(limit=self.number)
        else:
            actions[self.name]()


roles = st.sampled_from([TRAINER, HELPER])
# Few names, so that a rename is often reverted.
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
    st.builds(Step, st.just("confirm"), st.sampled_from([1, 2, ALL])),
    st.builds(Step, st.just("wait"), st.sampled_from([5, 31, 100])),
)
completions = st.builds(Step, st.just("complete"), st.integers(0, 5))
losses = st.builds(Step, st.just("lose"), st.integers(0, 29))
writes = st.builds(Step, st.just("write"), st.one_of(st.just(ALL), st.integers(0, 8)))
SYNC = [Step("sync job"), Step("sync pods")]
views = st.sampled_from([SYNC, SYNC, SYNC, SYNC[:1], SYNC[1:], []])


def passes(others: st.SearchStrategy[Step]) -> st.SearchStrategy[list[Step]]:
    """A sequence of passes. Before each, actions happen that the caches may not show. Each may crash or be interrupted."""
    actions = st.booleans().flatmap(lambda is_edit: edits if is_edit else others)
    writing = st.one_of(writes.map(lambda first: [first]), st.tuples(writes, actions, writes).map(list))
    one_pass = st.tuples(st.lists(actions, max_size=2), views, st.just([Step("plan")]), writing)
    return st.lists(one_pass, max_size=8).map(lambda all_passes: [step for parts in all_passes for part in parts for step in part])


def running(kind: type[NamedJob], policy: str, scope: str) -> EditedWorld:
    world = EditedWorld(named_ring(policy=policy, restartScope=scope), kind=kind)
    world.settle_running()
    return world


PASS = [*SYNC, Step("plan"), Step("write", ALL)]
RENAMES_AFTER_A_COMPLETION = [
    Step("rename all", 1),
    *(*SYNC, Step("plan"), Step("complete", 2)),
    *(Step("rename", 0, HELPER), Step("write", ALL), *PASS),
    *(Step("rename", 1, HELPER), *PASS),
]
"""A pod that the first rename creates is desired again after its replica has completed in the old pod."""
kinds = st.sampled_from([RenamedJob, RenamedJob, NamedJob])
scopes = st.sampled_from(SCOPES)


@example(RenamedJob, "OnFailure", "Replica", RENAMES_AFTER_A_COMPLETION)
@given(kind=kinds, policy=st.sampled_from(["OnFailure", "Never", "ExitCode"]), scope=scopes, steps=passes(progress | completions))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_replacements_because_of_a_change_are_not_counted(kind: type[NamedJob], policy: str, scope: str, steps: list[Step]) -> None:
    world = running(kind, policy, scope)
    for step in steps:
        step.apply(world)
        world.check_nothing_counted()
    world.set_run_policy(suspend=False)
    world.settle_running()
    world.check_nothing_counted()
    world.check_settled()
    world.check_disruption_is_counted()


@example(RenamedJob, "OnFailure", "Replica", [Step("lose"), *PASS, Step("rename", 1), *PASS, Step("rename", 0)])
@example(RenamedJob, "ExitCode", "Replica", [Step("lose", 15), *PASS, Step("remove"), *PASS, Step("scale", 2, HELPER)])
@given(kind=kinds, policy=st.sampled_from(["OnFailure", "ExitCode"]), scope=scopes, steps=passes(progress | losses))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_failures_and_disruptions_between_changes_are_counted_at_most_once(
    kind: type[NamedJob], policy: str, scope: str, steps: list[Step]
) -> None:
    world = running(kind, policy, scope)
    for step in steps:
        step.apply(world)
        world.check_counts()
    world.set_run_policy(suspend=False)
    world.settle_running()
    world.check_counts()
    world.check_settled()
