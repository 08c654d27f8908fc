"""Owner garbage collection, as the controller manager does it.

An object goes when none of its owners is left. An owner that is deleted in the foreground stays until the dependents
that block it are gone; one that is deleted with orphaning lets its dependents go free first. All work is noted when the
store changes and done right after, in order; nothing is looked at twice without a reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dlop.embedded.apiserver.controllers.owner_graph import IGNORED_STORAGES, Owners, is_orphaning, is_waiting_for_dependents, references
from dlop.embedded.apiserver.metadata_validation import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from dlop.embedded.apiserver.object_queue import Background
from dlop.embedded.apiserver.query_options import DeleteOptions, PropagationPolicy
from dlop.embedded.apiserver.registry import Registry
from dlop.embedded.apiserver.resource_type import ResourceType
from dlop.embedded.apiserver.rest.storage import ResourceStorage
from dlop.embedded.apiserver.store import ChangeType, Key, Store, StoredObject, StoreEvent
from dlop.kube.types import JsonObject


@dataclass(slots=True)
class _Sorted:
    """The uids of an object's owners by what has become of them."""

    solid: list[str] = field(default_factory=list)
    dangling: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)


class GarbageCollector:
    """Deletes what has lost its owners. Has to be there before the first object is stored."""

    def __init__(self, store: Store, registry: Registry, verbs: ResourceStorage, background: Background) -> None:
        self._store = store
        self._registry = registry
        self._verbs = verbs
        self._background = background
        self._owners = Owners()
        store.listeners.append(self._observe)

    def _observe(self, change: StoreEvent) -> None:
        if change.key.storage in IGNORED_STORAGES:
            return
        self._owners.follow(change)
        if change.type is ChangeType.DELETED:
            self._observe_deletion(change)
            return
        self._observe_marks(change)
        before = references(change.before.body) if change.before is not None else []
        after = references(change.after.body)
        if after and after != before and self._sorted(change.key, change.after.body).solid != _uids(after):
            self._later(self._collect, change.key)
        for uid in set(_uids(before)) - set(_uids(after)):
            self._look_at_owner(uid)

    def _observe_marks(self, change: StoreEvent) -> None:
        """Note the work that begins when an owner is marked for deletion."""
        before = change.before.body if change.before is not None else None
        if is_orphaning(change.after.body) and (before is None or not is_orphaning(before)):
            self._later(self._orphan, change.key)
        if is_waiting_for_dependents(change.after.body) and (before is None or not is_waiting_for_dependents(before)):
            for dependent in self._owners.dependents(change.after.body["metadata"]["uid"]):
                self._later(self._collect, dependent)
            self._later(self._release, change.key)

    def _observe_deletion(self, change: StoreEvent) -> None:
        for dependent in self._owners.dependents(change.after.body["metadata"]["uid"]):
            self._later(self._collect, dependent)
        for reference in references(change.after.body):
            self._look_at_owner(reference["uid"])

    def _look_at_owner(self, uid: str) -> None:
        owner = self._owners.living(uid)
        stored = self._store.get(owner) if owner is not None else None
        if owner is not None and stored is not None and is_waiting_for_dependents(stored.body):
            self._later(self._release, owner)

    def _later(self, work: Callable[[Key, str], None], key: Key) -> None:
        stored = self._store.get(key)
        if stored is not None:
            uid: str = stored.body["metadata"]["uid"]
            self._background.later(lambda: work(key, uid))

    def _collect(self, key: Key, uid: str) -> None:
        """Delete the object unless somebody still owns it."""
        stored, type_ = self._current(key, uid), self._type(key)
        if stored is None or type_ is None or "deletionTimestamp" in stored.body["metadata"]:
            return
        owners = self._sorted(key, stored.body)
        lost = owners.dangling + owners.waiting
        if not lost:
            return
        if owners.solid:
            self._change(type_, key, lambda body: _without_owners(body, lost))
            return
        propagation = _propagation(stored.body)
        if owners.waiting and self._owners.dependents(uid):
            propagation = PropagationPolicy.FOREGROUND
            if any(self._is_waiting(dependent) for dependent in self._owners.dependents(uid)):
                # Owners in a circle would wait for each other for ever.
                self._change(type_, key, _without_blocking)
        self._verbs.delete(type_, key.namespace, key.name, DeleteOptions(uid=uid, propagation=propagation))

    def _orphan(self, key: Key, uid: str) -> None:
        """Let the dependents go free, and then the owner."""
        for dependent in self._owners.dependents(uid):
            dependent_type = self._type(dependent)
            if dependent_type is not None:
                self._change(dependent_type, dependent, lambda body: _without_owners(body, [uid]))
        self._drop_finalizer(key, uid, ORPHAN_FINALIZER)

    def _release(self, key: Key, uid: str) -> None:
        """Let an owner go that has no more dependents to wait for."""
        if not any(self._blocks(dependent, uid) for dependent in self._owners.dependents(uid)):
            self._drop_finalizer(key, uid, FOREGROUND_FINALIZER)

    def _drop_finalizer(self, key: Key, uid: str, finalizer: str) -> None:
        stored, type_ = self._current(key, uid), self._type(key)
        if stored is not None and type_ is not None and finalizer in (stored.body["metadata"].get("finalizers") or ()):
            self._change(type_, key, lambda body: _without_finalizer(body, finalizer))

    def _sorted(self, key: Key, body: JsonObject) -> _Sorted:
        found = _Sorted()
        for reference in references(body):
            owner = self._owner(key, reference)
            if owner is None:
                found.dangling.append(reference["uid"])
            elif owner != key and self._is_waiting(owner):
                found.waiting.append(reference["uid"])
            else:
                found.solid.append(reference["uid"])
        return found

    def _owner(self, key: Key, reference: JsonObject) -> Key | None:
        """Where the owner is, or None when it does not exist. What cannot be told counts as existing."""
        owner_type = self._registry.by_kind(reference["apiVersion"], reference["kind"])
        if owner_type is None:
            return None if self._owners.is_gone(reference["uid"]) else key
        if owner_type.resource.namespaced and not key.namespace:
            return key
        namespace = key.namespace if owner_type.resource.namespaced else ""
        place = Key(owner_type.storage, namespace, reference["name"])
        return place if self._owners.living(reference["uid"]) == place else None

    def _is_waiting(self, key: Key) -> bool:
        stored = self._store.get(key)
        return stored is not None and is_waiting_for_dependents(stored.body)

    def _blocks(self, dependent: Key, owner_uid: str) -> bool:
        stored = self._store.get(dependent)
        if stored is None:
            return False
        return any(each["uid"] == owner_uid and each.get("blockOwnerDeletion") for each in references(stored.body))

    def _current(self, key: Key, uid: str) -> StoredObject | None:
        stored = self._store.get(key)
        return stored if stored is not None and stored.body["metadata"]["uid"] == uid else None

    def _type(self, key: Key) -> ResourceType | None:
        types = self._registry.by_storage(key.storage)
        return types[0] if types else None

    def _change(self, type_: ResourceType, key: Key, changed: Callable[[JsonObject], JsonObject]) -> None:
        self._verbs.change(type_, key.namespace, key.name, changed)


