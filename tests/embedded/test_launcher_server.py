"""The launcher's server, without the runtime that uses it."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Any

import pytest

from dlop.embedded.kubelet.runtime.launcher import ipc
from dlop.embedded.kubelet.runtime.launcher.forked_task import ForkedTask, TaskResult, fork_task
from dlop.embedded.kubelet.runtime.launcher.process_spec import ProcessSpec
from dlop.embedded.kubelet.runtime.launcher.server import LauncherServer

START: dict[str, Any] = {
    "method": "start",
    "id": 1,
    "sandbox": 0,
    "join": None,
    "argv": ["true"],
    "environment": {},
    "working_dir": None,
    "mounts": [],
    "streams": [False, False, False],
    "terminal": False,
    "memory_bytes": None,
}


@dataclass
class KilledProcess:
    task: ForkedTask

    def signal(self, number: int) -> None:
        """The process does not exist."""

    def exit_report(self, status: int) -> dict[str, Any]:
        return {"status": status}


class KillingHost:
    """Its processes end before they have started their programs."""

    netns_worker = None

    def create_sandbox(self, sandbox: int, body: dict[str, Any]) -> bool:
        return True

    def add_namespaces(self, sandbox: int, fds: list[int]) -> None:
        """Never called."""

    def start(self, sandbox: int, spec: ProcessSpec) -> KilledProcess:
        def work(_: socket.socket) -> TaskResult:
            os._exit(9)

        return KilledProcess(fork_task(work))

    def connect(self, sandbox: int, body: dict[str, Any]) -> ForkedTask:
        raise NotImplementedError

    def close(self, sandbox: int) -> None:
        """Nothing to release."""


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_process_that_ends_before_its_program_is_started_is_an_error() -> None:
    ours, theirs = socket.socketpair()
    # The server handles signals, so it needs a main thread of its own.
    pid = os.fork()
    if not pid:
        try:
            ours.close()
            LauncherServer(theirs, KillingHost()).run()
        finally:
            os._exit(0)
    theirs.close()
    with ours:
        ipc.send(ours, START)
        ours.settimeout(30)
        reader = ipc.MessageReader(ours)
        messages: list[dict[str, Any]] = []
        while not messages:
            messages = [message.body for message in reader.receive()]
    os.waitpid(pid, 0)
    assert messages == [{"id": 1, "error": "the process ended before its program was started", "exit_code": 128}]
