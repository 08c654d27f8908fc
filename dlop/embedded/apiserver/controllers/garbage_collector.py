"""Garbage collection by owner references.

An object without existing owners is deleted. An owner that is deleted in the foreground stays until its blocking
dependents are deleted; an owner that orphans its dependents is removed after their references. Changes of the store
enqueue the work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dlop.embedded.apiserver.controllers.owner_graph import (
    IGNORED_STORAGES,
    OwnerGraph,
    is_orphaning,
    is_waiting_for_dependents,
    owner_references,
)
from dlop.embedded.apiserver.metadata_validation import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from dlop.embedded.apiserver.object_queue import ObjectQueue
from dlop.embedded.apiserver.query_options import DeleteOptions, PropagationPolicy
from dlop.embedded.apiserver.registry import ResourceRegistry
from dlop.embedded.apiserver.resource_type import ResourceType
from dlop.embedded.apiserver.rest.storage import ResourceStorage
from dlop.embedded.apiserver.store import ChangeType, ObjectKey, Store, StoredObject, StoreEvent
from dlop.kube.types import JsonObject


@dataclass(slots=True)
class _OwnersByState:
    """The uids of an object's owners: existing, missing, and waiting for their dependents."""

    solid: list[str] = field(default_factory=list)
    dangling: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)


