"""The pod network: a bridge in a network namespace of its own, and a veth pair from it to each pod.

The host's network is neither changed nor visible.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from .netlink import Netlink
from .syscalls import CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWUTS, setns, unshare

_BRIDGE = "dlop0"


@dataclass(frozen=True, slots=True)
class PodNetwork:
    """The network that connects all pods. `bridge_netns` is the open namespace of the bridge."""

    bridge_netns: int
    gateway: str
    prefix_length: int


def create_bridge(gateway: str, *, prefix_length: int) -> int:
    """Enter a new network namespace with a bridge that has the gateway's address. Returns the open namespace."""
    unshare(CLONE_NEWNET)
    with Netlink() as netlink:
        netlink.set_up("lo")
        netlink.add_bridge(_BRIDGE)
        netlink.add_address(socket.if_nametoindex(_BRIDGE), address=gateway, prefix_length=prefix_length)
    return _open_own_namespace("net")


def create_pod_namespaces(network: PodNetwork, *, number: int, hostname: str, address: str) -> list[int]:
    """Enter new network, UTS and IPC namespaces for a pod. Returns them as open files.

    The veth pair goes away with the pod's network namespace, when its last file is closed and its last process has exited.
    """
    setns(network.bridge_netns, CLONE_NEWNET)
    master = socket.if_nametoindex(_BRIDGE)
    with Netlink() as outside:
        unshare(CLONE_NEWNET)
        pod_netns = _open_own_namespace("net")
        outside.add_veth(f"pod{number}", master=master, peer="eth0", peer_namespace=pod_netns)
    with Netlink() as inside:
        inside.set_up("lo")
        inside.add_address(socket.if_nametoindex("eth0"), address=address, prefix_length=network.prefix_length)
        inside.set_up("eth0")
        inside.add_default_route(network.gateway)
    return [pod_netns, *create_uts_ipc_namespaces(hostname)]


def create_uts_ipc_namespaces(hostname: str) -> list[int]:
    """Enter new UTS and IPC namespaces. Returns them as open files."""
    unshare(CLONE_NEWUTS | CLONE_NEWIPC)
    socket.sethostname(hostname)
    return [_open_own_namespace("uts"), _open_own_namespace("ipc")]


def connect(netns: int | None, *, addresses: list[str], port: int, timeout_seconds: float) -> socket.socket:
    """Connect to the first address that accepts, from inside a network namespace. None is the current namespace."""
    if netns is not None:
        setns(netns, CLONE_NEWNET)
    for address in addresses[:-1]:
        try:
            return socket.create_connection((address, port), timeout_seconds)
        except OSError:
            continue
    return socket.create_connection((addresses[-1], port), timeout_seconds)


def listen(netns: int, *, address: str) -> socket.socket:
    """Listen on a free port of an address inside a network namespace."""
    setns(netns, CLONE_NEWNET)
    return socket.create_server((address, 0))


def _open_own_namespace(kind: str) -> int:
    return os.open(f"/proc/self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)
