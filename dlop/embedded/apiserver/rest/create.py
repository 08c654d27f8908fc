"""Creating an object: what the server adds, in which order it checks, and what it refuses."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from dlop.embedded.apiserver.age import format_time
from dlop.embedded.apiserver.api_errors import already_exists, bad_request, forbidden, invalid, not_found, unreasoned
from dlop.embedded.apiserver.field_validation import check_kind, read_body, refuse_sent
from dlop.embedded.apiserver.metadata_validation import validate_metadata
from dlop.embedded.apiserver.query_options import WriteOptions
from dlop.embedded.apiserver.resource_type import Moment, ResourceType
from dlop.embedded.apiserver.store import Key, Store, StoredObject
from dlop.kube.resources import NAMESPACES
from dlop.kube.types import JsonObject

# No vowels and nothing that looks like something else, so that no words come about.
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
_LONGEST_PREFIX = 63 - _SUFFIX_LENGTH
_SERVER_OWNED = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Creator:
    """Creates objects of any type."""

    store: Store
    clock: Callable[[], float]
    new_uid: Callable[[], str]
    randomness: random.Random

    def create(self, type: ResourceType, namespace: str, body: JsonObject, options: WriteOptions) -> StoredObject:
        """Store a new object, or with dryRun only say what it would be."""
        refuse = refuse_sent(type, body)
        check_kind(type, body, refuse=refuse)
        body = read_body(type, body, options, refuse=refuse)
        metadata: JsonObject = body["metadata"]
        check_namespace(type, namespace, metadata)
        if type.resource.namespaced:
            self._check_namespace_lives(type, namespace, metadata)
        version = metadata.pop("resourceVersion", None)
        body = self._prepared(type, namespace, body)
        errors = validate_metadata(body, None, type=type) + type.rules.validate(body, None, subresource=None)
        if errors:
            raise invalid(type.resource, metadata.get("name", ""), errors)
        if version not in (None, "0"):
            raise unreasoned("resourceVersion should not be set on objects to be created")
        return self._stored(type, namespace, body, options)

    def _prepared(self, type: ResourceType, namespace: str, body: JsonObject) -> JsonObject:
        metadata: JsonObject = body["metadata"]
        moment = Moment(self.clock())
        for name in _SERVER_OWNED:
            metadata.pop(name, None)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = self._free_name(type, namespace, metadata["generateName"])
        if type.resource.namespaced:
            metadata["namespace"] = namespace
        metadata["uid"] = self.new_uid()
        metadata["creationTimestamp"] = format_time(moment)
        if type.is_custom or type.has_generation:
            metadata["generation"] = 1
        if type.has_status and not type.keeps_status_on_create:
            body.pop("status", None)
        return type.rules.prepare_create(body, moment=moment)

    def _stored(self, type: ResourceType, namespace: str, body: JsonObject, options: WriteOptions) -> StoredObject:
        key = Key(type.storage, namespace, body["metadata"]["name"])
        existing = self.store.get(key)
        if existing is not None:
            raise already_exists(type.resource, key.name, marked="deletionTimestamp" in existing.body["metadata"])
        if type.to_storage is not None:
            body = type.to_storage(body)
        if options.dry_run:
            return StoredObject(body, self.store.version)
        return self.store.create(key, body)

    def _free_name(self, type: ResourceType, namespace: str, prefix: str) -> str:
        while True:
            suffix = "".join(self.randomness.choices(_SUFFIX_LETTERS, k=_SUFFIX_LENGTH))
            name = prefix[:_LONGEST_PREFIX] + suffix
            if self.store.get(Key(type.storage, namespace, name)) is None:
                return name

    def _check_namespace_lives(self, type: ResourceType, namespace: str, metadata: JsonObject) -> None:
        found = self.store.get(Key("namespaces", "", namespace))
        if found is None:
            raise not_found(NAMESPACES, namespace)
        if "deletionTimestamp" in found.body["metadata"]:
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
    """Refuse an object that says it belongs to another namespace than the request's.

    Raises:
        BadRequestError: when the two differ.
    """
    said = metadata.get("namespace")
    if said and said != namespace and type.resource.namespaced:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
