"""A job's progress in words: how far it has come, what has changed, how it ended. Pure.

How a job ended, in one line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dlop.api.progress import ReplicaState
from dlop.console.duration import between
from dlop.jobs.replicas import GONE, LEAVING, ReplicaView
from dlop.jobs.view import NOT_SEEN, JobView

_ENDED = (ReplicaState.SUCCEEDED, ReplicaState.FAILED)
# A moment in the life of every pod, and nothing that a job waits for.
_BRIEF = (": ContainerCreating", ": PodInitializing")
_FRUITLESS = (ReplicaState.FAILED, ReplicaState.DISRUPTED)


def title(view: JobView) -> str:
    """`MXJob demo`, with its namespace where that is not the usual one."""
    place = "" if view.namespace == "default" else f" in {view.namespace}"
    return f"{view.kind} {view.name}{place}"


def counted(view: JobView) -> str:
    """`2 of 3 running, 1 succeeded`."""
    counts = Counter(replica.state for replica in view.replicas)
    wanted = sum(role.wanted for role in view.roles)
    ended = [f"{counts[state]} {state.value.lower()}" for state in _ENDED if counts[state]]
    return ", ".join([f"{counts[ReplicaState.RUNNING]} of {wanted} running", *ended])


def seconds(elapsed: float) -> str:
    """`0.4 s`, `12 s`, `3 min 7 s`."""
    if elapsed < 10:
        return f"{elapsed:.1f} s"
    minutes, rest = divmod(round(elapsed), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def replica_name(role: str, index: int) -> str:
    """`worker-0`: what a replica is called beside its log."""
    return f"{role.lower()}-{index}" if role else "pod"


def changes(before: JobView | None, now: JobView) -> Iterator[str]:
    """What is different from before, a line each."""
    if now.phase != NOT_SEEN and (before is None or before.phase != now.phase):
        yield f"{title(now)}: {now.phase}{f' ({counted(now)})' if not now.is_over else ''}"
    known = {} if before is None else {(each.role, each.index): each for each in before.replicas}
    for replica in now.replicas:
        # That what is left of a job which is over goes away is no news; how it ended may be.
        if not (now.is_over and replica.state == LEAVING):
            yield from _changed(known.get((replica.role, replica.index)), replica)


def obstacles(view: JobView) -> list[str]:
    """What a job waits for, and will not get all by itself in a moment."""
    if view.is_over or view.phase == NOT_SEEN:
        return []
    return [sentence for sentence in view.waits_for if not sentence.endswith(_BRIEF)]


def _changed(before: ReplicaView | None, now: ReplicaView) -> Iterator[str]:
    if before is not None and (before.state, before.restarts) == (now.state, now.restarts):
        return
    if not now.restarts and now.state in (ReplicaState.MISSING, ReplicaState.PENDING):
        return
    said = [now.address] if now.state == ReplicaState.RUNNING and now.address else []
    if now.state in (*_FRUITLESS, ReplicaState.SUCCEEDED, GONE):
        said += [f"exit code {now.exit_code}"] if now.exit_code is not None else []
    if now.state in _FRUITLESS and now.reason not in ("", "Error"):
        said.append(now.reason)
    if now.restarts and (before is None or before.restarts != now.restarts):
        said.append(f"restarted {now.restarts} time{'s' if now.restarts > 1 else ''}")
    yield f"{replica_name(now.role, now.index)}: {now.state}{f' ({_listed(said)})' if said else ''}"


def _listed(words: list[str]) -> str:
    return ", ".join(words)


def verdict(view: JobView, *, now: float) -> str:
    """What, after how long, why, and the way to the logs."""
    took = between(view.started_at, view.finished_at, now=now)
    text = f"{view.kind} {view.name}: {view.phase}{f' after {took}' if took else ''}"
    if view.has_succeeded:
        return f"{text}."
    why = f": {view.message.rstrip('.')}" if view.message else ""
    return f"{text}{why}. `dlop describe {view.name} -n {view.namespace}` tells more, `dlop logs {view.name} -n {view.namespace}` all."
