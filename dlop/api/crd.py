"""Generates CustomResourceDefinitions from job classes. They are structural, and small enough for plain `kubectl apply`.

The schema of the spec comes from `spec_model`; None accepts any spec. The schema of the status preserves unknown fields,
because only the operator writes it. Classes with the same group and plural are versions of one CRD.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import BaseModel

from dlop.api.ratcheting import with_ratcheting
from dlop.api.schema import ANYTHING, OPEN_OBJECT, SchemaError, structural_schema
from dlop.api.types import JobType
from dlop.kube.types import JsonObject

SIZE_LIMIT_BYTES = 100_000
"""The last-applied annotation of `kubectl apply` is limited to 262,144 bytes. This leaves room and keeps the server's schemas small."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`. Columns with a priority above 0 are shown with `-o wide` only."""

    name: str
    path: str
    """JSONPath from the root of the object, with a leading dot."""
    type: str = "string"
    priority: int = 0
    description: str = ""


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """JSON paths of the scale subresource, with a leading dot."""

    spec_replicas: str
    status_replicas: str
    selector: str | None = None


STATE_BY_CONDITIONS = Column("State", ".status.conditions[-1:].type")
AGE = Column("Age", ".metadata.creationTimestamp", type="date")
LAST_FAILURE = Column("Last Failure", ".status.dlop.lastFailure.reason", priority=1)
DEFAULT_COLUMNS = (STATE_BY_CONDITIONS, AGE, LAST_FAILURE)


class CRDKind(Protocol):
    """The attributes of a job class that its CRD is generated from. `dlop.DLJob` documents them."""

    @property
    def job_type(self) -> JobType: ...

    @property
    def spec_model(self) -> type[BaseModel] | None: ...

    @property
    def name_pattern(self) -> str: ...

    @property
    def printer_columns(self) -> Sequence[Column]: ...

    @property
    def scale_paths(self) -> ScalePaths | None: ...


def build_crds(kinds: Iterable[CRDKind]) -> list[JsonObject]:
    """One CRD for each group and plural, in the order of first occurrence. The first kind of each is the storage version.

    Raises:
        SchemaError: a spec model cannot be expressed as a structural schema.
    """
    versions: dict[tuple[str, str], list[CRDKind]] = {}
    for kind in kinds:
        versions.setdefault((kind.job_type.group, kind.job_type.plural), []).append(kind)
    return [build_crd(*group) for group in versions.values()]


def build_crd(stored: CRDKind, *others: CRDKind) -> JsonObject:
    """One CRD. `stored` is the storage version; all versions are served."""
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


def _names(job_type: JobType) -> JsonObject:
    names: JsonObject = {
        "kind": job_type.kind,
        "listKind": f"{job_type.kind}List",
        "plural": job_type.plural,
        "singular": job_type.singular,
    }
    if job_type.short_names:
        names["shortNames"] = list(job_type.short_names)
    if job_type.categories:
        names["categories"] = list(job_type.categories)
    return names


def _version(kind: CRDKind, *, stored: bool) -> JsonObject:
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


def _schema(kind: CRDKind) -> JsonObject:
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
    return with_ratcheting(schema)


def _metadata(kind: CRDKind) -> JsonObject:
    properties = {"properties": {"name": {"type": "string", "pattern": kind.name_pattern}}} if kind.name_pattern else {}
    return {"type": "object", **properties}


def _spec(kind: CRDKind) -> JsonObject:
    if kind.spec_model is None:
        return dict(ANYTHING)
    try:
        return structural_schema(kind.spec_model)
    except SchemaError as error:
        raise SchemaError(f"the spec_model of {kind.job_type.kind} cannot be converted to a CRD schema: {error}") from error


def _first_paragraph(kind: CRDKind) -> str:
    text = (kind.__doc__ or "").strip().partition("\n\n")[0]
    return " ".join(text.split()) or f"A {kind.job_type.kind}."


def _column(column: Column) -> JsonObject:
    required: JsonObject = {"name": column.name, "type": column.type, "jsonPath": column.path}
    optional: Mapping[str, object] = {"priority": column.priority, "description": column.description}
    return required | {name: value for name, value in optional.items() if value}


def _scale(paths: ScalePaths) -> JsonObject:
    scale: JsonObject = {"specReplicasPath": paths.spec_replicas, "statusReplicasPath": paths.status_replicas}
    return scale if paths.selector is None else {**scale, "labelSelectorPath": paths.selector}
