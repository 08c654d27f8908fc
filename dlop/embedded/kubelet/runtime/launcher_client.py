"""Client of the launcher: starts it, sends requests to it and receives the exits of processes.

The launcher is the package next to this file. It runs as a program of its own, so that processes are forked from a small process.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dlop.embedded.kubelet.runtime.base import ExitStatus, LaunchError
from dlop.embedded.kubelet.runtime.fd_socket import FdSocket
from dlop.embedded.kubelet.runtime.launcher.ipc import Message

_PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); from launcher.{module} import main; main({arguments})"
_EXITED = "the launcher has exited"


class LaunchedProcess:
    """A process of the launcher. Implements `Process`."""

    def __init__(self, id: int, *, pid: int, send_signal: Callable[[int], None]) -> None:  # noqa: A002 - the launcher's word
        self.id = id
        self._pid = pid
        self._send_signal = send_signal
        self._exit: asyncio.Future[ExitStatus] = asyncio.get_running_loop().create_future()

    @property
    def pid(self) -> int:
        return self._pid

    async def wait(self) -> ExitStatus:
        # Shielded, because several callers may wait.
        return await asyncio.shield(self._exit)

    def signal(self, number: int) -> None:
        if not self._exit.done():
            self._send_signal(number)

    def set_exit(self, status: ExitStatus) -> None:
        self._exit.set_result(status)

    def add_exit_callback(self, callback: Callable[[], None]) -> None:
        self._exit.add_done_callback(lambda _: callback())


class LauncherClient:
    """A running launcher."""

    def __init__(self, connect: Callable[[LauncherClient], FdSocket], program: asyncio.subprocess.Process) -> None:
        self._socket = connect(self)
        self._program = program
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._has_exited = False
        self._last_id = 0
        self._responses: dict[int, asyncio.Future[Message]] = {}
        self._starts: dict[int, asyncio.Future[LaunchedProcess]] = {}
        self._processes: dict[int, LaunchedProcess] = {}

    @classmethod
    async def start(cls, module: str, *arguments: object) -> LauncherClient:
        """Start a launcher and wait until it is ready. It calls `main` of this launcher module with these arguments.

        Raises:
            LaunchError: the launcher cannot work on this machine.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            program = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", "-c"),
                _PROGRAM.format(module=module, arguments=", ".join(repr(argument) for argument in (theirs.fileno(), *arguments))),
                str(Path(__file__).parent),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                # Ctrl-C must reach only the foreground program, which stops its pods gracefully.
                start_new_session=True,
            )
        client = cls(lambda self: FdSocket(ours, on_message=self._on_message, on_end=self._on_exit), program)
        try:
            await client._ready
        except BaseException:
            await client.stop()
            raise
        return client

    @property
    def is_running(self) -> bool:
        return not self._has_exited

    async def stop(self) -> None:
        """Stop the launcher and everything that it has started."""
        self._socket.close()
        self._on_exit()
        await self._program.wait()

    async def request(self, body: dict[str, Any]) -> Message:
        """Send a request and wait for the response.

        Raises:
            LaunchError: the request failed.
            OSError: the request failed with an error of the system.
        """
        response: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._responses[self._send_request(body)] = response
        return await response

    async def create_sandbox(self, body: dict[str, Any]) -> int:
        """Create a sandbox. Returns its ID. A sandbox whose caller was cancelled is closed again.

        Raises:
            LaunchError: the sandbox could not be created.
            OSError: the sandbox could not be created, with an error of the system.
        """
        request = asyncio.ensure_future(self.request({"method": "create_sandbox"} | body))
        try:
            sandbox: int = (await asyncio.shield(request)).body["id"]
        except asyncio.CancelledError:
            request.add_done_callback(self._close_unused_sandbox)
            raise
        return sandbox

    async def start_process(self, body: dict[str, Any], *, fds: Sequence[int]) -> LaunchedProcess:
        """Start a process.

        Raises:
            LaunchError: it could not be started.
        """
        started: asyncio.Future[LaunchedProcess] = asyncio.get_running_loop().create_future()
        self._starts[self._send_request(body, fds=fds)] = started
        return await started

    def _send_request(self, body: dict[str, Any], *, fds: Sequence[int] = ()) -> int:
        if self._has_exited:
            raise LaunchError(_EXITED)
        self._last_id += 1
        self._socket.send(body | {"id": self._last_id}, fds=fds)
        return self._last_id

    def _on_message(self, message: Message) -> None:
        body = message.body
        if "exited" in body:
            status = _exit_status(body["status"], out_of_memory=body.get("out_of_memory", False))
            self._processes.pop(body["exited"]).set_exit(status)
        elif "id" not in body:
            self._on_ready(body)
        elif body["id"] in self._starts:
            self._on_start(body["id"], body)
        elif body["id"] in self._responses:
            self._on_response(self._responses.pop(body["id"]), message)

    def _on_ready(self, body: dict[str, Any]) -> None:
        if "error" in body:
            self._ready.set_exception(LaunchError(body["error"]))
        else:
            self._ready.set_result(None)

    def _on_start(self, id: int, body: dict[str, Any]) -> None:  # noqa: A002 - the launcher's word
        started = self._starts.pop(id)
        if "error" in body:
            if not started.done():
                started.set_exception(LaunchError(body["error"], exit_code=body["exit_code"]))
            return
        process = LaunchedProcess(id, pid=body["pid"], send_signal=lambda number: self._send_signal(id, number))
        self._processes[id] = process
        if started.done():
            # The caller was cancelled, and nothing else knows this process.
            process.signal(signal.SIGKILL)
        else:
            started.set_result(process)

    def _on_response(self, response: asyncio.Future[Message], message: Message) -> None:
        if response.done():
            for fd in message.fds:
                os.close(fd)
        elif "error" in message.body:
            response.set_exception(_error(message.body))
        else:
            response.set_result(message)

    def _close_unused_sandbox(self, request: asyncio.Task[Message]) -> None:
        if not request.cancelled() and request.exception() is None and not self._has_exited:
            self._send_request({"method": "close_sandbox", "sandbox": request.result().body["id"]})

    def _send_signal(self, process: int, number: int) -> None:
        self._socket.send({"method": "signal", "process": process, "signal": number})

    def _on_exit(self) -> None:
        """The launcher has exited, and with it everything that it has started."""
        self._has_exited = True
        waiting: list[asyncio.Future[Any]] = [self._ready, *self._responses.values(), *self._starts.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(LaunchError(_EXITED))
        self._responses.clear()
        self._starts.clear()
        for process in self._processes.values():
            process.set_exit(_exit_status(signal.SIGKILL))
        self._processes.clear()


def _error(body: dict[str, Any]) -> Exception:
    if body.get("errno"):
        return OSError(body["errno"], body["error"])
    return LaunchError(body["error"], exit_code=body.get("exit_code", 128))


def _exit_status(wait_status: int, *, out_of_memory: bool = False) -> ExitStatus:
    code = os.waitstatus_to_exitcode(wait_status)
    if code >= 0:
        return ExitStatus(code, out_of_memory=out_of_memory)
    return ExitStatus(128 - code, signal=-code, out_of_memory=out_of_memory)
