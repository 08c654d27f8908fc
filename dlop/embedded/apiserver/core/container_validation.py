"""Validation of containers, with the messages of kube-apiserver."""

from __future__ import annotations

from dlop.embedded.apiserver.api_errors import FieldError, FieldErrorType
from dlop.embedded.apiserver.core.base import enum_errors, forbidden, invalid, required
from dlop.embedded.apiserver.core.environment_validation import environment_errors
from dlop.embedded.apiserver.name_validation import label_errors, port_name_errors, qualified_name_errors
from dlop.kube.quantity import NANOS_PER_UNIT, nano_value
from dlop.kube.types import JsonObject

_PORT_RANGE = "must be between 1 and 65535, inclusive"
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_PROBE_NUMBERS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_STANDARD_RESOURCES = ("cpu", "memory", "ephemeral-storage")


def container_list_errors(spec: JsonObject, *, volumes: set[str]) -> list[FieldError]:
    """The errors of the containers and init containers of a spec with defaults."""
    if not spec.get("containers"):
        return [required("spec.containers")]
    names: set[str] = set()
    host_ports: set[str] = set()
    errors: list[FieldError] = []
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            path = f"spec.{field}[{index}]"
            errors += _name_errors(container.get("name", ""), f"{path}.name", names)
            errors += _container_errors(container, path, volumes=volumes)
            errors += _port_list_errors(container.get("ports") or [], path, host_network=bool(spec.get("hostNetwork")))
            errors += _host_port_errors(container.get("ports") or [], path, host_ports)
            if field == "initContainers":
                errors += _init_errors(container, path)
    return errors


def _name_errors(name: str, path: str, names: set[str]) -> list[FieldError]:
    if not name:
        return [required(path)]
    if wrong := label_errors(name):
        return [invalid(path, name, detail) for detail in wrong]
    if name in names:
        return [FieldError(FieldErrorType.DUPLICATE, path, value=name)]
    names.add(name)
    return []


def _container_errors(container: JsonObject, path: str, *, volumes: set[str]) -> list[FieldError]:
    image = container.get("image", "")
    errors = [] if image else [required(f"{path}.image")]
    if image != image.strip():
        errors.append(invalid(f"{path}.image", image, "must not have leading or trailing whitespace"))
    errors += enum_errors(f"{path}.terminationMessagePolicy", container["terminationMessagePolicy"], _MESSAGE_POLICIES)
    errors += environment_errors(container, path)
    errors += _mount_errors(container.get("volumeMounts") or [], f"{path}.volumeMounts", volumes)
    errors += enum_errors(f"{path}.imagePullPolicy", container["imagePullPolicy"], _PULL_POLICIES)
    errors += _resource_errors(container.get("resources") or {}, f"{path}.resources")
    for probe in _PROBES:
        if probe in container:
            errors += _probe_errors(container[probe], f"{path}.{probe}", single_success=probe != "readinessProbe")
    for hook, handler in (container.get("lifecycle") or {}).items():
        if isinstance(handler, dict):
            errors += _handler_errors(handler, f"{path}.lifecycle.{hook}")
    return errors


def _init_errors(container: JsonObject, path: str) -> list[FieldError]:
    policy = container.get("restartPolicy")
    if policy is not None:
        return enum_errors(f"{path}.restartPolicy", policy, ("Always", "Never", "OnFailure"))
    detail = "may not be set for init containers without restartPolicy=Always"
    return [forbidden(f"{path}.{field}", detail) for field in ("lifecycle", *_PROBES) if field in container]


