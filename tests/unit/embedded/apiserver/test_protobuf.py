"""Protobuf request bodies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlop.embedded.apiserver.core.protobuf import ProtobufDecodeError, decode


def field(number: int, value: bytes | int) -> bytes:
    """One field of a message. Numbers and lengths must be below 128."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    return bytes([number << 3 | 2, len(value)]) + value


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    meta = field(1, api_version.encode()) + field(2, kind.encode())
    return b"k8s\x00" + field(1, meta) + field(2, raw)


def test_scalars_maps_lists_and_bytes_are_decoded() -> None:
    metadata = field(1, b"a") + field(8, b"") + field(11, field(1, b"app") + field(2, b"x")) + field(14, b"example.org/hold")
    raw = field(1, metadata) + field(2, field(1, b"k") + field(2, b"v")) + field(3, field(1, b"b") + field(2, b"\x00\x01")) + field(4, 1)
    assert decode(envelope("v1", "ConfigMap", raw)) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "creationTimestamp": None, "labels": {"app": "x"}, "finalizers": ["example.org/hold"]},
        "data": {"k": "v"},
        "binaryData": {"b": "AAE="},
        "immutable": True,
    }


def test_int_or_string_ports_are_decoded() -> None:
    by_number, by_name = field(1, 0) + field(2, 80), field(1, 1) + field(3, b"web")
    ports = b"".join(field(1, field(3, 80) + field(4, target)) for target in (by_number, by_name))
    decoded = decode(envelope("v1", "Service", field(2, ports)))
    assert decoded["spec"]["ports"] == [{"port": 80, "targetPort": 80}, {"port": 80, "targetPort": "web"}]


def test_an_inlined_message_is_decoded() -> None:
    source = field(2, field(1, field(1, b"/data")))  # VolumeSource > HostPathVolumeSource > path
    decoded = decode(envelope("v1", "Pod", field(2, field(1, field(1, b"disk") + source))))
    assert decoded["spec"]["volumes"] == [{"name": "disk", "hostPath": {"path": "/data"}}]


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"k8s\x00\xff", envelope("example.org/v1", "Widget", b""), envelope("v1", "ConfigMap", b"\x0a\x7f")]
)
def test_a_malformed_or_unknown_message_is_rejected(body: bytes) -> None:
    with pytest.raises(ProtobufDecodeError):
        decode(body)


@given(st.binary(max_size=200))
def test_no_bytes_raise_another_error(raw: bytes) -> None:
    for body in (b"k8s\x00" + raw, envelope("v1", "Pod", raw[:100])):
        try:
            decode(body)
        except ProtobufDecodeError:
            continue
