"""Create: validation, fields that the server sets, and generated names."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from dlop.embedded.apiserver.age import format_time
from dlop.embedded.apiserver.api_errors import already_exists, bad_request, error_without_reason, forbidden, invalid, not_found
from dlop.embedded.apiserver.field_validation import body_error_factory, check_kind, read_body
from dlop.embedded.apiserver.metadata_validation import validate_metadata
from dlop.embedded.apiserver.query_options import WriteOptions
from dlop.embedded.apiserver.resource_type import ResourceType, Timestamp
from dlop.embedded.apiserver.store import ObjectKey, Store, StoredObject
from dlop.kube.resources import NAMESPACES
from dlop.kube.types import JsonObject

# No vowels and no ambiguous characters, as in apimachinery's `rand.String`.
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
_MAX_PREFIX_LENGTH = 63 - _SUFFIX_LENGTH
_SERVER_OWNED = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Creator:
    store: Store
    clock: Callable[[], float]
    new_uid: Callable[[], str]
    rng: random.Random

    def create(self, type: ResourceType, namespace: str, body: JsonObject, options: WriteOptions) -> StoredObject:
        """Store a new object. With dryRun, return it without storing it."""
        make_error = body_error_factory(type, body)
        check_kind(type, body, make_error=make_error)
        body = read_body(type, body, options, make_error=make_error)
        metadata: JsonObject = body["metadata"]
        check_namespace(type, namespace, metadata)
        if type.resource.namespaced:
            self._check_namespace_active(type, namespace, metadata)
        options.admit(body, None)
        version = metadata.pop("resourceVersion", None)
        body = self._prepare(type, namespace, body)
        errors = validate_metadata(body, None, type=type) + type.strategy.validate(body, None, subresource=None)
        if errors:
            raise invalid(type.resource, metadata.get("name", ""), errors)
        if version not in (None, "0"):
            raise error_without_reason("resourceVersion should not be set on objects to be created")
        return self._store_object(type, namespace, body, options)

    def _prepare(self, type: ResourceType, namespace: str, body: JsonObject) -> JsonObject:
        metadata: JsonObject = body["metadata"]
        now = Timestamp(self.clock())
        for name in _SERVER_OWNED:
            metadata.pop(name, None)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = self._generate_name(type, namespace, metadata["generateName"])
        if type.resource.namespaced:
            metadata["namespace"] = namespace
        metadata["uid"] = self.new_uid()
        metadata["creationTimestamp"] = format_time(now)
        if type.is_custom or type.has_generation:
            metadata["generation"] = 1
        if type.has_status and not type.keeps_status_on_create:
            body.pop("status", None)
        return type.strategy.prepare_create(body, now=now)

    def _store_object(self, type: ResourceType, namespace: str, body: JsonObject, options: WriteOptions) -> StoredObject:
        key = ObjectKey(type.storage, namespace, body["metadata"]["name"])
        existing = self.store.get(key)
        if existing is not None:
            raise already_exists(type.resource, key.name, terminating="deletionTimestamp" in existing.body["metadata"])
        if type.to_storage is not None:
            body = type.to_storage(body)
        if options.dry_run:
            return StoredObject(body, self.store.version)
        return self.store.create(key, body)

    def _generate_name(self, type: ResourceType, namespace: str, prefix: str) -> str:
        while True:
            suffix = "".join(self.rng.choices(_SUFFIX_LETTERS, k=_SUFFIX_LENGTH))
            name = prefix[:_MAX_PREFIX_LENGTH] + suffix
            if self.store.get(ObjectKey(type.storage, namespace, name)) is None:
                return name

    def _check_namespace_active(self, type: ResourceType, namespace: str, metadata: JsonObject) -> None:
        stored_namespace = self.store.get(ObjectKey("namespaces", "", namespace))
        if stored_namespace is None:
            raise not_found(NAMESPACES, namespace)
        if "deletionTimestamp" in stored_namespace.body["metadata"]:
            raise forbidden(
                type.resource,
                metadata.get("name", ""),
                f"unable to create new content in namespace {namespace} because it is being terminated",
                cause={
                    "reason": "NamespaceTerminating",
                    "message": f"namespace {namespace} is being terminated",
                    "field": "metadata.namespace",
                },
            )


def check_namespace(type: ResourceType, namespace: str, metadata: JsonObject) -> None:
    """Check that the namespace of an object is that of the request.

    Raises:
        BadRequestError: they differ.
    """
    object_namespace = metadata.get("namespace")
    if object_namespace and object_namespace != namespace and type.resource.namespaced:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
