"""What an image means on this machine. There is no registry: a map says it.

    images:
      - name: "mxnet/python:*"            # a pattern; a name without a tag means every tag
        command: [python, train.py]       # the entry point, for pods that give no command
        python: {requirements: [mxnet==1.9.1], version: "3.11"}
        files: {/app: ./src}              # path in the container: path beside this file
        env: {OMP_NUM_THREADS: "1"}
        workingDir: /app

An image that the map does not know is no problem for a container that says what to run: it runs on the host's own programs.
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
    """An image map or an `--image` makes no sense: the message says what and where."""


class ImageProblem(Exception):  # noqa: N818 - it is the user's to solve
    """There is no such image here. The message says what to do."""


@dataclass(frozen=True, slots=True)
class PythonEnvironment:
    """Packages that an image has."""

    requirements: tuple[str, ...]
    version: str = ""
    """Such as 3.11; empty for the one that runs this program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What is known under an image's name."""

    name: str
    command: tuple[str, ...] = ()
    python: PythonEnvironment | None = None
    files: Mapping[str, Path] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    working_folder: str | None = None

    def matches(self, image: str) -> bool:
        """Whether an image is meant by this name."""
        return fnmatchcase(image, self.name) or fnmatchcase(_without_tag(image), self.name)


def _without_tag(image: str) -> str:
    image = image.partition("@")[0]
    folder, slash, last = image.rpartition("/")
    return f"{folder}{slash}{last.partition(':')[0]}"


class ImageMap:
    """The images of a node. The first that matches is meant."""

    def __init__(self, images: Iterable[Image] = ()) -> None:
        self._images = tuple(images)

    def find(self, image: str) -> Image | None:
        """What is meant by an image, if anything is."""
        return next((each for each in self._images if each.matches(image)), None)

    def meant_by(self, container: JsonObject) -> Image:
        """The image of a container.

        Raises:
            ImageProblem: nothing is known of it, and the container does not say what to run.
        """
        name = container.get("image", "")
        found = self.find(name)
        if found is None and container.get("command"):
            return Image(name=name)
        if found is None:
            raise ImageProblem(
                f'nothing is known here of the image "{name}", and the container names no command: '
                f"say --image {shlex.quote(name)}=PATH, or add a line to the image map: "
                f'- {{name: "{name}", command: [PROGRAM, ARGUMENT]}}'
            )
        if not found.command and not container.get("command"):
            raise ImageProblem(
                f'the image "{name}" has no command here, and the container names none: '
                f'add to the line "{found.name}" of the image map: command: [PROGRAM, ARGUMENT]'
            )
        return found


def command_line(container: JsonObject, image: Image) -> tuple[str, ...]:
    """The command and its arguments before expansion. A command of the pod's own replaces the image's arguments too."""
    return (*(container.get("command") or image.command), *(container.get("args") or ()))


# --- reading --------------------------------------------------------------------------------------------------------------


def read_images(path: Path) -> list[Image]:
    """The images of a map's file.

    Raises:
        ImageMapError: it cannot be read, or does not say what it should.
    """
    try:
        data = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ImageMapError(f"the image map {path} cannot be read: {error}") from error
    entries = data.get("images") if isinstance(data, dict) else None
    if not isinstance(entries, list):
        raise ImageMapError(f"{path}: a list under the key `images` is expected")
    return [_image(entry, where=f"{path}: images[{index}]", folder=path.parent) for index, entry in enumerate(entries)]


def _image(entry: Any, *, where: str, folder: Path) -> Image:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise ImageMapError(f"{where}: an entry with a `name` is expected")
    if unknown := sorted(set(map(str, entry)) - _KEYS):
        raise ImageMapError(f"{where}: unknown key `{unknown[0]}`; the keys are {', '.join(sorted(_KEYS))}")
    files = _typed(entry, "files", dict, where) or {}
    return Image(
        name=entry["name"],
        command=tuple(map(str, _typed(entry, "command", list, where) or ())),
        python=_python(_typed(entry, "python", dict, where), where=where),
        files={str(target): (folder / str(source)).resolve() for target, source in files.items()},
        environment={str(name): str(value) for name, value in (_typed(entry, "env", dict, where) or {}).items()},
        working_folder=_typed(entry, "workingDir", str, where),
    )


def _typed(entry: dict[str, Any], key: str, kind: type, where: str) -> Any:
    value = entry.get(key)
    if value is not None and not isinstance(value, kind):
        words: dict[type, str] = {dict: "a mapping", list: "a list", str: "a text"}
        raise ImageMapError(f"{where}.{key}: {words[kind]} is expected, not {value!r}")
    return value


def _python(entry: dict[str, Any] | None, *, where: str) -> PythonEnvironment | None:
    if entry is None:
        return None
    requirements = _typed(entry, "requirements", list, f"{where}.python") or []
    return PythonEnvironment(tuple(map(str, requirements)), str(entry.get("version") or ""))


def image_option(text: str) -> Image:
    """The image of `--image NAME=PATH`: a folder to work in (with its requirements.txt), or a program to run.

    Raises:
        ImageMapError: it says something else.
    """
    name, equals, place = text.partition("=")
    if not name or not equals or not place:
        raise ImageMapError(f"--image {text}: NAME=PATH is expected")
    path = Path(place).expanduser().resolve()
    if path.is_dir():
        return Image(name=name, python=_folder_python(path), working_folder=str(path))
    if not path.is_file():
        raise ImageMapError(f"--image {text}: there is no {path}")
    runs_alone = os.access(path, os.X_OK)
    return Image(name=name, command=(str(path),) if runs_alone else ("python", str(path)), working_folder=str(path.parent))


def _folder_python(folder: Path) -> PythonEnvironment | None:
    listed = folder / "requirements.txt"
    if not listed.is_file():
        return None
    lines = (line.partition(" #")[0].strip() for line in listed.read_text().splitlines())
    return PythonEnvironment(tuple(line for line in lines if line and not line.startswith("#")))
