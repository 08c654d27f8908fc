"""Accelerators: volumes and variables for containers that request a device.

The configuration file has the format of the early operators:

    accelerators:
      nvidia.com/gpu:
        volumes: [{name: lib, hostPath: /usr/local/nvidia, mountPath: /usr/local/nvidia}]
        envVars: [{name: LD_LIBRARY_PATH, value: /usr/local/nvidia/lib64}]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import yaml
from pydantic import Field, field_validator

from dlop import FlagFile, FrameworkFlags, JsonObject, ManifestField, SpecError
from dlop.policies import current_resource_name, requested_resources, with_current_resource_names


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """Volumes and variables for containers that request a device, on clusters whose device plugin does not add them."""

    volumes: tuple[JsonObject, ...] = ()
    volume_mounts: tuple[JsonObject, ...] = ()
    env: tuple[JsonObject, ...] = ()


class MXJobFlags(FrameworkFlags):
    """Flags of the operator for MXJobs."""

    controller_config_file: Annotated[Mapping[str, Accelerator], FlagFile()] = Field(
        default={}, description="Path to a YAML file that describes the accelerators of the cluster."
    )
    """Accelerators by resource name, for example `nvidia.com/gpu`."""

    @field_validator("controller_config_file", mode="before")
    @classmethod
    def _parse(cls, content: Any) -> Any:
        if not isinstance(content, str):
            return content
        try:
            return read_accelerators(yaml.safe_load(content))
        except (yaml.YAMLError, SpecError) as error:
            raise ValueError(str(error)) from error


def read_accelerators(configuration: Any) -> dict[str, Accelerator]:
    """The accelerators of a configuration file, by current resource name.

    Raises:
        SpecError: the file is invalid. The message names the fields.
    """
    root = ManifestField("file", configuration)
    root.object()
    accelerators = {current_resource_name(name): _read_accelerator(entry) for name, entry in root.get("accelerators").entries()}
    root.raise_problems()
    return accelerators


def _read_accelerator(entry: ManifestField) -> Accelerator:
    volumes = list(entry.get("volumes").items())
    variables = list(entry.get("envVars").items())
    return Accelerator(
        volumes=tuple(
            {"name": _required_string(volume, "name"), "hostPath": {"path": _required_string(volume, "hostPath")}} for volume in volumes
        ),
        volume_mounts=tuple(
            {"name": _required_string(volume, "name"), "mountPath": _required_string(volume, "mountPath")} for volume in volumes
        ),
        env=tuple({"name": _required_string(variable, "name"), "value": variable.get("value").string()} for variable in variables),
    )


def _required_string(entry: ManifestField, name: str) -> str:
    value = entry.get(name).string()
    if not value:
        entry.get(name).error("is missing")
    return value


def with_accelerators(pod_spec: JsonObject, *, container: str, accelerators: Mapping[str, Accelerator]) -> JsonObject:
    """The pod spec with current resource names, and with the volumes and variables of the devices that the named container requests."""
    containers = [with_current_resource_names(each) if each.get("name") == container else each for each in pod_spec["containers"]]
    requested = {name for each in containers if each.get("name") == container for name in requested_resources(each)}
    used = [accelerators[name] for name in sorted(requested) if name in accelerators]
    if not used:
        return {**pod_spec, "containers": containers}
    containers = [_with_devices(each, accelerators) if each.get("name") == container else each for each in containers]
    result = {**pod_spec, "containers": containers}
    if volumes := _merge(pod_spec.get("volumes"), (volume for accelerator in used for volume in accelerator.volumes)):
        result["volumes"] = volumes
    return result


def _with_devices(container: JsonObject, accelerators: Mapping[str, Accelerator]) -> JsonObject:
    used = [accelerators[name] for name in sorted(requested_resources(container)) if name in accelerators]
    additions = {
        "volumeMounts": _merge(container.get("volumeMounts"), (mount for accelerator in used for mount in accelerator.volume_mounts)),
        "env": _merge(container.get("env"), (variable for accelerator in used for variable in accelerator.env)),
    }
    return {**container, **{name: value for name, value in additions.items() if value}}


def _merge(existing: list[JsonObject] | None, additional: Iterable[JsonObject]) -> list[JsonObject]:
    """The existing entries, followed by the additional ones whose names are not in use."""
    result = list(existing or [])
    names = {entry.get("name") for entry in result}
    for entry in additional:
        if entry["name"] not in names:
            names.add(entry["name"])
            result.append(dict(entry))
    return result
