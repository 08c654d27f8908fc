"""Pods in namespaces of their own: Linux, without being root.

A pod has its own network with an address of its own, host name, shared memory and `/tmp`; a container its own process table, and
files that are the host's with the pod's mounts among them. Whatever a pod does to its network or its mounts ends with it.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network
from pathlib import Path
from typing import Self

from dlop.embedded.kubelet.runtime.base import Launch, LaunchError, Mount, SandboxRequest
from dlop.embedded.kubelet.runtime.launcher_client import Launcher
from dlop.embedded.kubelet.runtime.loopback import ONLY_ADDRESS, LoopbackBlock
from dlop.embedded.kubelet.runtime.sandbox_base import LaunchedSandbox, Translated

DEFAULT_NETWORK = IPv4Network("10.88.0.0/16")
DEFAULT_MOST_PROCESSES = 4096
"""Of one container: more than a big training process has threads, and few enough for a laptop to survive a fork bomb."""
_OWN_PROGRAM = Path(__file__).parents[3]
_PRIVATE = Path("/tmp")  # noqa: S108 - it is what is hidden, not what is used


class NamespacesSandbox(LaunchedSandbox):
    """A pod in namespaces."""

    def __init__(
        self, launcher: Launcher, *, number: int, address: str, hosts: Path, own_mounts: Sequence[Mount], visible: Sequence[Mount]
    ) -> None:
        super().__init__(launcher, number=number, address=address)
        self._hosts = hosts
        self._own_mounts = own_mounts
        self._visible = tuple(visible)

    def write_hosts(self, text: str) -> None:
        """What names mean in the pod, from now on, for running processes too."""
        # In place: the containers hold this very file, and would not see another one under its name.
        # Not emptied first: someone may be reading.
        data = text.encode()
        file = os.open(self._hosts, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(file, data, 0)
            os.ftruncate(file, len(data))
        finally:
            os.close(file)

    def translate(self, launch: Launch) -> Translated:
        """Everything as it is, with the pod's own files among the mounts."""
        return Translated(
            argv=launch.argv,
            environment=dict(launch.environment),
            folder=launch.working_folder,
            mounts=(*self._own_mounts, *launch.mounts),
            optional_mounts=self._visible,
        )


class NamespacesRuntime:
    """Runs pods in namespaces.

    With `host_network` they all share the host's network, where they reach what it reaches, and have loopback addresses.
    What lies at one of the `visible` paths stays so, though the rest of the host's /tmp does not.
    """

    def __init__(
        self,
        *,
        network: IPv4Network = DEFAULT_NETWORK,
        host_network: bool = False,
        visible: Sequence[Path] = (),
        most_processes: int = DEFAULT_MOST_PROCESSES,
    ) -> None:
        self._network = network
        self._block = LoopbackBlock() if host_network else None
        self._addresses = _round_and_round(network)
        self._visible = [Mount(path, str(path)) for path in _hidden(visible)]
        self._most_processes = most_processes
        self._launcher: Launcher | None = None

    @property
    def description(self) -> str:
        """One line for the user: what isolation there is, and what is missing."""
        if self._block is not None:
            return (
                "pods run in namespaces of their own (files, processes) on this machine's network: ports may collide, "
                "and what they open is open to the network too"
            )
        return "pods run in namespaces of their own (network, files, processes); they cannot reach networks outside"

    @property
    def node_address(self) -> str:
        """The address under which pods reach the node."""
        return str(self._network[1]) if self._block is None else ONLY_ADDRESS

    @property
    def resolves_names(self) -> bool:
        """Pods have a hosts file."""
        return True

    async def __aenter__(self) -> Self:
        gateway = self.node_address if self._block is None else None
        self._launcher = await Launcher.start("main_namespaced", gateway, self._network.prefixlen, self._most_processes)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._block is not None:
            self._block.close()
        if self._launcher is not None:
            await self._launcher.stop()

    async def sandbox(self, request: SandboxRequest) -> NamespacesSandbox:
        """A place for a pod.

        Raises:
            LaunchError: it could not be made.
        """
        if self._launcher is None:
            raise LaunchError("the runtime is not running")
        shared = self._shared_address(request)
        address = shared or next(self._addresses)
        try:
            number = await self._launcher.make_sandbox({"hostname": request.hostname, "address": None if shared else address})
        except OSError as error:
            raise LaunchError(f"failed to create pod sandbox: {error.strerror}") from error
        sandbox = NamespacesSandbox(
            self._launcher,
            number=number,
            address=address,
            hosts=request.folder / "hosts",
            own_mounts=_own_mounts(request, on_host_network=shared is not None),
            visible=self._visible,
        )
        sandbox.write_hosts(f"127.0.0.1\tlocalhost\n::1\tlocalhost\n{address}\t{request.hostname}\n")
        return sandbox

    async def listen(self) -> socket.socket | None:
        """A socket at the node's own address in the network of the pods; None where they are on the host's.

        Raises:
            LaunchError, OSError: it could not be made.
        """
        if self._launcher is None:
            raise LaunchError("the runtime is not running")
        if self._block is not None:
            return None
        message = await self._launcher.ask({"order": "listen", "address": self.node_address})
        return socket.socket(fileno=message.files[0])

    def _shared_address(self, request: SandboxRequest) -> str | None:
        """The address of a pod on the host's network."""
        if request.host_network:
            return ONLY_ADDRESS
        return None if self._block is None else self._block.next()


def _own_mounts(request: SandboxRequest, *, on_host_network: bool) -> tuple[Mount, ...]:
    folder = request.folder
    temporary = folder / "tmp"
    temporary.mkdir()
    temporary.chmod(0o1777)
    (folder / "hostname").write_text(request.hostname + "\n")
    mounts = (
        Mount(temporary, str(_PRIVATE)),
        Mount(folder / "hosts", "/etc/hosts"),
        Mount(folder / "hostname", "/etc/hostname"),
    )
    if on_host_network:
        # The host knows whom to ask.
        return mounts
    (folder / "resolv.conf").write_text("# There is no name server: see /etc/hosts.\n")
    return (*mounts, Mount(folder / "resolv.conf", "/etc/resolv.conf"))


def _hidden(visible: Sequence[Path]) -> list[Path]:
    """Those of the paths that a private /tmp would hide, and those of this Python and this program."""
    paths = {Path(sys.prefix), Path(sys.base_prefix), _OWN_PROGRAM, *visible}
    return sorted(path for path in paths if path.is_relative_to(_PRIVATE) and path != _PRIVATE)


def _round_and_round(network: IPv4Network) -> Iterator[str]:
    """Addresses for pods, one after the other, so that one that was just given back is not met again soon."""
    while True:
        for number in range(2, network.num_addresses - 1):
            yield str(network[number])
