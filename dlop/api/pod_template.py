"""Reads and extends pod templates: labels, annotations and scheduling constraints that options of a job add to those of the user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dlop.kube.types import JsonObject


def extend_template(
    template: JsonObject,
    *,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    node_selector: Mapping[str, str],
    tolerations: Sequence[JsonObject],
    priority_class: str = "",
) -> JsonObject:
    """A copy of a pod template with these values, which override those of the template. Empty values change nothing."""
    metadata, spec = template.get("metadata") or {}, template["spec"]
    return {
        **template,
        "metadata": {**metadata, **_merged(metadata, "labels", labels), **_merged(metadata, "annotations", annotations)},
        "spec": {
            **spec,
            **({"priorityClassName": priority_class} if priority_class else {}),
            **_merged(spec, "nodeSelector", node_selector),
            **_extended(spec, "tolerations", tolerations),
        },
    }


def pod_spec(template: JsonObject) -> JsonObject:
    """The pod spec of a template; empty if it is missing or not an object."""
    spec = template.get("spec")
    return spec if isinstance(spec, dict) else {}


def _merged(parent: JsonObject, field: str, others: Mapping[str, str]) -> dict[str, Any]:
    """The field with more entries. A malformed value is kept, and the API server rejects it."""
    values = parent.get(field) or {}
    return {field: {**values, **others}} if others and isinstance(values, dict) else {}


def _extended(parent: JsonObject, field: str, others: Sequence[JsonObject]) -> dict[str, Any]:
    """The field with more items, without repeating one. A malformed value is kept, and the API server rejects it."""
    values = parent.get(field) or []
    return {field: [*values, *(each for each in others if each not in values)]} if others and isinstance(values, list) else {}
