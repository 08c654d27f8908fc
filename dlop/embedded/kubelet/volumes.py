"""Volumes of a pod: a plan for each volume (pure), the directories and files, and the mounts of the containers.

A volume is an empty directory, a path of the host, or files that are written when the pod starts and again when their source changes.
Volume types that need a storage system are not supported.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from dlop.embedded.kubelet.environment import (
    ConfigSources,
    ContainerConfigError,
    DownwardValues,
    expand,
    resolve_field_ref,
    resolve_resource_field_ref,
)
from dlop.embedded.kubelet.runtime.base import Mount
from dlop.kube.types import JsonObject

_FILE_MODE = 0o644
_PROJECTED_TYPES = frozenset({"configMap", "secret", "downwardAPI", "projected"})


class VolumeError(Exception):
    """A volume cannot be set up. The message is that of the kubelet."""


@dataclass(frozen=True, slots=True)
class EmptyDir:
    """A directory with the lifetime of the pod."""


@dataclass(frozen=True, slots=True)
class HostPath:
    """An existing or new path of the host; `type` is that of the hostPath volume."""

    path: Path
    type: str = ""


@dataclass(frozen=True, slots=True)
class ProjectedFile:
    content: bytes
    mode: int = _FILE_MODE


@dataclass(frozen=True, slots=True)
class ProjectedFiles:
    files: Mapping[str, ProjectedFile]


VolumePlan: TypeAlias = EmptyDir | HostPath | ProjectedFiles


@dataclass(frozen=True, slots=True)
class VolumeInputs:
    """The objects and values that volume plans depend on."""

    downward: DownwardValues
    sources: ConfigSources
    tokens: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Tokens of the pod's service account, by volume and path."""
    node_dir: Path | None = None
    """Contains the files of all pods."""


# --- references -----------------------------------------------------------------------------------------------------------


def referenced_sources(pod: JsonObject) -> tuple[frozenset[str], frozenset[str]]:
    """The names of the config maps and of the secrets that the pod's volumes refer to."""
    config_maps: set[str] = set()
    secrets: set[str] = set()
    for volume in pod["spec"].get("volumes") or ():
        for source in (volume, *((volume.get("projected") or {}).get("sources") or ())):
            if part := source.get("configMap"):
                config_maps.add(part.get("name", ""))
            if part := source.get("secret"):
                secrets.add(_secret_name(part))
    return frozenset(config_maps), frozenset(secrets)


