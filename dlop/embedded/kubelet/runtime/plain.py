"""Runtime that runs pods as plain processes, on any system and with little isolation.

Pods share the host's network and files. A pod has a loopback address. Mount paths and service names are rewritten in arguments and
variables. The descendants of a process are still killed with it.
"""

from __future__ import annotations

import random
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from dlop.embedded.kubelet.runtime.base import LaunchError, LaunchRequest, SandboxRequest
from dlop.embedded.kubelet.runtime.launcher_client import LaunchedProcess, LauncherClient
from dlop.embedded.kubelet.runtime.loopback import LOCALHOST, LoopbackBlock
from dlop.embedded.kubelet.runtime.path_rewrite import rewriter
from dlop.embedded.kubelet.runtime.sandbox_base import LauncherSandbox, TranslatedLaunch


class PlainSandbox(LauncherSandbox):
    def __init__(self, launcher: LauncherClient, *, id: int, address: str, request: SandboxRequest) -> None:  # noqa: A002 - the launcher's word
        super().__init__(launcher, id=id, address=address)
        self._request = request

    async def start(self, launch: LaunchRequest) -> LaunchedProcess:
        """Start a process. A process that joins another one is killed with it, as in a shared PID namespace."""
        process = await super().start(launch)
        if isinstance(launch.join, LaunchedProcess):
            launch.join.add_exit_callback(lambda: process.signal(9))
        return process

    def write_hosts(self, text: str) -> None:
        """No effect, because pods see the host's /etc/hosts."""

    def translate(self, launch: LaunchRequest) -> TranslatedLaunch:
        """Replace mounts and names by rewriting."""
        rewrite = rewriter(paths={mount.target: str(mount.source) for mount in launch.mounts}, names=self._request.host_addresses)
        return TranslatedLaunch(
            argv=tuple(rewrite(argument) for argument in launch.argv),
            environment={name: rewrite(value) for name, value in launch.environment.items()},
            working_dir=launch.working_dir and rewrite(launch.working_dir),
        )


class PlainRuntime:
    def __init__(self, *, rng: random.Random | None = None) -> None:
        self._block = LoopbackBlock(rng=rng)
        self._launcher: LauncherClient | None = None

    @property
    def description(self) -> str:
        ports = "" if sys.platform == "linux" else " and one address, so ports can collide"
        return (
            "nothing isolates pods: they run as plain processes with your permissions, can change your files and this cluster, "
            f"and share the host's network{ports}; service names resolve only in arguments and variables"
        )

    @property
    def node_address(self) -> str:
        return LOCALHOST

    @property
    def has_hosts_file(self) -> bool:
        return False

    def protect(self, node_dir: Path, *, secret_dirs: Sequence[Path]) -> None:
        """No effect, because pods have the permissions of this process."""

    async def __aenter__(self) -> Self:
        self._launcher = await LauncherClient.start("main_plain")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._block.close()
        if self._launcher is not None:
            await self._launcher.stop()

    async def create_sandbox(self, request: SandboxRequest) -> PlainSandbox:
        if self._launcher is None:
            raise LaunchError("the runtime is not running")
        address = self.node_address if request.host_network else self._block.next()
        sandbox = await self._launcher.create_sandbox({})
        return PlainSandbox(self._launcher, id=sandbox, address=address, request=request)

    async def listen(self) -> socket.socket | None:
        """None, because pods reach the host's loopback."""
        return None
