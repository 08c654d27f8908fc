"""Index of owners and dependents for the garbage collector."""

from __future__ import annotations

from dlop.embedded.apiserver.metadata_validation import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from dlop.embedded.apiserver.store import ChangeType, ObjectKey, StoreEvent
from dlop.kube.types import JsonObject

# The garbage collector of kube-controller-manager ignores events too.
IGNORED_STORAGES = ("events",)


def owner_references(body: JsonObject) -> list[JsonObject]:
    return body["metadata"].get("ownerReferences") or []


def is_waiting_for_dependents(body: JsonObject) -> bool:
    """Whether the object is being deleted in the foreground."""
    return _is_terminating_with(body, FOREGROUND_FINALIZER)


def is_orphaning(body: JsonObject) -> bool:
    """Whether the object is being deleted and orphans its dependents."""
    return _is_terminating_with(body, ORPHAN_FINALIZER)


def _is_terminating_with(body: JsonObject, finalizer: str) -> bool:
    metadata = body["metadata"]
    return "deletionTimestamp" in metadata and finalizer in (metadata.get("finalizers") or ())


class OwnerGraph:
    """All existing objects by uid, and the dependents of each uid in order of creation."""

    def __init__(self) -> None:
        self._existing: dict[str, ObjectKey] = {}
        self._dependents: dict[str, dict[ObjectKey, None]] = {}
        # Deleted owners that still have dependents. Needed when the CRD of the owner is deleted too.
        self._deleted: set[str] = set()

    def was_deleted(self, uid: str) -> bool:
        """Whether the object with this uid is known to have been deleted."""
        return uid in self._deleted

    def find(self, uid: str) -> ObjectKey | None:
        """The key of the object with this uid, or None."""
        return self._existing.get(uid)

    def dependents(self, uid: str) -> list[ObjectKey]:
        return list(self._dependents.get(uid, ()))

    def observe(self, change: StoreEvent) -> None:
        """Update the index with a change of the store."""
        uid = change.after.body["metadata"]["uid"]
        if change.type is ChangeType.DELETED:
            self._existing.pop(uid, None)
            if uid in self._dependents:
                self._deleted.add(uid)
            self._remove(change.key, change.after.body)
            return
        self._existing[uid] = change.key
        if change.before is None:
            self._add(change.key, change.after.body)
        elif owner_references(change.before.body) != owner_references(change.after.body):
            self._remove(change.key, change.before.body)
            self._add(change.key, change.after.body)

    def _add(self, key: ObjectKey, body: JsonObject) -> None:
        for reference in owner_references(body):
            self._dependents.setdefault(reference["uid"], {})[key] = None

    def _remove(self, key: ObjectKey, body: JsonObject) -> None:
        for reference in owner_references(body):
            dependents = self._dependents.get(reference["uid"])
            if dependents is not None:
                dependents.pop(key, None)
                if not dependents:
                    del self._dependents[reference["uid"]]
                    self._deleted.discard(reference["uid"])