def token_projections(pod: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """The serviceAccountToken projections of the pod, each with the name of its volume."""
    for volume in pod["spec"].get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            if token := source.get("serviceAccountToken"):
                yield volume["name"], token


def _secret_name(part: JsonObject) -> str:
    # The field is `secretName` in a volume and `name` in a projection.
    return str(part.get("secretName") or part.get("name") or "")


# --- planning -------------------------------------------------------------------------------------------------------------


def plan_volume(pod: JsonObject, volume: JsonObject, inputs: VolumeInputs) -> VolumePlan:
    """Plan a volume.

    Raises:
        VolumeError: the volume is invalid, not supported, or refers to a missing object.
    """
    if "emptyDir" in volume or len(volume) == 1:
        return EmptyDir()
    if source := volume.get("hostPath"):
        return _plan_host_path(Path(source["path"]), source.get("type") or "", inputs)
    try:
        if "configMap" in volume or "secret" in volume or "downwardAPI" in volume:
            return ProjectedFiles(_source_files(pod, volume, inputs, volume_name=volume["name"], default_mode=_default_mode(volume)))
        if source := volume.get("projected"):
            return ProjectedFiles(_projected_volume_files(pod, volume["name"], source, inputs))
    except ContainerConfigError as error:
        raise VolumeError(str(error)) from error
    kind = next(name for name in volume if name != "name")
    raise VolumeError(f'volume type "{kind}" is not supported by this node; use emptyDir or hostPath')


def _plan_host_path(path: Path, type_: str, inputs: VolumeInputs) -> HostPath:
    # The runtime mounts files of the node by these paths. Other paths to them, such as links, lead nowhere.
    if inputs.node_dir is not None and path.is_relative_to(inputs.node_dir):
        raise VolumeError(f"hostPath {path} is not allowed: it belongs to the files of the node")
    return HostPath(path, type_)


def _default_mode(volume: JsonObject) -> int:
    source = volume.get("configMap") or volume.get("secret") or volume.get("downwardAPI") or {}
    return int(source.get("defaultMode") or _FILE_MODE)


def _projected_volume_files(pod: JsonObject, volume_name: str, projected: JsonObject, inputs: VolumeInputs) -> dict[str, ProjectedFile]:
    files: dict[str, ProjectedFile] = {}
    mode = int(projected.get("defaultMode") or _FILE_MODE)
    for source in projected.get("sources") or ():
        files |= _source_files(pod, source, inputs, volume_name=volume_name, default_mode=mode)
    return files


def _source_files(
    pod: JsonObject, source: JsonObject, inputs: VolumeInputs, *, volume_name: str, default_mode: int
) -> dict[str, ProjectedFile]:
    if part := source.get("configMap"):
        return _select_keys(_config_map_files(part, inputs.sources), part, default_mode=default_mode)
    if part := source.get("secret"):
        return _select_keys(_secret_files(part, inputs.sources), part, default_mode=default_mode)
    if "downwardAPI" in source:
        return _downward_files(pod, source["downwardAPI"] or {}, inputs.downward, default_mode=default_mode)
    if part := source.get("serviceAccountToken"):
        token = inputs.tokens.get((volume_name, part["path"]), "")
        return {_validate_path(part["path"]): ProjectedFile(token.encode(), 0o600)}
    raise VolumeError(f'projected volume source "{next(iter(source), "")}" is not supported by this node')


def _config_map_files(part: JsonObject, sources: ConfigSources) -> dict[str, bytes] | None:
    config_map = sources.config_maps.get(part.get("name", ""))
    if config_map is None and part.get("optional"):
        return None
    if config_map is None:
        raise VolumeError(f'configmap "{part.get("name", "")}" not found')
    text = {key: value.encode() for key, value in (config_map.get("data") or {}).items()}
    binary = {key: base64.b64decode(value) for key, value in (config_map.get("binaryData") or {}).items()}
    return text | binary


def _secret_files(part: JsonObject, sources: ConfigSources) -> dict[str, bytes] | None:
    secret = sources.secrets.get(_secret_name(part))
    if secret is None and part.get("optional"):
        return None
    if secret is None:
        raise VolumeError(f'secret "{_secret_name(part)}" not found')
    return {key: base64.b64decode(value) for key, value in (secret.get("data") or {}).items()}


def _select_keys(data: Mapping[str, bytes] | None, part: JsonObject, *, default_mode: int) -> dict[str, ProjectedFile]:
    """All keys as files, or the `items` under their paths."""
    items = part.get("items")
    if data is None:
        return {}
    if not items:
        return {_validate_path(key): ProjectedFile(content, default_mode) for key, content in data.items()}
    files: dict[str, ProjectedFile] = {}
    for item in items:
        if item["key"] in data:
            files[_validate_path(item["path"])] = ProjectedFile(data[item["key"]], int(item.get("mode") or default_mode))
        elif not part.get("optional"):
            kind = "secret" if "secretName" in part else "config"
            raise VolumeError(f"references non-existent {kind} key: {item['key']}")
    return files


def _downward_files(pod: JsonObject, part: JsonObject, downward: DownwardValues, *, default_mode: int) -> dict[str, ProjectedFile]:
    files: dict[str, ProjectedFile] = {}
    for item in part.get("items") or ():
        if reference := item.get("fieldRef"):
            text = resolve_field_ref(pod, reference["fieldPath"], downward=downward)
        else:
            text = resolve_resource_field_ref(pod, None, item["resourceFieldRef"], downward=downward)
        files[_validate_path(item["path"])] = ProjectedFile(text.encode(), int(item.get("mode") or default_mode))
    return files


def _validate_path(path: str) -> str:
    parsed = PurePosixPath(path)
    if parsed.is_absolute() or ".." in parsed.parts or not parsed.parts or "\0" in path:
        raise VolumeError(f"invalid path {path}: must stay inside the volume")
    return str(parsed)


# --- setup ----------------------------------------------------------------------------------------------------------------


def set_up_volume(plan: VolumePlan, directory: Path) -> Path:
    """Create or update a volume. Returns its path: `directory`, or the path on the host.

    Raises:
        VolumeError: the host path does not exist or has another type.
    """
    if isinstance(plan, HostPath):
        return _set_up_host_path(plan)
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o777)
    if isinstance(plan, ProjectedFiles):
        for path, file in plan.files.items():
            _write_file(directory / path, file)
        _remove_other_files(directory, plan.files)
    return directory


