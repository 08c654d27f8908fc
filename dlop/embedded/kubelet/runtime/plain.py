"""Pods as plain processes: anywhere, with little between them.

They share the host's network and files. A pod has a loopback address; paths of mounts and names of services are put into arguments
and variables by hand. Everything a process starts still ends with it.
"""

from __future__ import annotations

import random
import socket
import sys
from typing import Self

from dlop.embedded.kubelet.runtime.base import Launch, LaunchError, SandboxRequest
from dlop.embedded.kubelet.runtime.launcher_client import LaunchedProcess, Launcher
from dlop.embedded.kubelet.runtime.loopback import ONLY_ADDRESS, LoopbackBlock
from dlop.embedded.kubelet.runtime.path_rewrite import rewriter
from dlop.embedded.kubelet.runtime.sandbox_base import LaunchedSandbox, Translated


class PlainSandbox(LaunchedSandbox):
    """A pod of plain processes."""

    def __init__(self, launcher: Launcher, *, number: int, address: str, request: SandboxRequest) -> None:
        super().__init__(launcher, number=number, address=address)
        self._request = request

    async def start(self, launch: Launch) -> LaunchedProcess:
        """Start a process. One beside another ends with it, as it would if they had a process table of their own.

        Raises:
            LaunchError: it could not be started.
        """
        process = await super().start(launch)
        if isinstance(launch.inside, LaunchedProcess):
            launch.inside.when_ended(lambda: process.signal(9))
        return process

    def write_hosts(self, text: str) -> None:
        """Nobody would read it."""

    def translate(self, launch: Launch) -> Translated:
        """Mounts and names, put in by hand."""
        rewrite = rewriter(paths={mount.target: str(mount.source) for mount in launch.mounts}, names=self._request.names)
        return Translated(
            argv=tuple(rewrite(argument) for argument in launch.argv),
            environment={name: rewrite(value) for name, value in launch.environment.items()},
            folder=launch.working_folder and rewrite(launch.working_folder),
        )


class PlainRuntime:
    """Runs pods as plain processes."""

    def __init__(self, *, dice: random.Random | None = None) -> None:
        self._block = LoopbackBlock(dice=dice)
        self._launcher: Launcher | None = None

    @property
    def description(self) -> str:
        """One line for the user: what isolation there is, and what is missing."""
        ports = "" if sys.platform == "linux" else " and the same address, so ports may collide"
        return (
            f"pods run as plain processes: they share this machine's files and network{ports}; "
            "what they open is open to the network too, and service names work in variables only"
        )

    @property
    def node_address(self) -> str:
        """The address under which pods reach the node."""
        return ONLY_ADDRESS

    @property
    def resolves_names(self) -> bool:
        """Pods see the host's own hosts file."""
        return False

    async def __aenter__(self) -> Self:
        self._launcher = await Launcher.start("main_plain")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._block.close()
        if self._launcher is not None:
            await self._launcher.stop()

    async def sandbox(self, request: SandboxRequest) -> PlainSandbox:
        """A place for a pod.

        Raises:
            LaunchError: it could not be made.
        """
        if self._launcher is None:
            raise LaunchError("the runtime is not running")
        address = self.node_address if request.host_network else self._block.next()
        number = await self._launcher.make_sandbox({})
        return PlainSandbox(self._launcher, number=number, address=address, request=request)

    async def listen(self) -> socket.socket | None:
        """Pods are on this machine's network."""
        return None