def _port_list_errors(ports: list[JsonObject], path: str, *, host_network: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    names: set[str] = set()
    for index, port in enumerate(ports):
        errors += _port_errors(port, f"{path}.ports[{index}]", names, host_network=host_network)
    return errors


def _port_errors(port: JsonObject, path: str, names: set[str], *, host_network: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    if name := port.get("name"):
        wrong = port_name_errors(name)
        errors += [invalid(f"{path}.name", name, detail) for detail in wrong]
        if not wrong and name in names:
            errors.append(FieldError(FieldErrorType.DUPLICATE, f"{path}.name", value=name))
        names.add(name)
    container_port, host_port = port.get("containerPort", 0), port.get("hostPort", 0)
    if not container_port:
        errors.append(required(f"{path}.containerPort"))
    elif not 1 <= container_port <= 65535:
        errors.append(invalid(f"{path}.containerPort", container_port, _PORT_RANGE))
    if host_port and not 1 <= host_port <= 65535:
        errors.append(invalid(f"{path}.hostPort", host_port, _PORT_RANGE))
    elif host_network and host_port != container_port:
        errors.append(invalid(f"{path}.hostPort", host_port, "must match `containerPort` when `hostNetwork` is true"))
    return errors + enum_errors(f"{path}.protocol", port["protocol"], ("SCTP", "TCP", "UDP"))


def _host_port_errors(ports: list[JsonObject], path: str, used: set[str]) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, port in enumerate(ports):
        if not port.get("hostPort"):
            continue
        host_port = f"{port['protocol']}/{port.get('hostIP', '')}/{port['hostPort']}"
        if host_port in used:
            errors.append(FieldError(FieldErrorType.DUPLICATE, f"{path}.ports[{index}].hostPort", value=host_port))
        used.add(host_port)
    return errors


def _mount_errors(mounts: list[JsonObject], path: str, volumes: set[str]) -> list[FieldError]:
    errors: list[FieldError] = []
    used: set[str] = set()
    for index, mount in enumerate(mounts):
        name, mount_path, sub_path = mount.get("name", ""), mount.get("mountPath", ""), mount.get("subPath", "")
        if not name:
            errors.append(required(f"{path}[{index}].name"))
        if name not in volumes:
            errors.append(FieldError(FieldErrorType.NOT_FOUND, f"{path}[{index}].name", value=name))
        if not mount_path:
            errors.append(required(f"{path}[{index}].mountPath"))
        if mount_path and mount_path in used:
            errors.append(invalid(f"{path}[{index}].mountPath", mount_path, "must be unique"))
        used.add(mount_path)
        # kube-apiserver omits the index here.
        if sub_path.startswith("/"):
            errors.append(invalid(f"{path}.subPath", sub_path, "must be a relative path"))
        elif ".." in sub_path.split("/"):
            errors.append(invalid(f"{path}.subPath", sub_path, "must not contain '..'"))
    return errors


def _resource_errors(resources: JsonObject, path: str) -> list[FieldError]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    errors: list[FieldError] = []
    for name, amount in limits.items():
        errors += _amount_errors(name, amount, f"{path}.limits[{name}]")
    for name, amount in requests.items():
        errors += _amount_errors(name, amount, f"{path}.requests[{name}]")
        errors += _request_errors(name, amount, limits.get(name), path)
    return errors


def _amount_errors(name: str, amount: str, path: str) -> list[FieldError]:
    errors = [invalid(path, name, detail) for detail in qualified_name_errors(name)]
    if "/" not in name and name not in _STANDARD_RESOURCES and not name.startswith("hugepages-"):
        errors.append(invalid(path, name, "must be a standard resource type or fully qualified"))
        errors.append(invalid(path, name, "must be a standard resource for containers"))
    value = nano_value(amount)
    if value < 0:
        errors.append(invalid(path, amount, "must be greater than or equal to 0"))
    elif "/" in name and value % NANOS_PER_UNIT:
        errors.append(invalid(path, amount, "must be an integer"))
    return errors


def _request_errors(name: str, amount: str, limit: str | None, path: str) -> list[FieldError]:
    not_overcommittable = "/" in name or name.startswith("hugepages-")
    if limit is None:
        return [required(f"{path}.limits", "Limit must be set for non overcommitable resources")] if not_overcommittable else []
    if not_overcommittable and nano_value(amount) != nano_value(limit):
        return [invalid(f"{path}.requests", amount, f"must be equal to {name} limit of {limit}")]
    if nano_value(amount) > nano_value(limit):
        return [invalid(f"{path}.requests", amount, f"must be less than or equal to {name} limit of {limit}")]
    return []


def _probe_errors(probe: JsonObject, path: str, *, single_success: bool) -> list[FieldError]:
    errors = _handler_errors(probe, path)
    for field in _PROBE_NUMBERS:
        if probe.get(field, 0) < 0:
            errors.append(invalid(f"{path}.{field}", probe[field], "must be greater than or equal to 0"))
    if single_success and probe.get("successThreshold", 1) > 1:
        errors.append(invalid(f"{path}.successThreshold", probe["successThreshold"], "must be 1"))
    return errors


def _handler_errors(holder: JsonObject, path: str) -> list[FieldError]:
    handlers = [handler for handler in _HANDLERS if handler in holder]
    if not handlers:
        return [required(path, "must specify a handler type")]
    errors: list[FieldError] = []
    first, *others = handlers
    if first == "exec" and not holder["exec"].get("command"):
        errors.append(required(f"{path}.exec.command"))
    if first in ("httpGet", "tcpSocket", "grpc"):
        errors += _handler_port_errors(holder[first].get("port", 0), f"{path}.{first}.port")
    return errors + [forbidden(f"{path}.{other}", "may not specify more than 1 handler type") for other in others]


def _handler_port_errors(port: int | str, path: str) -> list[FieldError]:
    if isinstance(port, str):
        return [invalid(path, port, detail) for detail in port_name_errors(port)]
    return [] if 1 <= port <= 65535 else [invalid(path, port, _PORT_RANGE)]
