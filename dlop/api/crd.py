"""A class of jobs as a CustomResourceDefinition: small, structural, applied with plain `kubectl apply`.

The schema of the spec comes from the class's `spec_model`; a kind without one (None) takes whatever is written. The status
is kept as it is: only the operator writes it. Classes that share a group and a plural are versions of one definition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import BaseModel

from dlop.api.ratcheting import lenient
from dlop.api.schema import ANYTHING, OPEN_OBJECT, SchemaError, structural
from dlop.kube.types import JsonObject

SIZE_LIMIT_BYTES = 100_000
"""Above 262,144 bytes the annotation of a plain `kubectl apply` is refused; this leaves room, and keeps the server's schemas small."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`. A priority above 0 shows it in the wide view only."""

    name: str
    path: str
    """A JSONPath from the object's top, with its leading dot."""
    type: str = "string"
    priority: int = 0
    description: str = ""


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Where `kubectl scale` and autoscalers find the numbers of a kind that can be scaled."""

    spec_replicas: str
    status_replicas: str
    selector: str | None = None


STATE_BY_CONDITIONS = Column("State", ".status.conditions[-1:].type")
AGE = Column("Age", ".metadata.creationTimestamp", type="date")
LAST_FAILURE = Column("Last Failure", ".status.dlop.lastFailure.reason", priority=1)
DEFAULT_COLUMNS = (STATE_BY_CONDITIONS, AGE, LAST_FAILURE)


class TypeNames(Protocol):
    """What a kind is called. `dlop.JobType` is one."""

    @property
    def group(self) -> str:
        """The API group."""
        ...

    @property
    def version(self) -> str:
        """The version in the group."""
        ...

    @property
    def kind(self) -> str:
        """The kind that objects carry."""
        ...

    @property
    def plural(self) -> str:
        """The name in paths."""
        ...

    @property
    def singular(self) -> str:
        """The name for one of them."""
        ...

    @property
    def short_names(self) -> Sequence[str]:
        """Shorter names for kubectl."""
        ...

    @property
    def categories(self) -> Sequence[str]:
        """Groups of kinds that kubectl lists together."""
        ...


class Kind(Protocol):
    """What has to be known of a class of jobs. `dlop.DLJob` is one."""

    @property
    def job_type(self) -> TypeNames:
        """What it is called."""
        ...

    @property
    def spec_model(self) -> type[BaseModel] | None:
        """What a spec looks like; None: anything."""
        ...

    @property
    def name_pattern(self) -> str:
        """A regular expression for names; empty: any."""
        ...

    @property
    def printer_columns(self) -> Sequence[Column]:
        """What `kubectl get` shows."""
        ...

    @property
    def scale_paths(self) -> ScalePaths | None:
        """Where the scale subresource looks; None: the kind has none."""
        ...


def definitions(kinds: Iterable[Kind]) -> list[JsonObject]:
    """The definitions of these kinds, in the order in which their groups and plurals come first.

    Raises:
        SchemaError: the spec model of one says something that a definition cannot say.
    """
    versions: dict[tuple[str, str], list[Kind]] = {}
    for kind in kinds:
        versions.setdefault((kind.job_type.group, kind.job_type.plural), []).append(kind)
    return [definition(*found) for found in versions.values()]


def definition(stored: Kind, *others: Kind) -> JsonObject:
    """The definition of one kind, stored in the first version and served in all."""
    names = stored.job_type
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{names.plural}.{names.group}",
            "labels": {"app.kubernetes.io/name": "dlop", "app.kubernetes.io/component": "crd"},
        },
        "spec": {
            "group": names.group,
            "scope": "Namespaced",
            "names": _names(names),
            "versions": [_version(stored, stored=True), *(_version(other, stored=False) for other in others)],
        },
    }


def _names(names: TypeNames) -> JsonObject:
    found: JsonObject = {"kind": names.kind, "listKind": f"{names.kind}List", "plural": names.plural, "singular": names.singular}
    if names.short_names:
        found["shortNames"] = list(names.short_names)
    if names.categories:
        found["categories"] = list(names.categories)
    return found


def _version(kind: Kind, *, stored: bool) -> JsonObject:
    subresources: JsonObject = {"status": {}}
    if kind.scale_paths is not None:
        subresources["scale"] = _scale(kind.scale_paths)
    return {
        "name": kind.job_type.version,
        "served": True,
        "storage": stored,
        "schema": {"openAPIV3Schema": _schema(kind)},
        "subresources": subresources,
        "additionalPrinterColumns": [_column(column) for column in kind.printer_columns],
    }


def _schema(kind: Kind) -> JsonObject:
    schema: JsonObject = {
        "type": "object",
        "description": _first_paragraph(kind),
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": _metadata(kind),
            "spec": _spec(kind),
            "status": {**OPEN_OBJECT, "description": "Written by the operator."},
        },
    }
    return lenient(schema)


def _metadata(kind: Kind) -> JsonObject:
    named = {"properties": {"name": {"type": "string", "pattern": kind.name_pattern}}} if kind.name_pattern else {}
    return {"type": "object", **named}


def _spec(kind: Kind) -> JsonObject:
    if kind.spec_model is None:
        return dict(ANYTHING)
    try:
        return structural(kind.spec_model)
    except SchemaError as error:
        raise SchemaError(f"the spec_model of {kind.job_type.kind} does not fit into a definition: {error}") from error


def _first_paragraph(kind: Kind) -> str:
    text = (kind.__doc__ or "").strip().partition("\n\n")[0]
    return " ".join(text.split()) or f"A {kind.job_type.kind}."


def _column(column: Column) -> JsonObject:
    found: JsonObject = {"name": column.name, "type": column.type, "jsonPath": column.path}
    optional: Mapping[str, object] = {"priority": column.priority, "description": column.description}
    return found | {name: value for name, value in optional.items() if value}


def _scale(paths: ScalePaths) -> JsonObject:
    found: JsonObject = {"specReplicasPath": paths.spec_replicas, "statusReplicasPath": paths.status_replicas}
    return found if paths.selector is None else {**found, "labelSelectorPath": paths.selector}
