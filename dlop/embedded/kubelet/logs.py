"""Log files of containers.

Each run of a container has its own log. A file that reaches the size limit is rotated, and only a few files are kept, so that a
verbose container fills neither the disk nor the memory. Readers see the kept files as one.

Everything happens on one event loop, and a file only grows by complete lines. A reader never sees a partial line and is woken up by the
writer.
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

from dlop.embedded.kubelet.cri_lines import STDERR, STDOUT, CriLineDecoder, CriLineEncoder, LogQuery

__all__ = ["STDERR", "STDOUT", "ContainerLog", "ContainerLogs", "LogQuery"]

log = structlog.get_logger(__name__)

MAX_FILE_BYTES = 10 * 1024 * 1024
MAX_FILES = 5

_CHUNK_BYTES = 64 * 1024
# Limits the work per turn of the event loop, so that a verbose container does not block other tasks.
_MAX_BYTES_PER_TURN = 512 * 1024
# For a container that writes only newlines, each of which becomes a line of forty bytes.
_CHUNK_BYTES_OF_SHORT_LINES = 8 * 1024


class ContainerLog:
    """The log of one run of a container."""

    def __init__(
        self,
        path: Path,
        *,
        clock_ns: Callable[[], int] = time.time_ns,
        max_file_bytes: int = MAX_FILE_BYTES,
        max_files: int = MAX_FILES,
    ) -> None:
        """`clock_ns` returns nanoseconds since the epoch."""
        self._path = path
        self._clock_ns = clock_ns
        self._max_bytes, self._max_files = max_file_bytes, max_files
        self._encoders = {name: CriLineEncoder(name) for name in (STDOUT, STDERR)}
        self._readers: set[asyncio.Event] = set()
        # Files are numbered. Rotated files have their number as a suffix; the newest has no suffix.
        self._newest = self._oldest = 0
        self._file, self._size = _create_log_file(path), 0
        self._chunk_bytes = _CHUNK_BYTES
        self._has_write_error = False
        self.is_closed = False

    # --- writing -----------------------------------------------------------------------------------------------------

    async def pump(self, fd: int, stream: str) -> None:
        """Copy the output of a pipe or terminal to the log until its end, then close the descriptor."""
        loop, eof = asyncio.get_running_loop(), asyncio.Event()
        os.set_blocking(fd, False)
        try:
            loop.add_reader(fd, self._read_available, fd, stream, eof)
            await eof.wait()
        finally:
            loop.remove_reader(fd)
            os.close(fd)
            self._append(self._encoders[stream].flush(nanoseconds=self._clock_ns()))

    def write(self, data: bytes, stream: str) -> int:
        """Write output of a stream. Returns the number of bytes written to the file, or of `data` if that is more."""
        lines = self._encoders[stream].encode(data, nanoseconds=self._clock_ns())
        self._append(lines)
        return max(len(data), len(lines))

    def close(self) -> None:
        """Mark the end of the log. Readers that follow it stop."""
        if not self.is_closed:
            for encoder in self._encoders.values():
                self._append(encoder.flush(nanoseconds=self._clock_ns()))
            self.is_closed = True
            os.close(self._file)
            self._wake()

    def delete(self) -> None:
        """Close the log and delete its files."""
        self.close()
        for number in range(self._oldest, self._newest + 1):
            self._file_path(number).unlink(missing_ok=True)

    def _read_available(self, fd: int, stream: str, eof: asyncio.Event) -> None:
        written = 0
        while written < _MAX_BYTES_PER_TURN:
            data = _read_ready(fd, self._chunk_bytes)
            if data is None:
                return
            if not data:
                asyncio.get_running_loop().remove_reader(fd)
                eof.set()
                return
            cost = self.write(data, stream)
            self._chunk_bytes = _CHUNK_BYTES_OF_SHORT_LINES if cost > 8 * len(data) else _CHUNK_BYTES
            written += cost

    def _append(self, lines: bytes) -> None:
        if not lines or self.is_closed:
            return
        try:
            if self._size and self._size + len(lines) > self._max_bytes:
                self._rotate()
            _write_all(self._file, lines)
        except OSError as error:
            # A full disk loses lines of the log, but must not stop the container.
            os.ftruncate(self._file, self._size)  # remove a partial line
            if not self._has_write_error:
                log.warning("container log write failed", path=str(self._path), error=str(error))
            self._has_write_error = True
            return
        self._has_write_error = False
        self._size += len(lines)
        self._wake()

    def _rotate(self) -> None:
        self._path.rename(self._rotated_path(self._newest))
        os.close(self._file)
        self._newest += 1
        self._file, self._size = _create_log_file(self._path), 0
        while self._newest - self._oldest >= self._max_files:
            self._rotated_path(self._oldest).unlink(missing_ok=True)
            self._oldest += 1

    def _rotated_path(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def _file_path(self, number: int) -> Path:
        return self._path if number == self._newest else self._rotated_path(number)

    # --- reading -----------------------------------------------------------------------------------------------------

    async def read(self, query: LogQuery = LogQuery()) -> AsyncGenerator[bytes, None]:  # noqa: B008 - a constant
        """The output in chunks that may end anywhere. With `follow`, until the log is closed."""
        decoder = CriLineDecoder(query)
        with contextlib.closing(self._cursor(query)) as cursor:
            while not decoder.limit_reached:
                if block := cursor.next_block():
                    if output := decoder.decode(block):
                        yield output
                    await asyncio.sleep(0)
                elif query.follow and not self.is_closed:
                    await self._wait_for_data()
                else:
                    return

    def read_available(self, query: LogQuery = LogQuery()) -> bytes:  # noqa: B008 - a constant
        """Read without waiting. For a few lines only, because it blocks the event loop."""
        decoder = CriLineDecoder(query)
        return b"".join(self._chunks(query, decoder))

    def _chunks(self, query: LogQuery, decoder: CriLineDecoder) -> Generator[bytes, None, None]:
        with contextlib.closing(self._cursor(query)) as cursor:
            while not decoder.limit_reached and (block := cursor.next_block()):
                yield decoder.decode(block)

    def _cursor(self, query: LogQuery) -> _Cursor:
        cursor = _Cursor(self, self._oldest, 0)
        if query.tail_lines is not None:
            cursor.move_to_tail(query.tail_lines)
        if not query.follow:
            # Otherwise a reader might never catch up with the writer.
            cursor.set_end(self._newest, self._size)
        return cursor

    async def _wait_for_data(self) -> None:
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
    """A position in the files of a log. An open file is read to its end even if it is deleted in the meantime."""

    def __init__(self, owner: ContainerLog, number: int, offset: int) -> None:
        self._owner = owner
        self._number, self._offset = number, offset
        self._end: tuple[int, int] | None = None
        self._file: int | None = None

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def set_end(self, number: int, size: int) -> None:
        self._end = (number, size)

    def move_to_tail(self, lines: int) -> None:
        missing_lines = lines
        for number in range(self._owner._newest, self._owner._oldest - 1, -1):
            with _open_for_reading(self._owner._file_path(number)) as file:
                offset, missing_lines = _start_of_last_lines(file, missing_lines)
            self._number, self._offset = number, offset
            if missing_lines == 0:
                return

    def next_block(self) -> bytes:
        """The next complete lines. Empty if there are none yet."""
        while True:
            if block := self._read_lines():
                return block
            if self._number >= self._owner._newest or (self._end is not None and self._number >= self._end[0]):
                return b""
            self.close()
            # Files in between may have been deleted by rotation.
            self._number, self._offset = max(self._number + 1, self._owner._oldest), 0

    def _read_lines(self) -> bytes:
        if self._file is None:
            # A user may have deleted the file.
            try:
                self._file = os.open(self._owner._file_path(self._number), os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return b""
        length = _CHUNK_BYTES
        if self._end is not None and self._number == self._end[0]:
            length = min(length, self._end[1] - self._offset)
        data = os.pread(self._file, length, self._offset) if length > 0 else b""
        block = data[: data.rfind(b"\n") + 1]
        self._offset += len(block)
        return block


class ContainerLogs:
    """The logs of the current and the previous run of a container."""

    def __init__(self, directory: Path, *, clock_ns: Callable[[], int] = time.time_ns) -> None:
        """`directory` is created if it is missing."""
        self._directory = directory
        self._clock_ns = clock_ns
        self.current: ContainerLog | None = None
        self.previous: ContainerLog | None = None

    def start_run(self, run: int) -> ContainerLog:
        """Create the log of a run, counted from 0. The log of the run before the previous one is deleted."""
        self._directory.mkdir(parents=True, exist_ok=True)
        if self.previous is not None:
            self.previous.delete()
        if self.current is not None:
            self.current.close()
        self.previous = self.current
        self.current = ContainerLog(self._directory / f"{run}.log", clock_ns=self._clock_ns)
        return self.current

    def close(self) -> None:
        if self.current is not None:
            self.current.close()


def _create_log_file(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o640)


@contextlib.contextmanager
def _open_for_reading(path: Path) -> Generator[int, None, None]:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield file
    finally:
        os.close(file)


def _read_ready(fd: int, max_bytes: int) -> bytes | None:
    """The available data. None if there is none yet, empty at the end of the stream."""
    try:
        return os.read(fd, max_bytes)
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return b""  # the other side of the terminal was closed


def _write_all(file: int, data: bytes) -> None:
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[os.write(file, remaining) :]


def _start_of_last_lines(file: int, lines: int) -> tuple[int, int]:
    """The offset of the last `lines` lines, and how many lines the file has too few."""
    # The line before the last lines ends with one more newline.
    missing_lines, right = lines + 1, os.fstat(file).st_size
    while right > 0:
        left = max(0, right - _CHUNK_BYTES)
        block = os.pread(file, right - left, left)
        count = block.count(b"\n")
        if count >= missing_lines:
            position = len(block)
            for _ in range(missing_lines):
                position = block.rfind(b"\n", 0, position)
            return left + position + 1, 0
        missing_lines -= count
        right = left
    return 0, missing_lines - 1