def _uids(owner_references: list[JsonObject]) -> list[str]:
    return [reference["uid"] for reference in owner_references]


def _propagation(body: JsonObject) -> PropagationPolicy:
    """What the object's own finalizers ask for."""
    finalizers = body["metadata"].get("finalizers") or ()
    if ORPHAN_FINALIZER in finalizers:
        return PropagationPolicy.ORPHAN
    return PropagationPolicy.FOREGROUND if FOREGROUND_FINALIZER in finalizers else PropagationPolicy.BACKGROUND


def _with_references(body: JsonObject, kept: list[JsonObject]) -> JsonObject:
    metadata = {**body["metadata"], "ownerReferences": kept}
    if not kept:
        del metadata["ownerReferences"]
    return {**body, "metadata": metadata}


def _without_owners(body: JsonObject, uids: list[str]) -> JsonObject:
    return _with_references(body, [reference for reference in references(body) if reference["uid"] not in uids])


def _without_blocking(body: JsonObject) -> JsonObject:
    return _with_references(body, [{**reference, "blockOwnerDeletion": False} for reference in references(body)])


def _without_finalizer(body: JsonObject, finalizer: str) -> JsonObject:
    metadata = body["metadata"]
    return {**body, "metadata": {**metadata, "finalizers": [each for each in metadata["finalizers"] if each != finalizer]}}
