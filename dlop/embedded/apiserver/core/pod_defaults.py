"""Defaults of pods, and their QoS class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dlop.embedded.apiserver.core.base import with_defaults
from dlop.kube.quantity import nano_value
from dlop.kube.types import JsonObject

_FILE_MODE = 0o644
_POD = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
}
_PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_EVICTION_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_EVICTION_SECONDS = 300
_QOS_RESOURCES = ("cpu", "memory")


def with_pod_defaults(spec: JsonObject) -> JsonObject:
    """The spec with the defaults of kube-apiserver."""
    spec = {**_POD, **spec, "securityContext": spec.get("securityContext") or {}}
    spec["terminationGracePeriodSeconds"] = _non_negative_grace(spec["terminationGracePeriodSeconds"])
    if account := spec.get("serviceAccountName") or spec.get("serviceAccount"):
        # serviceAccount is the deprecated name of serviceAccountName.
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    host_network = bool(spec.get("hostNetwork"))
    for field in ("initContainers", "containers", "ephemeralContainers"):
        if spec.get(field):
            spec[field] = [_container(container, host_network=host_network) for container in spec[field]]
    if spec.get("volumes"):
        spec["volumes"] = [_volume(volume) for volume in spec["volumes"]]
    if spec.get("resources"):
        spec["resources"] = _resources(spec["resources"])
    spec["tolerations"] = _tolerations(spec.get("tolerations") or [])
    return spec


def _non_negative_grace(seconds: int) -> int:
    return 1 if seconds < 0 else seconds


def _container(container: JsonObject, *, host_network: bool) -> JsonObject:
    container = {
        **container,
        "resources": _resources(container.get("resources") or {}),
        "terminationMessagePath": container.get("terminationMessagePath") or "/dev/termination-log",
        "terminationMessagePolicy": container.get("terminationMessagePolicy") or "File",
        "imagePullPolicy": container.get("imagePullPolicy") or _pull_policy(container.get("image", "")),
    }
    if container.get("ports"):
        container["ports"] = [_port(port, host_network=host_network) for port in container["ports"]]
    if container.get("env"):
        container["env"] = [_with_field_version(variable, "valueFrom") for variable in container["env"]]
    for field in ("livenessProbe", "readinessProbe", "startupProbe"):
        if field in container:
            container[field] = _probe(container[field])
    if lifecycle := container.get("lifecycle"):
        container["lifecycle"] = {field: _handler(hook) if isinstance(hook, dict) else hook for field, hook in lifecycle.items()}
    return container


def _pull_policy(image: str) -> str:
    if "@" in image:
        return "IfNotPresent"
    tag = image.rpartition("/")[2].partition(":")[2]
    return "Always" if tag in ("", "latest") else "IfNotPresent"


def _resources(resources: JsonObject) -> JsonObject:
    limits = resources.get("limits")
    if not limits:
        return resources
    return {**resources, "requests": {**limits, **(resources.get("requests") or {})}}


def _port(port: JsonObject, *, host_network: bool) -> JsonObject:
    port = with_defaults(port, protocol="TCP")
    if host_network and not port.get("hostPort"):
        port["hostPort"] = port.get("containerPort", 0)
    return port


def _probe(probe: JsonObject) -> JsonObject:
    return _handler({**_PROBE, **probe})


def _handler(handler: JsonObject) -> JsonObject:
    if "httpGet" in handler:
        handler = {**handler, "httpGet": with_defaults(handler["httpGet"], path="/", scheme="HTTP")}
    if "grpc" in handler:
        handler = {**handler, "grpc": with_defaults(handler["grpc"], service="")}
    return handler


def _with_field_version(holder: JsonObject, *path: str) -> JsonObject:
    """Set the default apiVersion of the `fieldRef` at a path below `holder`."""
    if path:
        inner = holder.get(path[0])
        return {**holder, path[0]: _with_field_version(inner, *path[1:])} if inner else holder
    return {**holder, "fieldRef": with_defaults(holder["fieldRef"], apiVersion="v1")} if holder.get("fieldRef") else holder


def _volume(volume: JsonObject) -> JsonObject:
    if len(volume) == 1:
        return {**volume, "emptyDir": {}}
    for source, set_defaults in _VOLUME_SOURCES.items():
        if source in volume:
            return {**volume, source: set_defaults(volume[source])}
    return volume


def _with_mode(source: JsonObject) -> JsonObject:
    return with_defaults(source, defaultMode=_FILE_MODE)


def _downward_api(source: JsonObject) -> JsonObject:
    return {**source, "items": [_with_field_version(item) for item in source["items"]]} if source.get("items") else source


def _projected(source: JsonObject) -> JsonObject:
    source = _with_mode(source)
    return {**source, "sources": [_projection(projection) for projection in source["sources"]]} if source.get("sources") else source


def _projection(source: JsonObject) -> JsonObject:
    if "serviceAccountToken" in source:
        source = {**source, "serviceAccountToken": with_defaults(source["serviceAccountToken"], expirationSeconds=3600)}
    if "downwardAPI" in source:
        source = {**source, "downwardAPI": _downward_api(source["downwardAPI"])}
    return source


_VOLUME_SOURCES: dict[str, Callable[[JsonObject], JsonObject]] = {
    "configMap": _with_mode,
    "secret": _with_mode,
    "downwardAPI": lambda source: _downward_api(_with_mode(source)),
    "projected": _projected,
    "hostPath": lambda source: with_defaults(source, type=""),
}


def _tolerations(tolerations: list[JsonObject]) -> list[JsonObject]:
    """The DefaultTolerationSeconds admission plugin: tolerate unready nodes for five minutes."""
    added = [
        {"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _EVICTION_SECONDS}
        for taint in _EVICTION_TAINTS
        if not any(_tolerates(toleration, taint) for toleration in tolerations)
    ]
    return tolerations + added


def _tolerates(toleration: JsonObject, taint: str) -> bool:
    return toleration.get("key", "") in ("", taint) and toleration.get("effect", "") in ("", "NoExecute")


def qos_class(spec: JsonObject) -> str:
    """Guaranteed, Burstable or BestEffort, computed from the CPU and memory requests and limits."""
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    resources = [spec["resources"]] if spec.get("resources") else [container.get("resources") or {} for container in containers]
    requests = [_positive(item.get("requests")) for item in resources]
    limits = [_positive(item.get("limits")) for item in resources]
    if not any(requests) and not any(limits):
        return "BestEffort"
    complete = all(len(limit) == len(_QOS_RESOURCES) for limit in limits)
    return "Guaranteed" if complete and requests == limits else "Burstable"


def _positive(quantities: dict[str, Any] | None) -> dict[str, Any]:
    """The positive CPU and memory amounts. Validation reports invalid ones."""
    amounts: dict[str, Any] = {}
    for name in _QOS_RESOURCES:
        if quantities and name in quantities and (amount := nano_value(quantities[name])) > 0:
            amounts[name] = amount
    return amounts
