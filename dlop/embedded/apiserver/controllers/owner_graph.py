"""Who owns whom: the index behind garbage collection, kept in step with the store."""

from __future__ import annotations

from dlop.embedded.apiserver.metadata_validation import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from dlop.embedded.apiserver.store import ChangeType, Key, StoreEvent
from dlop.kube.types import JsonObject

# The real collector leaves these alone too: they go by themselves, and there are many.
IGNORED_STORAGES = ("events",)


def references(body: JsonObject) -> list[JsonObject]:
    """The owner references of an object."""
    return body["metadata"].get("ownerReferences") or []


def is_waiting_for_dependents(body: JsonObject) -> bool:
    """Whether the object is being deleted in the foreground: its dependents go first."""
    return _is_held_by(body, FOREGROUND_FINALIZER)


def is_orphaning(body: JsonObject) -> bool:
    """Whether the object is being deleted and its dependents are to stay."""
    return _is_held_by(body, ORPHAN_FINALIZER)


def _is_held_by(body: JsonObject, finalizer: str) -> bool:
    metadata = body["metadata"]
    return "deletionTimestamp" in metadata and finalizer in (metadata.get("finalizers") or ())


class Owners:
    """Every live object by uid, and the dependents of each uid in the order in which they came."""

    def __init__(self) -> None:
        self._living: dict[str, Key] = {}
        self._dependents: dict[str, dict[Key, None]] = {}
        # Owners that have gone and still have dependents: once their definition is gone too, nothing else tells.
        self._gone: set[str] = set()

    def is_gone(self, uid: str) -> bool:
        """Whether an object with this uid is known to have been there and to be there no more."""
        return uid in self._gone

    def living(self, uid: str) -> Key | None:
        """Where the object with this uid is, or None when there is none."""
        return self._living.get(uid)

    def dependents(self, uid: str) -> list[Key]:
        """The objects that name this uid as an owner."""
        return list(self._dependents.get(uid, ()))

    def follow(self, change: StoreEvent) -> None:
        """Take a change of the store into account."""
        uid = change.after.body["metadata"]["uid"]
        if change.type is ChangeType.DELETED:
            self._living.pop(uid, None)
            if uid in self._dependents:
                self._gone.add(uid)
            self._forget(change.key, change.after.body)
            return
        self._living[uid] = change.key
        if change.before is None:
            self._note(change.key, change.after.body)
        elif references(change.before.body) != references(change.after.body):
            self._forget(change.key, change.before.body)
            self._note(change.key, change.after.body)

    def _note(self, key: Key, body: JsonObject) -> None:
        for reference in references(body):
            self._dependents.setdefault(reference["uid"], {})[key] = None

    def _forget(self, key: Key, body: JsonObject) -> None:
        for reference in references(body):
            known = self._dependents.get(reference["uid"])
            if known is not None:
                known.pop(key, None)
                if not known:
                    del self._dependents[reference["uid"]]
                    self._gone.discard(reference["uid"])
