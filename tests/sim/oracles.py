"""What must hold whatever goes wrong, checked at every commit; and what two runs are compared by."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from dlop.api.constants import ATTEMPT_LABEL, REPLICA_TYPE_LABEL
from dlop.api.gang import POD_GROUPS
from dlop.api.phase import Phase
from dlop.api.types import Options
from dlop.embedded.apiserver.store import ChangeType, Key, Store, StoreEvent
from dlop.job import DLJob
from dlop.kube.objects import CustomObject, reader
from dlop.kube.types import JsonObject

_CHILDREN = ("pods", "services", *(resource.qualified_name for resource in POD_GROUPS))
_FINAL_POD_PHASES = ("Succeeded", "Failed")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_VERSION = re.compile(r'"resourceVersion":"\d+"')

_read_job = reader(CustomObject)


class Ledger:
    """Listens to a store: counts creates and deletes of each object, and notes what must never happen."""

    def __init__(self, store: Store, framework: type[DLJob], *, on_commit: Callable[[StoreEvent], None] = lambda _: None) -> None:
        """`on_commit` is called with every change of jobs, pods, services and groups of pods."""
        self._store = store
        self._framework = framework
        self._jobs = framework.job_type.resource.qualified_name
        self._on_commit = on_commit
        self.creates: Counter[str] = Counter()
        self.deletes: Counter[str] = Counter()
        self.violations: list[str] = []
        self.has_ended = False
        """Whether a job has come to its end."""
        store.listeners.append(self._note)

    def counts(self) -> dict[str, tuple[int, int]]:
        """By object, how often it was created and deleted."""
        return {name: (self.creates[name], self.deletes[name]) for name in sorted(self.creates)}

    def _note(self, change: StoreEvent) -> None:
        if change.key.storage not in (*_CHILDREN, self._jobs):
            return
        name = f"{change.key.storage} {change.key.namespace}/{change.key.name}"
        if change.type is ChangeType.ADDED:
            self.creates[name] += 1
        elif change.type is ChangeType.DELETED:
            self.deletes[name] += 1
        self._check(change)
        self._on_commit(change)

    def _check(self, change: StoreEvent) -> None:
        if change.key.storage == self._jobs and change.before is not None:
            self._check_job(change.before.body, change.after.body)
        elif change.key.storage in _CHILDREN and change.type is ChangeType.ADDED:
            self._check_create(change)

    # --- jobs --------------------------------------------------------------------------------------------------------

    def _check_job(self, before: JsonObject, after: JsonObject) -> None:
        for counter in ("restarts", "disruptions"):
            old, new = _record(before).get(counter, {}), _record(after).get(counter, {})
            if any(new.get(role, 0) < number for role, number in old.items()):
                self.violations.append(f"{counter} fell from {old} to {new}")
        ended, ends = self._end_of(before), self._end_of(after)
        if ended is not None and ended is not ends:
            self.violations.append(f"the job had ended with {ended} and then with {ends}")
        self.has_ended = self.has_ended or ends is not None

    def _end_of(self, job: JsonObject) -> Phase | None:
        """How the job has ended, in the words of its kind; None while it has not."""
        status = job.get("status")
        if not status:
            return None
        phase = self._framework(_read_job(msgspec.json.encode(job)), options=Options()).phase_in(status)
        return phase if phase is not None and phase.is_end else None

    # --- children ----------------------------------------------------------------------------------------------------

    def _check_create(self, change: StoreEvent) -> None:
        job = self._owner(change.after.body)
        if job is None:
            self.violations.append(f"{change.key} was created for a job that is gone")
            return
        if self._end_of(job) is not None:
            self.violations.append(f"{change.key} was created after the job had ended")
        if change.key.storage == "pods":
            self._check_twins(change)
            self._check_attempts(change, scope=job["spec"].get("runPolicy", {}).get("restartScope", "Replica"))

    def _check_twins(self, change: StoreEvent) -> None:
        """Labels tell role, index and attempt, so no two pods that live may have the same ones."""
        for key, other in self._others(change):
            lives = other["status"].get("phase") not in _FINAL_POD_PHASES
            if lives and _labels(other) == _labels(change.after.body):
                self.violations.append(f"{change.key} and {key} are two live pods of one index and attempt")

    def _check_attempts(self, change: StoreEvent, *, scope: str) -> None:
        """Where more than a replica is started anew, nothing of the old attempt may be left, not even on its way out."""
        mine = _labels(change.after.body)
        for key, other in self._others(change):
            labels = _labels(other)
            together = scope == "Job" or (scope == "Role" and labels[REPLICA_TYPE_LABEL] == mine[REPLICA_TYPE_LABEL])
            if together and labels[ATTEMPT_LABEL] != mine[ATTEMPT_LABEL]:
                self.violations.append(f"{change.key} of attempt {mine[ATTEMPT_LABEL]} meets {key} of {labels[ATTEMPT_LABEL]}")

    def _others(self, change: StoreEvent) -> Iterator[tuple[Key, JsonObject]]:
        for key, stored in self._store.list("pods", namespace=change.key.namespace):
            if key != change.key:
                yield key, stored.body

    def _owner(self, body: JsonObject) -> JsonObject | None:
        for owner in body["metadata"].get("ownerReferences", ()):
            found = self._store.get(Key(self._jobs, body["metadata"]["namespace"], owner["name"]))
            if found is not None and found.body["metadata"]["uid"] == owner["uid"]:
                return found.body
        return None


def masked_world(store: Store, *, jobs: str) -> dict[str, JsonObject]:
    """Jobs, pods, services and groups of pods without times, uids and versions."""
    return {f"{key.storage} {key.name}": _masked(body) for key, body in _objects(store, (jobs, *_CHILDREN))}


def _objects(store: Store, storages: tuple[str, ...]) -> Iterator[tuple[Key, JsonObject]]:
    for storage in storages:
        for key, stored in store.list(storage, namespace="default"):
            yield key, stored.body


def _masked(body: JsonObject) -> JsonObject:
    text = msgspec.json.encode(body).decode()
    text = _VERSION.sub('"resourceVersion":"V"', _UID.sub("U", _TIME.sub("T", text)))
    masked: JsonObject = msgspec.json.decode(text)
    return masked


def _labels(body: JsonObject) -> dict[str, str]:
    labels: dict[str, str] = body["metadata"].get("labels") or {}
    return labels


def _record(job: JsonObject) -> JsonObject:
    record: JsonObject = (job.get("status") or {}).get("dlop") or {}
    return record
