"""Pods as plain processes, for machines that do not allow namespaces."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Any

from . import forked_task, network, rlimits
from .process_spec import ProcessSpec
from .subreaper import run_subreaper

_CONNECT_SECONDS = 10.0
_KILLED = 9
_MAX_PROCESSES = 4096


@dataclass(frozen=True, slots=True)
class Subreaper:
    """A process whose parent is a subreaper, which is the launcher's child."""

    task: forked_task.ForkedTask
    lifeline: socket.socket

    def signal(self, number: int) -> None:
        self.lifeline.send(bytes([number]))

    def exit_report(self, status: int) -> dict[str, Any]:
        """The exit status as reported by the subreaper, or SIGKILL if the subreaper itself was killed."""
        try:
            data = self.lifeline.recv(4)
        except ConnectionResetError:
            data = b""
        self.lifeline.close()
        return {"status": int.from_bytes(data, "big") if data else _KILLED}


class PlainHost:
    """Starts each process below a subreaper."""

    netns_worker = None

    def create_sandbox(self, sandbox: int, body: dict[str, Any]) -> bool:
        """Always complete, because a sandbox has no resources here."""
        return True

    def add_namespaces(self, sandbox: int, fds: list[int]) -> None:
        """Never called."""

    def start(self, sandbox: int, spec: ProcessSpec) -> Subreaper:
        """Start a process. `spec.join` has no effect, because nothing is isolated."""
        ours, theirs = socket.socketpair()

        def exec_process() -> None:
            rlimits.reset_child_limits()
            rlimits.limit_user_processes(_MAX_PROCESSES)
            if spec.memory_bytes is not None:
                rlimits.limit_memory(spec.memory_bytes)
            spec.exec(spec.working_dir or "/")

        def work(connection: socket.socket) -> forked_task.TaskResult:
            ours.close()
            run_subreaper(theirs, connection, exec_process)
            os._exit(0)

        task = forked_task.fork_task(work)
        theirs.close()
        return Subreaper(task, ours)

    def connect(self, sandbox: int, body: dict[str, Any]) -> forked_task.ForkedTask:
        def work(_: socket.socket) -> forked_task.TaskResult:
            connection = network.connect(None, addresses=body["addresses"], port=body["port"], timeout_seconds=_CONNECT_SECONDS)
            return {}, [connection.detach()]

        return forked_task.fork_task(work)

    def close(self, sandbox: int) -> None:
        """Nothing to release."""
