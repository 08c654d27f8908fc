"""SPDY/3.1 frames for port-forwarding: streams with headers and data, without flow control.

`kubectl` tunnels SPDY in a WebSocket. Its library does not use windows, so they are not implemented. The header blocks of one direction
share one compression context and must be read and written in order.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

_VERSION = 0x8003
_CONTROL_BIT = 0x8000_0000
_FIN = 0x01
_CANCEL = 5
_HEAD = struct.Struct(">II")
_SHORT = struct.Struct(">HHI")

MAX_FRAME_BYTES = 0xFF_FFFF

# The compression dictionary of the specification: words with a length prefix, then text.
_WORDS = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow authorization"
    " cache-control connection content-base content-encoding content-language content-length content-location content-md5 content-range"
    " content-type date etag expect expires from host if-match if-modified-since if-none-match if-range if-unmodified-since last-modified"
    " location max-forwards pragma proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding"
    " upgrade user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie keep-alive"
    " origin"
)
_TEXT = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 Non-Authoritative Information204 No "
    "Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 "
    "Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,"
    "image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,"
    "sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)


def _with_length(text: str) -> bytes:
    return struct.pack(">I", len(text)) + text.encode()


DICTIONARY = b"".join(_with_length(word.replace("_", " ")) for word in _WORDS.split(" ")) + _TEXT.encode()


class _FrameType(IntEnum):
    SYN_STREAM = 1
    SYN_REPLY = 2
    RST_STREAM = 3
    PING = 6
    GOAWAY = 7


class SpdyError(Exception):
    """The peer sent invalid data."""


@dataclass(frozen=True, slots=True)
class SynStream:
    """The peer opens a stream. With `ends` it sends no data on it."""

    stream: int
    headers: Mapping[str, str]
    ends: bool


@dataclass(frozen=True, slots=True)
class DataFrame:
    """Data of a stream. With `ends` it is the last."""

    stream: int
    data: bytes
    ends: bool


@dataclass(frozen=True, slots=True)
class RstStream:
    """The peer aborts a stream."""

    stream: int


@dataclass(frozen=True, slots=True)
class PingFrame:
    """Must be sent back unchanged."""

    number: int


@dataclass(frozen=True, slots=True)
class GoAway:
    """The peer closes the session."""


Frame = SynStream | DataFrame | RstStream | PingFrame | GoAway


class SpdyReader:
    """Parses frames incrementally."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete. Frames of other types are skipped.

        Raises:
            SpdyError: the data is invalid.
        """
        self._buffer += data
        while len(self._buffer) >= _HEAD.size:
            first, second = _HEAD.unpack_from(self._buffer)
            flags, length = second >> 24, second & MAX_FRAME_BYTES
            if len(self._buffer) < _HEAD.size + length:
                return
            body = bytes(self._buffer[_HEAD.size : _HEAD.size + length])
            del self._buffer[: _HEAD.size + length]
            frame = self._control(first, flags, body) if first & _CONTROL_BIT else DataFrame(first, body, bool(flags & _FIN))
            if frame is not None:
                yield frame

    def _control(self, first: int, flags: int, body: bytes) -> Frame | None:
        if first >> 16 != _VERSION:
            raise SpdyError(f"not SPDY/3.1: {first >> 16:#x}")
        try:
            return self._parse(first & 0xFFFF, flags, body)
        except (struct.error, zlib.error, UnicodeDecodeError) as error:
            raise SpdyError(f"invalid frame: {error}") from error

    def _parse(self, kind: int, flags: int, body: bytes) -> Frame | None:
        match kind:
            case _FrameType.SYN_STREAM:
                (stream,) = struct.unpack_from(">I", body)
                return SynStream(stream, _parse_headers(self._inflate.decompress(body[10:])), bool(flags & _FIN))
            case _FrameType.RST_STREAM:
                return RstStream(struct.unpack_from(">I", body)[0])
            case _FrameType.PING:
                return PingFrame(struct.unpack_from(">I", body)[0])
            case _FrameType.GOAWAY:
                return GoAway()
            case _:
                return None  # SETTINGS and WINDOW_UPDATE, which kubectl does not use


class SpdyWriter:
    """Encodes frames."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    def reply(self, stream: int) -> bytes:
        """Accept a stream that the peer has opened."""
        block = self._deflate.compress(struct.pack(">I", 0)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        return _control(_FrameType.SYN_REPLY, struct.pack(">I", stream) + block)

    def data(self, stream: int, data: bytes, *, ends: bool = False) -> bytes:
        """Data of a stream. `ends` marks the last frame."""
        return _HEAD.pack(stream, (_FIN if ends else 0) << 24 | len(data)) + data

    def reset(self, stream: int) -> bytes:
        """Abort a stream."""
        return _control(_FrameType.RST_STREAM, struct.pack(">II", stream, _CANCEL))

    def ping(self, number: int) -> bytes:
        return _control(_FrameType.PING, struct.pack(">I", number))


def _control(kind: _FrameType, body: bytes) -> bytes:
    return _SHORT.pack(_VERSION, kind, len(body)) + body


def _parse_headers(block: bytes) -> dict[str, str]:
    (count,) = struct.unpack_from(">I", block)
    position, strings = 4, list[str]()
    for _ in range(2 * count):
        (length,) = struct.unpack_from(">I", block, position)
        position += 4
        strings.append(block[position : position + length].decode())
        position += length
    return dict(zip(strings[::2], strings[1::2], strict=True))
