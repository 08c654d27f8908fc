"""What must hold whatever goes wrong, checked at every commit; and what two runs are compared by."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import msgspec

from dlop.kube.errors import JsonObject
from dlop.local.apiserver.store import Change, ChangeType, Key, Store

_CHILDREN = ("pods", "services")
_FINAL_PHASES = ("Succeeded", "Failed")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_VERSION = re.compile(r'"resourceVersion":"\d+"')


class Ledger:
    """Listens to a store: counts creates and deletes of each object, and notes what must never happen."""

    def __init__(self, store: Store, *, jobs: str) -> None:
        """`jobs` is the storage of the jobs."""
        self._store = store
        self._jobs = jobs
        self.creates: Counter[str] = Counter()
        self.deletes: Counter[str] = Counter()
        self.violations: list[str] = []
        self.versions: list[int] = []
        store.listeners.append(self._note)

    def counts(self) -> dict[str, tuple[int, int]]:
        """By object, how often it was created and deleted."""
        return {name: (self.creates[name], self.deletes[name]) for name in sorted(self.creates)}

    def _note(self, change: Change) -> None:
        if change.key.storage == self._jobs and change.before is not None:
            self._check_record(change.before.body, change.after.body)
        if change.key.storage not in (*_CHILDREN, self._jobs):
            return
        self.versions.append(change.version)
        name = f"{change.key.storage} {change.key.namespace}/{change.key.name}"
        if change.type is ChangeType.ADDED:
            self.creates[name] += 1
            if change.key.storage in _CHILDREN:
                self._check_create(change)
        elif change.type is ChangeType.DELETED:
            self.deletes[name] += 1

    def _check_create(self, change: Change) -> None:
        job = self._owner(change.after.body)
        if job is None:
            self.violations.append(f"{change.key} was created for a job that is gone")
            return
        status = job.get("status") or {}
        if any(found["type"] in _FINAL_PHASES and found["status"] == "True" for found in status.get("conditions", ())):
            self.violations.append(f"{change.key} was created after the job had ended")
        if change.key.storage == "pods":
            self._check_twins(change)

    def _check_twins(self, change: Change) -> None:
        """Labels tell role, index and attempt, so no two pods that live may have the same ones."""
        labels = change.after.body["metadata"].get("labels")
        for key, stored in self._store.list("pods", namespace=change.key.namespace):
            lives = stored.body["status"].get("phase") not in _FINAL_PHASES
            if key != change.key and lives and stored.body["metadata"].get("labels") == labels:
                self.violations.append(f"{change.key} and {key} are two live pods of one index and attempt")

    def _check_record(self, before: JsonObject, after: JsonObject) -> None:
        for counter in ("restarts", "disruptions"):
            old, new = _record(before).get(counter, {}), _record(after).get(counter, {})
            if any(new.get(role, 0) < number for role, number in old.items()):
                self.violations.append(f"{counter} fell from {old} to {new}")
        ended = [_ended(body) for body in (before, after)]
        if ended[0] and ended[0] != ended[1]:
            self.violations.append(f"the job had ended with {ended[0]} and then with {ended[1]}")

    def _owner(self, body: JsonObject) -> JsonObject | None:
        for owner in body["metadata"].get("ownerReferences", ()):
            found = self._store.get(Key(self._jobs, body["metadata"]["namespace"], owner["name"]))
            if found is not None and found.body["metadata"]["uid"] == owner["uid"]:
                return found.body
        return None


def masked_world(store: Store, *, jobs: str) -> dict[str, JsonObject]:
    """Jobs, pods and services without times, uids and versions."""
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


def _record(job: JsonObject) -> JsonObject:
    record: JsonObject = (job.get("status") or {}).get("dlop") or {}
    return record


def _ended(job: JsonObject) -> list[str]:
    conditions = (job.get("status") or {}).get("conditions", ())
    return [found["type"] for found in conditions if found["type"] in _FINAL_PHASES and found["status"] == "True"]