def _write_file(path: Path, file: ProjectedFile) -> None:
    """Replace a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"..{path.name}.new")
    temporary.unlink(missing_ok=True)
    temporary.touch(mode=0o600)
    temporary.write_bytes(file.content)
    temporary.chmod(file.mode)
    temporary.replace(path)


def _remove_other_files(directory: Path, files: Mapping[str, ProjectedFile]) -> None:
    for path in directory.rglob("*"):
        if path.is_file() and str(path.relative_to(directory)) not in files:
            path.unlink()


def _set_up_host_path(plan: HostPath) -> Path:
    path, type_ = plan.path, plan.type
    if "\0" in str(path):
        raise VolumeError(f"invalid path {path}: contains a null byte")
    if type_ == "DirectoryOrCreate" or (type_ == "" and not path.exists()):
        path.mkdir(parents=True, exist_ok=True)
    elif type_ == "FileOrCreate" and not path.exists():
        path.touch()
    checks = {
        "Directory": (path.is_dir, "is not a directory"),
        "DirectoryOrCreate": (path.is_dir, "is not a directory"),
        "File": (path.is_file, "is not a file"),
        "FileOrCreate": (path.is_file, "is not a file"),
        "Socket": (path.is_socket, "is not a socket file"),
        "CharDevice": (path.is_char_device, "is not a character device"),
        "BlockDevice": (path.is_block_device, "is not a block device"),
    }
    if type_ in checks and not checks[type_][0]():
        raise VolumeError(f"hostPath type check failed: {path} {checks[type_][1]}")
    return path


# --- mounts ---------------------------------------------------------------------------------------------------------------


def container_mounts(
    pod: JsonObject, container: JsonObject, *, volume_paths: Mapping[str, Path], environment: Mapping[str, str]
) -> tuple[Mount, ...]:
    """The mounts of a container. `environment` is used for `subPathExpr`. A missing sub-path is created as a directory.

    Volumes with projected files are always read-only. The node updates their files, and a link of a pod could mislead it.

    Raises:
        ContainerConfigError: the volume does not exist, or a sub-path is outside of its volume.
    """
    read_only = {volume["name"] for volume in pod["spec"].get("volumes") or () if _PROJECTED_TYPES & volume.keys()}
    mounts = container.get("volumeMounts") or ()
    return tuple(
        _container_mount(mount, volume_paths, environment, read_only=bool(mount.get("readOnly")) or mount["name"] in read_only)
        for mount in mounts
    )


def _container_mount(mount: JsonObject, volume_paths: Mapping[str, Path], environment: Mapping[str, str], *, read_only: bool) -> Mount:
    if mount["name"] not in volume_paths:
        raise ContainerConfigError(f'cannot find volume "{mount["name"]}" to mount into container')
    source = volume_paths[mount["name"]]
    if sub_path := mount.get("subPath") or expand(mount.get("subPathExpr") or "", environment):
        try:
            source = _set_up_sub_path(source, _validate_path(sub_path))
        except VolumeError as error:
            raise ContainerConfigError(str(error)) from error
    return Mount(source, mount["mountPath"], read_only=read_only)


def _set_up_sub_path(volume: Path, part: str) -> Path:
    """A part of a volume, created as a directory if it is missing. Symbolic links must not lead out of the volume.

    The path that is returned has no links: the pod could change them before the path is mounted.
    """
    root, path = volume.resolve(), (volume / part).resolve()
    if not path.is_relative_to(root):
        raise VolumeError(f'failed to prepare subPath for volumeMount: subpath "{path}" not within volume path "{volume}"')
    if not path.exists():
        path.mkdir(parents=True)
    return volume / path.relative_to(root)
