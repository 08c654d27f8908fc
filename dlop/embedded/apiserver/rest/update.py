"""Changing an object: by a whole new body, by a patch, or by its status alone.

Both ways end in one place: the new body is put next to the stored one, what the caller may not change is taken from
the stored one, and only a real difference is stored. The last finalizer of an object that is marked for deletion takes
the object with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dlop.embedded.apiserver.api_errors import (
    FieldError,
    FieldErrorType,
    bad_request,
    conflict,
    invalid,
    not_found,
    unreasoned,
    version_conflict,
)
from dlop.embedded.apiserver.field_validation import Refuse, check_kind, read_body, refuse_patched, refuse_sent
from dlop.embedded.apiserver.metadata_validation import validate_metadata
from dlop.embedded.apiserver.query_options import WriteOptions
from dlop.embedded.apiserver.resource_type import Moment, ResourceType
from dlop.embedded.apiserver.rest.create import check_namespace
from dlop.embedded.apiserver.store import Key, Store, StoredObject
from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject

STATUS = "status"
# The caller may send these or not: what counts is what is stored.
_KEPT_FROM_OLD = ("creationTimestamp", "generation")
_FILLED_FROM_OLD = ("uid", "namespace", "deletionGracePeriodSeconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Updater:
    """Changes objects of any type."""

    store: Store
    clock: Callable[[], float]

    def replace(
        self,
        type: ResourceType,
        key: Key,
        body: JsonObject,
        options: WriteOptions,
        *,
        subresource: str | None,
    ) -> StoredObject:
        """Put a whole new body in the place of the stored one."""
        refuse = refuse_sent(type, body)
        check_kind(type, body, refuse=refuse)
        body = self._read(type, key, body, options, refuse=refuse)
        current = self._current(type, key)
        uid, current_uid = body["metadata"].get("uid"), current.body["metadata"]["uid"]
        if uid and uid != current_uid:
            raise _uid_conflict(type.resource, key, uid, current_uid)
        return self._change(type, key, current, body, options, subresource=subresource)

    def change(
        self,
        type: ResourceType,
        key: Key,
        changed: Callable[[JsonObject], JsonObject],
        options: WriteOptions,
        *,
        subresource: str | None,
    ) -> StoredObject:
        """Apply a pure function to the served body; the body that it gets must stay as it is."""
        current = self._current(type, key)
        body = changed(served(type, current.body))
        refuse = refuse_patched(body)
        check_kind(type, body, refuse=refuse, patched=True)
        body = self._read(type, key, body, options, refuse=refuse)
        return self._change(type, key, current, body, options, subresource=subresource)

    def _current(self, type: ResourceType, key: Key) -> StoredObject:
        current = self.store.get(key)
        if current is None:
            raise not_found(type.resource, key.name)
        return current

    def _read(self, type: ResourceType, key: Key, body: JsonObject, options: WriteOptions, *, refuse: Refuse) -> JsonObject:
        body = read_body(type, body, options, refuse=refuse)
        metadata = body["metadata"]
        if "name" not in metadata:
            raise bad_request(f"the name of the object ({key.name} based on URL) was undeterminable: name must be provided")
        if metadata["name"] != key.name:
            raise bad_request(f"the name of the object ({metadata['name']}) does not match the name on the URL ({key.name})")
        check_namespace(type, key.namespace, metadata)
        return body

    def _change(
        self,
        type: ResourceType,
        key: Key,
        current: StoredObject,
        body: JsonObject,
        options: WriteOptions,
        *,
        subresource: str | None,
    ) -> StoredObject:
        old = served(type, current.body)
        _check_version(type, key, body["metadata"], current.version)
        body = type.rules.isolated(_isolated(type, body, old, subresource=subresource), old, subresource=subresource)
        _keep_old_metadata(body["metadata"], old["metadata"])
        body = type.rules.prepare_update(body, old, moment=Moment(self.clock()))
        _count_generation(type, body, old)
        errors = validate_metadata(body, old, type=type) + type.rules.validate(body, old, subresource=subresource)
        if errors:
            raise invalid(type.resource, key.name, errors)
        if body == old:
            return current
        return self._stored(type, key, current, body, options)

    def _stored(self, type: ResourceType, key: Key, current: StoredObject, body: JsonObject, options: WriteOptions) -> StoredObject:
        if type.to_storage is not None:
            body = type.to_storage(body)
        if options.dry_run:
            return StoredObject(body, current.version)
        if is_released(type, body):
            # The answer shows the last change, but watchers see only that the object is gone, in the state before it.
            self.store.delete(key)
            return StoredObject(body, current.version)
        return self.store.update(key, body)


def served(type: ResourceType, body: JsonObject) -> JsonObject:
    """A stored body in the shape of the served version."""
    return body if type.from_storage is None else type.from_storage(body)


def is_released(type: ResourceType, body: JsonObject) -> bool:
    """Whether an object is marked for deletion and nothing keeps it any longer."""
    metadata = body["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("deletionGracePeriodSeconds"):
        return False
    return not metadata.get("finalizers") and not type.rules.finalizers_on_delete(body)


def _check_version(type: ResourceType, key: Key, metadata: JsonObject, current: int) -> None:
    said = metadata.get("resourceVersion") or "0"
    if not (said.isascii() and said.isdigit()):
        raise unreasoned(f'strconv.ParseUint: parsing "{said}": invalid syntax')
    if int(said) == 0:
        if type.is_custom or type.needs_version_on_update:
            # In this one message the real server names the resource where it else names the kind.
            plural = Resource(type.resource.group, type.resource.version, type.resource.plural, type.resource.plural)
            detail = "must be specified for an update"
            raise invalid(plural, key.name, [FieldError(FieldErrorType.INVALID, "metadata.resourceVersion", detail, 0)])
    elif int(said) != current:
        raise version_conflict(type.resource, key.name)


def _isolated(type: ResourceType, body: JsonObject, old: JsonObject, *, subresource: str | None) -> JsonObject:
    """The body in which only that part differs from the old one which the path is for."""
    if subresource == STATUS:
        return _with_status({**old, "metadata": _status_metadata(type, body["metadata"], old["metadata"])}, body)
    return _with_status(body, old) if type.has_status else body


def _status_metadata(type: ResourceType, metadata: JsonObject, old: JsonObject) -> JsonObject:
    """The metadata after a change of the status: for built-in types all but the owners can be changed that way."""
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


def _uid_conflict(resource: Resource, key: Key, said: str, found: str) -> Exception:
    path = "/".join(part for part in (resource.group, resource.plural, key.namespace, key.name) if part)
    return conflict(
        resource,
        key.name,
        f"StorageError: invalid object, Code: 4, Key: /registry/{path}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: UID in precondition: {said}, UID in object meta: {found}",
    )
