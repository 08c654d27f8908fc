"""The image map: what images mean on this machine, because there is no registry.

    images:
      - name: "mxnet/python:*"            # a pattern; a name without a tag matches every tag
        command: [python, train.py]       # the entry point, for containers without a command
        python: {requirements: [mxnet==1.9.1], version: "3.11"}
        files: {/app: ./src}              # path in the container: path relative to this file
        env: {OMP_NUM_THREADS: "1"}
        workingDir: /app

A container with a command may use an image that is not in the map. It runs with the programs of the host.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from dlop.kube.types import JsonObject

_KEYS = {"name", "command", "python", "files", "env", "workingDir"}


class ImageMapError(Exception):
    """An image map or an `--image` option is invalid."""


class ImagePullError(Exception):
    """The image of a container is not available on this machine. The message says what to do."""


@dataclass(frozen=True, slots=True)
class PythonEnvironment:
    """The Python packages of an image."""

    requirements: tuple[str, ...] = ()
    version: str = ""
    """Such as 3.11; empty for the version that runs this program."""
    requirement_files: tuple[Path, ...] = ()
    """Installed with `pip install -r`, in the directory of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    name: str
    """A name or pattern, with or without a tag."""
    command: tuple[str, ...] = ()
    python: PythonEnvironment | None = None
    files: Mapping[str, Path] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    working_dir: str | None = None

    def matches(self, image: str) -> bool:
        return fnmatchcase(image, self.name) or fnmatchcase(_without_tag(image), self.name)


def _without_tag(image: str) -> str:
    image = image.partition("@")[0]
    repository, slash, last = image.rpartition("/")
    return f"{repository}{slash}{last.partition(':')[0]}"


class ImageMap:
    """The images of a node. The first match applies."""

    def __init__(self, images: Iterable[Image] = ()) -> None:
        self._images = tuple(images)

    def find(self, name: str) -> Image | None:
        return next((image for image in self._images if image.matches(name)), None)

    def resolve(self, container: JsonObject) -> Image:
        """The image of a container.

        Raises:
            ImagePullError: neither the map nor the container has a command.
        """
        name = container.get("image", "")
        image = self.find(name)
        if image is None and container.get("command"):
            return Image(name=name)
        if image is None:
            raise ImagePullError(
                f'image "{name}" is not in the image map, and the container has no command; '
                f"pass --image {shlex.quote(name)}=PATH, or add an entry to the image map: "
                f'- {{name: "{name}", command: [PROGRAM, ARGUMENT]}}'
            )
        if not image.command and not container.get("command"):
            raise ImagePullError(
                f'image "{name}" has no command in the image map, and the container has none; '
                f'add to the entry "{image.name}" of the image map: command: [PROGRAM, ARGUMENT]'
            )
        return image


def command_line(container: JsonObject, image: Image) -> tuple[str, ...]:
    """The command and its arguments before expansion. The container's command replaces the image's command and arguments."""
    return (*(container.get("command") or image.command), *(container.get("args") or ()))


# --- parsing --------------------------------------------------------------------------------------------------------------


def read_images(path: Path) -> list[Image]:
    """Read an image map.

    Raises:
        ImageMapError: the file cannot be read or is invalid.
    """
    try:
        data = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ImageMapError(f"cannot read the image map {path}: {error}") from error
    entries = data.get("images") if isinstance(data, dict) else None
    if not isinstance(entries, list):
        raise ImageMapError(f"{path}: `images` must be a list")
    return [_parse_image(entry, where=f"{path}: images[{index}]", directory=path.parent) for index, entry in enumerate(entries)]


def _parse_image(entry: Any, *, where: str, directory: Path) -> Image:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise ImageMapError(f"{where}: must be an object with a `name`")
    if unknown := sorted(set(map(str, entry)) - _KEYS):
        raise ImageMapError(f"{where}: unknown key `{unknown[0]}`; valid keys: {', '.join(sorted(_KEYS))}")
    files = _typed_value(entry, "files", dict, where) or {}
    return Image(
        name=entry["name"],
        command=tuple(map(str, _typed_value(entry, "command", list, where) or ())),
        python=_parse_python(_typed_value(entry, "python", dict, where), where=where),
        files={str(target): (directory / str(source)).resolve() for target, source in files.items()},
        environment={str(name): str(value) for name, value in (_typed_value(entry, "env", dict, where) or {}).items()},
        working_dir=_typed_value(entry, "workingDir", str, where),
    )


def _typed_value(entry: dict[str, Any], key: str, type_: type, where: str) -> Any:
    value = entry.get(key)
    if value is not None and not isinstance(value, type_):
        type_names: dict[type, str] = {dict: "an object", list: "a list", str: "a string"}
        raise ImageMapError(f"{where}.{key}: must be {type_names[type_]}, got {value!r}")
    return value


def _parse_python(entry: dict[str, Any] | None, *, where: str) -> PythonEnvironment | None:
    if entry is None:
        return None
    requirements = _typed_value(entry, "requirements", list, f"{where}.python") or []
    return PythonEnvironment(tuple(map(str, requirements)), str(entry.get("version") or ""))


def parse_image_option(text: str) -> Image:
    """Parse `--image NAME=PATH`. The path is a working directory, maybe with a requirements.txt, or a program.

    Raises:
        ImageMapError: the option is invalid, or the path does not exist.
    """
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise ImageMapError(f"--image {text}: must have the form NAME=PATH")
    path = Path(value).expanduser().resolve()
    if path.is_dir():
        return Image(name=name, python=_directory_python(path), working_dir=str(path))
    if not path.is_file():
        raise ImageMapError(f"--image {text}: {path} does not exist")
    is_executable = os.access(path, os.X_OK)
    return Image(name=name, command=(str(path),) if is_executable else ("python", str(path)), working_dir=str(path.parent))


def _directory_python(directory: Path) -> PythonEnvironment | None:
    file = directory / "requirements.txt"
    return PythonEnvironment(requirement_files=(file,)) if file.is_file() else None
