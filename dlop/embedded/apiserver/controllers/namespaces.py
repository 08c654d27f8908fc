"""Namespace controller: creates the default service account and deletes the content of terminating namespaces.

Pods are deleted first, with their grace period. The namespace is removed when it is empty. Until then its conditions
report the remaining content.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice

from dlop.embedded.apiserver.age import format_time
from dlop.embedded.apiserver.core.namespaces import CONTENT_FINALIZER, FINALIZE
from dlop.embedded.apiserver.object_queue import ObjectQueue
from dlop.embedded.apiserver.query_options import DeleteOptions, PropagationPolicy
from dlop.embedded.apiserver.registry import ResourceRegistry
from dlop.embedded.apiserver.resource_type import ResourceType
from dlop.embedded.apiserver.rest.storage import ResourceStorage
from dlop.embedded.apiserver.store import ChangeType, ObjectKey, Store, StoreEvent
from dlop.kube.resources import NAMESPACES, PODS, SERVICE_ACCOUNTS
from dlop.kube.types import JsonObject

DEFAULT_SERVICE_ACCOUNT = "default"
# Number of deletes per queue item, so that requests are handled in between.
_BATCH_SIZE = 100
# Conditions of a terminating namespace: type, and the reason and message of status False.
_CONDITIONS = (
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    ("NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
    ("NamespaceDeletionContentFailure", "ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
    ("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
    ("NamespaceFinalizersRemaining", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
)


class NamespaceController:
    """Must be created before the first namespace."""

    def __init__(self, store: Store, registry: ResourceRegistry, storage: ResourceStorage, queue: ObjectQueue) -> None:
        self._store = store
        self._registry = registry
        self._storage = storage
        self._queue = queue
        self._queued: set[str] = set()
        store.listeners.append(self._observe)

    def _observe(self, change: StoreEvent) -> None:
        key = change.key
        if key.storage == NAMESPACES.plural:
            self._observe_namespace(change)
        elif change.type is ChangeType.DELETED and key.namespace:
            if self._is_terminating(key.namespace):
                # Reconcile when the last object of a resource is deleted, not for each one.
                if next(self._store.list(key.storage, namespace=key.namespace), None) is None:
                    self._enqueue(key.namespace)
            elif key.storage == SERVICE_ACCOUNTS.plural and key.name == DEFAULT_SERVICE_ACCOUNT:
                self._queue.add(lambda: self._ensure_service_account(key.namespace))

    def _observe_namespace(self, change: StoreEvent) -> None:
        if change.type is ChangeType.ADDED:
            self._queue.add(lambda: self._ensure_service_account(change.key.name))
        elif (
            change.type is ChangeType.MODIFIED
            and _has_deletion_timestamp(change.after.body)
            and not _has_deletion_timestamp((change.before or change.after).body)
        ):
            self._enqueue(change.key.name)

    def _is_terminating(self, namespace: str) -> bool:
        stored = self._store.get(ObjectKey(NAMESPACES.plural, "", namespace))
        return stored is not None and _has_deletion_timestamp(stored.body)

    def _enqueue(self, namespace: str) -> None:
        if namespace not in self._queued:
            self._queued.add(namespace)
            self._queue.add(lambda: self._reconcile(namespace))

    def _ensure_service_account(self, namespace: str) -> None:
        accounts = self._registry.find(SERVICE_ACCOUNTS.group, SERVICE_ACCOUNTS.version, SERVICE_ACCOUNTS.plural)
        stored = self._store.get(ObjectKey(NAMESPACES.plural, "", namespace))
        if accounts is None or stored is None or _has_deletion_timestamp(stored.body):
            return
        if self._store.get(ObjectKey(accounts.storage, namespace, DEFAULT_SERVICE_ACCOUNT)) is None:
            self._storage.create(accounts, namespace, {"metadata": {"name": DEFAULT_SERVICE_ACCOUNT, "namespace": namespace}})

    def _reconcile(self, namespace: str) -> None:
        """Delete a batch of the content; finalize the namespace when it is empty."""
        self._queued.discard(namespace)
        stored = self._store.get(ObjectKey(NAMESPACES.plural, "", namespace))
        if stored is None or not _has_deletion_timestamp(stored.body) or CONTENT_FINALIZER not in _finalizers(stored.body):
            return
        if self._delete_batch(namespace):
            self._enqueue(namespace)
            return
        pods_left = next(self._store.list(PODS.plural, namespace=namespace), None) is not None
        remaining = Counter[str]() if pods_left else self._count_remaining(namespace)
        self._update_conditions(namespace, remaining, Counter[str]() if pods_left else self._count_finalizers(namespace))
        if not pods_left and not remaining:
            self._finalize(namespace)

    def _contents(self, namespace: str) -> Iterator[tuple[ResourceType, ObjectKey, JsonObject]]:
        types = {type_.storage: type_ for type_ in reversed(self._registry.all()) if type_.resource.namespaced}
        # Other content is deleted after the pods, which may still need it.
        types = {PODS.plural: types.pop(PODS.plural), **types}
        for storage, type_ in types.items():
            has_objects = False
            for key, stored in self._store.list(storage, namespace=namespace):
                has_objects = True
                yield type_, key, stored.body
            if has_objects and storage == PODS.plural:
                return

    def _delete_batch(self, namespace: str) -> bool:
        """Delete a batch of objects that are not terminating. Returns whether there may be more."""
        active = ((type_, key) for type_, key, body in self._contents(namespace) if not _has_deletion_timestamp(body))
        batch = list(islice(active, _BATCH_SIZE))
        for type_, key in batch:
            self._storage.delete(type_, namespace, key.name, DeleteOptions(propagation=PropagationPolicy.BACKGROUND))
        return bool(batch)

    def _count_remaining(self, namespace: str) -> Counter[str]:
        counts = Counter(type_.resource for type_, _, _ in self._contents(namespace))
        return Counter({f"{resource.plural}.{resource.group}": count for resource, count in counts.items()})

    def _count_finalizers(self, namespace: str) -> Counter[str]:
        bodies = [body for _, _, body in self._contents(namespace)]
        return Counter(finalizer for body in bodies for finalizer in body["metadata"].get("finalizers") or ())

    def _update_conditions(self, namespace: str, remaining: Counter[str], finalizers: Counter[str]) -> None:
        failures: dict[str, tuple[str, str]] = {}
        if remaining:
            summary = ", ".join(sorted(f"{name} has {count} resource instances" for name, count in remaining.items()))
            failures["NamespaceContentRemaining"] = ("SomeResourcesRemain", f"Some resources are remaining: {summary}")
        if finalizers:
            summary = ", ".join(sorted(f"{name} in {count} resource instances" for name, count in finalizers.items()))
            message = f"Some content in the namespace has finalizers remaining: {summary}"
            failures["NamespaceFinalizersRemaining"] = ("SomeFinalizersRemain", message)
        now = format_time(self._storage.now())
        self._change(namespace, lambda body: _with_conditions(body, failures, now=now), subresource="status")

    def _finalize(self, namespace: str) -> None:
        self._change(namespace, _without_content_finalizer, subresource=FINALIZE)

    def _change(self, namespace: str, mutate: Callable[[JsonObject], JsonObject], *, subresource: str | None) -> None:
        type_ = self._registry.by_storage(NAMESPACES.plural)[0]
        self._storage.change(type_, "", namespace, mutate, subresource=subresource)


def _has_deletion_timestamp(body: JsonObject) -> bool:
    return "deletionTimestamp" in body["metadata"]


def _finalizers(namespace: JsonObject) -> list[str]:
    return (namespace.get("spec") or {}).get("finalizers") or []


def _without_content_finalizer(namespace: JsonObject) -> JsonObject:
    kept = [finalizer for finalizer in _finalizers(namespace) if finalizer != CONTENT_FINALIZER]
    return {**namespace, "spec": {**namespace["spec"], "finalizers": kept}}


def _with_conditions(namespace: JsonObject, failures: dict[str, tuple[str, str]], *, now: str) -> JsonObject:
    status = namespace.get("status") or {}
    before = {condition["type"]: condition for condition in status.get("conditions") or ()}
    conditions = [_condition(kind, failures.get(kind), success, before.get(kind), now=now) for kind, *success in _CONDITIONS]
    return {**namespace, "status": {**status, "conditions": conditions}}


def _condition(kind: str, failure: tuple[str, str] | None, success: list[str], before: JsonObject | None, *, now: str) -> JsonObject:
    reason, message = failure or success
    status = "True" if failure else "False"
    since = before["lastTransitionTime"] if before is not None and before["status"] == status else now
    return {"type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message}
