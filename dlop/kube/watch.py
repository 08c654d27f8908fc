"""Decoding of watch streams.

A server sends one JSON object per line, a proxy may split the bytes anywhere, and a broken connection may end inside a
line. Only complete events are returned.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from enum import StrEnum
from typing import Any

import msgspec

from dlop.kube.errors import KubeError, TransportError, error_from_status
from dlop.kube.objects import decode_json
from dlop.kube.types import JsonObject

# etcd limits objects to a few MB. A line can be longer because of managedFields and escape sequences.
MAX_LINE_BYTES = 64 * 1024 * 1024


class WatchEventType(StrEnum):
    """Type of a watch event. ERROR events are raised as exceptions."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    ERROR = "ERROR"


class MalformedWatchEventError(TransportError):
    """A line that is truncated, too long or not an event. The next watch may fail at the same event."""


class WatchEvent(msgspec.Struct, frozen=True, gc=False):
    """One event with its undecoded object."""

    type: WatchEventType
    object: msgspec.Raw

    def decode(self) -> JsonObject:
        decoded: JsonObject = msgspec.json.decode(self.object)
        return decoded


_decoder = msgspec.json.Decoder(WatchEvent)


async def read_events(chunks: AsyncIterator[bytes]) -> AsyncGenerator[WatchEvent, None]:
    """The events of a watch stream, in order.

    Raises:
        StatusError: the server ended the watch with an ERROR event, usually 410 Gone.
        MalformedWatchEventError: a line is truncated, is not an event, or is too long.
        TransportError: the stream broke between two lines.
    """
    async with aclosing(_lines(chunks)) as lines:
        async for line in lines:
            try:
                event = decode_json(line, _decoder)
            except ValueError as error:  # also raised for bytes that are not UTF-8
                raise MalformedWatchEventError(f"the watch sent a line that is not an event: {error}: {line[:200]!r}") from error
            if event.type is WatchEventType.ERROR:
                raise _decode_error(event)
            yield event


def _decode_error(event: WatchEvent) -> KubeError:
    try:
        return error_from_status(msgspec.json.decode(event.object, type=dict[str, Any]))
    except ValueError as error:
        return MalformedWatchEventError(f"the watch sent an ERROR event without a Status: {error}: {bytes(event.object)[:200]!r}")


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    pending: list[bytes] = []  # parts of an incomplete line; joined only once, so that a long line takes linear time
    pending_bytes = 0
    try:
        async for chunk in chunks:
            first, newline, rest = chunk.partition(b"\n")
            pending.append(first)
            pending_bytes += len(first)
            if pending_bytes > MAX_LINE_BYTES:
                raise MalformedWatchEventError(f"the watch sent a line of more than {MAX_LINE_BYTES} bytes")
            if not newline:
                continue
            yield b"".join(pending)
            *lines, last = rest.split(b"\n")
            for line in lines:
                yield line
            pending, pending_bytes = [last], len(last)
    except TransportError as error:
        if isinstance(error, MalformedWatchEventError) or not pending_bytes:
            raise
        raise MalformedWatchEventError(f"the watch broke inside a line, after {pending_bytes} bytes: {error}") from error
    if pending_bytes:
        raise MalformedWatchEventError(f"the watch ended inside a line, after {pending_bytes} bytes")
