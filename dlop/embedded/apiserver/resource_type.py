"""What the server knows about one resource: its names, what it answers to, and the rules its objects follow.

Built-in resources and installed CRDs both become a `ResourceType`; the verbs know no other kind of thing.
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
    """A list whose items strategic merge patch matches by a key field; without a key, a set of plain values."""

    key: str | None = None
    items: MergeSchema = field(default_factory=dict)


MergeSchema = Mapping[str, "MergeSchema | MergeList"]
"""How strategic merge patch treats the fields of a type. A field that is not named merges as a map or is replaced as a list."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What time it is, as seconds since the epoch: handed to everything that would else ask a clock."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One printer column of a Table: `cell` makes the value from an object."""

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0
    cell: Callable[[JsonObject, Moment], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalePaths:
    """Where the scale subresource finds its numbers, as field paths without the leading dot."""

    spec_replicas: tuple[str, ...]
    status_replicas: tuple[str, ...]
    label_selector: tuple[str, ...] | None = None


class Rules:
    """What is special about the objects of one resource. The defaults fit a resource with a spec and no surprises.

    Bodies given to `prepare_*` are fresh at the top level and in `metadata`, and may be changed there; anything deeper
    is shared with older versions and must be replaced, not changed.
    """

    def prepare_create(self, body: JsonObject, *, moment: Moment) -> JsonObject:
        """Defaults, and what the server alone decides. Called before validation."""
        return body

    def prepare_update(self, body: JsonObject, old: JsonObject, *, moment: Moment) -> JsonObject:
        """The same for a changed object; also for a changed status."""
        return body

    def isolated(self, body: JsonObject, old: JsonObject, *, subresource: str | None) -> JsonObject:
        """The changed object without what the path may not change, beyond keeping spec and status apart (namespaces: finalizers)."""
        return body

    def validate_name(self, name: str) -> list[str]:
        """What is wrong with a name, in sentences; most types take any DNS-1123 subdomain."""
        return subdomain_errors(name)

    def validate(self, body: JsonObject, old: JsonObject | None, *, subresource: str | None) -> list[FieldError]:
        """What is wrong with the object; `old` is None on create."""
        return []

    def unknown_fields(self, body: JsonObject) -> tuple[JsonObject, list[str]]:
        """The body without the fields that the type does not have, and their paths (for fieldValidation).

        Raises:
            ValueError: when a value is of another type than its field; the message is the real decoder's.
        """
        return body, []

    def deletion_grace_seconds(self, body: JsonObject, requested: int | None) -> int | None:
        """How long the object stays, marked for deletion, until somebody confirms; 0 removes it at once.

        None: the type knows no grace. (With 0 the object is first marked and then removed, as watchers of pods see it.)
        """
        return None

    def prepare_delete(self, body: JsonObject, *, moment: Moment) -> JsonObject:
        """What changes, beside the metadata, when the object is marked for deletion (namespaces: the phase)."""
        return body

    def finalizers_on_delete(self, body: JsonObject) -> tuple[str, ...]:
        """Finalizer-like holds besides metadata.finalizers that keep a deleted object in place (namespaces: spec.finalizers)."""
        return ()


@dataclass(frozen=True, kw_only=True)
class ResourceType:
    """One version of one resource, as the server serves it."""

    resource: Resource
    storage: str
    singular: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    has_status: bool = False
    scale: ScalePaths | None = None
    rules: Rules = field(default_factory=Rules)
    merge_schema: MergeSchema | None = None
    """None: the type has no strategic merge patch (custom resources)."""
    columns: tuple[Column, ...] = ()
    """Empty: Name and Age."""
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Field selectors beside metadata.name and metadata.namespace, with the path of each."""
    has_generation: bool = False
    """Whether metadata.generation counts changes of the spec (a few built-in types do not)."""
    keeps_status_on_create: bool = False
    """Whether a new object may bring its status along although the type has a status subresource (nodes)."""
    creates_on_update: bool = False
    """Whether a PUT to a free name creates the object (services, leases, events, RBAC)."""
    needs_version_on_update: bool = False
    """Whether a PUT without a resourceVersion is refused (leases, CRDs; custom resources always)."""
    returns_deleted: bool = False
    """Whether a delete is answered with the object rather than with a Status (pods, services, service accounts, namespaces)."""
    schema: JsonObject | None = None
    """The OpenAPI schema that `kubectl` is shown."""
    from_storage: Callable[[JsonObject], JsonObject] | None = None
    """Turns a stored body into this version's shape; None: stored as served."""
    to_storage: Callable[[JsonObject], JsonObject] | None = None
    own_list_kind: str = ""
    """The kind of a list of these objects, where a CRD names an unusual one."""

    @property
    def is_custom(self) -> bool:
        """Whether the type comes from a CRD."""
        return self.merge_schema is None

    @property
    def list_kind(self) -> str:
        """The kind of a list of these objects."""
        return self.own_list_kind or f"{self.resource.kind}List"
