"""What sandboxes of both kinds have in common: their processes are the launcher's, and end with the sandbox."""

from __future__ import annotations

import asyncio
import signal
import socket
from dataclasses import dataclass

from dlop.embedded.kubelet.runtime.base import Launch, LaunchError, Mount
from dlop.embedded.kubelet.runtime.launcher_client import LaunchedProcess, Launcher


@dataclass(frozen=True, slots=True, kw_only=True)
class Translated:
    """A launch as the launcher is to carry it out."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    folder: str | None
    mounts: tuple[Mount, ...] = ()
    optional_mounts: tuple[Mount, ...] = ()


class LaunchedSandbox:
    """A place for the processes of a pod. What a launch means there is for the subclass to say."""

    def __init__(self, launcher: Launcher, *, number: int, address: str) -> None:
        self._launcher = launcher
        self._number = number
        self._address = address
        self._processes: set[LaunchedProcess] = set()
        self._closed = False

    @property
    def address(self) -> str:
        """The pod's IP address."""
        return self._address

    async def start(self, launch: Launch) -> LaunchedProcess:
        """Start a process.

        Raises:
            LaunchError: it could not be started.
        """
        if self._closed:
            raise LaunchError("the pod's sandbox is closed")
        streams = (launch.stdin, launch.stdout, launch.stderr)
        files = [stream for stream in streams if stream is not None]
        process = await self._launcher.launch(self._order(launch), files=files)
        self._processes.add(process)
        process.when_ended(lambda: self._processes.discard(process))
        await self._refuse_if_closed(process)
        return process

    async def connect(self, port: int, *, address: str | None = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to a port of the pod, as if from inside of it.

        Raises:
            OSError: nobody listens there.
        """
        if self._closed:
            raise ConnectionRefusedError("the pod's sandbox is closed")
        addresses = ["127.0.0.1", self._address] if address is None else [address]
        try:
            message = await self._launcher.ask({"order": "connect", "sandbox": self._number, "addresses": addresses, "port": port})
        except LaunchError as error:
            raise ConnectionRefusedError(str(error)) from error
        return await asyncio.open_connection(sock=socket.socket(fileno=message.files[0]))

    async def close(self) -> None:
        """Kill what is left and give back everything."""
        if self._closed:
            return
        self._closed = True
        left = list(self._processes)
        for process in left:
            process.signal(signal.SIGKILL)
        for process in left:
            await process.wait()
        if self._launcher.is_running:
            await self._launcher.ask({"order": "close", "sandbox": self._number})

    def translate(self, launch: Launch) -> Translated:
        """What a launch means here."""
        raise NotImplementedError

    def _order(self, launch: Launch) -> dict[str, object]:
        if not launch.argv:
            raise LaunchError("no command specified")
        translated = self.translate(launch)
        mounts = [(mount, False) for mount in translated.mounts] + [(mount, True) for mount in translated.optional_mounts]
        # What lies in another comes after it.
        mounts.sort(key=lambda pair: pair[0].target.rstrip("/").count("/"))
        return {
            "order": "start",
            "sandbox": self._number,
            "argv": translated.argv,
            "environment": translated.environment,
            "folder": translated.folder,
            "bindings": [_binding(mount, optional=optional) for mount, optional in mounts],
            "streams": [stream is not None for stream in (launch.stdin, launch.stdout, launch.stderr)],
            "terminal": launch.terminal,
            "memory_bytes": launch.memory_limit_bytes,
            "beside": self._beside(launch),
        }

    def _beside(self, launch: Launch) -> int | None:
        if launch.inside is None:
            return None
        if not isinstance(launch.inside, LaunchedProcess) or launch.inside not in self._processes:
            raise LaunchError("container is not running")
        return launch.inside.number

    async def _refuse_if_closed(self, process: LaunchedProcess) -> None:
        # It may have been while the process was being started.
        if self._closed:
            process.signal(signal.SIGKILL)
            await process.wait()
            raise LaunchError("the pod's sandbox was closed")


def _binding(mount: Mount, *, optional: bool) -> dict[str, object]:
    return {"source": str(mount.source), "target": mount.target, "read_only": mount.read_only, "optional": optional}
