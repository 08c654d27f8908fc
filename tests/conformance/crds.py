"""The custom resources that the conformance tests use.

`CRDS` are installed together before the first test, because the real server rejects objects of a CRD that is younger than two seconds.
"""

from __future__ import annotations

from typing import Any

from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject
from tests.conformance.bodies import crd, crd_version, object_of, object_schema

OPEN_SCHEMA = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

# --- widgets: open spec and status, both subresources -------------------------------------------------------------------

WIDGETS = Resource("conformance.dlop.dev", "v1", "widgets", "Widget")
_WIDGET_SCHEMA = object_schema(spec={**OPEN_SCHEMA, "properties": {"replicas": {"type": "integer", "minimum": 0}}}, status=OPEN_SCHEMA)
_WIDGET_SCALE = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}


def widget(name: str, spec: JsonObject | None = None, **fields: Any) -> JsonObject:
    return object_of(WIDGETS, name, spec={"replicas": 1} if spec is None else spec, **fields)


# --- forms: one field for each kind of schema validation ----------------------------------------------------------------

FORMS = Resource("schema.dlop.dev", "v1", "forms", "Form")
_ITEM = {"type": "object", "required": ["key"], "properties": {"key": {"type": "string"}, "value": {"type": "integer"}}}
_FORM_PROPERTIES: JsonObject = {
    "text": {"type": "string", "minLength": 2, "maxLength": 5},
    "code": {"type": "string", "pattern": "^[a-z]+$"},
    "mode": {"type": "string", "enum": ["On", "Off"]},
    "count": {"type": "integer", "minimum": 1, "maximum": 10},
    "small": {"type": "integer", "format": "int32"},
    "ratio": {"type": "number", "minimum": 0, "exclusiveMinimum": True},
    "even": {"type": "integer", "multipleOf": 2},
    "flag": {"type": "boolean"},
    "list": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2},
    "unique": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
    "keyed": {"type": "array", "items": _ITEM, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key"]},
    "map": {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 2},
    "quantity": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
    "when": {"type": "string", "format": "date-time"},
    "maybe": {"type": "string", "nullable": True},
    "choice": {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
    },
    "needed": {"type": "object", "required": ["x"], "properties": {"x": {"type": "integer"}}},
}
_FORM_SCHEMA = object_schema(spec={"type": "object", "properties": _FORM_PROPERTIES})


def form(name: str, /, **spec: Any) -> JsonObject:
    return object_of(FORMS, name, spec=spec)


# --- parts: defaults and pruning at every depth --------------------------------------------------------------------------

PARTS = Resource("pruning.dlop.dev", "v1", "parts", "Part")
_PART_SPEC = {
    "type": "object",
    "properties": {
        "size": {"type": "integer", "default": 3},
        "mode": {"type": "string", "default": "Auto"},
        "nested": {"type": "object", "default": {}, "properties": {"deep": {"type": "string", "default": "bottom"}}},
        "optional": {"type": "object", "properties": {"inner": {"type": "boolean", "default": True}}},
        "items": {
            "type": "array",
            "items": {"type": "object", "properties": {"name": {"type": "string"}, "weight": {"type": "integer", "default": 1}}},
        },
        "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"on": {"type": "boolean", "default": False}}}},
        "open": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {"known": {"type": "object", "properties": {"x": {"type": "integer"}}}},
        },
        "nullable": {"type": "string", "nullable": True, "default": "text"},
        "embedded": {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True},
    },
}
_PART_SCHEMA = object_schema(spec=_PART_SPEC, status={"type": "object", "properties": {"phase": {"type": "string", "default": "New"}}})


def part(name: str, spec: JsonObject | None = None, **fields: Any) -> JsonObject:
    return object_of(PARTS, name, spec=spec, **fields)


# --- limits: CEL rules ---------------------------------------------------------------------------------------------------

LIMITS = Resource("cel.dlop.dev", "v1", "limits", "Limit")
_RULES = [
    {"rule": "self.low <= self.high", "message": "low must not be above high"},
    {"rule": "!has(self.name) || self.name.startsWith('x-')", "message": "name must start with x-", "fieldPath": ".name"},
    {"rule": "self.items.all(i, i.size() < 4)", "messageExpression": "'too long after ' + self.items[0]"},
    {"rule": "!has(oldSelf.fixed) || (has(self.fixed) && self.fixed == oldSelf.fixed)", "message": "fixed cannot change"},
    {"rule": "self.low != 13", "reason": "FieldValueForbidden", "message": "low must not be 13"},
    {"rule": "!has(self.workers) || self.workers.exists(k, self.workers[k] > 0)", "message": "one worker must be positive"},
    {"rule": "!has(self.url) || isURL(self.url)", "message": "must be a URL"},
]
_LIMIT_SPEC = {
    "type": "object",
    "properties": {
        "low": {"type": "integer", "default": 0},
        "high": {"type": "integer", "default": 10},
        "name": {"type": "string", "maxLength": 20},
        "items": {"type": "array", "default": [], "maxItems": 10, "items": {"type": "string", "maxLength": 20}},
        "fixed": {"type": "string", "maxLength": 20},
        "workers": {"type": "object", "maxProperties": 5, "additionalProperties": {"type": "integer"}},
        "url": {"type": "string", "maxLength": 100},
        "port": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 1024"}]},
        "frozen": {"type": "integer", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "frozen is immutable"}]},
    },
    "x-kubernetes-validations": _RULES,
}


