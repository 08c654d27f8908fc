"""Validation of pod specs, with the messages of kube-apiserver. See `container_validation` for containers."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

from dlop.embedded.apiserver.api_errors import FieldError, FieldErrorType
from dlop.embedded.apiserver.core.base import enum_errors, forbidden, invalid, required
from dlop.embedded.apiserver.core.container_validation import container_list_errors
from dlop.embedded.apiserver.name_validation import label_errors, label_value_errors, qualified_name_errors, subdomain_errors
from dlop.kube.quantity import nano_value
from dlop.kube.types import JsonObject

_MAX_SECONDS = 2**31 - 1
_MAX_ID = 2**31 - 1
_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
# Volume sources in the order of kube-apiserver's validation, with their required field.
_VOLUME_SOURCES = {
    "emptyDir": None,
    "hostPath": "path",
    "secret": "secretName",
    "nfs": "server",
    "persistentVolumeClaim": "claimName",
    "configMap": "name",
    "downwardAPI": None,
    "projected": None,
    "csi": "driver",
    "ephemeral": None,
    "image": None,
}


def pod_spec_errors(spec: JsonObject) -> list[FieldError]:
    """The errors of a spec with defaults."""
    volumes = {volume.get("name", "") for volume in spec.get("volumes") or ()}
    errors = _volume_list_errors(spec.get("volumes") or [])
    errors += container_list_errors(spec, volumes=volumes)
    errors += enum_errors("spec.restartPolicy", spec["restartPolicy"], _RESTART_POLICIES)
    errors += _dns_errors(spec)
    errors += _selector_errors(spec.get("nodeSelector") or {})
    errors += _security_errors(spec["securityContext"])
    errors += _name_errors(spec) + _scheduling_errors(spec)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= _MAX_SECONDS:
        errors.append(invalid("spec.activeDeadlineSeconds", deadline, f"must be between 1 and {_MAX_SECONDS}, inclusive"))
    for index, toleration in enumerate(spec["tolerations"]):
        errors += _toleration_errors(toleration, f"spec.tolerations[{index}]")
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        errors += _alias_errors(alias, f"spec.hostAliases[{index}]")
    return errors


def _volume_list_errors(volumes: list[JsonObject]) -> list[FieldError]:
    errors: list[FieldError] = []
    names: set[str] = set()
    for index, volume in enumerate(volumes):
        path = f"spec.volumes[{index}]"
        errors += _volume_errors(volume, path)
        name = volume.get("name", "")
        if not name:
            errors.append(required(f"{path}.name"))
        elif wrong := label_errors(name):
            errors += [invalid(f"{path}.name", name, detail) for detail in wrong]
        elif name in names:
            errors.append(FieldError(FieldErrorType.DUPLICATE, f"{path}.name", value=name))
        names.add(name)
    return errors


def _volume_errors(volume: JsonObject, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    sources = [source for source in _VOLUME_SOURCES if source in volume]
    for position, source in enumerate(sources):
        required_field = _VOLUME_SOURCES[source]
        if position:
            errors.append(forbidden(f"{path}.{source}", "may not specify more than 1 volume type"))
        elif required_field and not volume[source].get(required_field):
            errors.append(required(f"{path}.{source}.{required_field}"))
    host_path = (volume.get("hostPath") or {}).get("path", "")
    if ".." in host_path.split("/"):
        errors.append(invalid(f"{path}.hostPath.path", host_path, "must not contain '..'"))
    limit = (volume.get("emptyDir") or {}).get("sizeLimit")
    if limit is not None and nano_value(limit) < 0:
        errors.append(forbidden(f"{path}.emptyDir.sizeLimit", "SizeLimit field must be a valid resource quantity"))
    return errors


def _dns_errors(spec: JsonObject) -> list[FieldError]:
    errors = enum_errors("spec.dnsPolicy", spec["dnsPolicy"], _DNS_POLICIES)
    if spec["dnsPolicy"] == "None" and not spec.get("dnsConfig"):
        errors.append(required("spec.dnsConfig", "must provide `dnsConfig` when `dnsPolicy` is None"))
    return errors


def _selector_errors(selector: dict[str, str]) -> list[FieldError]:
    errors: list[FieldError] = []
    for key, value in selector.items():
        errors += [invalid("spec.nodeSelector", key, detail) for detail in qualified_name_errors(key)]
        errors += [invalid("spec.nodeSelector", value, detail) for detail in label_value_errors(value)]
    return errors


def _security_errors(context: JsonObject) -> list[FieldError]:
    wrong = [(field, context[field]) for field in ("fsGroup", "runAsUser", "runAsGroup") if not 0 <= context.get(field, 0) <= _MAX_ID]
    return [invalid(f"spec.securityContext.{field}", value, f"must be between 0 and {_MAX_ID}, inclusive") for field, value in wrong]


def _name_errors(spec: JsonObject) -> list[FieldError]:
    errors: list[FieldError] = []
    validators: tuple[tuple[str, Any], ...] = (
        ("serviceAccountName", subdomain_errors),
        ("nodeName", subdomain_errors),
        ("hostname", label_errors),
        ("subdomain", label_errors),
    )
    for field, validate in validators:
        if name := spec.get(field):
            errors += [invalid(f"spec.{field}", name, detail) for detail in validate(name)]
    return errors


def _scheduling_errors(spec: JsonObject) -> list[FieldError]:
    errors: list[FieldError] = []
    if spec.get("schedulingGates") and spec.get("nodeName"):
        errors.append(forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    for index, gate in enumerate(spec.get("readinessGates") or ()):
        kind = gate.get("conditionType", "")
        errors += [invalid(f"spec.readinessGates[{index}].conditionType", kind, detail) for detail in qualified_name_errors(kind)]
    for index, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        errors += _spread_errors(constraint, f"spec.topologySpreadConstraints[{index}]")
    return errors


def _spread_errors(constraint: JsonObject, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    skew = constraint.get("maxSkew", 0)
    if skew <= 0:
        errors.append(invalid(f"{path}.maxSkew", skew, "must be greater than zero"))
    if not constraint.get("topologyKey"):
        errors.append(required(f"{path}.topologyKey", "can not be empty"))
    action = constraint.get("whenUnsatisfiable", "")
    return errors + enum_errors(f"{path}.whenUnsatisfiable", action, ("DoNotSchedule", "ScheduleAnyway"))


def _toleration_errors(toleration: JsonObject, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    key, operator, effect = toleration.get("key", ""), toleration.get("operator", ""), toleration.get("effect", "")
    if key:
        errors += [invalid(f"{path}.key", key, detail) for detail in qualified_name_errors(key)]
    elif operator != "Exists":
        detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        errors.append(invalid(f"{path}.operator", operator, detail))
    if "tolerationSeconds" in toleration and effect != "NoExecute":
        errors.append(invalid(f"{path}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"))
    errors += _toleration_value_errors(toleration.get("value", ""), operator, path)
    return errors + (enum_errors(f"{path}.effect", effect, _EFFECTS) if effect else [])


def _toleration_value_errors(value: str, operator: str, path: str) -> list[FieldError]:
    if operator in ("", "Equal"):
        return [invalid(f"{path}.operator", value, detail) for detail in label_value_errors(value)[:1]]
    if operator == "Exists":
        return [invalid(f"{path}.operator", value, "value must be empty when `operator` is 'Exists'")] if value else []
    return enum_errors(f"{path}.operator", operator, ("Equal", "Exists"))


def _alias_errors(alias: JsonObject, path: str) -> list[FieldError]:
    address = alias.get("ip", "")
    try:
        ip_address(address)
    except ValueError:
        return [invalid(f"{path}.ip", address, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")]
    return [invalid(f"{path}.hostnames", name, detail) for name in alias.get("hostnames") or () for detail in subdomain_errors(name)]
