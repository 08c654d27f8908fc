"""Horizontal pod autoscalers. The embedded cluster has no controller for them."""

from __future__ import annotations

from typing import Any

from dlop.embedded.apiserver.api_errors import FieldError
from dlop.embedded.apiserver.core.base import (
    BuiltinStrategy,
    builtin_type,
    column,
    columns,
    enum_errors,
    get_nested,
    invalid,
    required,
    with_defaults,
)
from dlop.embedded.apiserver.resource_type import ResourceType, Timestamp
from dlop.kube.resources import HORIZONTAL_POD_AUTOSCALERS
from dlop.kube.types import JsonObject

_GO_TYPE = "autoscaling.v2.HorizontalPodAutoscaler"
_EMPTY_STATUS: JsonObject = {"desiredReplicas": 0, "currentMetrics": None}
_MAX_SHOWN = 2
_CPU: JsonObject = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
_ALL_AT_ONCE = {"type": "Percent", "value": 100, "periodSeconds": 15}
_SCALE_UP: JsonObject = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}, _ALL_AT_ONCE],
}
_SCALE_DOWN: JsonObject = {"selectPolicy": "Max", "policies": [_ALL_AT_ONCE]}
# The field that describes each metric type.
_SOURCES = {
    "Resource": "resource",
    "ContainerResource": "containerResource",
    "Pods": "pods",
    "Object": "object",
    "External": "external",
}


class _AutoscalerStrategy(BuiltinStrategy):
    def prepare_create(self, body: JsonObject, *, now: Timestamp) -> JsonObject:
        body["status"] = _EMPTY_STATUS
        return _set_defaults(body)

    def prepare_update(self, body: JsonObject, old: JsonObject, *, now: Timestamp) -> JsonObject:
        return _set_defaults(body)

    def validate(self, body: JsonObject, old: JsonObject | None, *, subresource: str | None) -> list[FieldError]:
        errors = super().validate(body, old, subresource=subresource)
        return errors if subresource == "status" else errors + _spec_errors(body["spec"])


def _set_defaults(body: JsonObject) -> JsonObject:
    spec = with_defaults(body["spec"], minReplicas=1)
    spec["metrics"] = spec.get("metrics") or [_CPU]
    if (behavior := spec.get("behavior")) is not None:
        up = {**_SCALE_UP, **(behavior.get("scaleUp") or {})}
        down = {**_SCALE_DOWN, **(behavior.get("scaleDown") or {})}
        spec["behavior"] = {**behavior, "scaleUp": up, "scaleDown": down}
    return {**body, "spec": spec}


def _spec_errors(spec: JsonObject) -> list[FieldError]:
    errors: list[FieldError] = []
    low, high = spec["minReplicas"], spec["maxReplicas"]
    if low < 1:
        errors.append(invalid("spec.minReplicas", low, "must be greater than or equal to 1"))
    if high == 0:
        errors.append(required("spec.maxReplicas", "must be set and greater than 0"))
    elif high < 0:
        errors.append(invalid("spec.maxReplicas", high, "must be greater than or equal to 1"))
    if high < low:
        errors.append(invalid("spec.maxReplicas", high, "must be greater than or equal to `minReplicas`"))
    return errors + _target_errors(spec["scaleTargetRef"]) + _metrics_errors(spec["metrics"])


def _target_errors(target: JsonObject) -> list[FieldError]:
    errors = [required(f"spec.scaleTargetRef.{field}") for field in ("kind", "name") if not target.get(field)]
    api_version = target.get("apiVersion", "")
    if "/" not in api_version:
        errors.append(invalid("spec.scaleTargetRef.apiVersion", api_version, "apiVersion must specify API group"))
    return errors


def _metrics_errors(metrics: list[JsonObject]) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, metric in enumerate(metrics):
        path = f"spec.metrics[{index}]"
        if not metric.get("type"):
            errors.append(required(f"{path}.type", "must specify a metric source type"))
        if metric.get("type") not in _SOURCES:
            errors += enum_errors(f"{path}.type", metric.get("type", ""), sorted(_SOURCES))
        elif _SOURCES[metric["type"]] not in metric:
            errors.append(required(f"{path}.{_SOURCES[metric['type']]}", "must populate information for the given metric source"))
    return errors


def _format_targets(autoscaler: JsonObject) -> str:
    specs = get_nested(autoscaler, "spec", "metrics") or []
    statuses = get_nested(autoscaler, "status", "currentMetrics") or []
    targets = [_format_target(spec, statuses[index] if index < len(statuses) else {}) for index, spec in enumerate(specs)]
    if len(targets) > _MAX_SHOWN:
        return f"{', '.join(targets[:_MAX_SHOWN])} + {len(targets) - _MAX_SHOWN} more..."
    return ", ".join(targets) or "<none>"


def _format_target(spec: JsonObject, status: JsonObject) -> str:
    kind = spec.get("type", "")
    if kind not in _SOURCES:
        return "<unknown type>"
    source: JsonObject = spec.get(_SOURCES[kind]) or {}
    target, current = source.get("target") or {}, get_nested(status, _SOURCES[kind], "current") or {}
    if kind in ("Resource", "ContainerResource"):
        return f"{source.get('name', '')}: {_format_resource_target(target, current)}"
    if kind == "Pods":
        return f"{_or_unknown(current.get('averageValue'))}/{target.get('averageValue')}"
    if "averageValue" in target:
        return f"{_or_unknown(current.get('averageValue'))}/{target['averageValue']} (avg)"
    return f"{_or_unknown(current.get('value'))}/{target.get('value')}"


def _format_resource_target(target: JsonObject, current: JsonObject) -> str:
    if "averageValue" in target:
        return f"{_or_unknown(current.get('averageValue'))}/{target['averageValue']}"
    current_value, target_value = current.get("averageUtilization"), target.get("averageUtilization")
    return f"{_or_unknown(current_value, '%')}/{'<auto>' if target_value is None else f'{target_value}%'}"


def _or_unknown(value: Any, unit: str = "") -> str:
    return "<unknown>" if value is None else f"{value}{unit}"


def autoscaling_types() -> list[ResourceType]:
    """horizontalpodautoscalers.autoscaling, version v2."""
    minimum = column("MinPods", lambda body: str(get_nested(body, "spec", "minReplicas") or "<unset>"))
    table_columns = columns(
        column(
            "Reference",
            lambda body: f"{get_nested(body, 'spec', 'scaleTargetRef', 'kind')}/{get_nested(body, 'spec', 'scaleTargetRef', 'name')}",
        ),
        column("Targets", _format_targets),
        minimum,
        column("MaxPods", lambda body: get_nested(body, "spec", "maxReplicas") or 0),
        column("Replicas", lambda body: get_nested(body, "status", "currentReplicas") or 0),
    )
    return [
        builtin_type(
            HORIZONTAL_POD_AUTOSCALERS,
            _GO_TYPE,
            strategy=_AutoscalerStrategy(_GO_TYPE),
            short_names=("hpa",),
            categories=("all",),
            has_status=True,
            columns=table_columns,
        )
    ]
