"""Services: they get an address and are shown; nothing in this server routes to them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

from dlop.embedded.apiserver.api_errors import FieldError
from dlop.embedded.apiserver.core.base import BuiltinRules, builtin_type, column, columns, defaulted, dig, labels_text
from dlop.embedded.apiserver.core.service_validation import CLUSTER_IP_RANGE, service_errors, service_status_errors
from dlop.embedded.apiserver.name_validation import label_errors
from dlop.embedded.apiserver.resource_type import Moment, ResourceType
from dlop.kube.resources import SERVICES
from dlop.kube.types import JsonObject

NODE_PORT_RANGE = range(30000, 32768)
_SHAPE = "core.v1.Service"
_EXTERNAL = ("NodePort", "LoadBalancer")
# What a service that becomes only a DNS alias loses.
_NOT_FOR_ALIASES = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy", "externalTrafficPolicy")


class _ServiceRules(BuiltinRules):
    """Addresses and node ports are handed out in order, round and round: enough services to wrap would not fit elsewhere."""

    def __init__(self, shape: str) -> None:
        super().__init__(shape)
        self._addresses = _addresses()
        self._node_ports = cycle(NODE_PORT_RANGE)

    def validate_name(self, name: str) -> list[str]:
        return label_errors(name)

    def prepare_create(self, body: JsonObject, *, moment: Moment) -> JsonObject:
        body["status"] = {"loadBalancer": {}}
        body["spec"] = self._allocated(_defaulted(body.get("spec") or {}))
        return body

    def prepare_update(self, body: JsonObject, old: JsonObject, *, moment: Moment) -> JsonObject:
        body["spec"] = self._allocated(_defaulted(_kept_addresses(body.get("spec") or {}, old["spec"])))
        return body

    def validate(self, body: JsonObject, old: JsonObject | None, *, subresource: str | None) -> list[FieldError]:
        errors = super().validate(body, old, subresource=subresource)
        if subresource == "status":
            return errors + service_status_errors(body)
        return errors + service_errors(body["spec"], old["spec"] if old else None)

    def _allocated(self, spec: JsonObject) -> JsonObject:
        if spec["type"] == "ExternalName":
            return spec
        address = spec.get("clusterIP") or (spec.get("clusterIPs") or [""])[0] or next(self._addresses)
        spec["clusterIP"] = address
        spec["clusterIPs"] = spec.get("clusterIPs") or [address]
        if spec["type"] in _EXTERNAL:
            spec["ports"] = [port if port.get("nodePort") else {**port, "nodePort": next(self._node_ports)} for port in spec["ports"]]
        return _with_families(spec)


def _addresses() -> Iterator[str]:
    # The first one is the API server's own by custom.
    size = CLUSTER_IP_RANGE.num_addresses - 2
    return (str(CLUSTER_IP_RANGE[position]) for position in cycle(range(2, size)))


def _defaulted(spec: JsonObject) -> JsonObject:
    spec = defaulted(spec, type="ClusterIP", sessionAffinity="None")
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec.get("ports"):
        spec["ports"] = [_port(port) for port in spec["ports"]]
    if spec["sessionAffinity"] == "ClientIP" and not spec.get("sessionAffinityConfig"):
        spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 10800}}
    if spec["type"] in _EXTERNAL:
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    return spec


def _port(port: JsonObject) -> JsonObject:
    port = defaulted(port, protocol="TCP")
    # An absent target port has been read as 0.
    return {**port, "targetPort": port.get("targetPort") or port.get("port", 0)}


def _with_families(spec: JsonObject) -> JsonObject:
    if spec["clusterIP"] == "None" and not spec.get("selector"):
        # Nobody knows which addresses a headless service without a selector will get, so it may have both kinds.
        spec.setdefault("ipFamilyPolicy", "RequireDualStack")
        spec.setdefault("ipFamilies", ["IPv4", "IPv6"])
    else:
        spec.setdefault("ipFamilyPolicy", "SingleStack")
        spec.setdefault("ipFamilies", ["IPv4"])
    return spec


def _kept_addresses(spec: JsonObject, old: JsonObject) -> JsonObject:
    """What was allocated stays when an update does not mention it."""
    kind = spec.get("type") or "ClusterIP"
    if kind == "ExternalName":
        return {field: value for field, value in spec.items() if field not in _NOT_FOR_ALIASES}
    if not spec.get("clusterIP") and not spec.get("clusterIPs") and old.get("clusterIP"):
        spec = {**spec, "clusterIP": old["clusterIP"], "clusterIPs": old["clusterIPs"]}
    elif spec.get("clusterIPs") == old.get("clusterIPs") or not spec.get("clusterIPs"):
        # The two fields say the same thing; a caller who sets one of them means both.
        address = spec.get("clusterIP") or old.get("clusterIP", "")
        spec = {**spec, "clusterIP": address, "clusterIPs": [address]}
    for field in ("ipFamilies", "ipFamilyPolicy"):
        if not spec.get(field) and old.get(field):
            spec = {**spec, field: old[field]}
    return _kept_node_ports(spec, old, external=kind in _EXTERNAL)


def _kept_node_ports(spec: JsonObject, old: JsonObject, *, external: bool) -> JsonObject:
    if external:
        known = {(port.get("protocol"), port.get("port")): port.get("nodePort") for port in old.get("ports") or ()}
        ports = [_with_node_port(port, known.get((port.get("protocol", "TCP"), port.get("port")))) for port in spec.get("ports") or ()]
        return {**spec, "ports": ports}
    if old.get("type") in _EXTERNAL:
        # The ports and the policy that came with the old type go with it.
        ports = [{field: value for field, value in port.items() if field != "nodePort"} for port in spec.get("ports") or ()]
        gone = ("externalTrafficPolicy", "allocateLoadBalancerNodePorts", "healthCheckNodePort")
        return {**{field: value for field, value in spec.items() if field not in gone}, "ports": ports}
    return spec


def _with_node_port(port: JsonObject, node_port: int | None) -> JsonObject:
    return {**port, "nodePort": node_port} if node_port and not port.get("nodePort") else port


def _external_ip(service: JsonObject) -> str:
    spec = service.get("spec") or {}
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName", ""))
    given = spec.get("externalIPs") or []
    if spec.get("type") == "LoadBalancer":
        ingress = dig(service, "status", "loadBalancer", "ingress") or ()
        given = [*sorted({each.get("ip") or each.get("hostname", "") for each in ingress}), *given]
        return ",".join(given) or "<pending>"
    return ",".join(given) or "<none>"


def _ports_text(service: JsonObject) -> str:
    return ",".join(_port_text(port) for port in dig(service, "spec", "ports") or ()) or "<none>"


def _port_text(port: JsonObject) -> str:
    outside = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{outside}/{port.get('protocol')}"


def service_types() -> list[ResourceType]:
    """The type of services."""
    shown = columns(
        column("Type", lambda service: dig(service, "spec", "type") or ""),
        column("Cluster-IP", lambda service: (dig(service, "spec", "clusterIPs") or ["<none>"])[0]),
        column("External-IP", _external_ip),
        column("Port(s)", _ports_text),
        after_age=(column("Selector", lambda service: labels_text(dig(service, "spec", "selector")), priority=1),),
    )
    return [
        builtin_type(
            SERVICES,
            _SHAPE,
            rules=_ServiceRules(_SHAPE),
            short_names=("svc",),
            categories=("all",),
            has_status=True,
            creates_on_update=True,
            returns_deleted=True,
            columns=shown,
            fields={"spec.clusterIP": ("spec", "clusterIP"), "spec.type": ("spec", "type")},
        )
    ]
