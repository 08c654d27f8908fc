"""The common dialect of status: conditions, `replicaStatuses`, `startTime` and `completionTime`, as Kubeflow's clients read them.

    phase        what is set                                        what it does to the others
    Created      Created=True                                       Running=False; Restarting goes
    Running      Running=True                                       Restarting goes; Suspended=False
    Restarting   Restarting=True                                    Running goes; Suspended=False
    Suspended    Suspended=True                                     Running=False; Restarting goes
    Succeeded    Succeeded=True                                     Running=False
    Failed       Failed=True                                        Running=False
    Invalid      Failed=True, reason InvalidSpec                    goes when the spec has been mended
    (any)        Blocked=True while something is in the way         always the last one while it is there

The order of conditions is that of their last change, so the last one tells the state. A condition whose status and reason
stay the same is left as it is: writing the same outcome twice changes nothing. Only what is wrong with a spec is always told
as it is now.
"""

from __future__ import annotations

from collections.abc import Callable

from dlop.api.constants import Reason
from dlop.api.phase import Outcome, Phase
from dlop.api.progress import ReplicaState, RoleProgress
from dlop.api.record import Blocked
from dlop.kube.timestamps import format_time
from dlop.kube.types import JsonObject

BLOCKED = "Blocked"
_TYPES = {Phase.INVALID: "Failed"}
_STATED = (Phase.SUCCEEDED, Phase.SUSPENDED, Phase.RESTARTING, Phase.RUNNING, Phase.CREATED)


def phase_in_conditions(status: JsonObject) -> Phase | None:
    """The phase that the conditions of a status tell."""
    true = {condition["type"]: condition for condition in _read(status) if condition.get("status") == "True"}
    if "Failed" in true:
        return Phase.INVALID if true["Failed"].get("reason") == Reason.INVALID_SPEC else Phase.FAILED
    return next((phase for phase in _STATED if phase in true), None)


def end_in_conditions(status: JsonObject) -> str | None:
    """Since when the conditions of a status tell that the job has come to its end."""
    ends = (each for each in _read(status) if each["type"] in (Phase.SUCCEEDED, Phase.FAILED) and each.get("status") == "True")
    moments = (each.get("lastTransitionTime") for each in ends)
    return next((moment for moment in moments if isinstance(moment, str)), None)


def with_block(stored: JsonObject, blocked: Blocked, *, now: float) -> list[JsonObject]:
    """The stored conditions, and what is in the way."""
    conditions = _Conditions(_read(stored), now=format_time(now))
    conditions.drop(BLOCKED)
    conditions.put_back(BLOCKED, stored=_read(stored), reason=blocked.reason or BLOCKED, message=blocked.message)
    return conditions.found


def write_conditions(outcome: Outcome, *, stored: JsonObject, kind: str, name: str) -> list[JsonObject]:
    """The conditions after a pass, given those that are stored."""
    conditions = _Conditions(_read(stored), now=format_time(outcome.now))
    conditions.drop(BLOCKED)
    if outcome.phase is not Phase.INVALID:
        conditions.drop("Failed", reason=Reason.INVALID_SPEC)
    conditions.set("Created", reason=f"{kind}Created", message=f"{kind} {name} is created.")
    _make_room(conditions, outcome.phase, kind=kind, name=name)
    if outcome.phase is not Phase.CREATED:
        conditions.set(
            _TYPES.get(outcome.phase, outcome.phase.value),
            reason=_reason(outcome, kind),
            message=_message(outcome, kind, name),
            # Who has mended one mistake and made another must not read of the first.
            to_the_letter=outcome.phase is Phase.INVALID,
        )
    blocked = outcome.record.blocked
    if blocked is not None and not outcome.phase.is_final:
        conditions.put_back(BLOCKED, stored=_read(stored), reason=blocked.reason or BLOCKED, message=blocked.message)
    return conditions.found


def _make_room(conditions: _Conditions, phase: Phase, *, kind: str, name: str) -> None:
    """What the coming of a phase does to the conditions of the others."""
    if phase is Phase.SUSPENDED:
        conditions.drop("Restarting")
        conditions.turn_off("Running", reason=f"{kind}Suspended", message=f"{kind} {name} is suspended.")
    else:
        conditions.turn_off("Suspended", reason=f"{kind}Resumed", message=f"{kind} {name} is resumed.")
    if phase in (Phase.CREATED, Phase.RUNNING):
        conditions.drop("Restarting")
    if phase is Phase.CREATED:
        # A job that runs gets back here only when it is edited to ask for nothing.
        conditions.turn_off("Running", reason=Reason.NO_REPLICAS, message=f"{kind} {name} asks for no replicas.")
    elif phase is Phase.RESTARTING:
        conditions.drop("Running")
    elif phase.is_final:
        conditions.end("Running")


