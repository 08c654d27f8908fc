"""Base class of sandboxes whose processes are started by the launcher."""

from __future__ import annotations

import asyncio
import signal
import socket
from dataclasses import dataclass

from dlop.embedded.kubelet.runtime.base import LaunchError, LaunchRequest, Mount
from dlop.embedded.kubelet.runtime.launcher_client import LaunchedProcess, LauncherClient


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslatedLaunch:
    """A launch request with everything that the sandbox adds or replaces."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    working_dir: str | None
    mounts: tuple[Mount, ...] = ()
    optional_mounts: tuple[Mount, ...] = ()


class LauncherSandbox:
    """Implements `Sandbox`, except for `translate` and `write_hosts`."""

    def __init__(self, launcher: LauncherClient, *, id: int, address: str) -> None:  # noqa: A002 - the launcher's word
        self._launcher = launcher
        self._id = id
        self._address = address
        self._processes: set[LaunchedProcess] = set()
        self._is_closed = False

    @property
    def address(self) -> str:
        return self._address

    async def start(self, launch: LaunchRequest) -> LaunchedProcess:
        if self._is_closed:
            raise LaunchError("the pod's sandbox is closed")
        streams = (launch.stdin, launch.stdout, launch.stderr)
        fds = [stream for stream in streams if stream is not None]
        process = await self._launcher.start_process(self._start_request(launch), fds=fds)
        self._processes.add(process)
        process.add_exit_callback(lambda: self._processes.discard(process))
        await self._kill_if_closed(process)
        return process

    async def connect(self, port: int, *, address: str | None = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._is_closed:
            raise ConnectionRefusedError("the pod's sandbox is closed")
        addresses = ["127.0.0.1", self._address] if address is None else [address]
        try:
            message = await self._launcher.request({"method": "connect", "sandbox": self._id, "addresses": addresses, "port": port})
        except LaunchError as error:
            raise ConnectionRefusedError(str(error)) from error
        return await asyncio.open_connection(sock=socket.socket(fileno=message.fds[0]))

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        remaining = list(self._processes)
        for process in remaining:
            process.signal(signal.SIGKILL)
        for process in remaining:
            await process.wait()
        if self._launcher.is_running:
            await self._launcher.request({"method": "close_sandbox", "sandbox": self._id})

    def translate(self, launch: LaunchRequest) -> TranslatedLaunch:
        raise NotImplementedError

    def _start_request(self, launch: LaunchRequest) -> dict[str, object]:
        if not launch.argv:
            raise LaunchError("no command specified")
        translated = self.translate(launch)
        mounts = [(mount, True) for mount in translated.optional_mounts] + [(mount, False) for mount in translated.mounts]
        # A mount below another one must come after it. A volume of the pod replaces an optional mount at the same path.
        mounts.sort(key=lambda pair: pair[0].target.rstrip("/").count("/"))
        return {
            "method": "start",
            "sandbox": self._id,
            "argv": translated.argv,
            "environment": translated.environment,
            "working_dir": translated.working_dir,
            "mounts": [_bind_mount(mount, optional=optional) for mount, optional in mounts],
            "streams": [stream is not None for stream in (launch.stdin, launch.stdout, launch.stderr)],
            "terminal": launch.terminal,
            "memory_bytes": launch.memory_limit_bytes,
            "join": self._joined_process(launch),
        }

    def _joined_process(self, launch: LaunchRequest) -> int | None:
        if launch.join is None:
            return None
        if not isinstance(launch.join, LaunchedProcess) or launch.join not in self._processes:
            raise LaunchError("container is not running")
        return launch.join.id

    async def _kill_if_closed(self, process: LaunchedProcess) -> None:
        # The sandbox may have been closed while the process was starting.
        if self._is_closed:
            process.signal(signal.SIGKILL)
            await process.wait()
            raise LaunchError("the pod's sandbox was closed")


def _bind_mount(mount: Mount, *, optional: bool) -> dict[str, object]:
    return {"source": str(mount.source), "target": mount.target, "read_only": mount.read_only, "optional": optional}
