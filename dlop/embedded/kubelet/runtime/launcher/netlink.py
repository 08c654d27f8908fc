"""The part of rtnetlink that pod networks need: links, addresses and routes."""

from __future__ import annotations

import os
import socket
import struct
from types import TracebackType
from typing import Self

_REQUEST, _ACKNOWLEDGE, _EXCLUSIVE, _CREATE = 0x1, 0x4, 0x200, 0x400
_NEW_LINK, _NEW_ADDRESS, _NEW_ROUTE = 16, 20, 24
_HEADER = struct.Struct("=IHHII")
_LINK = struct.Struct("=BxHiII")
_ADDRESS = struct.Struct("=BBBBI")
_ROUTE = struct.Struct("=BBBBBBBBI")
_UP = 1
_LINK_NAME, _LINK_MASTER, _LINK_INFO, _LINK_NAMESPACE = 3, 10, 18, 28
_INFO_KIND, _INFO_DATA, _VETH_PEER = 1, 2, 1
_ADDRESS_PEER, _ADDRESS_LOCAL = 1, 2
_ROUTE_GATEWAY = 5
_MAIN_TABLE, _STATIC, _UNIVERSE, _UNICAST = 254, 4, 0, 1


class Netlink:
    """A netlink socket of the network namespace in which it was created."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._socket.bind((0, 0))
        self._sequence = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._socket.close()

    def add_bridge(self, name: str) -> None:
        """Create a bridge and set it up."""
        info = _attribute(_LINK_INFO, _attribute(_INFO_KIND, b"bridge"))
        self._request(_NEW_LINK, _CREATE | _EXCLUSIVE, _link(up=True) + _link_name(name) + info)

    def add_veth(self, name: str, *, master: int, peer: str, peer_namespace: int) -> None:
        """Create a veth pair: `name` on the bridge with index `master`, and `peer` in the network namespace with this file descriptor."""
        peer_link = _link() + _link_name(peer) + _attribute(_LINK_NAMESPACE, struct.pack("=I", peer_namespace))
        info = _attribute(_INFO_KIND, b"veth") + _attribute(_INFO_DATA, _attribute(_VETH_PEER, peer_link))
        rest = _attribute(_LINK_MASTER, struct.pack("=I", master)) + _attribute(_LINK_INFO, info)
        self._request(_NEW_LINK, _CREATE | _EXCLUSIVE, _link(up=True) + _link_name(name) + rest)

    def set_up(self, name: str) -> None:
        """Bring a link up."""
        self._request(_NEW_LINK, 0, _link(up=True) + _link_name(name))

    def add_address(self, index: int, *, address: str, prefix_length: int) -> None:
        """Add an address to the link with this index."""
        number = socket.inet_aton(address)
        body = _ADDRESS.pack(socket.AF_INET, prefix_length, 0, 0, index)
        self._request(_NEW_ADDRESS, _CREATE | _EXCLUSIVE, body + _attribute(_ADDRESS_LOCAL, number) + _attribute(_ADDRESS_PEER, number))

    def add_default_route(self, gateway: str) -> None:
        body = _ROUTE.pack(socket.AF_INET, 0, 0, 0, _MAIN_TABLE, _STATIC, _UNIVERSE, _UNICAST, 0)
        self._request(_NEW_ROUTE, _CREATE | _EXCLUSIVE, body + _attribute(_ROUTE_GATEWAY, socket.inet_aton(gateway)))

    def _request(self, kind: int, flags: int, body: bytes) -> None:
        self._sequence += 1
        length = _HEADER.size + len(body)
        self._socket.send(_HEADER.pack(length, kind, flags | _REQUEST | _ACKNOWLEDGE, self._sequence, 0) + body)
        (negative_errno,) = struct.unpack_from("=i", self._socket.recv(65536), _HEADER.size)
        if negative_errno:
            raise OSError(-negative_errno, f"network: {os.strerror(-negative_errno)}")


def _link(*, up: bool = False) -> bytes:
    return _LINK.pack(socket.AF_UNSPEC, 0, 0, _UP if up else 0, _UP if up else 0)


def _link_name(name: str) -> bytes:
    return _attribute(_LINK_NAME, name.encode() + b"\0")


def _attribute(kind: int, value: bytes) -> bytes:
    length = 4 + len(value)
    return struct.pack("=HH", length, kind) + value + b"\0" * (-length % 4)
