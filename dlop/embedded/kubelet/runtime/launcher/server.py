"""The launcher's main loop: requests arrive over one socket, and responses and exits go back over it.

A request is `{"method": <name>, "id": <number>, ...}`. Its response is `{"id": <number>, ...}`, with an `error` if it failed. The exit
of a process is reported as `{"exited": <process>, "status": <wait(2) status>}`. The ID of a process is the ID of the request that
started it. Nothing here waits for a child, so many pods can start at the same time.
"""

from __future__ import annotations

import errno
import os
import selectors
import signal
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from . import ipc
from .forked_task import ForkedTask
from .netns_worker import NetnsWorker
from .process_spec import JoinTarget, ProcessSpec
from .subreaper import ignore_signal


class StartedProcess(Protocol):
    @property
    def task(self) -> ForkedTask: ...

    def signal(self, number: int) -> None: ...

    def exit_report(self, status: int) -> dict[str, Any]:
        """The exit of the process, given the wait status of its task."""
        ...


class LauncherHost(Protocol):
    """The operations that differ between namespaces and plain processes."""

    @property
    def netns_worker(self) -> NetnsWorker | None: ...

    def create_sandbox(self, sandbox: int, body: dict[str, Any]) -> bool:
        """Create a sandbox. Returns False if that completes later, by `add_namespaces`."""
        ...

    def add_namespaces(self, sandbox: int, fds: list[int]) -> None: ...

    def start(self, sandbox: int, spec: ProcessSpec) -> StartedProcess: ...

    def connect(self, sandbox: int, body: dict[str, Any]) -> ForkedTask:
        """Connect to a port of a pod."""
        ...

    def close(self, sandbox: int) -> None: ...


@dataclass(slots=True)
class _Child:
    """A forked child, and the messages received from it so far."""

    id: int
    task: ForkedTask
    reader: ipc.MessageReader
    process: StartedProcess | None = None
    result: dict[str, Any] = field(default_factory=dict)
    fds: list[int] = field(default_factory=list)
    is_done: bool = False

    def receive(self) -> bool:
        """Read from the child. Returns whether it has sent everything."""
        for message in self.reader.receive():
            self.result |= message.body
            self.fds += message.fds
        return self.reader.ended


