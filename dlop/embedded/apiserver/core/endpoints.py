"""Endpoint slices and endpoints: stored and shown; nothing in this server fills them in."""

from __future__ import annotations

from collections.abc import Sequence

from dlop.embedded.apiserver.api_errors import FieldError
from dlop.embedded.apiserver.core.base import BuiltinRules, builtin_type, column, columns, defaulted, invalid, not_one_of, required
from dlop.embedded.apiserver.resource_type import Moment, ResourceType
from dlop.kube.resources import ENDPOINT_SLICES, Resource
from dlop.kube.types import JsonObject

ENDPOINTS = Resource("", "v1", "endpoints", "Endpoints")
_ENDPOINTS = "core.v1.Endpoints"
_SLICE = "discovery.v1.EndpointSlice"
_SHOWN = 3


class _EndpointsRules(BuiltinRules):
    def prepare_create(self, body: JsonObject, *, moment: Moment) -> JsonObject:
        if body.get("subsets"):
            body["subsets"] = [_subset(subset) for subset in body["subsets"]]
        return body

    def prepare_update(self, body: JsonObject, old: JsonObject, *, moment: Moment) -> JsonObject:
        return self.prepare_create(body, moment=moment)


def _subset(subset: JsonObject) -> JsonObject:
    return {**subset, "ports": [defaulted(port, protocol="TCP") for port in subset["ports"]]} if subset.get("ports") else subset


class _SliceRules(BuiltinRules):
    def prepare_create(self, body: JsonObject, *, moment: Moment) -> JsonObject:
        body["ports"] = [defaulted(port, name="", protocol="TCP") for port in body.get("ports") or ()] or None
        return body

    def prepare_update(self, body: JsonObject, old: JsonObject, *, moment: Moment) -> JsonObject:
        return self.prepare_create(body, moment=moment)

    def validate(self, body: JsonObject, old: JsonObject | None, *, subresource: str | None) -> list[FieldError]:
        errors = super().validate(body, old, subresource=subresource)
        kind = body.get("addressType")
        errors += not_one_of("addressType", kind, ("FQDN", "IPv4", "IPv6")) if kind else [required("addressType")]
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
        column("Ports", lambda body: _listed([_port_text(port) for port in body.get("ports") or ()])),
        column("Endpoints", lambda body: _listed([address for each in body.get("endpoints") or () for address in each["addresses"]])),
    )
    addresses = column("Endpoints", _endpoints_text)
    return [
        builtin_type(ENDPOINT_SLICES, _SLICE, rules=_SliceRules(_SLICE), columns=slice_columns, has_generation=True),
        builtin_type(
            ENDPOINTS,
            _ENDPOINTS,
            rules=_EndpointsRules(_ENDPOINTS),
            short_names=("ep",),
            columns=columns(addresses),
            creates_on_update=True,
        ),
    ]


def _listed(texts: Sequence[str]) -> str:
    if len(texts) > _SHOWN:
        return f"{','.join(texts[:_SHOWN])} + {len(texts) - _SHOWN} more..."
    return ",".join(texts) or "<unset>"


def _port_text(port: JsonObject) -> str:
    return str(port["port"]) if "port" in port else port.get("name") or "*"


def _endpoints_text(body: JsonObject) -> str:
    texts = [
        f"{address.get('ip', '')}:{port.get('port', '')}" if port else address.get("ip", "")
        for subset in body.get("subsets") or ()
        for port in subset.get("ports") or (None,)
        for address in subset.get("addresses") or ()
    ]
    return "<none>" if not texts else _listed(texts)
