"""Worker process that creates the network, UTS and IPC namespaces of pods.

It is a separate process because a process cannot always return from a network namespace. One process serves all pods, because a
fork costs more than the creation of a namespace.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from typing import Any

from . import forked_task, ipc
from .network import PodNetwork, create_bridge, create_pod_namespaces, create_uts_ipc_namespaces, listen


class NetnsWorker:
    """The launcher's side of the worker. `socket` becomes readable when namespaces have been created."""

    def __init__(self, *, gateway: str | None, prefix_length: int) -> None:
        """Start the worker. Without a gateway, pods use the host's network.

        Raises:
            OSError: this machine does not allow such networks.
        """
        self._task = forked_task.fork_task(lambda connection: _work(connection, gateway, prefix_length))
        self.socket = self._task.socket
        self._reader = ipc.MessageReader(self.socket)
        (ready,) = self._reader.receive()
        if "error" in ready.body:
            raise OSError(ready.body["errno"], ready.body["error"])
        self._bridge_netns = ready.fds[0] if ready.fds else None

    def request_namespaces(self, sandbox: int, body: dict[str, Any]) -> None:
        """Request the namespaces of a pod. `receive` returns the response."""
        ipc.send(self.socket, {"id": sandbox, "hostname": body["hostname"], "address": body["address"]})

    def listen(self, address: str) -> forked_task.ForkedTask:
        """Create a listening socket in the network namespace of the bridge.

        Raises:
            OSError: pods use the host's network.
        """
        bridge_netns = self._bridge_netns
        if bridge_netns is None:
            raise OSError(errno.ENETDOWN, "pods use the host network")
        return forked_task.fork_task(lambda _: ({}, [listen(bridge_netns, address=address).detach()]))

    def receive(self) -> list[ipc.Message]:
        """Responses so far. Each has the `id` of its request and carries the open namespaces, or has an `error`."""
        messages = self._reader.receive()
        if self._reader.ended:
            raise EOFError("the network namespace worker has exited")
        return messages


def _work(connection: socket.socket, gateway: str | None, prefix_length: int) -> forked_task.TaskResult:
    network = None if gateway is None else PodNetwork(create_bridge(gateway, prefix_length=prefix_length), gateway, prefix_length)
    ipc.send(connection, {"ready": True}, fds=[] if network is None else [network.bridge_netns])
    for request in _requests(connection):
        body, fds = _create_namespaces(network, request)
        ipc.send(connection, body, fds=fds)
        for fd in fds:
            os.close(fd)
    os._exit(0)


def _requests(connection: socket.socket) -> Iterator[dict[str, Any]]:
    reader = ipc.MessageReader(connection)
    while not reader.ended:
        for message in reader.receive():
            yield message.body


def _create_namespaces(network: PodNetwork | None, request: dict[str, Any]) -> forked_task.TaskResult:
    number, hostname, address = request["id"], request["hostname"], request["address"]
    try:
        if network is None or address is None:
            return {"id": number}, create_uts_ipc_namespaces(hostname)
        return {"id": number}, create_pod_namespaces(network, number=number, hostname=hostname, address=address)
    except OSError as error:
        return {"id": number, "error": error.strerror, "errno": error.errno}, []
