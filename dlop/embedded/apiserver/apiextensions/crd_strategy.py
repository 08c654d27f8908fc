"""CustomResourceDefinitions as a resource, and the resources that they describe."""

from __future__ import annotations

from collections.abc import Callable

from dlop.embedded.apiserver.age import format_time
from dlop.embedded.apiserver.api_errors import FieldError
from dlop.embedded.apiserver.apiextensions.crd_fields import read_crd
from dlop.embedded.apiserver.apiextensions.crd_validation import crd_errors
from dlop.embedded.apiserver.apiextensions.custom_resource_strategy import CustomResourceRules
from dlop.embedded.apiserver.resource_type import Column, Moment, ResourceType, Rules, ScalePaths
from dlop.embedded.apiserver.views.table_printer import custom_columns, name_column
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, Resource
from dlop.kube.types import JsonObject

CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
"""Keeps a CRD in place until its objects are gone."""

_CREATED_AT = "CreationTimestamp is a timestamp representing the server time when this object was created."


class CrdRules(Rules):
    """What the server does to a CRD on its way in and out."""

    def unknown_fields(self, body: JsonObject) -> tuple[JsonObject, list[str]]:
        """The known part of a CRD, and the paths of the rest.

        Raises:
            ValueError: when a value is of another type than its field.
        """
        known, unknown = read_crd(body)
        return {"spec": {}, **known}, unknown

    def prepare_create(self, body: JsonObject, *, moment: Moment) -> JsonObject:
        """Names that follow from others, the conversion, and the first stored version."""
        body["spec"] = _completed(body["spec"])
        status: JsonObject = {"conditions": [], "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": []}
        body["status"] = _with_stored_version(status, body["spec"])
        return body

    def prepare_update(self, body: JsonObject, old: JsonObject, *, moment: Moment) -> JsonObject:
        """The same; a new storage version is remembered next to the earlier ones."""
        body["spec"] = _completed(body["spec"])
        body["status"] = _with_stored_version(body.get("status", {}), body["spec"])
        return body

    def validate(self, body: JsonObject, old: JsonObject | None, *, subresource: str | None) -> list[FieldError]:
        """What is wrong with a CRD."""
        return [] if subresource == "status" else crd_errors(body, old)

    def prepare_delete(self, body: JsonObject, *, moment: Moment) -> JsonObject:
        """The CRD stays until its objects are gone."""
        metadata = body["metadata"]
        finalizers = metadata.get("finalizers", [])
        if CLEANUP_FINALIZER not in finalizers:
            metadata["finalizers"] = [*finalizers, CLEANUP_FINALIZER]
        words = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
        return {**body, "status": with_condition(body["status"], "Terminating", "True", "InstanceDeletionPending", words, moment)}


def _completed(spec: JsonObject) -> JsonObject:
    names = dict(spec.get("names", {}))
    if names.get("kind"):
        names.setdefault("singular", names["kind"].lower())
        names.setdefault("listKind", f"{names['kind']}List")
    return {"conversion": {"strategy": "None"}, **spec, "names": names}


def _with_stored_version(status: JsonObject, spec: JsonObject) -> JsonObject:
    stored = status.get("storedVersions", [])
    current = next((version.get("name", "") for version in spec.get("versions", ()) if version.get("storage")), None)
    return status if current is None or current in stored else {**status, "storedVersions": [*stored, current]}


def with_condition(status: JsonObject, kind: str, value: str, reason: str, message: str, moment: Moment) -> JsonObject:
    """The status with a condition set; the time of the change moves only when its status does."""
    conditions = list(status.get("conditions") or ())
    place = next((index for index, one in enumerate(conditions) if one["type"] == kind), len(conditions))
    before = conditions[place] if place < len(conditions) else {}
    since = before.get("lastTransitionTime") if before.get("status") == value else None
    conditions[place : place + 1] = [
        {"type": kind, "status": value, "lastTransitionTime": since or format_time(moment), "reason": reason, "message": message}
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
    rules=CrdRules(),
    merge_schema={},
    columns=(
        name_column(),
        Column(
            name="Created At",
            type="date",
            description=_CREATED_AT,
            cell=lambda body, _: body["metadata"].get("creationTimestamp"),
        ),
    ),
    schema={"type": "object", "description": "CustomResourceDefinition represents a resource that should be exposed on the API server."},
)


def resource_types(crd: JsonObject) -> list[ResourceType]:
    """Every served version of the resource that a CRD describes."""
    return [_version_type(crd, version) for version in crd["spec"]["versions"] if version.get("served")]


def _version_type(crd: JsonObject, version: JsonObject) -> ResourceType:
    spec, names = crd["spec"], crd["status"]["acceptedNames"]
    resource = Resource(spec["group"], version["name"], names["plural"], names["kind"], namespaced=spec["scope"] == "Namespaced")
    schema = version["schema"]["openAPIV3Schema"]
    scale = _scale(version.get("subresources", {}).get("scale"))
    rules = CustomResourceRules(schema, scale=scale)
    is_plain = len(spec["versions"]) == 1 and crd["metadata"].get("generation", 1) == 1
    return ResourceType(
        resource=resource,
        storage=resource.qualified_name,
        singular=names["singular"],
        short_names=tuple(names.get("shortNames", ())),
        categories=tuple(names.get("categories", ())),
        has_status="status" in version.get("subresources", {}),
        scale=scale,
        rules=rules,
        columns=custom_columns(version.get("additionalPrinterColumns", ())),
        fields={field["jsonPath"].removeprefix("."): _path(field["jsonPath"]) for field in version.get("selectableFields", ())},
        has_generation=True,
        schema=schema,
        # Objects that were stored before the schema changed, or in another version, are read with today's eyes.
        from_storage=None if is_plain else _reader(rules, resource),
        to_storage=None if is_plain else _writer(spec),
        own_list_kind=names.get("listKind", ""),
    )


def _path(text: str) -> tuple[str, ...]:
    return tuple(text.removeprefix(".").split("."))


def _scale(scale: JsonObject | None) -> ScalePaths | None:
    if scale is None:
        return None
    selector = scale.get("labelSelectorPath")
    return ScalePaths(
        spec_replicas=_path(scale["specReplicasPath"]),
        status_replicas=_path(scale["statusReplicasPath"]),
        label_selector=_path(selector) if selector else None,
    )


def _reader(rules: CustomResourceRules, resource: Resource) -> Callable[[JsonObject], JsonObject]:
    def read(body: JsonObject) -> JsonObject:
        known = rules.read(body, [])
        return known if known["apiVersion"] == resource.api_version else {**known, "apiVersion": resource.api_version}

    return read


def _writer(spec: JsonObject) -> Callable[[JsonObject], JsonObject]:
    api_version = next(f"{spec['group']}/{version['name']}" for version in spec["versions"] if version.get("storage"))
    return lambda body: body if body["apiVersion"] == api_version else {**body, "apiVersion": api_version}
