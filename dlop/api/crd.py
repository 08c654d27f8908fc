"""Generates CustomResourceDefinitions from job classes. They are structural, and small enough for plain `kubectl apply`.

The schema of the spec comes from the kind's `Schema`. The schema of the status preserves unknown fields, because only the operator
writes it. Classes with the same group and plural are versions of one CRD.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from dlop.api.cron import CRON
from dlop.api.ratcheting import with_ratcheting
from dlop.api.schema import AGE, Column, ScalePaths
from dlop.api.structural_schema import OPEN_OBJECT, SchemaError, structural_schema
from dlop.api.types import JobType
from dlop.kube.types import JsonObject

if TYPE_CHECKING:
    from pydantic import BaseModel

    from dlop.job import DLJob

SIZE_LIMIT_BYTES = 100_000
"""The last-applied annotation of `kubectl apply` is limited to 262,144 bytes. This leaves room and keeps the server's schemas small."""


def build_crds(kinds: Iterable[type[DLJob]]) -> list[JsonObject]:
    """One CRD for each group and plural, in the order of first occurrence. The first kind of each is the storage version.

    Raises:
        SchemaError: a spec model cannot be expressed as a structural schema.
    """
    versions: dict[tuple[str, str], list[type[DLJob]]] = {}
    kinds = tuple(kinds)
    for kind in kinds:
        versions.setdefault((kind.job_type.group, kind.job_type.plural), []).append(kind)
    plans = {kind.members.plan_type: kind.members.plan_model for kind in kinds if kind.members is not None}
    return [*(build_crd(*group) for group in versions.values()), *(_plan_crd(*plan) for plan in plans.items())]


def build_crd(stored: type[DLJob], *others: type[DLJob]) -> JsonObject:
    """One CRD. `stored` is the storage version; all versions are served."""
    names = stored.job_type
    versions = [_version(kind, version, stored=version == names.version) for kind in (stored, *others) for version in _versions(kind)]
    return _crd(names, versions)


def build_cron_crd() -> JsonObject:
    """The CRD of Crons."""
    # Imported here, because models take long to import, and most callers need only the CRDs of jobs.
    from dlop.api.cron_model import CronModel  # noqa: PLC0415

    columns = (
        Column("Schedule", ".spec.schedule"),
        Column("Suspend", ".spec.suspend", type="boolean"),
        Column("Last-Schedule", ".status.lastScheduleTime", type="date"),
        AGE,
        Column("Kind", ".spec.template.kind", priority=1),
    )
    return _single_version_crd(CRON, CronModel, columns, description="A job that is created again and again, on a schedule.")


def _plan_crd(plan_type: JobType, model: type[BaseModel]) -> JsonObject:
    """The CRD of scale plans."""
    columns = (Column("Job", ".spec.ownerJob"), Column("Phase", ".status.phase"), AGE)
    description = f"A request to scale the pods of a job. {plan_type.kind}s are executed in order."
    return _single_version_crd(plan_type, model, columns, description=description)


def _single_version_crd(names: JobType, model: type[BaseModel], columns: Iterable[Column], *, description: str) -> JsonObject:
    """The CRD of a resource that is not a job."""
    version = {
        "name": names.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _object_schema(description, metadata={"type": "object"}, spec=structural_schema(model))},
        "subresources": {"status": {}},
        "additionalPrinterColumns": [_column(column) for column in columns],
    }
    return _crd(names, [version])


def _crd(names: JobType, versions: list[JsonObject]) -> JsonObject:
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
            "versions": versions,
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


def _versions(kind: type[DLJob]) -> tuple[str, ...]:
    return (kind.job_type.version, *kind.job_type.served_versions)


def _version(kind: type[DLJob], version: str, *, stored: bool) -> JsonObject:
    subresources: JsonObject = {"status": {}}
    if (scale_paths := kind.schema.scale_paths(kind)) is not None:
        subresources["scale"] = _scale(scale_paths)
    return {
        "name": version,
        "served": True,
        "storage": stored,
        "schema": {"openAPIV3Schema": _schema(kind)},
        "subresources": subresources,
        "additionalPrinterColumns": [_column(column) for column in kind.schema.columns],
    }


def _schema(kind: type[DLJob]) -> JsonObject:
    return with_ratcheting(_object_schema(_first_paragraph(kind), metadata=_metadata(kind), spec=_spec(kind)))


def _object_schema(description: str, *, metadata: JsonObject, spec: JsonObject) -> JsonObject:
    return {
        "type": "object",
        "description": description,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": metadata,
            "spec": spec,
            "status": {**OPEN_OBJECT, "description": "Written by the operator."},
        },
    }


def _metadata(kind: type[DLJob]) -> JsonObject:
    pattern = kind.schema.name_pattern
    properties = {"properties": {"name": {"type": "string", "pattern": pattern}}} if pattern else {}
    return {"type": "object", **properties}


def _spec(kind: type[DLJob]) -> JsonObject:
    try:
        return structural_schema(kind.schema.spec_model(kind))
    except SchemaError as error:
        raise SchemaError(f"the spec model of {kind.job_type.kind} cannot be converted to a CRD schema: {error}") from error


def _first_paragraph(kind: type[DLJob]) -> str:
    text = (kind.__doc__ or "").strip().partition("\n\n")[0]
    return " ".join(text.split()) or f"A {kind.job_type.kind}."


def _column(column: Column) -> JsonObject:
    required: JsonObject = {"name": column.name, "type": column.type, "jsonPath": column.path}
    optional: Mapping[str, object] = {"priority": column.priority, "description": column.description}
    return required | {name: value for name, value in optional.items() if value}


def _scale(paths: ScalePaths) -> JsonObject:
    return {"specReplicasPath": paths.spec_replicas, "statusReplicasPath": paths.status_replicas, "labelSelectorPath": paths.selector}