class GarbageCollector:
    """Must be created before the first object is stored."""

    def __init__(self, store: Store, registry: ResourceRegistry, storage: ResourceStorage, queue: ObjectQueue) -> None:
        self._store = store
        self._registry = registry
        self._storage = storage
        self._queue = queue
        self._graph = OwnerGraph()
        store.listeners.append(self._observe)

    def _observe(self, change: StoreEvent) -> None:
        if change.key.storage in IGNORED_STORAGES:
            return
        self._graph.observe(change)
        if change.type is ChangeType.DELETED:
            self._observe_deletion(change)
            return
        self._observe_owner(change)
        before = owner_references(change.before.body) if change.before is not None else []
        after = owner_references(change.after.body)
        if after and after != before and self._classify_owners(change.key, change.after.body).solid != _uids(after):
            self._enqueue(self._collect, change.key)
        for uid in set(_uids(before)) - set(_uids(after)):
            self._enqueue_owner(uid)

    def _observe_owner(self, change: StoreEvent) -> None:
        """Enqueue the work for an owner that starts to wait for or orphan its dependents."""
        before = change.before.body if change.before is not None else None
        if is_orphaning(change.after.body) and (before is None or not is_orphaning(before)):
            self._enqueue(self._orphan, change.key)
        if is_waiting_for_dependents(change.after.body) and (before is None or not is_waiting_for_dependents(before)):
            for dependent in self._graph.dependents(change.after.body["metadata"]["uid"]):
                self._enqueue(self._collect, dependent)
            self._enqueue(self._release, change.key)

    def _observe_deletion(self, change: StoreEvent) -> None:
        for dependent in self._graph.dependents(change.after.body["metadata"]["uid"]):
            self._enqueue(self._collect, dependent)
        for reference in owner_references(change.after.body):
            self._enqueue_owner(reference["uid"])

    def _enqueue_owner(self, uid: str) -> None:
        owner = self._graph.find(uid)
        stored = self._store.get(owner) if owner is not None else None
        if owner is not None and stored is not None and is_waiting_for_dependents(stored.body):
            self._enqueue(self._release, owner)

    def _enqueue(self, work: Callable[[ObjectKey, str], None], key: ObjectKey) -> None:
        stored = self._store.get(key)
        if stored is not None:
            uid: str = stored.body["metadata"]["uid"]
            self._queue.add(lambda: work(key, uid))

    def _collect(self, key: ObjectKey, uid: str) -> None:
        """Delete the object unless an owner still exists."""
        stored, type_ = self._current(key, uid), self._type(key)
        if stored is None or type_ is None or "deletionTimestamp" in stored.body["metadata"]:
            return
        owners = self._classify_owners(key, stored.body)
        removed = owners.dangling + owners.waiting
        if not removed:
            return
        if owners.solid:
            self._change(type_, key, lambda body: _without_owners(body, removed))
            return
        propagation = _propagation(stored.body)
        if owners.waiting and self._graph.dependents(uid):
            propagation = PropagationPolicy.FOREGROUND
            if any(self._is_waiting(dependent) for dependent in self._graph.dependents(uid)):
                # Owners in a cycle would wait for each other indefinitely.
                self._change(type_, key, _without_blocking)
        self._storage.delete(type_, key.namespace, key.name, DeleteOptions(uid=uid, propagation=propagation))

    def _orphan(self, key: ObjectKey, uid: str) -> None:
        """Remove the owner from its dependents, then remove its orphan finalizer."""
        for dependent in self._graph.dependents(uid):
            dependent_type = self._type(dependent)
            if dependent_type is not None:
                self._change(dependent_type, dependent, lambda body: _without_owners(body, [uid]))
        self._remove_finalizer(key, uid, ORPHAN_FINALIZER)

    def _release(self, key: ObjectKey, uid: str) -> None:
        """Remove the foreground finalizer of an owner without blocking dependents."""
        if not any(self._blocks(dependent, uid) for dependent in self._graph.dependents(uid)):
            self._remove_finalizer(key, uid, FOREGROUND_FINALIZER)

    def _remove_finalizer(self, key: ObjectKey, uid: str, finalizer: str) -> None:
        stored, type_ = self._current(key, uid), self._type(key)
        if stored is not None and type_ is not None and finalizer in (stored.body["metadata"].get("finalizers") or ()):
            self._change(type_, key, lambda body: _without_finalizer(body, finalizer))

    def _classify_owners(self, key: ObjectKey, body: JsonObject) -> _OwnersByState:
        owners = _OwnersByState()
        for reference in owner_references(body):
            owner = self._owner(key, reference)
            if owner is None:
                owners.dangling.append(reference["uid"])
            elif owner != key and self._is_waiting(owner):
                owners.waiting.append(reference["uid"])
            else:
                owners.solid.append(reference["uid"])
        return owners

    def _owner(self, key: ObjectKey, reference: JsonObject) -> ObjectKey | None:
        """The key of the owner, or None if it does not exist. Returns `key` itself if the existence is unknown."""
        owner_type = self._registry.by_kind(reference["apiVersion"], reference["kind"])
        if owner_type is None:
            return None if self._graph.was_deleted(reference["uid"]) else key
        if owner_type.resource.namespaced and not key.namespace:
            return key
        namespace = key.namespace if owner_type.resource.namespaced else ""
        owner_key = ObjectKey(owner_type.storage, namespace, reference["name"])
        return owner_key if self._graph.find(reference["uid"]) == owner_key else None

    def _is_waiting(self, key: ObjectKey) -> bool:
        stored = self._store.get(key)
        return stored is not None and is_waiting_for_dependents(stored.body)

    def _blocks(self, dependent: ObjectKey, owner_uid: str) -> bool:
        stored = self._store.get(dependent)
        if stored is None:
            return False
        return any(reference["uid"] == owner_uid and reference.get("blockOwnerDeletion") for reference in owner_references(stored.body))

    def _current(self, key: ObjectKey, uid: str) -> StoredObject | None:
        stored = self._store.get(key)
        return stored if stored is not None and stored.body["metadata"]["uid"] == uid else None

    def _type(self, key: ObjectKey) -> ResourceType | None:
        types = self._registry.by_storage(key.storage)
        return types[0] if types else None

    def _change(self, type_: ResourceType, key: ObjectKey, mutate: Callable[[JsonObject], JsonObject]) -> None:
        self._storage.change(type_, key.namespace, key.name, mutate)


def _uids(references: list[JsonObject]) -> list[str]:
    return [reference["uid"] for reference in references]


def _propagation(body: JsonObject) -> PropagationPolicy:
    """The propagation policy of the object's finalizers."""
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
    return _with_references(body, [reference for reference in owner_references(body) if reference["uid"] not in uids])


def _without_blocking(body: JsonObject) -> JsonObject:
    return _with_references(body, [{**reference, "blockOwnerDeletion": False} for reference in owner_references(body)])


def _without_finalizer(body: JsonObject, finalizer: str) -> JsonObject:
    metadata = body["metadata"]
    return {**body, "metadata": {**metadata, "finalizers": [name for name in metadata["finalizers"] if name != finalizer]}}
