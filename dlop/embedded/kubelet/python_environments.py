"""Python environments of images: created once from their requirements, then cached.

Each is a virtual environment in a directory that is named after a digest of its requirements. Concurrent users, also in other
processes, wait until it is created.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TextIO

import structlog

from dlop.embedded.kubelet.image_map import ImagePullError, PythonEnvironment

log = structlog.get_logger(__name__)

_READY = ".ready"
_ERROR_LINES = 5
_LOCK_POLL_SECONDS = 0.2
_LINE_CONTINUATION = re.compile(r"\\\r?\n")
_NESTED_FILE = re.compile(r"^\s*(?:-r|-c|--requirement\b|--constraint\b)[ \t=]*(\S+)", re.MULTILINE)


def default_cache_dir() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "dlop" / "environments"


class PythonEnvironments:
    """The environments in one cache directory."""

    def __init__(self, cache_dir: Path, *, report: Callable[[str], None] = log.info) -> None:
        """`report` is called with progress messages."""
        self._cache_dir = cache_dir
        self._report = report
        self._locks: dict[str, asyncio.Lock] = {}

    def is_ready(self, environment: PythonEnvironment) -> bool:
        return _is_ready(self._path(environment))

    async def ensure(self, environment: PythonEnvironment) -> Path:
        """Create the environment if it does not exist. Returns the directory of its `python`.

        Raises:
            ImagePullError: the environment could not be created.
        """
        path = self._path(environment)
        if not _is_ready(path):
            async with self._locks.setdefault(path.name, asyncio.Lock()), _file_lock(path.with_suffix(".lock")):
                if not _is_ready(path):
                    await self._create(path, environment)
        return path / "bin"

    def _path(self, environment: PythonEnvironment) -> Path:
        version = environment.version or f"{sys.version_info.major}.{sys.version_info.minor}"
        digest = hashlib.sha256("\n".join([version, *sorted(environment.requirements)]).encode())
        for root in environment.requirement_files:
            for file, content in _requirement_file_contents(root):
                # The path is part of the key, because a requirement may be a path relative to it.
                digest.update(f"\n{file}\n".encode(errors="surrogateescape") + content)
        return self._cache_dir / digest.hexdigest()[:24]

    async def _create(self, path: Path, environment: PythonEnvironment) -> None:
        names = [*environment.requirements, *map(str, environment.requirement_files)]
        self._report(f"creating a Python environment with {', '.join(names) or 'no packages'}")
        await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)
        await self._run(_find_python(environment.version), "-m", "venv", str(path))
        install = (str(path / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", "--no-input")
        if environment.requirements:
            await self._run(*install, *environment.requirements)
        for file in environment.requirement_files:
            await self._run(*install, "-r", str(file), cwd=file.parent)
        (path / _READY).touch()
        self._report("the Python environment is ready")

    async def _run(self, *argv: str, cwd: Path | None = None) -> None:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=cwd,
            start_new_session=True,
        )
        last_lines: list[str] = []
        try:
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            async for line in process.stdout:
                text = line.decode(errors="replace").rstrip()
                last_lines = [*last_lines, text][-_ERROR_LINES:]
                self._report(text)
            code = await process.wait()
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if code:
            raise ImagePullError(f"failed to create the Python environment of the image: {' '.join(last_lines)}")


def _is_ready(path: Path) -> bool:
    return (path / _READY).exists()


def _find_python(version: str) -> str:
    if not version or version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    program = shutil.which(f"python{version}")
    if program is None:
        raise ImagePullError(f"the image requires Python {version}, but there is no python{version} on the PATH of this machine")
    return program


def _requirement_file_contents(root: Path) -> Iterator[tuple[Path, bytes]]:
    """A requirements file and the files that it includes with -r and -c. Unreadable files are empty; pip reports them."""
    pending, seen = [root.absolute()], set[Path]()
    while pending:
        file = pending.pop()
        if file in seen:
            continue
        seen.add(file)
        content = b""
        with contextlib.suppress(OSError):
            content = file.read_bytes()
        yield file, content
        text = _LINE_CONTINUATION.sub("", content.decode(errors="replace"))
        nested = (name.strip("\"'") for name in _NESTED_FILE.findall(text))
        pending += [Path(os.path.normpath(file.parent / name)) for name in nested if "://" not in name]


@contextlib.asynccontextmanager
async def _file_lock(path: Path) -> AsyncIterator[None]:
    """Exclude other processes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        while not _try_lock(file):  # noqa: ASYNC110 - see below
            # There is no notification when the lock is released, and a thread that blocks on it could not be cancelled.
            await asyncio.sleep(_LOCK_POLL_SECONDS)
        yield


def _try_lock(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
