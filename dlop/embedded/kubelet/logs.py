"""The logs of containers: written to files as a container speaks, kept small, and read while they grow.

Each run of a container has a log of its own. When its file has grown to a limit it is put aside and another is begun, and
only a few are kept, so that the loudest container fills neither the disk nor the memory. Readers see the kept files as one.

Everything happens on one event loop and a file is only ever extended by whole lines: a reader finds no half line, and is
woken by the writer when there is more.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import time
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path

import structlog

from dlop.embedded.kubelet.cri_lines import STDERR, STDOUT, LineFramer, LogQuery, LogView

__all__ = ["STDERR", "STDOUT", "ContainerLog", "ContainerLogs", "LogQuery"]

log = structlog.get_logger(__name__)

MOST_BYTES_A_FILE = 10 * 1024 * 1024
MOST_FILES = 5

_PIECE_BYTES = 64 * 1024
# Written between two turns of the event loop, so that a loud container does not keep it from everything else.
_BYTES_A_TURN = 512 * 1024
# Of a container that writes nothing but newlines, each of which becomes a line of forty bytes.
_PIECE_BYTES_OF_SHORT_LINES = 8 * 1024


class ContainerLog:
    """The log of one run of a container."""

    def __init__(
        self,
        path: Path,
        *,
        nanoseconds: Callable[[], int] = time.time_ns,
        most_bytes_a_file: int = MOST_BYTES_A_FILE,
        most_files: int = MOST_FILES,
    ) -> None:
        """`nanoseconds` is a clock: since the epoch."""
        self._path = path
        self._nanoseconds = nanoseconds
        self._most_bytes, self._most_files = most_bytes_a_file, most_files
        self._framers = {name: LineFramer(name) for name in (STDOUT, STDERR)}
        self._readers: set[asyncio.Event] = set()
        # Files are counted: those below `_number` are put aside under their number, the newest has none.
        self._number = self._oldest = 0
        self._file, self._size = _opened(path), 0
        self._piece_bytes = _PIECE_BYTES
        self._is_broken = False
        self.has_ended = False

    # --- writing -----------------------------------------------------------------------------------------------------

    async def pump(self, descriptor: int, stream: str) -> None:
        """Write down what comes out of a pipe or terminal, until its end. The descriptor is closed."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        os.set_blocking(descriptor, False)
        try:
            loop.add_reader(descriptor, self._pump_some, descriptor, stream, ended)
            await ended.wait()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            self._append(self._framers[stream].end(nanoseconds=self._nanoseconds()))

    def write(self, data: bytes, stream: str) -> int:
        """Write down some bytes of a stream. Returns how many it cost: short lines cost many times their length."""
        lines = self._framers[stream].frame(data, nanoseconds=self._nanoseconds())
        self._append(lines)
        return max(len(data), len(lines))

    def end(self) -> None:
        """Nothing more will come: those who follow have reached the end."""
        if not self.has_ended:
            for framer in self._framers.values():
                self._append(framer.end(nanoseconds=self._nanoseconds()))
            self.has_ended = True
            os.close(self._file)
            self._wake()

    def remove(self) -> None:
        """End it and remove its files."""
        self.end()
        for number in range(self._oldest, self._number + 1):
            self._file_path(number).unlink(missing_ok=True)

    def _pump_some(self, descriptor: int, stream: str, ended: asyncio.Event) -> None:
        written = 0
        while written < _BYTES_A_TURN:
            data = _read_ready(descriptor, self._piece_bytes)
            if data is None:
                return
            if not data:
                asyncio.get_running_loop().remove_reader(descriptor)
                ended.set()
                return
            cost = self.write(data, stream)
            self._piece_bytes = _PIECE_BYTES_OF_SHORT_LINES if cost > 8 * len(data) else _PIECE_BYTES
            written += cost

    def _append(self, lines: bytes) -> None:
        if not lines or self.has_ended:
            return
        try:
            if self._size and self._size + len(lines) > self._most_bytes:
                self._rotate()
            _write_all(self._file, lines)
        except OSError as error:
            # A full disk costs the log its lines. It must not cost the container its life.
            os.ftruncate(self._file, self._size)  # no half lines
            if not self._is_broken:
                log.warning("a container's log cannot be written", path=str(self._path), error=str(error))
            self._is_broken = True
            return
        self._is_broken = False
        self._size += len(lines)
        self._wake()

    def _rotate(self) -> None:
        self._path.rename(self._put_aside(self._number))
        os.close(self._file)
        self._number += 1
        self._file, self._size = _opened(self._path), 0
        while self._number - self._oldest >= self._most_files:
            self._put_aside(self._oldest).unlink(missing_ok=True)
            self._oldest += 1

    def _put_aside(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def _file_path(self, number: int) -> Path:
        return self._path if number == self._number else self._put_aside(number)

    # --- reading -----------------------------------------------------------------------------------------------------

    async def read(self, query: LogQuery = LogQuery()) -> AsyncGenerator[bytes, None]:  # noqa: B008 - a constant
        """What was written, in pieces that end anywhere; with `follow` until the container's end."""
        view = LogView(query)
        with contextlib.closing(self._cursor(query)) as cursor:
            while not view.is_full:
                if block := cursor.block():
                    if shown := view.show(block):
                        yield shown
                    await asyncio.sleep(0)
                elif query.follow and not self.has_ended:
                    await self._more()
                else:
                    return

    def text(self, query: LogQuery = LogQuery()) -> bytes:  # noqa: B008 - a constant
        """What there is now, at once: for a few lines."""
        view = LogView(query)
        return b"".join(self._pieces(query, view))

    def _pieces(self, query: LogQuery, view: LogView) -> Generator[bytes, None, None]:
        with contextlib.closing(self._cursor(query)) as cursor:
            while not view.is_full and (block := cursor.block()):
                yield view.show(block)

    def _cursor(self, query: LogQuery) -> _Cursor:
        cursor = _Cursor(self, self._oldest, 0)
        if query.tail_lines is not None:
            cursor.move_to_tail(query.tail_lines)
        if not query.follow:
            # Else a reader would run after a writer who is faster.
            cursor.stop_at(self._number, self._size)
        return cursor

    async def _more(self) -> None:
        event = asyncio.Event()
        self._readers.add(event)
        try:
            await event.wait()
        finally:
            self._readers.discard(event)

    def _wake(self) -> None:
        for event in self._readers:
            event.set()


class _Cursor:
    """A place in the files of a log. An open file is read to its end even if it is removed meanwhile."""

    def __init__(self, owner: ContainerLog, number: int, offset: int) -> None:
        self._owner = owner
        self._number, self._offset = number, offset
        self._end: tuple[int, int] | None = None
        self._file: int | None = None

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def stop_at(self, number: int, size: int) -> None:
        self._end = (number, size)

    def move_to_tail(self, lines: int) -> None:
        missing = lines
        for number in range(self._owner._number, self._owner._oldest - 1, -1):
            with _reading(self._owner._file_path(number)) as file:
                offset, missing = _start_of_last_lines(file, missing)
            self._number, self._offset = number, offset
            if missing == 0:
                return

    def block(self) -> bytes:
        """The next whole lines; empty when there are none, or none yet."""
        while True:
            if block := self._whole_lines():
                return block
            if self._number >= self._owner._number or (self._end is not None and self._number >= self._end[0]):
                return b""
            self.close()
            # Those in between may be gone already.
            self._number, self._offset = max(self._number + 1, self._owner._oldest), 0

    def _whole_lines(self) -> bytes:
        if self._file is None:
            # Nobody else removes files, save a user who clears up by hand.
            try:
                self._file = os.open(self._owner._file_path(self._number), os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return b""
        wanted = _PIECE_BYTES
        if self._end is not None and self._number == self._end[0]:
            wanted = min(wanted, self._end[1] - self._offset)
        data = os.pread(self._file, wanted, self._offset) if wanted > 0 else b""
        block = data[: data.rfind(b"\n") + 1]
        self._offset += len(block)
        return block


class ContainerLogs:
    """The logs of one container of a pod: of its present run and of the one before."""

    def __init__(self, folder: Path, *, nanoseconds: Callable[[], int] = time.time_ns) -> None:
        """`folder` is the container's own, and is made if need be."""
        self._folder = folder
        self._nanoseconds = nanoseconds
        self.current: ContainerLog | None = None
        self.previous: ContainerLog | None = None

    def begin(self, run: int) -> ContainerLog:
        """The log of another run; runs are counted as restarts are, from 0. The last but one is forgotten."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if self.previous is not None:
            self.previous.remove()
        if self.current is not None:
            self.current.end()
        self.previous = self.current
        self.current = ContainerLog(self._folder / f"{run}.log", nanoseconds=self._nanoseconds)
        return self.current

    def end(self) -> None:
        """Nothing more will come."""
        if self.current is not None:
            self.current.end()


def _opened(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o640)


@contextlib.contextmanager
def _reading(path: Path) -> Generator[int, None, None]:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield file
    finally:
        os.close(file)


def _read_ready(descriptor: int, most_bytes: int) -> bytes | None:
    """What can be read now; None: nothing yet; empty: the end."""
    try:
        return os.read(descriptor, most_bytes)
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return b""  # the other side of a terminal is gone


def _write_all(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _start_of_last_lines(file: int, lines: int) -> tuple[int, int]:
    """Where the last `lines` lines begin, and how many there are too few."""
    # One newline more ends the line before them.
    missing, right = lines + 1, os.fstat(file).st_size
    while right > 0:
        left = max(0, right - _PIECE_BYTES)
        block = os.pread(file, right - left, left)
        count = block.count(b"\n")
        if count >= missing:
            place = len(block)
            for _ in range(missing):
                place = block.rfind(b"\n", 0, place)
            return left + place + 1, 0
        missing -= count
        right = left
    return 0, missing - 1
