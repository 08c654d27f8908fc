"""The log of one container as lines with timestamps, so that an interrupted read can be resumed."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass

import msgspec

from dlop.kube.client import Client
from dlop.kube.pod_logs import stream_pod_log

# A program may write for hours without a line break.
_MAX_LINE_BYTES = 256 * 1024
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[-+]\d\d:\d\d)")


class LogLine(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A line of a replica's log, or a note about the log."""

    role: str
    index: int
    pod: str
    container: str
    run: int = 0
    """The number of restarts of the container before this run."""
    time: str = ""
    text: str
    is_note: bool = False


@dataclass(slots=True)
class LogCursor:
    """A position in a log: the timestamp of the last line, and the number of lines with this timestamp."""

    timestamp: str = ""
    lines: int = 0

    def advance(self, timestamp: str) -> None:
        self.lines = self.lines + 1 if timestamp == self.timestamp else 1
        self.timestamp = timestamp or self.timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSource:
    namespace: str
    pod: str
    container: str


async def read_lines(
    client: Client,
    source: LogSource,
    cursor: LogCursor,
    *,
    follow: bool = False,
    previous: bool = False,
    tail_lines: int | None = None,
    since_seconds: int | None = None,
) -> AsyncGenerator[tuple[str, str], None]:
    """Timestamp and text of the lines after the cursor, which is advanced. With `follow`, until the container terminates.

    Raises:
        KubeError: the container has no log, or the stream broke.
    """
    is_resumed = bool(cursor.timestamp)
    repeated = LogCursor()
    async with stream_pod_log(
        client,
        source.pod,
        namespace=source.namespace,
        container=source.container or None,
        follow=follow,
        previous=previous,
        timestamps=True,
        # The limits apply to the first read. After it, every line counts.
        tail_lines=None if is_resumed else tail_lines,
        since_seconds=None if is_resumed else since_seconds,
        since_time=cursor.timestamp or None,
    ) as chunks:
        last, last_lines = cursor.timestamp, cursor.lines
        async with aclosing(_split(chunks)) as lines:
            async for line in lines:
                timestamp, text = _split_timestamp(line)
                if is_resumed and _was_read(timestamp, last, last_lines, repeated):
                    continue
                cursor.advance(timestamp)
                yield timestamp, text


def _was_read(timestamp: str, last: str, last_lines: int, repeated: LogCursor) -> bool:
    """Whether a line was read before. `sinceTime` has a resolution of seconds, so the server repeats some lines."""
    if not timestamp or timestamp > last:
        return False
    repeated.advance(timestamp)
    return timestamp < last or repeated.lines <= last_lines


def _split_timestamp(line: str) -> tuple[str, str]:
    timestamp, _, text = line.partition(" ")
    return (timestamp, text) if _TIMESTAMP.fullmatch(timestamp) else ("", line)


async def _split(chunks: AsyncIterator[bytes]) -> AsyncGenerator[str, None]:
    pending = bytearray()
    async for chunk in chunks:
        pending += chunk
        *lines, rest = pending.split(b"\n")
        for line in lines:
            yield line.decode(errors="replace")
        pending = bytearray(rest)
        if len(pending) > _MAX_LINE_BYTES:
            yield pending.decode(errors="replace")
            pending.clear()
    if pending:
        yield pending.decode(errors="replace")
