"""The launcher's loop: orders come in over one socket, and what became of them goes out over it.

An order is `{"order": <what>, "id": <number>, ...}`; its answer is `{"id": <number>, ...}`, with an `error` if it failed. The end
of a process is `{"ended": <process>, "status": <as wait(2) tells it>}`. A process is called by the number of the order that started
it. Nothing here waits for a child: many pods can be started at a time.
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
from .forked_task import Job
from .netns_worker import Maker
from .process_spec import Neighbour, Order
from .subreaper import ignore


class Started(Protocol):
    """A process, seen from here."""

    @property
    def job(self) -> Job:
        """Our child."""
        ...

    def signal(self, number: int) -> None:
        """Send the process a signal."""
        ...

    def ended(self, status: int) -> dict[str, Any]:
        """How the process ended, now that our child has, in this way."""
        ...


class Host(Protocol):
    """What differs between namespaces and plain processes."""

    @property
    def maker(self) -> Maker | None:
        """Who makes what a pod needs, if it needs anything."""
        ...

    def sandbox(self, number: int, body: dict[str, Any]) -> bool:
        """Make a place for a pod, or have it made. Returns whether it is there already."""
        ...

    def sandbox_made(self, number: int, files: list[int]) -> None:
        """The maker has made it."""
        ...

    def start(self, sandbox: int, order: Order) -> Started:
        """Start a process."""
        ...

    def connect(self, sandbox: int, body: dict[str, Any]) -> Job:
        """Make a connection to a port of a pod."""
        ...

    def close(self, sandbox: int) -> None:
        """Give back what a pod had."""
        ...


@dataclass(slots=True)
class _Child:
    """A child of ours: what it is for, and what it has said."""

    id: int
    job: Job
    inbox: ipc.Inbox
    started: Started | None = None
    said: dict[str, Any] = field(default_factory=dict)
    files: list[int] = field(default_factory=list)
    answered: bool = False

    def listen(self) -> bool:
        """Take in what it says. Returns whether that was all."""
        for message in self.inbox.receive():
            self.said |= message.body
            self.files += message.files
        return self.inbox.ended


class Server:
    """Carries out orders until the other end of the socket is closed."""

    def __init__(self, control: socket.socket, host: Host) -> None:
        self._control = control
        self._inbox = ipc.Inbox(control)
        self._host = host
        self._children: dict[int, _Child] = {}
        self._processes: dict[int, _Child] = {}
        self._selector = selectors.DefaultSelector()
        self._orders = {
            "sandbox": self._sandbox,
            "start": self._start,
            "connect": self._connect,
            "listen": self._listen_for_pods,
            "signal": self._signal,
            "close": self._close,
        }

    def run(self) -> None:
        """Work until there is nobody to work for."""
        ended, wake = socket.socketpair()
        ended.settimeout(0)
        wake.settimeout(0)
        signal.signal(signal.SIGCHLD, ignore)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        self._selector.register(ended, selectors.EVENT_READ, lambda: self._reap(ended))
        self._selector.register(self._control, selectors.EVENT_READ, self._obey)
        maker = self._host.maker
        if maker is not None:
            self._selector.register(maker.socket, selectors.EVENT_READ, lambda: self._sandboxes_made(maker))
        while not self._inbox.ended:
            for key, _ in self._selector.select():
                key.data()

    def _obey(self) -> None:
        with suppress(ConnectionResetError):
            for message in self._inbox.receive():
                try:
                    self._orders[message.body["order"]](message.body, message.files)
                except OSError as error:
                    self._answer(message.body["id"], {"error": error.strerror or str(error), "errno": error.errno, "exit_code": 128})
                finally:
                    for file in message.files:
                        os.close(file)

    def _sandbox(self, body: dict[str, Any], _files: list[int]) -> None:
        if self._host.sandbox(body["id"], body):
            self._answer(body["id"], {})

    def _sandboxes_made(self, maker: Maker) -> None:
        for message in maker.made():
            if "error" not in message.body:
                self._host.sandbox_made(message.body["id"], message.files)
            self._send(message.body)

    def _start(self, body: dict[str, Any], files: list[int]) -> None:
        beside = self._processes.get(body["beside"]) if body["beside"] is not None else None
        if body["beside"] is not None and beside is None:
            self._answer(body["id"], {"error": "container is not running", "exit_code": 128})
            return
        neighbour = Neighbour(beside.said["pid"], beside.said.get("group")) if beside else None
        started = self._host.start(body["sandbox"], Order.of(body, files, beside=neighbour))
        self._expect(_Child(body["id"], started.job, ipc.Inbox(started.job.socket), started=started))

    def _connect(self, body: dict[str, Any], _files: list[int]) -> None:
        job = self._host.connect(body["sandbox"], body)
        self._expect(_Child(body["id"], job, ipc.Inbox(job.socket)))

    def _listen_for_pods(self, body: dict[str, Any], _files: list[int]) -> None:
        maker = self._host.maker
        if maker is None:
            raise OSError(errno.ENETDOWN, "pods have no network of their own")
        job = maker.listen(body["address"])
        self._expect(_Child(body["id"], job, ipc.Inbox(job.socket)))

    def _signal(self, body: dict[str, Any], _files: list[int]) -> None:
        child = self._processes.get(body["process"])
        if child is not None and child.started is not None:
            with suppress(OSError):
                child.started.signal(body["number"])

    def _close(self, body: dict[str, Any], _files: list[int]) -> None:
        self._host.close(body["sandbox"])
        self._answer(body["id"], {})

    def _expect(self, child: _Child) -> None:
        self._children[child.job.pid] = child
        self._selector.register(child.job.socket, selectors.EVENT_READ, lambda: self._listen(child))

    def _listen(self, child: _Child) -> None:
        # Perhaps it was reaped, and so heard to the end, a moment ago.
        if not child.answered and child.listen():
            self._finish(child)

    def _finish(self, child: _Child) -> None:
        """It will say nothing more: the order is carried out, or never will be."""
        child.answered = True
        self._selector.unregister(child.job.socket)
        child.job.socket.close()
        failed = "error" in child.said
        if child.started is not None and not failed:
            self._processes[child.id] = child
        self._answer(child.id, child.said, files=child.files)
        for file in child.files:
            os.close(file)

    def _reap(self, ended: socket.socket) -> None:
        ended.recv(4096)
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    break
                child = self._children.pop(pid, None)
                if child is not None:
                    self._ended(child, status)

    def _ended(self, child: _Child, status: int) -> None:
        while not child.answered:
            self._listen(child)
        if child.started is None:
            return
        result = child.started.ended(status)
        if self._processes.pop(child.id, None) is not None:
            self._send({"ended": child.id} | result)

    def _answer(self, number: int, body: dict[str, Any], *, files: list[int] | None = None) -> None:
        self._send({"id": number} | body, files=files)

    def _send(self, body: dict[str, Any], *, files: list[int] | None = None) -> None:
        # Nobody hears the last words to one who has gone; the loop ends by itself then.
        with suppress(BrokenPipeError, ConnectionResetError):
            ipc.send(self._control, body, files=files or ())
