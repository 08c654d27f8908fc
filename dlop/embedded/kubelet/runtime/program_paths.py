"""Which directories of the host are hidden from pods, and which programs in them pods see nevertheless, read-only.

A Python installation is often in the user's home: the one that runs this program, a virtual environment, or that of a version manager.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from dlop.embedded.kubelet.runtime.base import Mount

HIDDEN_DIRS = ("/home", "/root", "/run", "/var/run")
"""Pods see empty directories in their place. The home of the current user and /tmp are private to the pod, wherever they are."""
_TMP = Path("/tmp")  # noqa: S108 - private to the pod
_PACKAGE = Path(__file__).parents[3]


def user_home() -> Path | None:
    """The home of the current user. None if it is the root directory, which cannot be hidden."""
    home = Path(os.path.realpath(Path.home()))
    return None if home == Path("/") else home


def contains_hidden_dir(path: Path) -> bool:
    """Whether a path is a hidden directory, or one above it."""
    return any(directory.is_relative_to(path) for directory in _hidden_dirs())


def hidden_mounts(paths: Iterable[Path], *, mounts: Sequence[Mount] = ()) -> list[Mount]:
    """Read-only mounts of those paths that pods would not see. `mounts` are other mounts of the pods.

    A path that contains a whole hidden directory is left out.
    """
    hidden_dirs = _hidden_dirs()
    visible = [Path(mount.target) for mount in mounts]
    result = []
    for path in sorted(set(paths)):
        is_hidden = any(Path(os.path.realpath(path)).is_relative_to(directory) for directory in hidden_dirs)
        if is_hidden and not contains_hidden_dir(path) and not any(map(path.is_relative_to, visible)):
            visible.append(path)
            result.append(Mount.at_same_path(path, read_only=True))
    return result


def _hidden_dirs() -> set[Path]:
    return {Path(os.path.realpath(directory)) for directory in HIDDEN_DIRS} | {_TMP, user_home() or _TMP}


def program_mounts(mounts: Sequence[Mount]) -> list[Mount]:
    """Mounts of the Python that runs this program with its packages, and of the `python` on the PATH."""
    return hidden_mounts(_program_paths(), mounts=mounts)


def interpreter_paths(program: Path) -> Iterator[Path]:
    """The installation directories of an interpreter and of those that it links to, as a virtual environment does.

    Of a link in another directory, such as ~/.local/bin, only that directory: the one above it may contain anything.
    """
    while program.is_symlink():
        is_virtual = (program.parent.parent / "pyvenv.cfg").exists()
        yield program.parent.parent if is_virtual else program.parent
        program = Path(os.path.normpath(program.parent / program.readlink()))
    yield program.parent.parent


def _program_paths() -> Iterator[Path]:
    yield from (_PACKAGE, Path(sys.prefix), Path(sys.base_prefix))
    yield from (path for path in map(Path, sys.path) if path.is_absolute() and path.is_dir())
    for program in (sys.executable, shutil.which("python"), shutil.which("python3")):
        if program:
            yield from interpreter_paths(Path(program))
