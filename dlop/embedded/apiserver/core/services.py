"""Services: defaults and allocation of cluster IPs and node ports."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

from dlop.embedded.apiserver.api_errors import FieldError
from dlop.embedded.apiserver.core.base import BuiltinStrategy, builtin_type, column, columns, format_labels, get_nested, with_defaults
from dlop.embedded.apiserver.core.service_validation import CLUSTER_IP_RANGE, service_errors, service_status_errors
from dlop.embedded.apiserver.name_validation import label_errors
from dlop.embedded.apiserver.resource_type import ResourceType, Timestamp
from dlop.kube.resources import SERVICES
from dlop.kube.types import JsonObject

NODE_PORT_RANGE = range(30000, 32768)
_GO_TYPE = "core.v1.Service"
_EXTERNAL = ("NodePort", "LoadBalancer")
# Fields that are dropped when a service becomes an ExternalName service.
_DROPPED_FOR_EXTERNAL_NAME = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy", "externalTrafficPolicy")


class _ServiceStrategy(BuiltinStrategy):
    """Allocates addresses and node ports round-robin without tracking releases, as the ranges are large enough."""

    def __init__(self, go_type: str) -> None:
        super().__init__(go_type)
        self._addresses = _addresses()
        self._node_ports = cycle(NODE_PORT_RANGE)

    def validate_name(self, name: str) -> list[str]:
        return label_errors(name)

    def prepare_create(self, body: JsonObject, *, now: Timestamp) -> JsonObject:
        body["status"] = {"loadBalancer": {}}
        body["spec"] = self._allocate(_set_defaults(body.get("spec") or {}))
        return body

    def prepare_update(self, body: JsonObject, old: JsonObject, *, now: Timestamp) -> JsonObject:
        body["spec"] = self._allocate(_set_defaults(_keep_addresses(body.get("spec") or {}, old["spec"])))
        return body

    def validate(self, body: JsonObject, old: JsonObject | None, *, subresource: str | None) -> list[FieldError]:
        errors = super().validate(body, old, subresource=subresource)
        if subresource == "status":
            return errors + service_status_errors(body)
        return errors + service_errors(body["spec"], old["spec"] if old else None)

    def _allocate(self, spec: JsonObject) -> JsonObject:
        if spec["type"] == "ExternalName":
            return spec
        address = spec.get("clusterIP") or (spec.get("clusterIPs") or [""])[0] or next(self._addresses)
        spec["clusterIP"] = address
        spec["clusterIPs"] = spec.get("clusterIPs") or [address]
        if spec["type"] in _EXTERNAL:
            spec["ports"] = [port if port.get("nodePort") else {**port, "nodePort": next(self._node_ports)} for port in spec["ports"]]
        return _with_families(spec)


def _addresses() -> Iterator[str]:
    # By convention the first address is that of the API server.
    size = CLUSTER_IP_RANGE.num_addresses - 2
    return (str(CLUSTER_IP_RANGE[position]) for position in cycle(range(2, size)))


def _set_defaults(spec: JsonObject) -> JsonObject:
    spec = with_defaults(spec, type="ClusterIP", sessionAffinity="None")
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
    port = with_defaults(port, protocol="TCP")
    # The decoder sets an absent targetPort to 0.
    return {**port, "targetPort": port.get("targetPort") or port.get("port", 0)}


def _with_families(spec: JsonObject) -> JsonObject:
    if spec["clusterIP"] == "None" and not spec.get("selector"):
        # The endpoints of a headless service without a selector are unknown, so both families are allowed.
        spec.setdefault("ipFamilyPolicy", "RequireDualStack")
        spec.setdefault("ipFamilies", ["IPv4", "IPv6"])
    else:
        spec.setdefault("ipFamilyPolicy", "SingleStack")
        spec.setdefault("ipFamilies", ["IPv4"])
    return spec


def _keep_addresses(spec: JsonObject, old: JsonObject) -> JsonObject:
    """Keep allocated values that an update does not set."""
    kind = spec.get("type") or "ClusterIP"
    if kind == "ExternalName":
        return {field: value for field, value in spec.items() if field not in _DROPPED_FOR_EXTERNAL_NAME}
    if not spec.get("clusterIP") and not spec.get("clusterIPs") and old.get("clusterIP"):
        spec = {**spec, "clusterIP": old["clusterIP"], "clusterIPs": old["clusterIPs"]}
    elif spec.get("clusterIPs") == old.get("clusterIPs") or not spec.get("clusterIPs"):
        # clusterIP is clusterIPs[0], so a caller that sets one of them sets both.
        address = spec.get("clusterIP") or old.get("clusterIP", "")
        spec = {**spec, "clusterIP": address, "clusterIPs": [address]}
    for field in ("ipFamilies", "ipFamilyPolicy"):
        if not spec.get(field) and old.get(field):
            spec = {**spec, field: old[field]}
    return _keep_node_ports(spec, old, external=kind in _EXTERNAL)


def _keep_node_ports(spec: JsonObject, old: JsonObject, *, external: bool) -> JsonObject:
    if external:
        known = {(port.get("protocol"), port.get("port")): port.get("nodePort") for port in old.get("ports") or ()}
        ports = [_with_node_port(port, known.get((port.get("protocol", "TCP"), port.get("port")))) for port in spec.get("ports") or ()]
        return {**spec, "ports": ports}
    if old.get("type") in _EXTERNAL:
        # Drop the node ports and policies of the old type.
        ports = [{field: value for field, value in port.items() if field != "nodePort"} for port in spec.get("ports") or ()]
        dropped = ("externalTrafficPolicy", "allocateLoadBalancerNodePorts", "healthCheckNodePort")
        return {**{field: value for field, value in spec.items() if field not in dropped}, "ports": ports}
    return spec


def _with_node_port(port: JsonObject, node_port: int | None) -> JsonObject:
    return {**port, "nodePort": node_port} if node_port and not port.get("nodePort") else port


def _external_ip(service: JsonObject) -> str:
    spec = service.get("spec") or {}
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName", ""))
    addresses = spec.get("externalIPs") or []
    if spec.get("type") == "LoadBalancer":
        ingress = get_nested(service, "status", "loadBalancer", "ingress") or ()
        addresses = [*sorted({point.get("ip") or point.get("hostname", "") for point in ingress}), *addresses]
        return ",".join(addresses) or "<pending>"
    return ",".join(addresses) or "<none>"


def _format_ports(service: JsonObject) -> str:
    return ",".join(_format_port(port) for port in get_nested(service, "spec", "ports") or ()) or "<none>"


def _format_port(port: JsonObject) -> str:
    node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{node_port}/{port.get('protocol')}"


def service_types() -> list[ResourceType]:
    table_columns = columns(
        column("Type", lambda service: get_nested(service, "spec", "type") or ""),
        column("Cluster-IP", lambda service: (get_nested(service, "spec", "clusterIPs") or ["<none>"])[0]),
        column("External-IP", _external_ip),
        column("Port(s)", _format_ports),
        after_age=(column("Selector", lambda service: format_labels(get_nested(service, "spec", "selector")), priority=1),),
    )
    return [
        builtin_type(
            SERVICES,
            _GO_TYPE,
            strategy=_ServiceStrategy(_GO_TYPE),
            short_names=("svc",),
            categories=("all",),
            has_status=True,
            creates_on_update=True,
            returns_deleted=True,
            columns=table_columns,
            fields={"spec.clusterIP": ("spec", "clusterIP"), "spec.type": ("spec", "type")},
        )
    ]
