"""The runtime's side of the launcher: starts it, gives it orders, and hears how processes ended.

The launcher is the package beside this file. It runs as a program of its own, so that processes are forked from something small.
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

from dlop.embedded.kubelet.runtime.base import Exit, LaunchError
from dlop.embedded.kubelet.runtime.fd_socket import Channel
from dlop.embedded.kubelet.runtime.launcher.ipc import Message

_PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); from launcher.{module} import main; main({arguments})"
_LOST = "the launcher has ended"


class LaunchedProcess:
    """A process, which the launcher knows by a number."""

    def __init__(self, number: int, *, pid: int, send_signal: Callable[[int], None]) -> None:
        self.number = number
        self._pid = pid
        self._send_signal = send_signal
        self._exit: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()

    @property
    def pid(self) -> int:
        """Its number on the host."""
        return self._pid

    async def wait(self) -> Exit:
        """Wait for its end. May be called any number of times."""
        # Whoever stops waiting stops for himself alone.
        return await asyncio.shield(self._exit)

    def signal(self, number: int) -> None:
        """Send a signal to it. Harmless after its end."""
        if not self._exit.done():
            self._send_signal(number)

    def ended(self, how: Exit) -> None:
        """The launcher has told its end."""
        self._exit.set_result(how)

    def when_ended(self, callback: Callable[[], None]) -> None:
        """Call back at its end."""
        self._exit.add_done_callback(lambda _: callback())


class Launcher:
    """A launcher, while it runs."""

    def __init__(self, channel_of: Callable[[Launcher], Channel], program: asyncio.subprocess.Process) -> None:
        self._channel = channel_of(self)
        self._program = program
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_lost = False
        self._last_number = 0
        self._answers: dict[int, asyncio.Future[Message]] = {}
        self._starts: dict[int, asyncio.Future[LaunchedProcess]] = {}
        self._processes: dict[int, LaunchedProcess] = {}

    @classmethod
    async def start(cls, module: str, *arguments: object) -> Launcher:
        """Start one and wait until it is ready. It begins in this module of the launcher, with these arguments.

        Raises:
            LaunchError: it cannot work here; the message says why.
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
                # Ctrl-C is for the program in front, which ends its pods in good order.
                start_new_session=True,
            )
        launcher = cls(lambda self: Channel(ours, on_message=self._hear, on_end=self._lost), program)
        try:
            await launcher._ready
        except BaseException:
            await launcher.stop()
            raise
        return launcher

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return not self._is_lost

    async def stop(self) -> None:
        """End it, and with it everything that it has started."""
        self._channel.close()
        self._lost()
        await self._program.wait()

    async def ask(self, body: dict[str, Any]) -> Message:
        """Give an order and wait until it is carried out.

        Raises:
            LaunchError: it failed.
            OSError: it failed, and the system says why.
        """
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._answers[self._order(body)] = answer
        return await answer

    async def make_sandbox(self, body: dict[str, Any]) -> int:
        """Make a place for a pod. Returns its number.

        Raises:
            LaunchError: it could not be made.
            OSError: it could not be made, and the system says why.
        """
        asking = asyncio.ensure_future(self.ask({"order": "sandbox"} | body))
        try:
            number: int = (await asyncio.shield(asking)).body["id"]
        except asyncio.CancelledError:
            asking.add_done_callback(self._give_back)
            raise
        return number

    async def launch(self, body: dict[str, Any], *, files: Sequence[int]) -> LaunchedProcess:
        """Start a process.

        Raises:
            LaunchError: it could not be started.
        """
        started: asyncio.Future[LaunchedProcess] = asyncio.get_running_loop().create_future()
        self._starts[self._order(body, files=files)] = started
        return await started

    def _order(self, body: dict[str, Any], *, files: Sequence[int] = ()) -> int:
        if self._is_lost:
            raise LaunchError(_LOST)
        self._last_number += 1
        self._channel.send(body | {"id": self._last_number}, files=files)
        return self._last_number

    def _hear(self, message: Message) -> None:
        body = message.body
        if "ended" in body:
            self._processes.pop(body["ended"]).ended(_exit(body["status"], out_of_memory=body.get("out_of_memory", False)))
        elif "id" not in body:
            self._hear_first(body)
        elif body["id"] in self._starts:
            self._hear_start(body["id"], body)
        elif body["id"] in self._answers:
            self._hear_answer(self._answers.pop(body["id"]), message)

    def _hear_first(self, body: dict[str, Any]) -> None:
        if "error" in body:
            self._ready.set_exception(LaunchError(body["error"]))
        else:
            self._ready.set_result(None)

    def _hear_start(self, number: int, body: dict[str, Any]) -> None:
        started = self._starts.pop(number)
        if "error" in body:
            if not started.done():
                started.set_exception(LaunchError(body["error"], exit_code=body["exit_code"]))
            return
        process = LaunchedProcess(number, pid=body["pid"], send_signal=lambda signal: self._signal(number, signal))
        self._processes[number] = process
        if started.done():
            # Whoever wanted it has stopped waiting, and nobody else knows of it.
            process.signal(signal.SIGKILL)
        else:
            started.set_result(process)

    def _hear_answer(self, answer: asyncio.Future[Message], message: Message) -> None:
        if answer.done():
            for file in message.files:
                os.close(file)
        elif "error" in message.body:
            answer.set_exception(_error(message.body))
        else:
            answer.set_result(message)

    def _give_back(self, asking: asyncio.Task[Message]) -> None:
        """A sandbox that nobody waits for any more."""
        if not asking.cancelled() and asking.exception() is None and not self._is_lost:
            self._order({"order": "close", "sandbox": asking.result().body["id"]})

    def _signal(self, process: int, number: int) -> None:
        self._channel.send({"order": "signal", "process": process, "number": number})

    def _lost(self) -> None:
        """It is gone, and so is everything that it has started."""
        self._is_lost = True
        waiting: list[asyncio.Future[Any]] = [self._ready, *self._answers.values(), *self._starts.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(LaunchError(_LOST))
        self._answers.clear()
        self._starts.clear()
        for process in self._processes.values():
            process.ended(_exit(signal.SIGKILL))
        self._processes.clear()


def _error(body: dict[str, Any]) -> Exception:
    if body.get("errno"):
        return OSError(body["errno"], body["error"])
    return LaunchError(body["error"], exit_code=body.get("exit_code", 128))


def _exit(status: int, *, out_of_memory: bool = False) -> Exit:
    code = os.waitstatus_to_exitcode(status)
    return Exit(code, out_of_memory=out_of_memory) if code >= 0 else Exit(128 - code, signal=-code, out_of_memory=out_of_memory)
