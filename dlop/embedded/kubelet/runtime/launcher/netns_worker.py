"""The one who makes the networks and host names of pods.

It is a process of its own, for one cannot always come back from a network namespace; and one for all pods, for to fork costs more
than to make a network.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from typing import Any

from . import forked_task, ipc
from .network import Network, listen, make_bridge, make_host, make_pod


class Maker:
    """Our end of it. Whoever waits for what it makes watches `socket`."""

    def __init__(self, *, gateway: str | None, prefix_length: int) -> None:
        """Start it. Without a gateway pods get no network of their own.

        Raises:
            OSError: this machine does not allow such networks.
        """
        self._job = forked_task.start(lambda connection: _work(connection, gateway, prefix_length))
        self.socket = self._job.socket
        self._inbox = ipc.Inbox(self.socket)
        (ready,) = self._inbox.receive()
        if "error" in ready.body:
            raise OSError(ready.body["errno"], ready.body["error"])
        self._bridge = ready.files[0] if ready.files else None

    def order(self, number: int, body: dict[str, Any]) -> None:
        """Ask for a pod's namespaces."""
        ipc.send(self.socket, {"id": number, "hostname": body["hostname"], "address": body["address"]})

    def listen(self, address: str) -> forked_task.Job:
        """Have a socket made that listens in the network in which all pods meet.

        Raises:
            OSError: that is the host's.
        """
        bridge = self._bridge
        if bridge is None:
            raise OSError(errno.ENETDOWN, "pods have no network of their own")
        return forked_task.start(lambda _: ({}, [listen(bridge, address=address).detach()]))

    def made(self) -> list[ipc.Message]:
        """What it has made meanwhile: each with the `id` it was ordered under, and the namespaces as open files, or an `error`."""
        messages = self._inbox.receive()
        if self._inbox.ended:
            raise EOFError("the maker of networks has ended")
        return messages


def _work(connection: socket.socket, gateway: str | None, prefix_length: int) -> forked_task.Answer:
    network = None if gateway is None else Network(make_bridge(gateway, prefix=prefix_length), gateway, prefix_length)
    ipc.send(connection, {"ready": True}, files=[] if network is None else [network.bridge])
    for order in _orders(connection):
        body, files = _make(network, order)
        ipc.send(connection, body, files=files)
        for file in files:
            os.close(file)
    os._exit(0)


def _orders(connection: socket.socket) -> Iterator[dict[str, Any]]:
    inbox = ipc.Inbox(connection)
    while not inbox.ended:
        for message in inbox.receive():
            yield message.body


def _make(network: Network | None, order: dict[str, Any]) -> forked_task.Answer:
    number, hostname, address = order["id"], order["hostname"], order["address"]
    try:
        if network is None or address is None:
            return {"id": number}, make_host(hostname)
        return {"id": number}, make_pod(network, number=number, hostname=hostname, address=address)
    except OSError as error:
        return {"id": number, "error": error.strerror, "errno": error.errno}, []
