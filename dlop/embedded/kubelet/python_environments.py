"""Python environments of images: made once from a list of requirements, then kept.

Each is a virtual environment in a folder that is named after what is in it. Making one takes a while, so whoever wants it
waits for the one who makes it, in this process or in another.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TextIO

import structlog

from dlop.embedded.kubelet.image_map import ImageProblem, PythonEnvironment

log = structlog.get_logger(__name__)

_READY = ".ready"
_TOLD_LINES = 5
_LOCK_SECONDS = 0.2


def default_cache_folder() -> Path:
    """Where environments are kept if nobody says otherwise."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "dlop" / "environments"


class PythonEnvironments:
    """The environments in one folder."""

    def __init__(self, folder: Path, *, tell: Callable[[str], None] = log.info) -> None:
        """`tell` is given lines that say how the making goes on."""
        self._folder = folder
        self._tell = tell
        self._locks: dict[str, asyncio.Lock] = {}

    def is_ready(self, wanted: PythonEnvironment) -> bool:
        """Whether it exists already."""
        return (self._place(wanted) / _READY).exists()

    async def programs(self, wanted: PythonEnvironment) -> Path:
        """The folder with the environment's `python`, which is made if need be.

        Raises:
            ImageProblem: it could not be made.
        """
        place = self._place(wanted)
        if not self.is_ready(wanted):
            async with self._locks.setdefault(place.name, asyncio.Lock()), _file_lock(place.with_suffix(".lock")):
                if not self.is_ready(wanted):
                    await self._make(place, wanted)
        return place / "bin"

    def _place(self, wanted: PythonEnvironment) -> Path:
        version = wanted.version or f"{sys.version_info.major}.{sys.version_info.minor}"
        text = "\n".join([version, *sorted(wanted.requirements)])
        return self._folder / hashlib.sha256(text.encode()).hexdigest()[:24]

    async def _make(self, place: Path, wanted: PythonEnvironment) -> None:
        self._tell(f"making a Python environment with {', '.join(wanted.requirements) or 'no packages'}")
        await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)
        await self._run(_python(wanted.version), "-m", "venv", str(place))
        if wanted.requirements:
            install = ("-m", "pip", "install", "--disable-pip-version-check", "--no-input", *wanted.requirements)
            await self._run(str(place / "bin" / "python"), *install)
        (place / _READY).touch()
        self._tell("the Python environment is ready")

    async def _run(self, *argv: str) -> None:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        last: list[str] = []
        try:
            assert process.stdout is not None  # noqa: S101 - a pipe was asked for
            async for line in process.stdout:
                text = line.decode(errors="replace").rstrip()
                last = [*last, text][-_TOLD_LINES:]
                self._tell(text)
            code = await process.wait()
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if code:
            raise ImageProblem(f"the image's Python environment could not be made: {' '.join(last)}")


def _python(version: str) -> str:
    if not version or version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    found = shutil.which(f"python{version}")
    if found is None:
        raise ImageProblem(f"the image wants Python {version}, and there is no python{version} on this machine's PATH")
    return found


@contextlib.asynccontextmanager
async def _file_lock(path: Path) -> AsyncIterator[None]:
    """Held by one process at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        while not _is_locked(file):  # noqa: ASYNC110 - see below
            # Other processes tell nobody when they let go, and a thread that waits for it could not be called off.
            await asyncio.sleep(_LOCK_SECONDS)
        yield


def _is_locked(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
