"""Delete: immediate, graceful, or after the finalizers are removed.

An object with a grace period or finalizers gets a deletionTimestamp, and the update that removes the last finalizer
removes the object. The propagation policy is stored as a finalizer for the garbage collector.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dlop.embedded.apiserver.age import format_time, parse_time
from dlop.embedded.apiserver.api_errors import conflict, not_found
from dlop.embedded.apiserver.metadata_validation import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from dlop.embedded.apiserver.query_options import DeleteOptions, PropagationPolicy
from dlop.embedded.apiserver.resource_type import ResourceType, Timestamp
from dlop.embedded.apiserver.store import ObjectKey, Store, StoredObject
from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """Result of a delete. `removed` is False if the object only got a deletionTimestamp."""

    stored: StoredObject
    removed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleter:
    store: Store
    clock: Callable[[], float]

    def delete(self, type: ResourceType, key: ObjectKey, options: DeleteOptions) -> DeleteResult:
        """Remove the object, or set its deletionTimestamp if it has a grace period or finalizers."""
        current = self.store.get(key)
        if current is None:
            raise not_found(type.resource, key.name)
        _check_preconditions(type.resource, key.name, current, options)
        grace = type.strategy.deletion_grace_seconds(current.body, options.grace_seconds)
        if grace is not None and _is_pending(current.body, grace):
            return DeleteResult(current, removed=False)
        terminating = self._with_deletion_timestamp(type, current.body, grace, options)
        has_finalizers = bool(terminating["metadata"].get("finalizers")) or bool(type.strategy.extra_finalizers(terminating))
        if has_finalizers or grace:
            return DeleteResult(self._update(key, current, terminating, options), removed=False)
        if grace == 0:
            current = self._update(key, current, terminating, options)
        return DeleteResult(current if options.dry_run else self.store.delete(key), removed=True)

    def _update(self, key: ObjectKey, current: StoredObject, body: JsonObject, options: DeleteOptions) -> StoredObject:
        if options.dry_run:
            return StoredObject(body, current.version)
        return current if body == current.body else self.store.update(key, body)

    def _with_deletion_timestamp(self, type: ResourceType, body: JsonObject, grace: int | None, options: DeleteOptions) -> JsonObject:
        now = Timestamp(self.clock())
        metadata = {**body["metadata"], "finalizers": _finalizers(body["metadata"], options.propagation)}
        if not metadata["finalizers"]:
            del metadata["finalizers"]
        first = "deletionTimestamp" not in metadata
        if first and metadata.get("generation"):
            metadata["generation"] += 1
        metadata["deletionTimestamp"] = _deletion_time(body["metadata"], grace or 0, now)
        metadata["deletionGracePeriodSeconds"] = grace or 0
        terminating = {**body, "metadata": metadata}
        return type.strategy.prepare_delete(terminating, now=now) if first else terminating


def _is_pending(body: JsonObject, grace: int) -> bool:
    """Whether the object is already terminating with a grace period that is not longer.

    An object without a grace period should be gone already. Deleting it again removes it, as in kube-apiserver.
    """
    pending = body["metadata"].get("deletionGracePeriodSeconds")
    return bool(pending) and grace >= pending


def _deletion_time(metadata: JsonObject, grace: int, now: Timestamp) -> str:
    before = metadata.get("deletionTimestamp")
    if before is None:
        return format_time(Timestamp(now.seconds + grace))
    earlier_grace = metadata.get("deletionGracePeriodSeconds") or 0
    return format_time(Timestamp(parse_time(before) - earlier_grace + grace))


def _finalizers(metadata: JsonObject, propagation: PropagationPolicy | None) -> list[str]:
    """The finalizers for the propagation policy. Without a policy they are unchanged."""
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
    # In these messages kube-apiserver uses the kind in place of the resource name.
    kind_as_resource = Resource(resource.group, resource.version, resource.kind, resource.kind)
    uid = current.body["metadata"]["uid"]
    if options.uid is not None and options.uid != uid:
        raise conflict(
            kind_as_resource,
            name,
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({uid}). "
            "The object might have been deleted and then recreated",
        )
    if options.resource_version is not None and options.resource_version != str(current.version):
        raise conflict(
            kind_as_resource,
            name,
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the ResourceVersion in record "
            f"({current.version}). The object might have been modified",
        )
