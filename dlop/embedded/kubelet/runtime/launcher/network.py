"""The network of the pods: a bridge in a namespace of its own, and a cable from it to each pod.

Nothing of the host's network is touched, nor seen.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from .netlink import Netlink
from .syscalls import CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWUTS, setns, unshare

_BRIDGE = "dlop0"


@dataclass(frozen=True, slots=True)
class Network:
    """The network of all pods. The bridge's namespace is an open file."""

    bridge: int
    gateway: str
    prefix_length: int


def make_bridge(gateway: str, *, prefix: int) -> int:
    """A network with a bridge, which has the gateway's address. Returns the namespace as an open file."""
    unshare(CLONE_NEWNET)
    with Netlink() as netlink:
        netlink.set_up("lo")
        netlink.add_bridge(_BRIDGE)
        netlink.add_address(socket.if_nametoindex(_BRIDGE), address=gateway, prefix=prefix)
    return _own("net")


def make_pod(network: Network, *, number: int, hostname: str, address: str) -> list[int]:
    """A pod's network, host name and message queues. Returns the namespaces as open files.

    The cable goes with the pod's network: that is, when the last of its files is closed and the last of its processes has ended.
    """
    setns(network.bridge, CLONE_NEWNET)
    master = socket.if_nametoindex(_BRIDGE)
    with Netlink() as outside:
        unshare(CLONE_NEWNET)
        own = _own("net")
        outside.add_veth(f"pod{number}", master=master, peer="eth0", peer_namespace=own)
    with Netlink() as inside:
        inside.set_up("lo")
        inside.add_address(socket.if_nametoindex("eth0"), address=address, prefix=network.prefix_length)
        inside.set_up("eth0")
        inside.add_default_route(network.gateway)
    return [own, *make_host(hostname)]


def make_host(hostname: str) -> list[int]:
    """A host name and message queues of one's own. Returns the namespaces as open files."""
    unshare(CLONE_NEWUTS | CLONE_NEWIPC)
    socket.sethostname(hostname)
    return [_own("uts"), _own("ipc")]


def connect(network: int | None, *, addresses: list[str], port: int, timeout_seconds: float) -> socket.socket:
    """A connection to the first of the addresses that takes it, from inside a network."""
    if network is not None:
        setns(network, CLONE_NEWNET)
    for address in addresses[:-1]:
        try:
            return socket.create_connection((address, port), timeout_seconds)
        except OSError:
            continue
    return socket.create_connection((addresses[-1], port), timeout_seconds)


def listen(network: int, *, address: str) -> socket.socket:
    """A socket that listens on a free port of an address, inside a network."""
    setns(network, CLONE_NEWNET)
    return socket.create_server((address, 0))


def _own(kind: str) -> int:
    return os.open(f"/proc/self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)
