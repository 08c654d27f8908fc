"""Deleting an object: at once, after grace, or when its finalizers let go.

An object that something still holds is only marked: it gets a deletionTimestamp, and the last update that frees it
removes it. What happens to the objects it owns is written into its finalizers here and carried out by the garbage
collector.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dlop.embedded.apiserver.age import format_time, parse_time
from dlop.embedded.apiserver.api_errors import conflict, not_found
from dlop.embedded.apiserver.metadata_validation import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from dlop.embedded.apiserver.query_options import DeleteOptions, PropagationPolicy
from dlop.embedded.apiserver.resource_type import Moment, ResourceType
from dlop.embedded.apiserver.store import Key, Store, StoredObject
from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject


@dataclass(frozen=True, slots=True)
class Deleted:
    """What a delete did: `stored` is the last state; `gone` says whether it has left the store, else it is marked only."""

    stored: StoredObject
    gone: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleter:
    """Deletes objects of any type."""

    store: Store
    clock: Callable[[], float]

    def delete(self, type: ResourceType, key: Key, options: DeleteOptions) -> Deleted:
        """Remove the object, or mark it as long as something holds it."""
        current = self.store.get(key)
        if current is None:
            raise not_found(type.resource, key.name)
        _check_preconditions(type.resource, key.name, current, options)
        grace = type.rules.deletion_grace_seconds(current.body, options.grace_seconds)
        if grace is not None and _is_pending(current.body, grace):
            return Deleted(current, gone=False)
        marked = self._marked(type, current.body, grace, options)
        held = bool(marked["metadata"].get("finalizers")) or bool(type.rules.finalizers_on_delete(marked))
        if held or grace:
            return Deleted(self._update(key, current, marked, options), gone=False)
        if grace == 0:
            current = self._update(key, current, marked, options)
        return Deleted(current if options.dry_run else self.store.delete(key), gone=True)

    def _update(self, key: Key, current: StoredObject, body: JsonObject, options: DeleteOptions) -> StoredObject:
        if options.dry_run:
            return StoredObject(body, current.version)
        return current if body == current.body else self.store.update(key, body)

    def _marked(self, type: ResourceType, body: JsonObject, grace: int | None, options: DeleteOptions) -> JsonObject:
        moment = Moment(self.clock())
        metadata = {**body["metadata"], "finalizers": _finalizers(body["metadata"], options.propagation)}
        if not metadata["finalizers"]:
            del metadata["finalizers"]
        first = "deletionTimestamp" not in metadata
        if first and metadata.get("generation"):
            metadata["generation"] += 1
        metadata["deletionTimestamp"] = _deletion_time(body["metadata"], grace or 0, moment)
        metadata["deletionGracePeriodSeconds"] = grace or 0
        marked = {**body, "metadata": metadata}
        return type.rules.prepare_delete(marked, moment=moment) if first else marked


def _is_pending(body: JsonObject, grace: int) -> bool:
    """Whether an earlier delete of the object still has its time; only a shorter one changes that."""
    pending = body["metadata"].get("deletionGracePeriodSeconds")
    return pending is not None and grace >= pending


def _deletion_time(metadata: JsonObject, grace: int, moment: Moment) -> str:
    before = metadata.get("deletionTimestamp")
    if before is None:
        return format_time(Moment(moment.seconds + grace))
    earlier_grace = metadata.get("deletionGracePeriodSeconds") or 0
    return format_time(Moment(parse_time(before) - earlier_grace + grace))


def _finalizers(metadata: JsonObject, propagation: PropagationPolicy | None) -> list[str]:
    """The finalizers with the one that the propagation asks for; without a wish, one that is there stays."""
    finalizers: list[str] = metadata.get("finalizers") or []
    if propagation is None:
        return finalizers
    others = [name for name in finalizers if name not in (ORPHAN_FINALIZER, FOREGROUND_FINALIZER)]
    if propagation is PropagationPolicy.ORPHAN:
        return [*others, ORPHAN_FINALIZER]
    if propagation is PropagationPolicy.FOREGROUND:
        return [*others, FOREGROUND_FINALIZER]
    return others


def _check_preconditions(resource: Resource, name: str, current: StoredObject, options: DeleteOptions) -> None:
    # In these messages the real server names the kind where it else names the resource.
    named = Resource(resource.group, resource.version, resource.kind, resource.kind)
    uid = current.body["metadata"]["uid"]
    if options.uid is not None and options.uid != uid:
        raise conflict(
            named,
            name,
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({uid}). "
            "The object might have been deleted and then recreated",
        )
    if options.resource_version is not None and options.resource_version != str(current.version):
        raise conflict(
            named,
            name,
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the ResourceVersion in record "
            f"({current.version}). The object might have been modified",
        )
