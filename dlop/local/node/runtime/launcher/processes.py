"""Pods as plain processes, where namespaces are not allowed."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Any

from . import jobs, limits, network
from .minder import mind
from .orders import Order

_CONNECT_SECONDS = 10.0
_KILLED = 9
_MOST_PROCESSES = 4096


@dataclass(frozen=True, slots=True)
class Minded:
    """A process whose minder is our child."""

    job: jobs.Job
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
            limits.be_usual()
            limits.limit_shared_table(_MOST_PROCESSES)
            if order.memory_bytes is not None:
                limits.limit_memory(order.memory_bytes)
            order.carry_out(order.folder or "/")

        def work(connection: socket.socket) -> jobs.Answer:
            ours.close()
            mind(theirs, connection, become)
            os._exit(0)

        job = jobs.start(work)
        theirs.close()
        return Minded(job, ours)

    def connect(self, sandbox: int, body: dict[str, Any]) -> jobs.Job:
        """Make a connection."""

        def work(_: socket.socket) -> jobs.Answer:
            connection = network.connect(None, addresses=body["addresses"], port=body["port"], timeout_seconds=_CONNECT_SECONDS)
            return {}, [connection.detach()]

        return jobs.start(work)

    def close(self, sandbox: int) -> None:
        """There is nothing to give back."""
