"""A self-signed client certificate for a throw-away cluster, by which nodes know the API server.

Only the standard library is used, which has no signatures: this is the arithmetic of ECDSA on the curve P-256, and the
few fields of a certificate. It is neither fast nor safe against somebody who measures its time, and needs to be neither.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from pathlib import Path

from cluster_credentials import write_secret

_PRIME = 2**256 - 2**224 + 2**192 + 2**96 - 1
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_BASE = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)

_Point = tuple[int, int] | None

# Object identifiers, encoded.
_EC_KEY = bytes.fromhex("06072a8648ce3d0201")
_P256 = bytes.fromhex("06082a8648ce3d030107")
_ECDSA_SHA256 = bytes.fromhex("06082a8648ce3d040302")
_COMMON_NAME = bytes.fromhex("0603550403")
_BASIC_CONSTRAINTS = bytes.fromhex("0603551d13")
_KEY_USAGE = bytes.fromhex("0603551d25")
_CLIENT_AUTH = bytes.fromhex("06082b06010505070302")

_VALID_SECONDS = 10 * 365 * 24 * 3600.0


def write_client_certificate(certificate: Path, key: Path, *, name: str) -> None:
    """Write a new key, and a certificate for a client of that name which is its own authority."""
    secret = 1 + secrets.randbelow(_ORDER - 1)
    public = _times(secret, _BASE)
    assert public is not None
    point = b"\x04" + public[0].to_bytes(32, "big") + public[1].to_bytes(32, "big")
    signed = _to_be_signed(name, point)
    whole = _sequence(signed, _sequence(_ECDSA_SHA256), _bits(_signature(secret, signed)))
    write_secret(certificate, _pem("CERTIFICATE", whole))
    write_secret(key, _pem("EC PRIVATE KEY", _private_key(secret, point)))


def _to_be_signed(name: str, point: bytes) -> bytes:
    now = time.time()
    subject = _sequence(_value(0x31, _sequence(_COMMON_NAME, _value(0x0C, name.encode()))))
    validity = _sequence(_moment(now - 3600.0), _moment(now + _VALID_SECONDS))
    public_key = _sequence(_sequence(_EC_KEY, _P256), _bits(point))
    authority = _sequence(_BASIC_CONSTRAINTS, _value(1, b"\xff"), _value(4, _sequence(_value(1, b"\xff"))))
    usage = _sequence(_KEY_USAGE, _value(4, _sequence(_CLIENT_AUTH)))
    extensions = _value(0xA3, _sequence(authority, usage))
    version = _value(0xA0, _integer(2))
    serial = _integer(secrets.randbits(120))
    return _sequence(version, serial, _sequence(_ECDSA_SHA256), subject, validity, subject, public_key, extensions)


def _private_key(secret: int, point: bytes) -> bytes:
    return _sequence(_integer(1), _value(4, secret.to_bytes(32, "big")), _value(0xA0, _P256), _value(0xA1, _bits(point)))


# --- ECDSA -----------------------------------------------------------------------------------------------------------


def _signature(secret: int, message: bytes) -> bytes:
    digest = int.from_bytes(hashlib.sha256(message).digest(), "big")
    while True:
        nonce = 1 + secrets.randbelow(_ORDER - 1)
        point = _times(nonce, _BASE)
        assert point is not None
        first = point[0] % _ORDER
        second = pow(nonce, -1, _ORDER) * (digest + first * secret) % _ORDER
        if first and second:
            return _sequence(_integer(first), _integer(second))


def _times(count: int, point: _Point) -> _Point:
    total: _Point = None
    while count:
        if count & 1:
            total = _sum(total, point)
        point = _sum(point, point)
        count >>= 1
    return total


def _sum(one: _Point, other: _Point) -> _Point:
    if one is None or other is None:
        return one or other
    if one[0] == other[0]:
        if (one[1] + other[1]) % _PRIME == 0:
            return None
        slope = (3 * one[0] ** 2 - 3) * pow(2 * one[1], -1, _PRIME) % _PRIME
    else:
        slope = (other[1] - one[1]) * pow(other[0] - one[0], -1, _PRIME) % _PRIME
    x = (slope**2 - one[0] - other[0]) % _PRIME
    return x, (slope * (one[0] - x) - one[1]) % _PRIME


# --- DER -------------------------------------------------------------------------------------------------------------


def _value(tag: int, content: bytes) -> bytes:
    length = len(content)
    if length < 0x80:
        return bytes((tag, length)) + content
    size = (length.bit_length() + 7) // 8
    return bytes((tag, 0x80 | size)) + length.to_bytes(size, "big") + content


def _sequence(*parts: bytes) -> bytes:
    return _value(0x30, b"".join(parts))


def _integer(number: int) -> bytes:
    return _value(2, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def _bits(content: bytes) -> bytes:
    return _value(3, b"\0" + content)


def _moment(seconds: float) -> bytes:
    return _value(0x17, time.strftime("%y%m%d%H%M%SZ", time.gmtime(seconds)).encode())


def _pem(label: str, content: bytes) -> str:
    return f"-----BEGIN {label}-----\n{base64.encodebytes(content).decode()}-----END {label}-----\n"
