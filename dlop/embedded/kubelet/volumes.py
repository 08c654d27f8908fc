"""The volumes of a pod: first a plan (pure), then folders and files, then what each container sees of them.

A volume is one of three things: an empty folder of the pod, a path of the host, or files that are written when the pod starts
and again when what they are made of has changed. Kinds of volumes that need a storage system are told as problems, as a kubelet tells them.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from dlop.embedded.kubelet.environment import ConfigurationProblem, DownwardValues, Sources, expanded, field_value, resource_value
from dlop.embedded.kubelet.runtime.base import Mount
from dlop.kube.types import JsonObject

_FILE_MODE = 0o644


class VolumeProblem(Exception):  # noqa: N818 - it is the user's to solve
    """A volume cannot be made. The message is the kubelet's."""


@dataclass(frozen=True, slots=True)
class EmptyFolder:
    """A folder that lives and dies with the pod."""


@dataclass(frozen=True, slots=True)
class HostPath:
    """A file or folder of the host, as it is."""

    path: Path
    type: str = ""


@dataclass(frozen=True, slots=True)
class File:
    """A file to write."""

    content: bytes
    mode: int = _FILE_MODE


@dataclass(frozen=True, slots=True)
class Files:
    """Files by their paths in the volume."""

    files: Mapping[str, File]


VolumePlan: TypeAlias = EmptyFolder | HostPath | Files


@dataclass(frozen=True, slots=True)
class VolumeInputs:
    """What the plans are made from."""

    place: DownwardValues
    sources: Sources
    tokens: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Tokens of the pod's service account, by volume and path."""


# --- what has to be looked up ---------------------------------------------------------------------------------------------


def named_sources(pod: JsonObject) -> tuple[frozenset[str], frozenset[str]]:
    """The names of the config maps and of the secrets that the pod's volumes are made of."""
    config_maps: set[str] = set()
    secrets: set[str] = set()
    for volume in pod["spec"].get("volumes") or ():
        for source in (volume, *((volume.get("projected") or {}).get("sources") or ())):
            if part := source.get("configMap"):
                config_maps.add(part.get("name", ""))
            if part := source.get("secret"):
                secrets.add(_secret_name(part))
    return frozenset(config_maps), frozenset(secrets)


def wanted_tokens(pod: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """The volumes, and what each wants to know of a service account token."""
    for volume in pod["spec"].get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            if token := source.get("serviceAccountToken"):
                yield volume["name"], token


def _secret_name(part: JsonObject) -> str:
    # A volume calls it secretName, a projection name.
    return str(part.get("secretName") or part.get("name") or "")


# --- planning -------------------------------------------------------------------------------------------------------------


def planned(pod: JsonObject, volume: JsonObject, inputs: VolumeInputs) -> VolumePlan:
    """What becomes of a volume.

    Raises:
        VolumeProblem: it cannot be made, now or ever.
    """
    if "emptyDir" in volume or len(volume) == 1:
        return EmptyFolder()
    if source := volume.get("hostPath"):
        return HostPath(Path(source["path"]), source.get("type") or "")
    try:
        if "configMap" in volume or "secret" in volume or "downwardAPI" in volume:
            return Files(_projection(pod, volume, inputs, volume_name=volume["name"], default_mode=_default_mode(volume)))
        if source := volume.get("projected"):
            return Files(_projected(pod, volume["name"], source, inputs))
    except ConfigurationProblem as problem:
        raise VolumeProblem(str(problem)) from problem
    kind = next(name for name in volume if name != "name")
    raise VolumeProblem(f"volumes of the kind {kind} do not exist on this node; use emptyDir or hostPath")


def _default_mode(volume: JsonObject) -> int:
    source = volume.get("configMap") or volume.get("secret") or volume.get("downwardAPI") or {}
    return int(source.get("defaultMode") or _FILE_MODE)


def _projected(pod: JsonObject, volume_name: str, projected: JsonObject, inputs: VolumeInputs) -> dict[str, File]:
    files: dict[str, File] = {}
    mode = int(projected.get("defaultMode") or _FILE_MODE)
    for source in projected.get("sources") or ():
        files |= _projection(pod, source, inputs, volume_name=volume_name, default_mode=mode)
    return files


def _projection(pod: JsonObject, source: JsonObject, inputs: VolumeInputs, *, volume_name: str, default_mode: int) -> dict[str, File]:
    if part := source.get("configMap"):
        return _keys(_config_map_files(part, inputs.sources), part, default_mode=default_mode)
    if part := source.get("secret"):
        return _keys(_secret_files(part, inputs.sources), part, default_mode=default_mode)
    if "downwardAPI" in source:
        return _downward(pod, source["downwardAPI"] or {}, inputs.place, default_mode=default_mode)
    if part := source.get("serviceAccountToken"):
        token = inputs.tokens.get((volume_name, part["path"]), "")
        return {_safe(part["path"]): File(token.encode(), 0o600)}
    raise VolumeProblem(f"projections of the kind {next(iter(source), 'nothing')} do not exist on this node")


def _config_map_files(part: JsonObject, sources: Sources) -> dict[str, bytes] | None:
    found = sources.config_maps.get(part.get("name", ""))
    if found is None and part.get("optional"):
        return None
    if found is None:
        raise VolumeProblem(f'configmap "{part.get("name", "")}" not found')
    text = {key: value.encode() for key, value in (found.get("data") or {}).items()}
    binary = {key: base64.b64decode(value) for key, value in (found.get("binaryData") or {}).items()}
    return text | binary


def _secret_files(part: JsonObject, sources: Sources) -> dict[str, bytes] | None:
    found = sources.secrets.get(_secret_name(part))
    if found is None and part.get("optional"):
        return None
    if found is None:
        raise VolumeProblem(f'secret "{_secret_name(part)}" not found')
    return {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}


def _keys(data: Mapping[str, bytes] | None, part: JsonObject, *, default_mode: int) -> dict[str, File]:
    """All keys as files of their names, or those that `items` picks, under the paths that it gives."""
    items = part.get("items")
    if data is None:
        return {}
    if not items:
        return {_safe(key): File(content, default_mode) for key, content in data.items()}
    files: dict[str, File] = {}
    for item in items:
        if item["key"] in data:
            files[_safe(item["path"])] = File(data[item["key"]], int(item.get("mode") or default_mode))
        elif not part.get("optional"):
            kind = "secret" if "secretName" in part else "config"
            raise VolumeProblem(f"references non-existent {kind} key: {item['key']}")
    return files


def _downward(pod: JsonObject, part: JsonObject, place: DownwardValues, *, default_mode: int) -> dict[str, File]:
    files: dict[str, File] = {}
    for item in part.get("items") or ():
        if reference := item.get("fieldRef"):
            text = field_value(pod, reference["fieldPath"], place=place)
        else:
            text = resource_value(pod, None, item["resourceFieldRef"], place=place)
        files[_safe(item["path"])] = File(text.encode(), int(item.get("mode") or default_mode))
    return files


def _safe(path: str) -> str:
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts or "\0" in path:
        raise VolumeProblem(f"invalid path {path}: it must stay inside of the volume")
    return str(pure)


# --- making ---------------------------------------------------------------------------------------------------------------


def make(plan: VolumePlan, folder: Path) -> Path:
    """Make a volume at `folder`, or bring the one that is there up to date, and say where it is.

    Raises:
        VolumeProblem: the host does not have what the volume needs.
    """
    if isinstance(plan, HostPath):
        return _host_path(plan)
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)
    if isinstance(plan, Files):
        for path, file in plan.files.items():
            _write(folder / path, file)
        _remove_others(folder, plan.files)
    return folder


