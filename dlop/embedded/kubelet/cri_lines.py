"""The lines of a container's log file, as every kubelet and log collector knows them.

    2026-01-01T00:00:00.000000000Z stdout F the text of a line
    2026-01-01T00:00:00.000000000Z stderr P the first part of a long line

A line of the container is one line of the file that is tagged F, or several that are tagged P and then one F. A text that
the container never ended with a newline is tagged P too. Everything before the text is 40 bytes long, always: that is what
makes reading fast.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

STDOUT = "stdout"
STDERR = "stderr"

LONGEST_PART_BYTES = 16 * 1024
"""Longer lines are cut into parts."""

_STAMP = len("2026-01-01T00:00:00.000000000Z")
_STREAM = slice(_STAMP + 1, _STAMP + 7)
_TAG = _STAMP + 8
_TEXT = _STAMP + 10
_PARTIAL = ord("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """What of a log is wanted: the options of `kubectl logs`."""

    follow: bool = False
    tail_lines: int | None = None
    """Lines of the file are counted, so a part of a long line is one."""
    since_nanoseconds: int | None = None
    """Since the epoch. Older lines are left out."""
    timestamps: bool = False
    limit_bytes: int | None = None
    stream: str | None = None
    """Only what was written to this one."""


def stamp(nanoseconds: int) -> bytes:
    """A time since the epoch, as at the beginning of every line."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return b"%b.%09dZ" % (time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)).encode(), rest)


class LineFramer:
    """Cuts what a container writes to one stream into lines of the file. Bytes come in pieces that end anywhere."""

    def __init__(self, stream: str) -> None:
        self._stream = stream.encode()
        self._pending = b""

    def frame(self, data: bytes, *, nanoseconds: int) -> bytes:
        """The lines that are complete now. What follows the last newline is kept until the rest of it comes."""
        data = self._pending + data
        end = data.rfind(b"\n") + 1
        framed = self._whole(data[:end], nanoseconds) if end else b""
        rest = data[end:]
        while len(rest) > LONGEST_PART_BYTES:
            framed += self._part(rest[:LONGEST_PART_BYTES], nanoseconds)
            rest = rest[LONGEST_PART_BYTES:]
        self._pending = rest
        return framed

    def end(self, *, nanoseconds: int) -> bytes:
        """The last line, if nothing ended it: nothing more will come."""
        rest, self._pending = self._pending, b""
        return self._part(rest, nanoseconds) if rest else b""

    def _whole(self, lines: bytes, nanoseconds: int) -> bytes:
        head = b"%b %b F " % (stamp(nanoseconds), self._stream)
        if not _has_long_line(lines):
            # A megabyte may hold a hundred thousand lines: they are not taken apart one by one.
            return head + lines[:-1].replace(b"\n", b"\n" + head) + b"\n"
        framed: list[bytes] = []
        for line in lines[:-1].split(b"\n"):
            while len(line) > LONGEST_PART_BYTES:
                framed.append(self._part(line[:LONGEST_PART_BYTES], nanoseconds))
                line = line[LONGEST_PART_BYTES:]  # noqa: PLW2901 - the rest of the same line
            framed.append(head + line + b"\n")
        return b"".join(framed)

    def _part(self, text: bytes, nanoseconds: int) -> bytes:
        return b"%b %b P %b\n" % (stamp(nanoseconds), self._stream, text)


def _has_long_line(lines: bytes) -> bool:
    position = 0
    while len(lines) - position > LONGEST_PART_BYTES:
        newline = lines.rfind(b"\n", position, position + LONGEST_PART_BYTES + 1)
        if newline < 0:
            return True
        position = newline + 1
    return False


class LogView:
    """Turns lines of the file back into what the container wrote, as far as it is wanted."""

    def __init__(self, query: LogQuery) -> None:
        self._timestamps = query.timestamps
        self._since = None if query.since_nanoseconds is None else stamp(query.since_nanoseconds)
        self._stream = None if query.stream is None else query.stream.encode()
        self._remaining = query.limit_bytes
        self._at_line_start = True

    @property
    def is_full(self) -> bool:
        """Whether as many bytes were shown as are wanted."""
        return self._remaining is not None and self._remaining <= 0

    def show(self, block: bytes) -> bytes:
        """The text of whole lines of the file."""
        lines = block[:-1].split(b"\n")
        if self._since is None and self._stream is None and self._at_line_start and b" P " not in block:
            shown = self._all(lines)
        else:
            shown = b"".join([self._one(line) for line in lines])
        if self._remaining is not None:
            shown = shown[: self._remaining]
            self._remaining -= len(shown)
        return shown

    def _all(self, lines: list[bytes]) -> bytes:
        if self._timestamps:
            return b"\n".join([line[: _STAMP + 1] + line[_TEXT:] for line in lines]) + b"\n"
        return b"\n".join([line[_TEXT:] for line in lines]) + b"\n"

    def _one(self, line: bytes) -> bytes:
        if self._stream is not None and line[_STREAM] != self._stream:
            return b""
        is_partial = line[_TAG] == _PARTIAL
        text = line[_TEXT:] if is_partial else line[_TEXT:] + b"\n"
        begins, self._at_line_start = self._at_line_start, not is_partial
        if self._since is not None and line[:_STAMP] < self._since:
            return b""
        return line[: _STAMP + 1] + text if self._timestamps and begins else text
