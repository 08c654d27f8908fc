"""The custom resources that every server has when the cases begin, and what they are for.

They are installed once and together: a real server lets nobody create objects of a kind that is younger than two seconds.
"""

from __future__ import annotations

from typing import Any

from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject
from tests.conformance.bodies import custom, definition, schema, version

_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

# --- widgets: an open spec and status, and both subresources; for everything that custom objects have in common ---------

WIDGETS = Resource("conformance.dlop.dev", "v1", "widgets", "Widget")
_WIDGET_SCHEMA = schema(spec={**_OPEN, "properties": {"replicas": {"type": "integer", "minimum": 0}}}, status=_OPEN)
_WIDGET_SCALE = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}


def widget(name: str, spec: JsonObject | None = None, **fields: Any) -> JsonObject:
    """A widget."""
    return custom(WIDGETS, name, spec={"replicas": 1} if spec is None else spec, **fields)


# --- forms: one field for every kind of check a schema can make ----------------------------------------------------------

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
_FORM_SCHEMA = schema(spec={"type": "object", "properties": _FORM_PROPERTIES})

# --- parts: defaults and fields to be dropped at every depth -------------------------------------------------------------

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
_PART_SCHEMA = schema(spec=_PART_SPEC, status={"type": "object", "properties": {"phase": {"type": "string", "default": "New"}}})

# --- ruleds: rules in CEL --------------------------------------------------------------------------------------------------

RULED = Resource("cel.dlop.dev", "v1", "ruleds", "Ruled")
_RULES = [
    {"rule": "self.low <= self.high", "message": "low must not be above high"},
    {"rule": "!has(self.name) || self.name.startsWith('x-')", "message": "the name begins with x-", "fieldPath": ".name"},
    {"rule": "self.items.all(i, i.size() < 4)", "messageExpression": "'too long after ' + self.items[0]"},
    {"rule": "!has(oldSelf.fixed) || (has(self.fixed) && self.fixed == oldSelf.fixed)", "message": "fixed cannot change"},
    {"rule": "self.low != 13", "reason": "FieldValueForbidden", "message": "not thirteen"},
    {"rule": "!has(self.workers) || self.workers.exists(k, self.workers[k] > 0)", "message": "somebody must work"},
    {"rule": "!has(self.url) || isURL(self.url)", "message": "an address"},
]
_RULED_SPEC = {
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
        "frozen": {"type": "integer", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "frozen is frozen"}]},
    },
    "x-kubernetes-validations": _RULES,
}

# --- boxes: three versions, one of them no longer served --------------------------------------------------------------------

OLD_BOXES = Resource("versions.dlop.dev", "v1beta1", "boxes", "Box")
NEW_BOXES = Resource("versions.dlop.dev", "v1", "boxes", "Box")
GONE_BOXES = Resource("versions.dlop.dev", "v1alpha1", "boxes", "Box")
_SIZE = {"size": {"type": "integer"}}
_OLD_BOX = schema(spec={"type": "object", "properties": {**_SIZE, "old": {"type": "string"}}})
_NEW_BOX = schema(spec={"type": "object", "properties": {**_SIZE, "new": {"type": "string", "default": "fresh"}}})

# --- showns: printer columns; plains: none -----------------------------------------------------------------------------------

SHOWN = Resource("table.dlop.dev", "v1", "showns", "Shown")
PLAIN = Resource("plain.dlop.dev", "v1", "plains", "Plain")
_COLUMNS = [
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase", "description": "How it goes."},
    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
    {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
    {"name": "Detail", "type": "string", "jsonPath": ".spec.detail", "priority": 1},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]
_SHOWN_SCHEMA = schema(spec={**_OPEN, "properties": {"size": {"type": "integer"}}}, status=_OPEN)


DEFINITIONS = (
    definition(WIDGETS, version("v1", _WIDGET_SCHEMA, subresources={"status": {}, "scale": _WIDGET_SCALE})),
    definition(FORMS, version("v1", _FORM_SCHEMA)),
    definition(PARTS, version("v1", _PART_SCHEMA, subresources={"status": {}})),
    definition(RULED, version("v1", schema(spec=_RULED_SPEC))),
    definition(
        NEW_BOXES,
        version("v1alpha1", _OLD_BOX, storage=False, served=False),
        version("v1beta1", _OLD_BOX, storage=False),
        version("v1", _NEW_BOX),
    ),
    definition(SHOWN, version("v1", _SHOWN_SCHEMA, subresources={"status": {}}, additionalPrinterColumns=_COLUMNS)),
    definition(PLAIN, version("v1", _OPEN)),
)
