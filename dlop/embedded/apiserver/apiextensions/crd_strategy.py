"""The CustomResourceDefinition resource, and the resource types that CRDs define."""

from __future__ import annotations

from collections.abc import Callable

from dlop.embedded.apiserver.age import format_time
from dlop.embedded.apiserver.api_errors import FieldError
from dlop.embedded.apiserver.apiextensions.crd_fields import decode_crd
from dlop.embedded.apiserver.apiextensions.crd_validation import crd_errors
from dlop.embedded.apiserver.apiextensions.custom_resource_strategy import CustomResourceStrategy
from dlop.embedded.apiserver.resource_type import ResourceType, ScaleFieldPaths, Strategy, TableColumn, Timestamp
from dlop.embedded.apiserver.views.table_printer import columns_from_crd, name_column
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, Resource
from dlop.kube.types import JsonObject

CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
"""Keeps a CRD until its custom resources are deleted."""

_CREATED_AT = "CreationTimestamp is a timestamp representing the server time when this object was created."


class CrdStrategy(Strategy):
    def prune_unknown_fields(self, body: JsonObject) -> tuple[JsonObject, list[str]]:
        known, unknown = decode_crd(body)
        return {"spec": {}, **known}, unknown

    def prepare_create(self, body: JsonObject, *, now: Timestamp) -> JsonObject:
        """Default the names and the conversion, and set the first stored version."""
        body["spec"] = _set_defaults(body["spec"])
        status: JsonObject = {"conditions": [], "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": []}
        body["status"] = _with_stored_version(status, body["spec"])
        return body

    def prepare_update(self, body: JsonObject, old: JsonObject, *, now: Timestamp) -> JsonObject:
        """Like `prepare_create`; a new storage version is added to the stored versions."""
        body["spec"] = _set_defaults(body["spec"])
        body["status"] = _with_stored_version(body.get("status", {}), body["spec"])
        return body

    def validate(self, body: JsonObject, old: JsonObject | None, *, subresource: str | None) -> list[FieldError]:
        return [] if subresource == "status" else crd_errors(body, old)

    def prepare_delete(self, body: JsonObject, *, now: Timestamp) -> JsonObject:
        """Add the finalizer that keeps the CRD until its custom resources are deleted."""
        metadata = body["metadata"]
        finalizers = metadata.get("finalizers", [])
        if CLEANUP_FINALIZER not in finalizers:
            metadata["finalizers"] = [*finalizers, CLEANUP_FINALIZER]
        detail = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
        return {**body, "status": with_condition(body["status"], "Terminating", "True", "InstanceDeletionPending", detail, now)}


def _set_defaults(spec: JsonObject) -> JsonObject:
    names = dict(spec.get("names", {}))
    if names.get("kind"):
        names.setdefault("singular", names["kind"].lower())
        names.setdefault("listKind", f"{names['kind']}List")
    return {"conversion": {"strategy": "None"}, **spec, "names": names}


def _with_stored_version(status: JsonObject, spec: JsonObject) -> JsonObject:
    stored = status.get("storedVersions", [])
    current = next((version.get("name", "") for version in spec.get("versions", ()) if version.get("storage")), None)
    return status if current is None or current in stored else {**status, "storedVersions": [*stored, current]}


def with_condition(status: JsonObject, kind: str, value: str, reason: str, message: str, now: Timestamp) -> JsonObject:
    """The status with a condition. lastTransitionTime only changes with the condition's status."""
    conditions = list(status.get("conditions") or ())
    position = next((index for index, condition in enumerate(conditions) if condition["type"] == kind), len(conditions))
    before = conditions[position] if position < len(conditions) else {}
    since = before.get("lastTransitionTime") if before.get("status") == value else None
    conditions[position : position + 1] = [
        {"type": kind, "status": value, "lastTransitionTime": since or format_time(now), "reason": reason, "message": message}
    ]
    return {**status, "conditions": conditions}


CRD_TYPE = ResourceType(
    resource=CUSTOM_RESOURCE_DEFINITIONS,
    storage=CUSTOM_RESOURCE_DEFINITIONS.qualified_name,
    singular="customresourcedefinition",
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    has_status=True,
    has_generation=True,
    needs_version_on_update=True,
    strategy=CrdStrategy(),
    merge_schema={},
    columns=(
        name_column(),
        TableColumn(
            name="Created At",
            type="date",
            description=_CREATED_AT,
            cell=lambda body, _: body["metadata"].get("creationTimestamp"),
        ),
    ),
    schema={"type": "object", "description": "CustomResourceDefinition represents a resource that should be exposed on the API server."},
)


def resource_types(crd: JsonObject) -> list[ResourceType]:
    """The served versions of the resource that a CRD defines."""
    return [_version_type(crd, version) for version in crd["spec"]["versions"] if version.get("served")]


def _version_type(crd: JsonObject, version: JsonObject) -> ResourceType:
    spec, names = crd["spec"], crd["status"]["acceptedNames"]
    resource = Resource(spec["group"], version["name"], names["plural"], names["kind"], namespaced=spec["scope"] == "Namespaced")
    schema = version["schema"]["openAPIV3Schema"]
    scale = _scale(version.get("subresources", {}).get("scale"))
    strategy = CustomResourceStrategy(schema, scale=scale)
    needs_no_conversion = len(spec["versions"]) == 1 and crd["metadata"].get("generation", 1) == 1
    return ResourceType(
        resource=resource,
        storage=resource.qualified_name,
        singular=names["singular"],
        short_names=tuple(names.get("shortNames", ())),
        categories=tuple(names.get("categories", ())),
        has_status="status" in version.get("subresources", {}),
        scale=scale,
        strategy=strategy,
        columns=columns_from_crd(version.get("additionalPrinterColumns", ())),
        fields={field["jsonPath"].removeprefix("."): _path(field["jsonPath"]) for field in version.get("selectableFields", ())},
        has_generation=True,
        schema=schema,
        # Objects that were stored in another version or before a schema change are pruned and defaulted on read.
        from_storage=None if needs_no_conversion else _read_converter(strategy, resource),
        to_storage=None if needs_no_conversion else _write_converter(spec),
        custom_list_kind=names.get("listKind", ""),
    )


def _path(text: str) -> tuple[str, ...]:
    return tuple(text.removeprefix(".").split("."))


def _scale(scale: JsonObject | None) -> ScaleFieldPaths | None:
    if scale is None:
        return None
    selector = scale.get("labelSelectorPath")
    return ScaleFieldPaths(
        spec_replicas=_path(scale["specReplicasPath"]),
        status_replicas=_path(scale["statusReplicasPath"]),
        label_selector=_path(selector) if selector else None,
    )


def _read_converter(strategy: CustomResourceStrategy, resource: Resource) -> Callable[[JsonObject], JsonObject]:
    def convert(body: JsonObject) -> JsonObject:
        known = strategy.prune(body, [])
        return known if known["apiVersion"] == resource.api_version else {**known, "apiVersion": resource.api_version}

    return convert


def _write_converter(spec: JsonObject) -> Callable[[JsonObject], JsonObject]:
    api_version = next(f"{spec['group']}/{version['name']}" for version in spec["versions"] if version.get("storage"))
    return lambda body: body if body["apiVersion"] == api_version else {**body, "apiVersion": api_version}
