"""CRD controller: registers the resource types of CustomResourceDefinitions.

The names of a new CRD are accepted first, then the CRD is established and its types are registered. When a CRD is
deleted, its custom resources are deleted first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

from dlop.embedded.apiserver.apiextensions.crd_strategy import CLEANUP_FINALIZER, CRD_TYPE, resource_types, with_condition
from dlop.embedded.apiserver.apiextensions.custom_resource_strategy import CustomResourceStrategy
from dlop.embedded.apiserver.object_queue import ObjectQueue
from dlop.embedded.apiserver.registry import ResourceRegistry
from dlop.embedded.apiserver.resource_type import ResourceType, Timestamp
from dlop.embedded.apiserver.rest.storage import ResourceStorage
from dlop.embedded.apiserver.store import ChangeType, ObjectKey, Store, StoreEvent
from dlop.kube.errors import NotFoundError
from dlop.kube.types import JsonObject

__all__ = ["CRD_TYPE", "CrdController"]


class CrdController:
    def __init__(
        self, store: Store, registry: ResourceRegistry, queue: ObjectQueue, clock: Callable[[], float], *, storage: ResourceStorage
    ) -> None:
        self._store = store
        self._registry = registry
        self._queue = queue
        self._clock = clock
        self._storage = storage
        self._registered: dict[str, tuple[JsonObject, list[ResourceType]]] = {}
        self._queued: set[str] = set()
        store.listeners.append(self._observe)

    def _observe(self, change: StoreEvent) -> None:
        if change.key.storage == CRD_TYPE.storage:
            self._enqueue(change.key.name)
        elif change.type is ChangeType.DELETED and change.key.storage in self._registered:
            # The name of a CRD is the storage of its objects.
            self._enqueue(change.key.storage)

    def _enqueue(self, name: str) -> None:
        if name not in self._queued:
            self._queued.add(name)
            self._queue.add(lambda: self._reconcile(name))

    def _reconcile(self, name: str) -> None:
        """Take one step towards the desired state of a CRD. The change enqueues the next step."""
        self._queued.discard(name)
        stored = self._store.get(ObjectKey(CRD_TYPE.storage, "", name))
        if stored is None:
            self._unregister(name)
            self._enqueue_unaccepted()
        elif "deletionTimestamp" not in stored.body["metadata"]:
            self._establish(stored.body)
        elif CLEANUP_FINALIZER in stored.body["metadata"].get("finalizers", ()):
            self._clean_up(stored.body)

    def _establish(self, crd: JsonObject) -> None:
        name, status, now = crd["metadata"]["name"], crd["status"], Timestamp(self._clock())
        if crd["spec"]["names"] != status["acceptedNames"]:
            status = self._with_accepted_names(crd, now)
        elif _is_true(status, "NamesAccepted"):
            self._register(name, crd)
            status = with_condition(status, "Established", "True", "InitialNamesAccepted", "the initial names have been accepted", now)
        if status != crd["status"]:
            self._store.update(ObjectKey(CRD_TYPE.storage, "", name), {**crd, "status": status})

    def _with_accepted_names(self, crd: JsonObject, now: Timestamp) -> JsonObject:
        accepted, conflict = self._accepted_names(crd)
        status = {**crd["status"], "acceptedNames": accepted}
        if conflict is None:
            status = with_condition(status, "NamesAccepted", "True", "NoConflicts", "no conflicts found", now)
            reason, message = "Installing", "the initial names have been accepted"
        else:
            status = with_condition(status, "NamesAccepted", "False", *conflict, now)
            reason, message = "NotAccepted", "not all names are accepted"
        return status if _is_true(status, "Established") else with_condition(status, "Established", "False", reason, message, now)

    def _accepted_names(self, crd: JsonObject) -> tuple[JsonObject, tuple[str, str] | None]:
        """The accepted names, and the reason and message of a conflict."""
        requested, accepted = crd["spec"]["names"], dict(crd["status"]["acceptedNames"])
        used, conflict = self._names_of_other_crds(crd), None
        for field in ("plural", "singular", "kind", "listKind"):
            if requested.get(field) != accepted.get(field) and requested.get(field) in used:
                conflict = (f"{field[0].upper()}{field[1:]}Conflict", f'"{requested[field]}" is already in use')
            elif field in requested:
                accepted[field] = requested[field]
        conflicts = [f'"{short}" is already in use' for short in requested.get("shortNames", ()) if short in used]
        if conflicts:
            conflict = ("ShortNamesConflict", conflicts[0] if len(conflicts) == 1 else f"[{', '.join(conflicts)}]")
        for field in ("shortNames", "categories"):
            if field in requested and not (field == "shortNames" and conflicts):
                accepted[field] = requested[field]
            elif field not in requested:
                accepted.pop(field, None)
        return accepted, conflict

    def _names_of_other_crds(self, crd: JsonObject) -> set[str]:
        used: set[str] = set()
        for other in self._crds():
            if other["spec"]["group"] == crd["spec"]["group"] and other["metadata"]["name"] != crd["metadata"]["name"]:
                names = other.get("status", {}).get("acceptedNames", {})
                used |= {names.get(field, "") for field in ("plural", "singular", "kind", "listKind")} | set(names.get("shortNames", ()))
        return used - {""}

    def _crds(self) -> Iterator[JsonObject]:
        return (stored.body for _, stored in self._store.list(CRD_TYPE.storage))

    def _enqueue_unaccepted(self) -> None:
        for crd in self._crds():
            if not _is_true(crd["status"], "NamesAccepted"):
                self._enqueue(crd["metadata"]["name"])

    def _register(self, name: str, crd: JsonObject) -> None:
        before = self._registered.get(name)
        if before is not None and before[0] is crd["spec"]:
            return
        self._unregister(name)
        types = resource_types(crd)
        for resource_type in types:
            self._registry.add(resource_type)
        self._registered[name] = (crd["spec"], types)

    def _unregister(self, name: str) -> None:
        _, types = self._registered.pop(name, ({}, []))
        for resource_type in types:
            self._registry.remove(resource_type.resource.group, resource_type.resource.version, resource_type.resource.plural)

    def _clean_up(self, crd: JsonObject) -> None:
        name = crd["metadata"]["name"]
        _, types = self._registered.get(name, ({}, []))
        for resource_type in types:
            cast("CustomResourceStrategy", resource_type.strategy).crd_terminating = True
        if types:
            self._delete_objects(types[0])
        if self._store.count(name) == 0 or not types:
            self._finalize(crd)

    def _delete_objects(self, type: ResourceType) -> None:
        for key, stored in list(self._store.list(type.storage)):
            if "deletionTimestamp" in stored.body["metadata"]:
                continue
            try:
                self._storage.delete(type, key.namespace, key.name)
            except NotFoundError:
                # Deleted by garbage collection in the meantime.
                continue

    def _finalize(self, crd: JsonObject) -> None:
        key = ObjectKey(CRD_TYPE.storage, "", crd["metadata"]["name"])
        remaining = [finalizer for finalizer in crd["metadata"]["finalizers"] if finalizer != CLEANUP_FINALIZER]
        if not remaining:
            self._store.delete(key)
            return
        reason_and_message = ("InstanceDeletionCompleted", "removed all instances")
        status = with_condition(crd["status"], "Terminating", "False", *reason_and_message, Timestamp(self._clock()))
        self._store.update(key, {**crd, "metadata": {**crd["metadata"], "finalizers": remaining}, "status": status})


def _is_true(status: JsonObject, condition: str) -> bool:
    return any(item["type"] == condition and item["status"] == "True" for item in status.get("conditions") or ())