class LauncherServer:
    """Handles requests until the other end of the socket is closed."""

    def __init__(self, control: socket.socket, host: LauncherHost) -> None:
        self._control = control
        self._reader = ipc.MessageReader(control)
        self._host = host
        self._children: dict[int, _Child] = {}
        self._processes: dict[int, _Child] = {}
        self._selector = selectors.DefaultSelector()
        self._methods = {
            "create_sandbox": self._create_sandbox,
            "start": self._start,
            "connect": self._connect,
            "listen": self._listen,
            "signal": self._signal,
            "close_sandbox": self._close_sandbox,
        }

    def run(self) -> None:
        sigchld, wakeup = socket.socketpair()
        sigchld.settimeout(0)
        wakeup.settimeout(0)
        signal.signal(signal.SIGCHLD, ignore_signal)
        signal.set_wakeup_fd(wakeup.fileno(), warn_on_full_buffer=False)
        self._selector.register(sigchld, selectors.EVENT_READ, lambda: self._reap(sigchld))
        self._selector.register(self._control, selectors.EVENT_READ, self._handle_requests)
        worker = self._host.netns_worker
        if worker is not None:
            self._selector.register(worker.socket, selectors.EVENT_READ, lambda: self._add_namespaces(worker))
        while not self._reader.ended:
            for key, _ in self._selector.select():
                key.data()

    def _handle_requests(self) -> None:
        with suppress(ConnectionResetError):
            for message in self._reader.receive():
                try:
                    self._methods[message.body["method"]](message.body, message.fds)
                except OSError as error:
                    self._respond(message.body["id"], {"error": error.strerror or str(error), "errno": error.errno, "exit_code": 128})
                finally:
                    for fd in message.fds:
                        os.close(fd)

    def _create_sandbox(self, body: dict[str, Any], _fds: list[int]) -> None:
        if self._host.create_sandbox(body["id"], body):
            self._respond(body["id"], {})

    def _add_namespaces(self, worker: NetnsWorker) -> None:
        for message in worker.receive():
            if "error" not in message.body:
                self._host.add_namespaces(message.body["id"], message.fds)
            self._send(message.body)

    def _start(self, body: dict[str, Any], fds: list[int]) -> None:
        container = self._processes.get(body["join"]) if body["join"] is not None else None
        if body["join"] is not None and container is None:
            self._respond(body["id"], {"error": "container is not running", "exit_code": 128})
            return
        target = JoinTarget(container.result["pid"], container.result.get("cgroup")) if container else None
        process = self._host.start(body["sandbox"], ProcessSpec.from_request(body, fds, join=target))
        self._add_child(_Child(body["id"], process.task, ipc.MessageReader(process.task.socket), process=process))

    def _connect(self, body: dict[str, Any], _fds: list[int]) -> None:
        task = self._host.connect(body["sandbox"], body)
        self._add_child(_Child(body["id"], task, ipc.MessageReader(task.socket)))

    def _listen(self, body: dict[str, Any], _fds: list[int]) -> None:
        worker = self._host.netns_worker
        if worker is None:
            raise OSError(errno.ENETDOWN, "pods use the host network")
        task = worker.listen(body["address"])
        self._add_child(_Child(body["id"], task, ipc.MessageReader(task.socket)))

    def _signal(self, body: dict[str, Any], _fds: list[int]) -> None:
        child = self._processes.get(body["process"])
        if child is not None and child.process is not None:
            with suppress(OSError):
                child.process.signal(body["signal"])

    def _close_sandbox(self, body: dict[str, Any], _fds: list[int]) -> None:
        self._host.close(body["sandbox"])
        self._respond(body["id"], {})

    def _add_child(self, child: _Child) -> None:
        self._children[child.task.pid] = child
        self._selector.register(child.task.socket, selectors.EVENT_READ, lambda: self._receive_from(child))

    def _receive_from(self, child: _Child) -> None:
        # The child may have been reaped, and therefore read to the end, in the same round of the selector.
        if not child.is_done and child.receive():
            self._finish(child)

    def _finish(self, child: _Child) -> None:
        """Send the response, because the child sends no more messages."""
        child.is_done = True
        self._selector.unregister(child.task.socket)
        child.task.socket.close()
        if child.process is not None and "pid" not in child.result:
            # For example, a child that was killed while it set up its mounts sends nothing.
            child.result.setdefault("error", "the process ended before its program was started")
            child.result.setdefault("exit_code", 128)
        if child.process is not None and "error" not in child.result:
            self._processes[child.id] = child
        self._respond(child.id, child.result, fds=child.fds)
        for fd in child.fds:
            os.close(fd)

    def _reap(self, sigchld: socket.socket) -> None:
        sigchld.recv(4096)
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    break
                child = self._children.pop(pid, None)
                if child is not None:
                    self._handle_exit(child, status)

    def _handle_exit(self, child: _Child, status: int) -> None:
        while not child.is_done:
            self._receive_from(child)
        if child.process is None:
            return
        report = child.process.exit_report(status)
        if self._processes.pop(child.id, None) is not None:
            self._send({"exited": child.id} | report)

    def _respond(self, request: int, body: dict[str, Any], *, fds: list[int] | None = None) -> None:
        self._send({"id": request} | body, fds=fds)

    def _send(self, body: dict[str, Any], *, fds: list[int] | None = None) -> None:
        # The runtime may already be gone. The main loop sees the end of the stream and exits.
        with suppress(BrokenPipeError, ConnectionResetError):
            ipc.send(self._control, body, fds=fds or ())
