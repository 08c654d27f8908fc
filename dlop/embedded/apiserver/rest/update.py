"""Update, patch and status update.

Fields that the caller must not change are taken from the stored object, and an update without a difference is not
stored. Removing the last finalizer of a terminating object removes the object.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dlop.embedded.apiserver.api_errors import (
    FieldError,
    FieldErrorType,
    bad_request,
    conflict,
    error_without_reason,
    invalid,
    not_found,
    version_conflict,
)
from dlop.embedded.apiserver.field_validation import MakeError, body_error_factory, check_kind, patch_error_factory, read_body
from dlop.embedded.apiserver.metadata_validation import validate_metadata
from dlop.embedded.apiserver.query_options import WriteOptions
from dlop.embedded.apiserver.resource_type import ResourceType, Timestamp
from dlop.embedded.apiserver.rest.create import check_namespace
from dlop.embedded.apiserver.store import ObjectKey, Store, StoredObject
from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject

STATUS = "status"
# Always taken from the stored object.
_KEPT_FROM_OLD = ("creationTimestamp", "generation")
_FILLED_FROM_OLD = ("uid", "namespace", "deletionGracePeriodSeconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Updater:
    store: Store
    clock: Callable[[], float]

    def replace(
        self,
        type: ResourceType,
        key: ObjectKey,
        body: JsonObject,
        options: WriteOptions,
        *,
        subresource: str | None,
    ) -> StoredObject:
        """Replace the stored body."""
        make_error = body_error_factory(type, body)
        check_kind(type, body, make_error=make_error)
        body = self._read(type, key, body, options, make_error=make_error)
        current = self._current(type, key)
        uid, current_uid = body["metadata"].get("uid"), current.body["metadata"]["uid"]
        if uid and uid != current_uid:
            raise _uid_conflict(type.resource, key, uid, current_uid)
        return self._apply(type, key, current, body, options, subresource=subresource)

    def change(
        self,
        type: ResourceType,
        key: ObjectKey,
        mutate: Callable[[JsonObject], JsonObject],
        options: WriteOptions,
        *,
        subresource: str | None,
    ) -> StoredObject:
        """Apply `mutate` to the served body. `mutate` must not modify its argument."""
        current = self._current(type, key)
        body = mutate(to_served_version(type, current.body))
        make_error = patch_error_factory(body)
        check_kind(type, body, make_error=make_error, patched=True)
        body = self._read(type, key, body, options, make_error=make_error)
        return self._apply(type, key, current, body, options, subresource=subresource)

    def _current(self, type: ResourceType, key: ObjectKey) -> StoredObject:
        current = self.store.get(key)
        if current is None:
            raise not_found(type.resource, key.name)
        return current

    def _read(self, type: ResourceType, key: ObjectKey, body: JsonObject, options: WriteOptions, *, make_error: MakeError) -> JsonObject:
        body = read_body(type, body, options, make_error=make_error)
        metadata = body["metadata"]
        if "name" not in metadata:
            raise bad_request(f"the name of the object ({key.name} based on URL) was undeterminable: name must be provided")
        if metadata["name"] != key.name:
            raise bad_request(f"the name of the object ({metadata['name']}) does not match the name on the URL ({key.name})")
        check_namespace(type, key.namespace, metadata)
        return body

    def _apply(
        self,
        type: ResourceType,
        key: ObjectKey,
        current: StoredObject,
        body: JsonObject,
        options: WriteOptions,
        *,
        subresource: str | None,
    ) -> StoredObject:
        old = to_served_version(type, current.body)
        options.admit(body, old)
        _check_version(type, key, body["metadata"], current.version)
        body = type.strategy.reset_fields(_reset_fields(type, body, old, subresource=subresource), old, subresource=subresource)
        _keep_old_metadata(body["metadata"], old["metadata"])
        body = type.strategy.prepare_update(body, old, now=Timestamp(self.clock()))
        _count_generation(type, body, old)
        errors = validate_metadata(body, old, type=type) + type.strategy.validate(body, old, subresource=subresource)
        if errors:
            raise invalid(type.resource, key.name, errors)
        if body == old:
            return current
        return self._store_object(type, key, current, body, options)

    def _store_object(
        self, type: ResourceType, key: ObjectKey, current: StoredObject, body: JsonObject, options: WriteOptions
    ) -> StoredObject:
        if type.to_storage is not None:
            body = type.to_storage(body)
        if options.dry_run:
            return StoredObject(body, current.version)
        if is_removable(type, body):
            # The response shows the last change. Watchers only see the deletion with the state before it.
            self.store.delete(key)
            return StoredObject(body, current.version)
        return self.store.update(key, body)


def to_served_version(type: ResourceType, body: JsonObject) -> JsonObject:
    """Convert a stored body to the served version."""
    return body if type.from_storage is None else type.from_storage(body)


def is_removable(type: ResourceType, body: JsonObject) -> bool:
    """Whether a terminating object has no grace period and no finalizers left."""
    metadata = body["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("deletionGracePeriodSeconds"):
        return False
    return not metadata.get("finalizers") and not type.strategy.extra_finalizers(body)


def _check_version(type: ResourceType, key: ObjectKey, metadata: JsonObject, current: int) -> None:
    version = metadata.get("resourceVersion") or "0"
    if not (version.isascii() and version.isdigit()):
        raise error_without_reason(f'strconv.ParseUint: parsing "{version}": invalid syntax')
    if int(version) == 0:
        if type.is_custom or type.needs_version_on_update:
            # In this message kube-apiserver uses the resource name in place of the kind.
            plural = Resource(type.resource.group, type.resource.version, type.resource.plural, type.resource.plural)
            detail = "must be specified for an update"
            raise invalid(plural, key.name, [FieldError(FieldErrorType.INVALID, "metadata.resourceVersion", detail, 0)])
    elif int(version) != current:
        raise version_conflict(type.resource, key.name)


def _reset_fields(type: ResourceType, body: JsonObject, old: JsonObject, *, subresource: str | None) -> JsonObject:
    """The body with everything that the path must not change taken from the old one."""
    if subresource == STATUS:
        return _with_status({**old, "metadata": _status_metadata(type, body["metadata"], old["metadata"])}, body)
    return _with_status(body, old) if type.has_status else body


def _status_metadata(type: ResourceType, metadata: JsonObject, old: JsonObject) -> JsonObject:
    """The metadata after a status update, which can change all but the owner references of built-in types."""
    if type.is_custom:
        return {**old}
    kept = {name: value for name, value in metadata.items() if name != "ownerReferences"}
    return {**kept, "ownerReferences": old["ownerReferences"]} if "ownerReferences" in old else kept


def _with_status(body: JsonObject, source: JsonObject) -> JsonObject:
    if STATUS in source:
        return {**body, STATUS: source[STATUS]}
    return {name: value for name, value in body.items() if name != STATUS}


def _keep_old_metadata(metadata: JsonObject, old: JsonObject) -> None:
    metadata["resourceVersion"] = old["resourceVersion"]
    for name in _KEPT_FROM_OLD:
        if name in old:
            metadata[name] = old[name]
        else:
            metadata.pop(name, None)
    for name in _FILLED_FROM_OLD:
        if name in old:
            metadata.setdefault(name, old[name])
    if "deletionTimestamp" in old:
        metadata["deletionTimestamp"] = old["deletionTimestamp"]


def _count_generation(type: ResourceType, body: JsonObject, old: JsonObject) -> None:
    if (type.is_custom or type.has_generation) and _spec_differs(body, old, has_status=type.has_status):
        body["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _spec_differs(body: JsonObject, old: JsonObject, *, has_status: bool) -> bool:
    ignored = ("metadata", STATUS) if has_status else ("metadata",)
    return any(body.get(name) != old.get(name) for name in {*body, *old}.difference(ignored))


def _uid_conflict(resource: Resource, key: ObjectKey, expected: str, actual: str) -> Exception:
    path = "/".join(part for part in (resource.group, resource.plural, key.namespace, key.name) if part)
    return conflict(
        resource,
        key.name,
        f"StorageError: invalid object, Code: 4, Key: /registry/{path}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: UID in precondition: {expected}, UID in object meta: {actual}",
    )