def _write(path: Path, file: File) -> None:
    """Write a file, or another version of it: who reads it has the one or the other."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"..{path.name}.new")
    new.unlink(missing_ok=True)
    new.touch(mode=0o600)
    new.write_bytes(file.content)
    new.chmod(file.mode)
    new.replace(path)


def _remove_others(folder: Path, kept: Mapping[str, File]) -> None:
    for path in folder.rglob("*"):
        if path.is_file() and str(path.relative_to(folder)) not in kept:
            path.unlink()


def _host_path(plan: HostPath) -> Path:
    path, wanted = plan.path, plan.type
    if "\0" in str(path):
        raise VolumeProblem(f"invalid path {path}: it has a null byte")
    if wanted == "DirectoryOrCreate" or (wanted == "" and not path.exists()):
        path.mkdir(parents=True, exist_ok=True)
    elif wanted == "FileOrCreate" and not path.exists():
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
    if wanted in checks and not checks[wanted][0]():
        raise VolumeProblem(f"hostPath type check failed: {path} {checks[wanted][1]}")
    return path


# --- what a container sees ------------------------------------------------------------------------------------------------


def mounts(container: JsonObject, *, made: Mapping[str, Path], known: Mapping[str, str]) -> tuple[Mount, ...]:
    """The mounts of a container; `known` are its variables, for `subPathExpr`. A missing sub-path is made a folder.

    Raises:
        ConfigurationProblem: a sub-path leads out of its volume, or the volume does not exist.
    """
    return tuple(_mount(each, made, known) for each in container.get("volumeMounts") or ())


def _mount(mount: JsonObject, made: Mapping[str, Path], known: Mapping[str, str]) -> Mount:
    if mount["name"] not in made:
        raise ConfigurationProblem(f'cannot find volume "{mount["name"]}" to mount into container')
    source = made[mount["name"]]
    if sub_path := mount.get("subPath") or expanded(mount.get("subPathExpr") or "", known):
        try:
            source = _sub_path(source, _safe(sub_path))
        except VolumeProblem as problem:
            raise ConfigurationProblem(str(problem)) from problem
    return Mount(source, mount["mountPath"], read_only=bool(mount.get("readOnly")))


def _sub_path(volume: Path, part: str) -> Path:
    """A part of a volume, which is made a folder if it is missing. Links are followed, but not out of the volume."""
    path = volume / part
    if not path.resolve().is_relative_to(volume.resolve()):
        raise VolumeProblem(f'failed to prepare subPath for volumeMount: subpath "{path.resolve()}" not within volume path "{volume}"')
    if not path.exists():
        path.mkdir(parents=True)
    return path
