"""JSON that is nested too deeply for the decoder: what lies too deep becomes null, and the rest can be read.

A server stores what its users write, down to ten thousand levels. One such object must not keep anyone from reading
the list that it is in.
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

Decoded = TypeVar("Decoded")

# Far more than anyone nests in earnest, far less than Python's limit.
_MAX_LEVELS = 200
_STRING_OR_BRACKET = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


def decode(data: bytes, decoder: msgspec.json.Decoder[Decoded]) -> Decoded:
    """Decode, however deeply the data are nested."""
    try:
        return decoder.decode(data)
    except RecursionError:
        return decoder.decode(_without_depths(data))


def _without_depths(data: bytes) -> bytes:
    kept: list[bytes] = []
    level = start = 0
    for token in _STRING_OR_BRACKET.finditer(data):
        if token[0] in (b"{", b"["):
            if level == _MAX_LEVELS:
                kept += [data[start : token.start()], b"null"]
            level += 1
        elif token[0] in (b"}", b"]"):
            level -= 1
            if level == _MAX_LEVELS:
                start = token.end()
    return b"".join([*kept, data[start:]])
