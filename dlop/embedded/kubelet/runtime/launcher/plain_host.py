"""Pods as plain processes, where namespaces are not allowed."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Any

from . import forked_task, network, rlimits
from .process_spec import Order
from .subreaper import mind

_CONNECT_SECONDS = 10.0
_KILLED = 9
_MOST_PROCESSES = 4096


@dataclass(frozen=True, slots=True)
class Minded:
    """A process whose minder is our child."""

    job: forked_task.Job
    lifeline: socket.socket

    def signal(self, number: int) -> None:
        """Have the minder send it a signal."""
        self.lifeline.send(bytes([number]))

    def ended(self, status: int) -> dict[str, Any]:
        """How it ended, as its minder has said. Of one whose minder was killed, only that is known."""
        try:
            told = self.lifeline.recv(4)
        except ConnectionResetError:
            told = b""
        self.lifeline.close()
        return {"status": int.from_bytes(told, "big") if told else _KILLED}


class PlainHost:
    """Starts processes with a minder each."""

    maker = None

    def sandbox(self, number: int, body: dict[str, Any]) -> bool:
        """There is nothing to make."""
        return True

    def sandbox_made(self, number: int, files: list[int]) -> None:
        """Never called, for nothing is made."""

    def start(self, sandbox: int, order: Order) -> Minded:
        """Start a process. It makes no difference beside which."""
        ours, theirs = socket.socketpair()

        def become() -> None:
            rlimits.be_usual()
            rlimits.limit_shared_table(_MOST_PROCESSES)
            if order.memory_bytes is not None:
                rlimits.limit_memory(order.memory_bytes)
            order.carry_out(order.folder or "/")

        def work(connection: socket.socket) -> forked_task.Answer:
            ours.close()
            mind(theirs, connection, become)
            os._exit(0)

        job = forked_task.start(work)
        theirs.close()
        return Minded(job, ours)

    def connect(self, sandbox: int, body: dict[str, Any]) -> forked_task.Job:
        """Make a connection."""

        def work(_: socket.socket) -> forked_task.Answer:
            connection = network.connect(None, addresses=body["addresses"], port=body["port"], timeout_seconds=_CONNECT_SECONDS)
            return {}, [connection.detach()]

        return forked_task.start(work)

    def close(self, sandbox: int) -> None:
        """There is nothing to give back."""
