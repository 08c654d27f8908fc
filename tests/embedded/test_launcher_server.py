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


ENDED = {"error": "the process ended before its program was started", "exit_code": 128}
NOT_FOUND = {"error": "no such file", "exit_code": 127}


@dataclass
class EndedProcess:
    task: ForkedTask

    def signal(self, number: int) -> None:
        """The process does not exist."""

    def exit_report(self, status: int) -> dict[str, Any]:
        return {"status": status}


@dataclass
class FailingHost:
    """Its processes end before they have started their programs. They may send messages before."""

    messages: tuple[dict[str, Any], ...]
    netns_worker = None

    def create_sandbox(self, sandbox: int, body: dict[str, Any]) -> bool:
        return True

    def add_namespaces(self, sandbox: int, fds: list[int]) -> None:
        """Never called."""

    def start(self, sandbox: int, spec: ProcessSpec) -> EndedProcess:
        def work(connection: socket.socket) -> TaskResult:
            for message in self.messages:
                ipc.send(connection, message)
            os._exit(9)

        return EndedProcess(fork_task(work))

    def connect(self, sandbox: int, body: dict[str, Any]) -> ForkedTask:
        raise NotImplementedError

    def close(self, sandbox: int) -> None:
        """Nothing to release."""


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize(("messages", "response"), [((), ENDED), (({"pid": 5}, NOT_FOUND), {"pid": 5, **NOT_FOUND})])
def test_a_process_that_ends_before_its_program_is_started_is_an_error_and_no_exit(
    messages: tuple[dict[str, Any], ...], response: dict[str, Any]
) -> None:
    ours, theirs = socket.socketpair()
    # The server handles signals, so it needs a main thread of its own.
    pid = os.fork()
    if not pid:
        try:
            ours.close()
            LauncherServer(theirs, FailingHost(messages)).run()
        finally:
            os._exit(0)
    theirs.close()
    with ours:
        ours.settimeout(30)
        reader = ipc.MessageReader(ours)
        received: list[dict[str, Any]] = []
        # While the second process starts, the exit of the first one would be reported.
        for number in (1, 2):
            ipc.send(ours, {**START, "id": number})
            while not any(message.get("id") == number for message in received):
                received += [message.body for message in reader.receive()]
    os.waitpid(pid, 0)
    assert received == [{"id": 1, **response}, {"id": 2, **response}]
