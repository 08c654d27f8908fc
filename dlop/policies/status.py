"""Status: how the status of a kind is read and written, and the words for its result.

The common format has conditions, `replicaStatuses`, `startTime` and `completionTime`, compatible with Kubeflow's clients:

    phase        sets                                               effect on other conditions
    Created      Created=True                                       Running=False; removes Restarting
    Running      Running=True                                       removes Restarting; Suspended=False
    Restarting   Restarting=True                                    removes Running; Suspended=False
    Suspended    Suspended=True                                     Running=False; removes Restarting
    Succeeded    Succeeded=True                                     Running=False
    Failed       Failed=True                                        Running=False
    Invalid      Failed=True, reason InvalidSpec                    removed when the spec is valid again
    (any)        Blocked=True while the job cannot progress         always the last condition

Conditions are ordered by their last change, so the last one is the current state. A condition with the same status and reason
is not updated, so writing the same outcome twice changes nothing. The message of an invalid spec is always kept up to date.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from dlop.api.constants import Reason
from dlop.api.names import format_selector
from dlop.api.phase import JobResult, Outcome, Phase
from dlop.api.progress import Progress, ReplicaState, RoleProgress
from dlop.api.record import Blocked, LastFailure, describe_failure
from dlop.kube.timestamps import format_time
from dlop.kube.types import JsonObject

if TYPE_CHECKING:
    from dlop.job import DLJob

Job = TypeVar("Job", bound="DLJob")
BLOCKED = "Blocked"
_TYPES = {Phase.INVALID: "Failed"}
_PHASES_BY_PRECEDENCE = (Phase.SUCCEEDED, Phase.SUSPENDED, Phase.RESTARTING, Phase.RUNNING, Phase.CREATED)


@dataclass(frozen=True, kw_only=True)
class Status(Generic[Job]):
    """The common status format: conditions, `replicaStatuses`, `startTime` and `completionTime`.

    The operator adds its own record as `status.dlop`.
    """

    reason_prefix: str = ""
    """What the reasons of conditions start with, such as `Job` for `JobRunning`; empty for the kind."""
    metric_label: str = ""
    """The `framework` label of the Kubeflow-compatible metrics (`training_operator_jobs_*`); empty excludes the kind from them."""

    def read_phase(self, stored: JsonObject) -> Phase | None:
        """The phase in a stored status; None if it has none."""
        return _phase_from_conditions(stored)

    def read_finish_time(self, stored: JsonObject) -> Any:
        """The finish time in a stored status, which another operator may have written without `completionTime`."""
        return stored.get("completionTime") or _finish_time_from_conditions(stored)

    def write(self, job: Job, outcome: Outcome) -> JsonObject:
        """The status after a pass."""
        return {
            "conditions": _write_conditions(
                outcome,
                stored=job.stored_status,
                kind=job.job_type.kind,
                name=job.metadata.name,
                prefix=self.reason_prefix or job.job_type.kind,
            ),
            "replicaStatuses": _write_replica_statuses(
                outcome, selector=lambda role: format_selector(job.naming.role_labels(job, role.spec))
            ),
            **_write_times(outcome),
        }

    def write_blocked(self, job: Job, blocked: Blocked, *, now: float) -> JsonObject:
        """The stored status with the condition Blocked, for a running job whose spec has become invalid."""
        return {**job.stored_status, "conditions": _with_blocked_condition(job.stored_status, blocked, now=now)}

    def describe_result(self, job: Job, result: JobResult, progress: Progress) -> str:
        """A message that says how the job has finished: the failed pod, its node and its exit code."""
        subject = f"{job.job_type.kind} {job.metadata.name}"
        if result.succeeded:
            return f"{subject} is successfully completed."
        failed = result.failed_replica
        if failed is None:
            return f"{subject} has failed."
        return f"{subject} has failed: {describe_failure(failed.failure or LastFailure(role=failed.role, index=failed.index))}"


def _phase_from_conditions(status: JsonObject) -> Phase | None:
    """The phase of a status; None if no condition is true."""
    true = {condition["type"]: condition for condition in _stored_conditions(status) if condition.get("status") == "True"}
    if "Failed" in true:
        return Phase.INVALID if true["Failed"].get("reason") == Reason.INVALID_SPEC else Phase.FAILED
    return next((phase for phase in _PHASES_BY_PRECEDENCE if phase in true), None)


def _finish_time_from_conditions(status: JsonObject) -> str | None:
    """The transition time of the condition Succeeded or Failed; None if the job has not finished."""
    final = (
        condition
        for condition in _stored_conditions(status)
        if condition["type"] in (Phase.SUCCEEDED, Phase.FAILED) and condition.get("status") == "True"
    )
    times = (condition.get("lastTransitionTime") for condition in final)
    return next((time for time in times if isinstance(time, str)), None)


def _with_blocked_condition(stored: JsonObject, blocked: Blocked, *, now: float) -> list[JsonObject]:
    """The stored conditions, with Blocked as the last one."""
    conditions = _Conditions(_stored_conditions(stored), now=format_time(now))
    conditions.remove(BLOCKED)
    conditions.append_blocked(blocked, stored=_stored_conditions(stored))
    return conditions.items


def _write_conditions(outcome: Outcome, *, stored: JsonObject, kind: str, name: str, prefix: str) -> list[JsonObject]:
    """The conditions after a pass. `stored` is the current status, and `prefix` the start of the reasons."""
    conditions = _Conditions(_stored_conditions(stored), now=format_time(outcome.now))
    conditions.remove(BLOCKED)
    if outcome.phase is not Phase.INVALID:
        conditions.remove("Failed", reason=Reason.INVALID_SPEC)
    conditions.set("Created", reason=f"{prefix}Created", message=f"{kind} {name} is created.", is_first=True)
    _reset_other_conditions(conditions, outcome.phase, kind=kind, name=name, prefix=prefix)
    if outcome.phase is not Phase.CREATED:
        conditions.set(
            _TYPES.get(outcome.phase, outcome.phase.value),
            reason=_reason(outcome, prefix),
            message=_message(outcome, kind, name),
            # After the user has fixed one error and made another, the message must report the new one.
            update_message=outcome.phase is Phase.INVALID,
        )
    blocked = outcome.record.blocked
    if blocked is not None and not outcome.phase.is_final:
        conditions.append_blocked(blocked, stored=_stored_conditions(stored))
    return conditions.items


def _reset_other_conditions(conditions: _Conditions, phase: Phase, *, kind: str, name: str, prefix: str) -> None:
    """Removes or clears the conditions that contradict a phase."""
    if phase is Phase.SUSPENDED:
        conditions.remove("Restarting")
        conditions.clear("Running", reason=f"{prefix}Suspended", message=f"{kind} {name} is suspended.")
    else:
        conditions.clear("Suspended", reason=f"{prefix}Resumed", message=f"{kind} {name} is resumed.")
    if phase in (Phase.CREATED, Phase.RUNNING):
        conditions.remove("Restarting")
    if phase is Phase.CREATED:
        # A running job returns to Created only if it is scaled to zero replicas.
        conditions.clear("Running", reason=Reason.NO_REPLICAS, message=f"{kind} {name} has no replicas.")
    elif phase is Phase.RESTARTING:
        conditions.remove("Running")
    elif phase.is_final:
        conditions.clear_in_place("Running")


def _reason(outcome: Outcome, prefix: str) -> str:
    """The reasons of phases have a prefix, as in Kubeflow and KubeDL. All other reasons have none."""
    is_phase = not outcome.reason or outcome.reason in list(Phase) or outcome.phase is Phase.RESTARTING
    return f"{prefix}{outcome.phase}" if is_phase and outcome.phase is not Phase.INVALID else outcome.reason or Reason.INVALID_SPEC


def _message(outcome: Outcome, kind: str, name: str) -> str:
    texts = {Phase.SUCCEEDED: "successfully completed"}
    return outcome.message or f"{kind} {name} is {texts.get(outcome.phase, str(outcome.phase).lower())}."


class _Conditions:
    """A list of conditions, ordered by their last change."""

    def __init__(self, items: list[JsonObject], *, now: str) -> None:
        self.items = items
        self._now = now

    def set(
        self, type: str, *, reason: str, message: str, status: str = "True", update_message: bool = False, is_first: bool = False
    ) -> None:
        """Set a condition. Does nothing if status and reason, and with `update_message` also the message, are the same.

        `is_first` is for a condition that another operator may have omitted, and that is older than all others.
        """
        old = self._get(type)
        compared = {"status": status, "reason": reason} | ({"message": message} if update_message else {})
        if old is not None and compared.items() <= old.items():
            return
        since = old.get("lastTransitionTime") if old is not None and old.get("status") == status else None
        new = {"type": type, "status": status, "reason": reason, "message": message}
        self.remove(type)
        new |= {"lastUpdateTime": self._now, "lastTransitionTime": since or self._now}
        self.items.insert(0 if is_first else len(self.items), new)

    def append_blocked(self, blocked: Blocked, *, stored: list[JsonObject]) -> None:
        """Append the condition Blocked. An unchanged one keeps its timestamps."""
        old = next((condition for condition in stored if condition["type"] == BLOCKED), None)
        if old is not None and old.get("message") == blocked.message:
            self.items.append(old)
        else:
            self.set(BLOCKED, reason=blocked.reason or BLOCKED, message=blocked.message)

    def clear(self, type: str, *, reason: str, message: str) -> None:
        """Set a condition to False if it is True."""
        old = self._get(type)
        if old is not None and old.get("status") == "True":
            self.set(type, reason=reason, message=message, status="False")

    def clear_in_place(self, type: str) -> None:
        """Set a condition to False if it is True. Its reason, message and position stay, because clients rely on them."""
        cleared = {"status": "False", "lastUpdateTime": self._now, "lastTransitionTime": self._now}
        self.items = [
            {**condition, **cleared} if condition["type"] == type and condition.get("status") == "True" else condition
            for condition in self.items
        ]

    def remove(self, type: str, *, reason: str | None = None) -> None:
        """Remove a condition. With `reason`, only if it has this reason."""
        self.items = [
            condition for condition in self.items if condition["type"] != type or (reason is not None and condition.get("reason") != reason)
        ]

    def _get(self, type: str) -> JsonObject | None:
        return next((condition for condition in self.items if condition["type"] == type), None)


def _write_times(outcome: Outcome) -> JsonObject:
    """`startTime` and `completionTime`; each is omitted until it is known."""
    times = {"startTime": outcome.started_at, "completionTime": outcome.finished_at}
    return {name: format_time(time) for name, time in times.items() if time is not None}


def _write_replica_statuses(outcome: Outcome, *, selector: Callable[[RoleProgress], str]) -> JsonObject:
    """`replicaStatuses` by role: active, succeeded, failed and the label selector. Zeros are omitted."""
    return {role.spec.name: _counts(role) | {"selector": selector(role)} for role in outcome.progress.roles}


def _counts(role: RoleProgress) -> JsonObject:
    counts = {
        "active": role.count(ReplicaState.RUNNING),
        "succeeded": role.count(ReplicaState.SUCCEEDED),
        "failed": role.count(ReplicaState.FAILED, ReplicaState.RESTARTING),
    }
    return {name: count for name, count in counts.items() if count}


def _stored_conditions(status: JsonObject) -> list[JsonObject]:
    """The conditions of a status. Malformed ones are left out."""
    conditions = status.get("conditions")
    if not isinstance(conditions, list):
        return []
    return [condition for condition in conditions if isinstance(condition, dict) and isinstance(condition.get("type"), str)]
