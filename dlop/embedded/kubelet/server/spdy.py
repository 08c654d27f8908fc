"""SPDY/3.1 frames, as far as port-forwarding needs them: streams with headers and data, no flow control.

`kubectl` speaks it inside of a WebSocket. Its library neither keeps nor respects windows, so there are none here.
The header blocks of one direction share one compression: they have to be read and written in order.
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

MOST_FRAME_BYTES = 0xFF_FFFF

# What every header block is compressed against, from the specification: words with their length, then a run of text.
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


def _prefixed(text: str) -> bytes:
    return struct.pack(">I", len(text)) + text.encode()


DICTIONARY = b"".join(_prefixed(word.replace("_", " ")) for word in _WORDS.split(" ")) + _TEXT.encode()


class _Kind(IntEnum):
    SYN_STREAM = 1
    SYN_REPLY = 2
    RST_STREAM = 3
    PING = 6
    GOAWAY = 7


class SpdyError(Exception):
    """The other side sent something that is not SPDY/3.1."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The other side opens a stream. With `ends` it will send nothing on it."""

    stream: int
    headers: Mapping[str, str]
    ends: bool


@dataclass(frozen=True, slots=True)
class Data:
    """Bytes of a stream. With `ends` they are the last."""

    stream: int
    data: bytes
    ends: bool


@dataclass(frozen=True, slots=True)
class Reset:
    """The other side wants nothing more of a stream."""

    stream: int


@dataclass(frozen=True, slots=True)
class Ping:
    """To be sent back as it is."""

    number: int


@dataclass(frozen=True, slots=True)
class GoAway:
    """The other side is about to leave."""


Frame = Opened | Data | Reset | Ping | GoAway


class SpdyReader:
    """Takes bytes as they come and gives frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete now; those of no interest are left out.

        Raises:
            SpdyError: these bytes make no sense.
        """
        self._buffer += data
        while len(self._buffer) >= _HEAD.size:
            first, second = _HEAD.unpack_from(self._buffer)
            flags, length = second >> 24, second & MOST_FRAME_BYTES
            if len(self._buffer) < _HEAD.size + length:
                return
            body = bytes(self._buffer[_HEAD.size : _HEAD.size + length])
            del self._buffer[: _HEAD.size + length]
            frame = self._control(first, flags, body) if first & _CONTROL_BIT else Data(first, body, bool(flags & _FIN))
            if frame is not None:
                yield frame

    def _control(self, first: int, flags: int, body: bytes) -> Frame | None:
        if first >> 16 != _VERSION:
            raise SpdyError(f"not SPDY/3.1: {first >> 16:#x}")
        try:
            return self._parsed(first & 0xFFFF, flags, body)
        except (struct.error, zlib.error, UnicodeDecodeError) as error:
            raise SpdyError(f"a frame cannot be read: {error}") from error

    def _parsed(self, kind: int, flags: int, body: bytes) -> Frame | None:
        match kind:
            case _Kind.SYN_STREAM:
                (stream,) = struct.unpack_from(">I", body)
                return Opened(stream, _headers(self._inflate.decompress(body[10:])), bool(flags & _FIN))
            case _Kind.RST_STREAM:
                return Reset(struct.unpack_from(">I", body)[0])
            case _Kind.PING:
                return Ping(struct.unpack_from(">I", body)[0])
            case _Kind.GOAWAY:
                return GoAway()
            case _:
                return None  # settings and windows, which nobody keeps


class SpdyWriter:
    """Makes the bytes of frames."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    def reply(self, stream: int) -> bytes:
        """Accept a stream that the other side has opened."""
        block = self._deflate.compress(struct.pack(">I", 0)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        return _control(_Kind.SYN_REPLY, struct.pack(">I", stream) + block)

    def data(self, stream: int, data: bytes, *, ends: bool = False) -> bytes:
        """Bytes of a stream; with `ends` the last ones."""
        return _HEAD.pack(stream, (_FIN if ends else 0) << 24 | len(data)) + data

    def reset(self, stream: int) -> bytes:
        """Give up a stream."""
        return _control(_Kind.RST_STREAM, struct.pack(">II", stream, _CANCEL))

    def ping(self, number: int) -> bytes:
        """Answer a ping."""
        return _control(_Kind.PING, struct.pack(">I", number))


def _control(kind: _Kind, body: bytes) -> bytes:
    return _SHORT.pack(_VERSION, kind, len(body)) + body


def _headers(block: bytes) -> dict[str, str]:
    (count,) = struct.unpack_from(">I", block)
    position, words = 4, list[str]()
    for _ in range(2 * count):
        (length,) = struct.unpack_from(">I", block, position)
        position += 4
        words.append(block[position : position + length].decode())
        position += length
    return dict(zip(words[::2], words[1::2], strict=True))
