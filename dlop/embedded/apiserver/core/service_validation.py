"""Validation of services, with the messages of kube-apiserver."""

from __future__ import annotations

from ipaddress import IPv4Network, ip_address
from typing import Any

from dlop.embedded.apiserver.api_errors import FieldError, FieldErrorType
from dlop.embedded.apiserver.core.base import enum_errors, forbidden, get_nested, invalid, required
from dlop.embedded.apiserver.name_validation import (
    label_errors,
    label_value_errors,
    port_name_errors,
    qualified_name_errors,
    subdomain_errors,
)
from dlop.kube.types import JsonObject

CLUSTER_IP_RANGE = IPv4Network("10.96.0.0/16")
_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_POLICIES = ("Cluster", "Local")
_PORT_RANGE = "must be between 1 and 65535, inclusive"


def service_errors(spec: JsonObject, old: JsonObject | None) -> list[FieldError]:
    """The errors of a spec with defaults; `old` is None on create."""
    kind = spec["type"]
    if old and (address_errors := _address_change_errors(spec, old)):
        return address_errors
    errors: list[FieldError] = []
    ports = spec.get("ports") or []
    if not ports and kind != "ExternalName" and spec.get("clusterIP") != "None":
        errors.append(required("spec.ports"))
    errors += _type_errors(spec, kind) + _family_errors(spec) + _port_list_errors(ports, kind)
    errors += _selector_errors(spec.get("selector") or {})
    errors += enum_errors("spec.sessionAffinity", spec["sessionAffinity"], ("ClientIP", "None"))
    errors += enum_errors("spec.type", kind, _TYPES)
    if kind != "ExternalName":
        errors += enum_errors("spec.internalTrafficPolicy", spec.get("internalTrafficPolicy"), _POLICIES)
    if spec.get("externalTrafficPolicy") and kind in ("ClusterIP", "ExternalName"):
        detail = "may only be set for externally-accessible services"
        errors.append(invalid("spec.externalTrafficPolicy", spec["externalTrafficPolicy"], detail))
    return errors


def service_status_errors(body: JsonObject) -> list[FieldError]:
    if body["spec"]["type"] == "LoadBalancer" or not get_nested(body, "status", "loadBalancer", "ingress"):
        return []
    return [forbidden("status.loadBalancer.ingress", "may only be used when `spec.type` is 'LoadBalancer'")]


def _type_errors(spec: JsonObject, kind: str) -> list[FieldError]:
    addresses: list[str] = spec.get("clusterIPs") or []
    if kind == "ExternalName":
        return _alias_errors(spec)
    if addresses and spec.get("clusterIP") != addresses[0]:
        return [invalid("spec.clusterIPs", addresses, "first value must match `clusterIP`")]
    if "None" in addresses:
        detail = f"may not be set to 'None' for {kind} services"
        return [invalid("spec.clusterIPs[0]", "None", detail)] if kind in ("NodePort", "LoadBalancer") else []
    return _address_errors(addresses)


def _alias_errors(spec: JsonObject) -> list[FieldError]:
    errors = [forbidden("spec.clusterIPs", "may not be set for ExternalName services")] if spec.get("clusterIP") else []
    name = spec.get("externalName", "").removesuffix(".")
    if not name:
        return [*errors, required("spec.externalName")]
    return errors + [invalid("spec.externalName", name, detail) for detail in subdomain_errors(name)]


def _address_errors(addresses: list[str]) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, text in enumerate(addresses):
        try:
            address = ip_address(text)
        except ValueError:
            detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
            errors.append(invalid(f"spec.clusterIPs[{index}]", text, detail))
            continue
        if address not in CLUSTER_IP_RANGE:
            detail = f"the provided IP ({text}) is not in the valid range. The range of valid IPs is {CLUSTER_IP_RANGE}"
            errors.append(invalid("spec.clusterIPs", addresses, f"failed to allocate IP {text}: {detail}"))
    return errors


def _family_errors(spec: JsonObject) -> list[FieldError]:
    if spec["type"] == "ExternalName" or (spec.get("clusterIP") == "None" and not spec.get("selector")):
        return []
    wrong = [(index, family) for index, family in enumerate(spec.get("ipFamilies") or ()) if family != "IPv4"]
    return [invalid(f"spec.ipFamilies[{index}]", family, "not configured on this cluster") for index, family in wrong]


def _port_list_errors(ports: list[JsonObject], kind: str) -> list[FieldError]:
    errors: list[FieldError] = []
    names: set[str] = set()
    for index, port in enumerate(ports):
        errors += _port_errors(port, f"spec.ports[{index}]", names, kind, name_required=len(ports) > 1)
    seen: set[tuple[Any, Any]] = set()
    for index, port in enumerate(ports):
        port_key = (port.get("protocol"), port.get("port"))
        if port_key in seen:
            duplicate = {"Name": "", "Protocol": port_key[0], "AppProtocol": None, "Port": port_key[1], "TargetPort": 0, "NodePort": 0}
            errors.append(FieldError(FieldErrorType.DUPLICATE, f"spec.ports[{index}]", value=duplicate))
        seen.add(port_key)
    return errors


def _port_errors(port: JsonObject, path: str, names: set[str], kind: str, *, name_required: bool) -> list[FieldError]:
    errors = _port_name_errors(port.get("name", ""), f"{path}.name", names, name_required=name_required)
    if not 1 <= port.get("port", 0) <= 65535:
        errors.append(invalid(f"{path}.port", port.get("port", 0), _PORT_RANGE))
    errors += enum_errors(f"{path}.protocol", port["protocol"], ("SCTP", "TCP", "UDP"))
    target = port["targetPort"]
    if isinstance(target, str):
        errors += [invalid(f"{path}.targetPort", target, detail) for detail in port_name_errors(target)]
    elif not 1 <= target <= 65535:
        errors.append(invalid(f"{path}.targetPort", target, _PORT_RANGE))
    if port.get("nodePort") and kind == "ClusterIP":
        errors.append(forbidden(f"{path}.nodePort", "may not be used when `type` is 'ClusterIP'"))
    return errors


def _port_name_errors(name: str, path: str, names: set[str], *, name_required: bool) -> list[FieldError]:
    if not name:
        return [required(path)] if name_required else []
    if wrong := label_errors(name):
        return [invalid(path, name, detail) for detail in wrong]
    if name in names:
        return [FieldError(FieldErrorType.DUPLICATE, path, value=name)]
    names.add(name)
    return []


def _selector_errors(selector: dict[str, str]) -> list[FieldError]:
    errors: list[FieldError] = []
    for key, value in selector.items():
        errors += [invalid("spec.selector", key, detail) for detail in qualified_name_errors(key)]
        errors += [invalid("spec.selector", value, detail) for detail in label_value_errors(value)]
    return errors


def _address_change_errors(spec: JsonObject, old: JsonObject) -> list[FieldError]:
    if "ExternalName" in (spec["type"], old["type"]) or spec.get("clusterIPs") == old.get("clusterIPs"):
        return []
    return [invalid("spec.clusterIPs[0]", spec.get("clusterIPs"), "may not change once set")]
