"""Description of one served resource: names, subresources, columns, and the strategy for its objects.

Built-in resources and CRDs are both described by a `ResourceType`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dlop.embedded.apiserver.api_errors import FieldError
from dlop.embedded.apiserver.name_validation import subdomain_errors
from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class MergeList:
    """A list that strategic merge patch merges: by the key field of its items, or without a key as a set of scalars."""

    key: str | None = None
    items: MergeSchema = field(default_factory=dict)


MergeSchema = Mapping[str, "MergeSchema | MergeList"]
"""How strategic merge patch treats the fields of a type. Fields that are not listed are merged if maps and replaced if lists."""


@dataclass(frozen=True, slots=True)
class Timestamp:
    """A point in time, in seconds since the epoch."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """A column of a Table. `cell` computes the value from an object and the current time."""

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0
    cell: Callable[[JsonObject, Timestamp], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleFieldPaths:
    """Field paths of the scale subresource, split at the dots."""

    spec_replicas: tuple[str, ...]
    status_replicas: tuple[str, ...]
    label_selector: tuple[str, ...] | None = None


class Strategy:
    """Resource-specific behavior of create, update and delete, like the REST strategies of kube-apiserver.

    `prepare_*` may modify the top level and `metadata` of `body` in place. Everything deeper is shared with older
    versions and must be copied first.
    """

    def prepare_create(self, body: JsonObject, *, now: Timestamp) -> JsonObject:
        """Set defaults and fields that only the server sets. Called before validation."""
        return body

    def prepare_update(self, body: JsonObject, old: JsonObject, *, now: Timestamp) -> JsonObject:
        """Like `prepare_create`, for updates of the object or its status."""
        return body

    def reset_fields(self, body: JsonObject, old: JsonObject, *, subresource: str | None) -> JsonObject:
        """Reset fields that the path must not change, in addition to spec and status (namespaces: finalizers)."""
        return body

    def validate_name(self, name: str) -> list[str]:
        """Error messages for a name. Most types accept a DNS-1123 subdomain."""
        return subdomain_errors(name)

    def validate(self, body: JsonObject, old: JsonObject | None, *, subresource: str | None) -> list[FieldError]:
        """The errors of the object; `old` is None on create."""
        return []

    def prune_unknown_fields(self, body: JsonObject) -> tuple[JsonObject, list[str]]:
        """The body without unknown fields, and their paths (for fieldValidation).

        Raises:
            ValueError: a value has the wrong type. The message is that of Go's decoder.
        """
        return body, []

    def deletion_grace_seconds(self, body: JsonObject, requested: int | None) -> int | None:
        """Grace period of a delete; None if the type has no graceful deletion.

        With 0 the object first gets a deletionTimestamp and is then removed, so that watchers see both changes.
        """
        return None

    def prepare_delete(self, body: JsonObject, *, now: Timestamp) -> JsonObject:
        """Update the object when its deletionTimestamp is set (namespaces: the phase)."""
        return body

    def extra_finalizers(self, body: JsonObject) -> tuple[str, ...]:
        """Finalizers outside metadata.finalizers (namespaces: spec.finalizers)."""
        return ()


@dataclass(frozen=True, kw_only=True)
class ResourceType:
    """One served version of one resource."""

    resource: Resource
    storage: str
    singular: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    has_status: bool = False
    scale: ScaleFieldPaths | None = None
    strategy: Strategy = field(default_factory=Strategy)
    merge_schema: MergeSchema | None = None
    """None if the type does not support strategic merge patch (custom resources)."""
    columns: tuple[TableColumn, ...] = ()
    """Empty means Name and Age."""
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Supported field selectors in addition to metadata.name and metadata.namespace, with their field paths."""
    has_generation: bool = False
    """Whether metadata.generation is incremented on spec changes of this built-in type. Custom resources always do so."""
    keeps_status_on_create: bool = False
    """Whether create keeps the status although the type has a status subresource (nodes)."""
    creates_on_update: bool = False
    """Whether a PUT of an object that does not exist creates it (services, leases, events, RBAC)."""
    needs_version_on_update: bool = False
    """Whether a PUT without a resourceVersion is rejected (leases, CRDs; custom resources always)."""
    returns_deleted: bool = False
    """Whether a delete returns the object instead of a Status (pods, services, service accounts, namespaces)."""
    schema: JsonObject | None = None
    """The published OpenAPI schema."""
    from_storage: Callable[[JsonObject], JsonObject] | None = None
    """Converts a stored body to this version; None if no conversion is needed."""
    to_storage: Callable[[JsonObject], JsonObject] | None = None
    custom_list_kind: str = ""
    """`listKind` of the CRD, if it is not the default."""

    @property
    def is_custom(self) -> bool:
        """Whether the type is defined by a CRD."""
        return self.merge_schema is None

    @property
    def list_kind(self) -> str:
        return self.custom_list_kind or f"{self.resource.kind}List"
