"""Watch streams: bytes in, whole events out.

A server sends one JSON object a line, a proxy cuts the bytes anywhere, and a broken connection may end in the middle
of a line. What comes out of here is only ever a whole event.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from enum import StrEnum
from typing import Any

import msgspec

from dlop.kube import json_depth
from dlop.kube.errors import KubeError, TransportError, error_from_status
from dlop.kube.types import JsonObject

# An object may not be larger than etcd's limit of a few MB, but a line also carries managedFields and escapes.
MAX_LINE_BYTES = 64 * 1024 * 1024


class WatchEventType(StrEnum):
    """What a watch event says. ERROR never reaches a reader: it is raised."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    ERROR = "ERROR"


class UnreadableLineError(TransportError):
    """A line that is cut off, too long or no event. It may be the same the next time: the event itself may be to blame."""


class WatchEvent(msgspec.Struct, frozen=True, gc=False):
    """One event; the object stays undecoded until its reader knows what to make of it."""

    type: WatchEventType
    object: msgspec.Raw

    def decode(self) -> JsonObject:
        """The object as plain data."""
        decoded: JsonObject = msgspec.json.decode(self.object)
        return decoded


_decoder = msgspec.json.Decoder(WatchEvent)


async def read_events(chunks: AsyncIterator[bytes]) -> AsyncGenerator[WatchEvent, None]:
    """The events of a watch stream, in order.

    Raises:
        StatusError: when the server ends the watch with an ERROR event (410 Gone is the usual one).
        UnreadableLineError: when a line is cut off, is not an event, or is too long.
        TransportError: when the stream breaks between two lines.
    """
    async with aclosing(_lines(chunks)) as lines:
        async for line in lines:
            try:
                event = json_depth.decode(line, _decoder)
            except ValueError as error:  # also for bytes that are no UTF-8
                raise UnreadableLineError(f"the watch sent a line that is no event: {error}: {line[:200]!r}") from error
            if event.type is WatchEventType.ERROR:
                raise _error(event)
            yield event


def _error(event: WatchEvent) -> KubeError:
    try:
        return error_from_status(msgspec.json.decode(event.object, type=dict[str, Any]))
    except ValueError as error:
        return UnreadableLineError(f"the watch sent an error that is no Status: {error}: {bytes(event.object)[:200]!r}")


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    pending: list[bytes] = []  # pieces of one unfinished line: joined once, so that a long line costs its length only
    pending_bytes = 0
    try:
        async for chunk in chunks:
            first, newline, rest = chunk.partition(b"\n")
            pending.append(first)
            pending_bytes += len(first)
            if pending_bytes > MAX_LINE_BYTES:
                raise UnreadableLineError(f"the watch sent a line of more than {MAX_LINE_BYTES} bytes")
            if not newline:
                continue
            yield b"".join(pending)
            *whole, last = rest.split(b"\n")
            for line in whole:
                yield line
            pending, pending_bytes = [last], len(last)
    except TransportError as error:
        if isinstance(error, UnreadableLineError) or not pending_bytes:
            raise
        raise UnreadableLineError(f"the watch broke inside a line, after {pending_bytes} bytes of it: {error}") from error
    if pending_bytes:
        raise UnreadableLineError(f"the watch was cut off inside a line, after {pending_bytes} bytes of it")
