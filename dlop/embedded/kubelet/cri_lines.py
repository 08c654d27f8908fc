"""Lines of a container's log file, in the CRI logging format.

    2026-01-01T00:00:00.000000000Z stdout F the text of a line
    2026-01-01T00:00:00.000000000Z stderr P the first part of a long line

A line of the container is one line of the file with tag F, or several with tag P and then one with tag F. Text that the container did
not end with a newline also has tag P. The prefix of the text always has 40 bytes, which makes reading fast.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

STDOUT = "stdout"
STDERR = "stderr"

MAX_PART_BYTES = 16 * 1024
"""Longer lines are split."""

_TIMESTAMP_LENGTH = len("2026-01-01T00:00:00.000000000Z")
_STREAM_SLICE = slice(_TIMESTAMP_LENGTH + 1, _TIMESTAMP_LENGTH + 7)
_TAG_INDEX = _TIMESTAMP_LENGTH + 8
_TEXT_START = _TIMESTAMP_LENGTH + 10
_PARTIAL = ord("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """Options of `kubectl logs`."""

    follow: bool = False
    tail_lines: int | None = None
    """Counts lines of the file, so each part of a long line counts."""
    since_nanoseconds: int | None = None
    """Since the epoch. Older lines are omitted."""
    timestamps: bool = False
    limit_bytes: int | None = None
    stream: str | None = None
    """Only lines of this stream. None for both."""


def format_timestamp(nanoseconds: int) -> bytes:
    """A time since the epoch, as at the start of every line."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return b"%b.%09dZ" % (time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)).encode(), rest)


class CriLineEncoder:
    """Encodes the output of a container on one stream. The input chunks may end anywhere."""

    def __init__(self, stream: str) -> None:
        self._stream = stream.encode()
        self._pending = b""

    def encode(self, data: bytes, *, nanoseconds: int) -> bytes:
        """The lines that are complete. Text after the last newline is kept for the next call."""
        data = self._pending + data
        end = data.rfind(b"\n") + 1
        encoded = self._encode_lines(data[:end], nanoseconds) if end else b""
        rest = data[end:]
        while len(rest) > MAX_PART_BYTES:
            encoded += self._encode_part(rest[:MAX_PART_BYTES], nanoseconds)
            rest = rest[MAX_PART_BYTES:]
        self._pending = rest
        return encoded

    def flush(self, *, nanoseconds: int) -> bytes:
        """The text after the last newline, at the end of the output."""
        rest, self._pending = self._pending, b""
        return self._encode_part(rest, nanoseconds) if rest else b""

    def _encode_lines(self, lines: bytes, nanoseconds: int) -> bytes:
        head = b"%b %b F " % (format_timestamp(nanoseconds), self._stream)
        if not _has_long_line(lines):
            # Fast path, because a megabyte may contain a hundred thousand lines.
            return head + lines[:-1].replace(b"\n", b"\n" + head) + b"\n"
        encoded: list[bytes] = []
        for line in lines[:-1].split(b"\n"):
            while len(line) > MAX_PART_BYTES:
                encoded.append(self._encode_part(line[:MAX_PART_BYTES], nanoseconds))
                line = line[MAX_PART_BYTES:]  # noqa: PLW2901 - the rest of the same line
            encoded.append(head + line + b"\n")
        return b"".join(encoded)

    def _encode_part(self, text: bytes, nanoseconds: int) -> bytes:
        return b"%b %b P %b\n" % (format_timestamp(nanoseconds), self._stream, text)


def _has_long_line(lines: bytes) -> bool:
    position = 0
    while len(lines) - position > MAX_PART_BYTES:
        newline = lines.rfind(b"\n", position, position + MAX_PART_BYTES + 1)
        if newline < 0:
            return True
        position = newline + 1
    return False


class CriLineDecoder:
    """Decodes lines of the file to the container's output, as selected by a query."""

    def __init__(self, query: LogQuery) -> None:
        self._timestamps = query.timestamps
        self._since = None if query.since_nanoseconds is None else format_timestamp(query.since_nanoseconds)
        self._stream = None if query.stream is None else query.stream.encode()
        self._remaining = query.limit_bytes
        self._at_line_start = True

    @property
    def limit_reached(self) -> bool:
        """Whether `limit_bytes` of output were returned."""
        return self._remaining is not None and self._remaining <= 0

    def decode(self, block: bytes) -> bytes:
        """The output of a block of complete lines."""
        lines = block[:-1].split(b"\n")
        if self._since is None and self._stream is None and self._at_line_start and b" P " not in block:
            output = self._decode_all(lines)
        else:
            output = b"".join([self._decode_line(line) for line in lines])
        if self._remaining is not None:
            output = output[: self._remaining]
            self._remaining -= len(output)
        return output

    def _decode_all(self, lines: list[bytes]) -> bytes:
        if self._timestamps:
            return b"\n".join([line[: _TIMESTAMP_LENGTH + 1] + line[_TEXT_START:] for line in lines]) + b"\n"
        return b"\n".join([line[_TEXT_START:] for line in lines]) + b"\n"

    def _decode_line(self, line: bytes) -> bytes:
        if self._stream is not None and line[_STREAM_SLICE] != self._stream:
            return b""
        is_partial = line[_TAG_INDEX] == _PARTIAL
        text = line[_TEXT_START:] if is_partial else line[_TEXT_START:] + b"\n"
        at_line_start, self._at_line_start = self._at_line_start, not is_partial
        if self._since is not None and line[:_TIMESTAMP_LENGTH] < self._since:
            return b""
        return line[: _TIMESTAMP_LENGTH + 1] + text if self._timestamps and at_line_start else text
