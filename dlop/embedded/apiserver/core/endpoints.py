"""EndpointSlices and Endpoints. The embedded cluster has no controller that fills them."""

from __future__ import annotations

from collections.abc import Sequence

from dlop.embedded.apiserver.api_errors import FieldError
from dlop.embedded.apiserver.core.base import BuiltinStrategy, builtin_type, column, columns, enum_errors, invalid, required, with_defaults
from dlop.embedded.apiserver.resource_type import ResourceType, Timestamp
from dlop.kube.resources import ENDPOINT_SLICES, Resource
from dlop.kube.types import JsonObject

ENDPOINTS = Resource("", "v1", "endpoints", "Endpoints")
_ENDPOINTS = "core.v1.Endpoints"
_SLICE = "discovery.v1.EndpointSlice"
_MAX_SHOWN = 3


class _EndpointsStrategy(BuiltinStrategy):
    def prepare_create(self, body: JsonObject, *, now: Timestamp) -> JsonObject:
        if body.get("subsets"):
            body["subsets"] = [_with_port_defaults(subset) for subset in body["subsets"]]
        return body

    def prepare_update(self, body: JsonObject, old: JsonObject, *, now: Timestamp) -> JsonObject:
        return self.prepare_create(body, now=now)


def _with_port_defaults(subset: JsonObject) -> JsonObject:
    return {**subset, "ports": [with_defaults(port, protocol="TCP") for port in subset["ports"]]} if subset.get("ports") else subset


class _SliceStrategy(BuiltinStrategy):
    def prepare_create(self, body: JsonObject, *, now: Timestamp) -> JsonObject:
        body["ports"] = [with_defaults(port, name="", protocol="TCP") for port in body.get("ports") or ()] or None
        return body

    def prepare_update(self, body: JsonObject, old: JsonObject, *, now: Timestamp) -> JsonObject:
        return self.prepare_create(body, now=now)

    def validate(self, body: JsonObject, old: JsonObject | None, *, subresource: str | None) -> list[FieldError]:
        errors = super().validate(body, old, subresource=subresource)
        kind = body.get("addressType")
        errors += enum_errors("addressType", kind, ("FQDN", "IPv4", "IPv6")) if kind else [required("addressType")]
        if old is not None and kind != old.get("addressType"):
            errors.append(invalid("addressType", kind, "field is immutable"))
        for index, endpoint in enumerate(body.get("endpoints") or ()):
            if not endpoint.get("addresses"):
                errors.append(required(f"endpoints[{index}].addresses", "must contain at least 1 address"))
        return errors


def endpoint_types() -> list[ResourceType]:
    """endpointslices.discovery.k8s.io and endpoints."""
    slice_columns = columns(
        column("AddressType", lambda body: body.get("addressType", "")),
        column("Ports", lambda body: _format_list([_format_port(port) for port in body.get("ports") or ()])),
        column(
            "Endpoints",
            lambda body: _format_list([address for endpoint in body.get("endpoints") or () for address in endpoint["addresses"]]),
        ),
    )
    addresses = column("Endpoints", _format_endpoints)
    return [
        builtin_type(ENDPOINT_SLICES, _SLICE, strategy=_SliceStrategy(_SLICE), columns=slice_columns, has_generation=True),
        builtin_type(
            ENDPOINTS,
            _ENDPOINTS,
            strategy=_EndpointsStrategy(_ENDPOINTS),
            short_names=("ep",),
            columns=columns(addresses),
            creates_on_update=True,
        ),
    ]


def _format_list(texts: Sequence[str]) -> str:
    if len(texts) > _MAX_SHOWN:
        return f"{','.join(texts[:_MAX_SHOWN])} + {len(texts) - _MAX_SHOWN} more..."
    return ",".join(texts) or "<unset>"


def _format_port(port: JsonObject) -> str:
    return str(port["port"]) if "port" in port else port.get("name") or "*"


def _format_endpoints(body: JsonObject) -> str:
    texts = [
        f"{address.get('ip', '')}:{port.get('port', '')}" if port else address.get("ip", "")
        for subset in body.get("subsets") or ()
        for port in subset.get("ports") or (None,)
        for address in subset.get("addresses") or ()
    ]
    return "<none>" if not texts else _format_list(texts)
