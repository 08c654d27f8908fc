"""The log of one container as lines, each known by its moment, so that reading can be taken up where it stopped."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass

import msgspec

from dlop.kube.client import Client
from dlop.kube.pod_logs import pod_log

# A program may write for hours without ending its line.
_LONGEST_LINE_BYTES = 256 * 1024
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[-+]\d\d:\d\d)")


class LogLine(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A line that a replica has written, or a note about its log."""

    role: str
    index: int
    pod: str
    container: str
    run: int = 0
    """How often the container had been restarted before."""
    time: str = ""
    text: str
    is_note: bool = False


@dataclass(slots=True)
class Cursor:
    """How far a log was read: the moment of the last line, and how many lines of that moment there were."""

    moment: str = ""
    lines: int = 0

    def note(self, moment: str) -> None:
        """One more line was read."""
        self.lines = self.lines + 1 if moment == self.moment else 1
        self.moment = moment or self.moment


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSource:
    """One container of one pod."""

    namespace: str
    pod: str
    container: str


async def read_lines(
    client: Client,
    source: LogSource,
    cursor: Cursor,
    *,
    follow: bool = False,
    previous: bool = False,
    tail_lines: int | None = None,
    since_seconds: int | None = None,
) -> AsyncGenerator[tuple[str, str], None]:
    """The lines of a run after the cursor, which moves along: moment and text. With `follow` until the run ends.

    Raises:
        KubeError: there is nothing to read, or the stream broke.
    """
    has_begun = bool(cursor.moment)
    repeated = Cursor()
    async with pod_log(
        client,
        source.pod,
        namespace=source.namespace,
        container=source.container or None,
        follow=follow,
        previous=previous,
        timestamps=True,
        # What comes after the cursor is all of interest, however much it is.
        tail_lines=None if has_begun else tail_lines,
        since_seconds=None if has_begun else since_seconds,
        since_time=cursor.moment or None,
    ) as chunks:
        last, known = cursor.moment, cursor.lines
        async with aclosing(_split(chunks)) as lines:
            async for line in lines:
                moment, text = _stamped(line)
                if has_begun and _is_known(moment, last, known, repeated):
                    continue
                cursor.note(moment)
                yield moment, text


def _is_known(moment: str, last: str, known: int, repeated: Cursor) -> bool:
    """Whether a line was read before. The server knows of seconds only, so it begins a little before the cursor."""
    if not moment or moment > last:
        return False
    repeated.note(moment)
    return moment < last or repeated.lines <= known


def _stamped(line: str) -> tuple[str, str]:
    stamp, _, text = line.partition(" ")
    return (stamp, text) if _STAMP.fullmatch(stamp) else ("", line)


async def _split(chunks: AsyncIterator[bytes]) -> AsyncGenerator[str, None]:
    pending = bytearray()
    async for chunk in chunks:
        pending += chunk
        *whole, rest = pending.split(b"\n")
        for line in whole:
            yield line.decode(errors="replace")
        pending = bytearray(rest)
        if len(pending) > _LONGEST_LINE_BYTES:
            yield pending.decode(errors="replace")
            pending.clear()
    if pending:
        yield pending.decode(errors="replace")
