"""The judge of a chaos test: replays the history of one job and lists what must not happen. Pure.

Rules: the job reaches the end that its script implies; one live pod per role, index and attempt; finished indexes do not run
again; nothing is created after the end, and the record does not change any more; counts are within the bounds of `chaos_counts`.
The rules of start order, spot replicas, host network and code are in `chaos_feature_rules`, those of TensorBoards in
`chaos_tensorboard_rules`.
Members, the pods that the master of a job manages, have rules of their own: they have no attempts and no completed indexes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from chaos_counts import LossCounter
from chaos_feature_rules import IN_FLIGHT_SECONDS, FeatureRules, find_port_conflicts
from chaos_history import (
    FINAL_POD_PHASES,
    ChildChange,
    Entry,
    HistoryEntry,
    Injection,
    JobChange,
    MemberChange,
    PlanChange,
    PodChange,
    ReplicaKey,
)
from chaos_scripts import End, JobScript
from chaos_tensorboard_rules import TensorBoardRules

from dlop.api.phase import Phase
from dlop.api.record import Record, parse_indexes
from dlop.reconcile.scale_plans import PlanPhase

MOST_REPETITIONS = 3
"""An operator with a stale cache may repeat a write."""

_PHRASES = {
    End.BACKOFF_LIMIT: "backoff limit",
    End.DISRUPTION_LIMIT: "disruption limit",
    End.DEADLINE: "deadline",
}


@dataclass(frozen=True, slots=True)
class Violation:
    rule: str
    job: str
    """The title of the job, or the key of the object for a write at rest."""
    description: str
    history: tuple[HistoryEntry, ...] = field(default=(), repr=False)


def judge(script: JobScript, history: Iterable[Entry], *, is_over: bool = True) -> list[Violation]:
    """Violations in the history of a job. Unless the test `is_over`, a job that has not ended yet is none."""
    entries = sorted(history, key=lambda entry: (entry.revision, isinstance(entry, Injection)))
    judge = _Judge(script)
    for entry in entries:
        judge.add(entry)
    if is_over or judge.has_ended:
        judge.check_end()
    if is_over:
        judge.check_rest()
    return [Violation(rule, script.title, description, tuple(entries)) for rule, description in dict.fromkeys(judge.violations)]


def judge_host_ports(scripts: Iterable[JobScript], histories: Mapping[str, list[Entry]]) -> list[Violation]:
    """Violations by pods of different jobs. The histories are by the name of the job."""
    titles = {script.name: script.title for script in scripts}
    violations: list[Violation] = []
    for conflict in find_port_conflicts({job: histories[job] for job in titles}):
        both = sorted((*histories[conflict.job], *histories[conflict.other]), key=lambda entry: entry.revision)
        violations.append(Violation("same host port", titles[conflict.job], conflict.description, tuple(both)))
    return violations


@dataclass(slots=True)
class _Pod:
    """A pod that exists or has existed."""

    last: PodChange
    completion: PodChange | None = None
    """The change in which the pod succeeded."""
    deleted_by_user: bool = False
    scaled_away: bool = False
    """Whether a spec without its index has been stored since the pod was created. A scale-up then starts a new replica."""

    @property
    def exists(self) -> bool:
        return not self.last.deleted

    @property
    def is_live(self) -> bool:
        return self.exists and self.last.phase not in FINAL_POD_PHASES

    @property
    def has_completed(self) -> bool:
        """Whether the operator must treat the replica as done: it succeeded, and not in the second in which it was deleted or later."""
        if self.completion is None or self.completion.finished_at is None or self.deleted_by_user or self.scaled_away:
            return False
        requested_at = self.last.deletion_requested_at
        return requested_at is None or self.completion.finished_at < requested_at


class _Judge:
    def __init__(self, script: JobScript) -> None:
        self._script = script
        self._pods: dict[str, _Pod] = {}
        self._members: dict[str, MemberChange] = {}
        self._plans: dict[str, PlanChange] = {}
        self._completed: dict[ReplicaKey, int] = {}
        """The attempt in which the record lists a replica as completed."""
        self._job: JobChange | None = None
        self._repetitions = 0
        """Number of the last changes of the job that were repetitions."""
        self._end: JobChange | None = None
        self._deletion: JobChange | None = None
        self._counter = LossCounter(script.scope, script.draft.features.spot)
        self._features = FeatureRules(script)
        self._tensorboards = TensorBoardRules(script)
        self.violations: list[tuple[str, str]] = []

    @property
    def has_ended(self) -> bool:
        return self._end is not None or self._deletion is not None

    def add(self, entry: Entry) -> None:
        self._counter.add(entry)
        self.violations += self._features.add(entry)
        self.violations += self._tensorboards.add(entry)
        match entry:
            case PodChange():
                self._add_pod(entry)
            case JobChange():
                self._add_job(entry)
            case MemberChange():
                self._add_member(entry)
            case PlanChange():
                self._add_plan(entry)
            case ChildChange(created=True):
                self._check_created(entry, entry.key)
            case Injection(deleted_uid=uid) if uid in self._pods:
                self._pods[uid].deleted_by_user = True

    # --- pods --------------------------------------------------------------------------------------------------------

    def _add_pod(self, change: PodChange) -> None:
        if change.created:
            self._check_created(change, f"pod {change.name} ({change.uid[:8]})")
            self._check_new_pod(change)
        pod = self._pods.setdefault(change.uid, _Pod(change))
        pod.last = change
        self._mark_scaled_away(pod)
        if pod.completion is None and change.phase == "Succeeded":
            pod.completion = change

    def _mark_scaled_away(self, pod: _Pod) -> None:
        role, index = pod.last.replica
        if self._job is not None and index >= self._job.replicas.get(role, 0):
            pod.scaled_away = True

    def _check_created(self, change: PodChange | MemberChange | ChildChange, name: str) -> None:
        if self._end is not None:
            self._report("created after the end", f"{name} was created at {change.revision}, after the end at {self._end.revision}")
        elif self._deletion is not None and change.seconds > self._deletion.seconds + IN_FLIGHT_SECONDS:
            # A create that was in flight may succeed. The garbage collector deletes the object.
            delay = change.seconds - self._deletion.seconds
            self._report("created after the end", f"{name} was created {delay:.1f} s after the job was deleted")

    def _check_new_pod(self, new: PodChange) -> None:
        role, index = new.replica
        name = f"pod {new.name} ({new.uid[:8]}) of {role} {index}, attempt {new.attempt}"
        if new.attempt > self._record.attempt_of(role):
            self._report("attempt not recorded", f"{name} was created, but the record is at attempt {self._record.attempt_of(role)}")
        if self._completed.get(new.replica) == new.attempt:
            self._report("finished index runs again", f"{name} was created, but the record lists the index as completed")
        for pod in self._pods.values():
            if pod.last.replica[0] == role and pod.exists and pod.last.attempt < new.attempt:
                self._report("two attempts at once", f"{name} was created while {pod.last.name} of attempt {pod.last.attempt} exists")
            if pod.last.replica != new.replica or pod.last.attempt != new.attempt:
                continue
            if pod.is_live:
                self._report("two live pods", f"{name} was created while {pod.last.name} ({pod.last.uid[:8]}) is live")
            if pod.has_completed:
                self._report("finished index runs again", f"{name} was created, but pod {pod.last.uid[:8]} has succeeded")

    # --- members -----------------------------------------------------------------------------------------------------

    def _add_member(self, change: MemberChange) -> None:
        new, name = change.member, f"member {change.name} ({change.uid[:8]})"
        live = [other for other in self._members.values() if other.is_live and other.member.role == new.role and other.uid != change.uid]
        if change.created:
            if self._script.writes_plans:
                self._check_created(change, name)
            for other in live:
                if other.member.id == new.id or other.member.rank == new.rank:
                    self._report("two live members", f"{name} of rank {new.rank} was created while {other.name} ({other.uid[:8]}) is live")
            most = self._script.most_members(new.role)
            if len(live) >= most:
                self._report(
                    "too many members", f"{name} was created in addition to {len(live)} live ones; the master wants at most {most}"
                )
        self._members[change.uid] = change

    def _add_plan(self, change: PlanChange) -> None:
        self._plans[change.uid] = change
        if change.phase == PlanPhase.FAILED:
            self._report("plan failed", f"scale plan {change.name} ({change.uid[:8]}): {change.message}")

    def check_rest(self) -> None:
        """To be called when nothing changes any more."""
        if self.has_ended:
            self.violations += self._tensorboards.at_end()
        is_deleted = self._deletion is not None
        for member in self._members.values():
            if not member.deleted and (is_deleted or (self.has_ended and member.is_unfinished)):
                self._report("member survives", f"{member.name} ({member.uid[:8]}) is {member.phase}, and the job has ended")
        for plan in self._plans.values():
            if not plan.deleted and (is_deleted or plan.phase not in (PlanPhase.SUCCEEDED, PlanPhase.FAILED)):
                self._report("plan not executed", f"scale plan {plan.name} ({plan.uid[:8]}) exists in phase {plan.phase or 'none'}")

    # --- the job -----------------------------------------------------------------------------------------------------

    @property
    def _record(self) -> Record:
        return Record() if self._job is None else self._job.record

    def _add_job(self, change: JobChange) -> None:
        if change.deleted:
            self._deletion = change
            return
        self._check_record(self._record, change)
        self._repetitions = self._repetitions + 1 if change.is_repetition else 0
        if self._repetitions == MOST_REPETITIONS + 1:
            self._report("repeated write", f"{self._repetitions} writes of the same status, the last one at {change.revision}")
        self._job = change
        for pod in self._pods.values():
            self._mark_scaled_away(pod)
        self._completed = {
            (role, index): change.record.attempt_of(role)
            for role, ranges in change.record.completed_indexes.items()
            for index in parse_indexes(ranges)
        }
        if self._end is None and change.is_finished:
            self._end = change

    def _check_record(self, old: Record, change: JobChange) -> None:
        new = change.record
        if self._end is not None and new != self._end.record:
            self._report("written after the end", f"the record changed at {change.revision}, after the end at {self._end.revision}")
        counts = (
            ("restarts", old.restarts, new.restarts),
            ("disruptions", old.disruptions, new.disruptions),
            ("spotDisruptions", old.spot_disruptions, new.spot_disruptions),
        )
        for name, before, after in counts:
            if any(after.get(role, 0) < count for role, count in before.items()):
                self._report("count decreased", f"{name} changed from {before} to {after}")
        for role, replicas in change.replicas.items():
            if new.attempt_of(role) < old.attempt_of(role):
                self._report("count decreased", f"the attempt of {role} changed from {old.attempt_of(role)} to {new.attempt_of(role)}")
            self._check_completed(role, old, change, replicas=replicas)

    def _check_completed(self, role: str, old: Record, change: JobChange, *, replicas: int) -> None:
        new = change.record
        before, after = (parse_indexes(record.completed_indexes.get(role, "")) for record in (old, new))
        attempt = new.attempt_of(role)
        # The record may still be the one of the previous spec.
        kept = {index for index in before if index < replicas} if new.observed_generation == change.generation else set[int]()
        if attempt == old.attempt_of(role) and self._job is not None and not self._has_shrunk(role) and kept - after:
            self._report("completion forgotten", f"{role} {sorted(kept - after)} left completedIndexes in attempt {attempt}")
        for index in after - before:
            pods = (pod for pod in self._pods.values() if pod.last.replica == (role, index) and pod.last.attempt == attempt)
            if not any(pod.completion is not None for pod in pods):
                self._report("completed without success", f"{role} {index} is in completedIndexes of attempt {attempt}; no pod succeeded")

    def _has_shrunk(self, role: str) -> bool:
        """Whether the spec has removed indexes of a role, whose results the operator discards."""
        return self._counter.smallest_size(role) < self._counter.largest_size(role)

    # --- the end -----------------------------------------------------------------------------------------------------

    def check_end(self) -> None:
        for description in self._counter.errors():
            self._report("wrong count", description)
        if self._script.end is End.DELETED:
            self._check_deleted()
        elif self._end is None:
            state = "deleted" if self._deletion is not None else f"in phase {self._record.phase or 'none'}"
            self._report("wrong end", f"expected {self._script.end}; the job is {state}")
        else:
            self._check_result(self._end)

    def _check_deleted(self) -> None:
        if self._deletion is None:
            self._report("wrong end", f"the job was not deleted; phase {self._record.phase or 'none'}")
        for pod in self._pods.values():
            if pod.exists:
                self._report("wrong end", f"pod {pod.last.name} ({pod.last.uid[:8]}) of the deleted job still exists")

    def _check_result(self, end: JobChange) -> None:
        observed = self._observed_end(end)
        if observed is not self._script.end:
            self._report("wrong end", f"expected {self._script.end}; the job has ended with {observed}: {end.message}")
        role, index = self._script.decisive
        if observed is End.SUCCEEDED and index not in parse_indexes(end.record.completed_indexes.get(role, "")):
            self._report("wrong count", f"the job has succeeded, but {role} {index} is not in completedIndexes")
        if observed is End.FAILED and self._script.culprit is not None:
            role, index = self._script.culprit
            if index not in parse_indexes(end.record.failed_indexes.get(role, "")):
                self._report("wrong count", f"{role} {index} has failed the job, but is not in failedIndexes")

    def _observed_end(self, end: JobChange) -> End:
        if end.record.phase == Phase.SUCCEEDED:
            return End.SUCCEEDED
        return next((limit for limit, phrase in _PHRASES.items() if phrase in end.message), End.FAILED)

    def _report(self, rule: str, description: str) -> None:
        self.violations.append((rule, description))