def _reason(outcome: Outcome, kind: str) -> str:
    """Kubeflow puts the kind before the reasons that its clients know; the others say more by themselves."""
    plain = not outcome.reason or outcome.reason in list(Phase) or outcome.phase is Phase.RESTARTING
    return f"{kind}{outcome.phase}" if plain and outcome.phase is not Phase.INVALID else outcome.reason or Reason.INVALID_SPEC


def _message(outcome: Outcome, kind: str, name: str) -> str:
    words = {Phase.SUCCEEDED: "successfully completed"}
    return outcome.message or f"{kind} {name} is {words.get(outcome.phase, str(outcome.phase).lower())}."


class _Conditions:
    """A list of conditions in the order of their last change."""

    def __init__(self, found: list[JsonObject], *, now: str) -> None:
        self.found = found
        self._now = now

    def set(self, kind: str, *, reason: str, message: str, status: str = "True", to_the_letter: bool = False) -> None:
        """Say something. Nothing happens when it has been said already, be it in other words unless it is `to_the_letter`."""
        old = self._get(kind)
        wanted = {"status": status, "reason": reason} | ({"message": message} if to_the_letter else {})
        if old is not None and wanted.items() <= old.items():
            return
        since = old.get("lastTransitionTime") if old is not None and old.get("status") == status else None
        new = {"type": kind, "status": status, "reason": reason, "message": message}
        self.drop(kind)
        self.found.append({**new, "lastUpdateTime": self._now, "lastTransitionTime": since or self._now})

    def put_back(self, kind: str, *, stored: list[JsonObject], reason: str, message: str) -> None:
        """Say something as the last thing, with the times that it had if it was said already."""
        old = next((condition for condition in stored if condition["type"] == kind), None)
        if old is not None and old.get("message") == message:
            self.found.append(old)
        else:
            self.set(kind, reason=reason, message=message)

    def turn_off(self, kind: str, *, reason: str, message: str) -> None:
        """Say that something is no longer so, if it ever was."""
        old = self._get(kind)
        if old is not None and old.get("status") == "True":
            self.set(kind, reason=reason, message=message, status="False")

    def end(self, kind: str) -> None:
        """Mark something as no longer so from now on, where it stands: clients know its reason and its place."""
        ended = {"status": "False", "lastUpdateTime": self._now, "lastTransitionTime": self._now}
        self.found = [{**each, **ended} if each["type"] == kind and each.get("status") == "True" else each for each in self.found]

    def drop(self, kind: str, *, reason: str | None = None) -> None:
        """Take something back."""
        self.found = [each for each in self.found if each["type"] != kind or (reason is not None and each.get("reason") != reason)]

    def _get(self, kind: str) -> JsonObject | None:
        return next((condition for condition in self.found if condition["type"] == kind), None)


def write_times(outcome: Outcome) -> JsonObject:
    """When the job was started and when it was done, as far as it was."""
    times = {"startTime": outcome.started_at, "completionTime": outcome.finished_at}
    return {name: format_time(moment) for name, moment in times.items() if moment is not None}


def write_replica_statuses(outcome: Outcome, *, selector: Callable[[RoleProgress], str]) -> JsonObject:
    """How many replicas of each role run, have succeeded, have failed. Zeros are left out."""
    return {role.spec.name: _counts(role) | {"selector": selector(role)} for role in outcome.progress.roles}


def _counts(role: RoleProgress) -> JsonObject:
    counts = {
        "active": role.count(ReplicaState.RUNNING),
        "succeeded": role.count(ReplicaState.SUCCEEDED),
        "failed": role.count(ReplicaState.FAILED, ReplicaState.RESTARTING),
    }
    return {name: count for name, count in counts.items() if count}


def _read(status: JsonObject) -> list[JsonObject]:
    """The stored conditions; what is not one is left out."""
    found = status.get("conditions")
    return [each for each in found if isinstance(each, dict) and isinstance(each.get("type"), str)] if isinstance(found, list) else []
