"""Devices: what containers that ask for one get besides it, and the old and the new name of NVIDIA's.

The configuration file is that of the early operators:

    accelerators:
      nvidia.com/gpu:
        volumes: [{name: lib, hostPath: /usr/local/nvidia, mountPath: /usr/local/nvidia}]
        envVars: [{name: LD_LIBRARY_PATH, value: /usr/local/nvidia/lib64}]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dlop.api.fields import ManifestField
from dlop.api.types import Accelerator
from dlop.kube.types import JsonObject

GPU = "nvidia.com/gpu"
OLD_GPU = "alpha.kubernetes.io/nvidia-gpu"
"""No node has offered this since Kubernetes 1.10, so a pod that asks for it would wait for ever."""


def read_accelerators(configuration: Any) -> dict[str, Accelerator]:
    """The accelerators of a configuration file, by resource name. Both names of a GPU are the same.

    Raises:
        SpecError: the file makes no sense; names the field.
    """
    whole = ManifestField("file", configuration)
    whole.mapping()
    found = {_current(name): _accelerator(entry) for name, entry in whole.get("accelerators").entries()}
    whole.raise_problems()
    return found


def _accelerator(found: ManifestField) -> Accelerator:
    volumes = list(found.get("volumes").items())
    return Accelerator(
        volumes=tuple({"name": _text(each, "name"), "hostPath": {"path": _text(each, "hostPath")}} for each in volumes),
        volume_mounts=tuple({"name": _text(each, "name"), "mountPath": _text(each, "mountPath")} for each in volumes),
        env=tuple({"name": _text(each, "name"), "value": each.get("value").text()} for each in found.get("envVars").items()),
    )


def _text(found: ManifestField, name: str) -> str:
    text = found.get(name).text()
    if not text:
        found.get(name).wrong("is missing")
    return text


def with_devices(pod_spec: JsonObject, *, container: str, accelerators: Mapping[str, Accelerator]) -> JsonObject:
    """A pod whose containers of that name ask for devices by their current names and get what belongs to them."""
    containers = [_renamed(each) if each.get("name") == container else each for each in pod_spec["containers"]]
    asked = {name for each in containers if each.get("name") == container for name in _asked_for(each)}
    granted = [accelerators[name] for name in sorted(asked) if name in accelerators]
    if not granted:
        return {**pod_spec, "containers": containers}
    result = {**pod_spec, "containers": [_granted(each, accelerators) if each.get("name") == container else each for each in containers]}
    if volumes := _added(pod_spec.get("volumes"), (volume for each in granted for volume in each.volumes)):
        result["volumes"] = volumes
    return result


def _granted(container: JsonObject, accelerators: Mapping[str, Accelerator]) -> JsonObject:
    granted = [accelerators[name] for name in sorted(_asked_for(container)) if name in accelerators]
    additions = {
        "volumeMounts": _added(container.get("volumeMounts"), (mount for each in granted for mount in each.volume_mounts)),
        "env": _added(container.get("env"), (variable for each in granted for variable in each.env)),
    }
    return {**container, **{name: value for name, value in additions.items() if value}}


def _added(given: list[JsonObject] | None, more: Iterable[JsonObject]) -> list[JsonObject]:
    """What is not there yet goes behind what is."""
    result = list(given or [])
    taken = {each.get("name") for each in result}
    for each in more:
        if each["name"] not in taken:
            taken.add(each["name"])
            result.append(dict(each))
    return result


def _asked_for(container: JsonObject) -> set[str]:
    return {name for quantities in _resources(container).values() if isinstance(quantities, dict) for name in quantities}


def _renamed(container: JsonObject) -> JsonObject:
    if OLD_GPU not in _asked_for(container):
        return container
    resources = {
        part: {_current(name): quantity for name, quantity in quantities.items()} if isinstance(quantities, dict) else quantities
        for part, quantities in _resources(container).items()
    }
    return {**container, "resources": resources}


def _current(name: str) -> str:
    return GPU if name == OLD_GPU else name


def _resources(container: JsonObject) -> dict[str, Any]:
    found = container.get("resources")
    return found if isinstance(found, dict) else {}