def limit(name: str, /, **spec: Any) -> JsonObject:
    return object_of(LIMITS, name, spec=spec)


# --- boxes: three versions, one of them not served ------------------------------------------------------------------------

BOXES_V1BETA1 = Resource("versions.dlop.dev", "v1beta1", "boxes", "Box")
BOXES_V1 = Resource("versions.dlop.dev", "v1", "boxes", "Box")
BOXES_V1ALPHA1 = Resource("versions.dlop.dev", "v1alpha1", "boxes", "Box")
_SIZE = {"size": {"type": "integer"}}
_BETA_BOX = object_schema(spec={"type": "object", "properties": {**_SIZE, "old": {"type": "string"}}})
_V1_BOX = object_schema(spec={"type": "object", "properties": {**_SIZE, "new": {"type": "string", "default": "fresh"}}})

# --- gauges: printer columns; notes: neither columns nor subresources -----------------------------------------------------

GAUGES = Resource("table.dlop.dev", "v1", "gauges", "Gauge")
NOTES = Resource("plain.dlop.dev", "v1", "notes", "Note")
_GAUGE_COLUMNS = [
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase", "description": "Current phase."},
    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
    {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
    {"name": "Detail", "type": "string", "jsonPath": ".spec.detail", "priority": 1},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]
_GAUGE_SCHEMA = object_schema(spec={**OPEN_SCHEMA, "properties": {"size": {"type": "integer"}}}, status=OPEN_SCHEMA)

# --- gadgets: everything that kubectl shows. Only the kubectl tests install them -------------------------------------------

GADGETS = Resource("kubectl.dlop.dev", "v1", "gadgets", "Gadget")
_GADGET_COLUMNS = [
    {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
    {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
    {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]
_GADGET_SCALE = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
_GADGET_SPEC = {
    "type": "object",
    "description": "Desired state of a gadget.",
    "required": ["replicas"],
    "properties": {
        "replicas": {"type": "integer", "minimum": 0, "description": "How many."},
        "color": {"type": "string", "enum": ["red", "green"]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
}
_GADGET_STATUS = {"type": "object", "properties": {"replicas": {"type": "integer"}, "conditions": {"type": "array", "items": OPEN_SCHEMA}}}
_GADGET_SCHEMA = {
    **object_schema(spec=_GADGET_SPEC, status=_GADGET_STATUS),
    "description": "A gadget is a resource for kubectl tests.",
    "required": ["spec"],
}
GADGET_CRD = crd(
    GADGETS,
    crd_version("v1", _GADGET_SCHEMA, subresources={"status": {}, "scale": _GADGET_SCALE}, additionalPrinterColumns=_GADGET_COLUMNS),
    shortNames=["gd"],
    categories=["all"],
)


def gadget(name: str, *, replicas: int = 1, **spec: object) -> JsonObject:
    return object_of(GADGETS, name, spec={"replicas": replicas, **spec})


CRDS = (
    crd(WIDGETS, crd_version("v1", _WIDGET_SCHEMA, subresources={"status": {}, "scale": _WIDGET_SCALE})),
    crd(FORMS, crd_version("v1", _FORM_SCHEMA)),
    crd(PARTS, crd_version("v1", _PART_SCHEMA, subresources={"status": {}})),
    crd(LIMITS, crd_version("v1", object_schema(spec=_LIMIT_SPEC))),
    crd(
        BOXES_V1,
        crd_version("v1alpha1", _BETA_BOX, storage=False, served=False),
        crd_version("v1beta1", _BETA_BOX, storage=False),
        crd_version("v1", _V1_BOX),
    ),
    crd(GAUGES, crd_version("v1", _GAUGE_SCHEMA, subresources={"status": {}}, additionalPrinterColumns=_GAUGE_COLUMNS)),
    crd(NOTES, crd_version("v1", OPEN_SCHEMA)),
)
