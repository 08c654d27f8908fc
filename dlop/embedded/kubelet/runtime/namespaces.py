"""Runtime that runs pods in Linux namespaces, without root privileges.

A pod has its own network with an address, its own hostname, shared memory and `/tmp`. A container has its own PID namespace and
sees the host's files with the pod's mounts. Changes that a pod makes to its network or mounts go away with it.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network
from pathlib import Path
from typing import Self

from dlop.embedded.kubelet.runtime.base import LaunchError, LaunchRequest, Mount, SandboxRequest
from dlop.embedded.kubelet.runtime.launcher_client import LauncherClient
from dlop.embedded.kubelet.runtime.loopback import LOCALHOST, LoopbackBlock
from dlop.embedded.kubelet.runtime.sandbox_base import LauncherSandbox, TranslatedLaunch

DEFAULT_NETWORK = IPv4Network("10.88.0.0/16")
DEFAULT_MAX_PROCESSES = 4096
"""Per container. More than the threads of a large training process, and few enough for a laptop to survive a fork bomb."""
_PACKAGE = Path(__file__).parents[3]
_TMP = Path("/tmp")  # noqa: S108 - hidden from pods, not used


class NamespacesSandbox(LauncherSandbox):
    def __init__(
        self,
        launcher: LauncherClient,
        *,
        id: int,  # noqa: A002 - the launcher's word
        address: str,
        hosts: Path,
        pod_mounts: Sequence[Mount],
        visible_mounts: Sequence[Mount],
    ) -> None:
        super().__init__(launcher, id=id, address=address)
        self._hosts = hosts
        self._pod_mounts = pod_mounts
        self._visible_mounts = tuple(visible_mounts)

    def write_hosts(self, text: str) -> None:
        # Write in place, because a new file under the same name would not appear in the containers' bind mounts.
        # Do not truncate first, because a reader may have the file open.
        data = text.encode()
        fd = os.open(self._hosts, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(fd, data, 0)
            os.ftruncate(fd, len(data))
        finally:
            os.close(fd)

    def translate(self, launch: LaunchRequest) -> TranslatedLaunch:
        """Add the pod's mounts."""
        return TranslatedLaunch(
            argv=launch.argv,
            environment=dict(launch.environment),
            working_dir=launch.working_dir,
            mounts=(*self._pod_mounts, *launch.mounts),
            optional_mounts=self._visible_mounts,
        )


class NamespacesRuntime:
    """Runs pods in namespaces.

    With `host_network`, all pods share the host's network and have loopback addresses. Pods can see `visible_paths` even below
    /tmp, which is private otherwise.
    """

    def __init__(
        self,
        *,
        network: IPv4Network = DEFAULT_NETWORK,
        host_network: bool = False,
        visible_paths: Sequence[Path] = (),
        max_processes: int = DEFAULT_MAX_PROCESSES,
    ) -> None:
        self._network = network
        self._block = LoopbackBlock() if host_network else None
        self._addresses = _pod_addresses(network)
        self._visible_mounts = [Mount(path, str(path)) for path in _paths_below_tmp(visible_paths)]
        self._max_processes = max_processes
        self._launcher: LauncherClient | None = None

    @property
    def description(self) -> str:
        if self._block is not None:
            return (
                "pods run in their own mount and PID namespaces on the host's network; "
                "ports can collide, and open ports are exposed to the host's network"
            )
        return "pods run in their own network, mount and PID namespaces; they cannot reach external networks"

    @property
    def node_address(self) -> str:
        return str(self._network[1]) if self._block is None else LOCALHOST

    @property
    def has_hosts_file(self) -> bool:
        return True

    async def __aenter__(self) -> Self:
        gateway = self.node_address if self._block is None else None
        self._launcher = await LauncherClient.start("main_namespaced", gateway, self._network.prefixlen, self._max_processes)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._block is not None:
            self._block.close()
        if self._launcher is not None:
            await self._launcher.stop()

    async def create_sandbox(self, request: SandboxRequest) -> NamespacesSandbox:
        if self._launcher is None:
            raise LaunchError("the runtime is not running")
        host_network_address = self._host_network_address(request)
        address = host_network_address or next(self._addresses)
        body = {"hostname": request.hostname, "address": None if host_network_address else address}
        try:
            id = await self._launcher.create_sandbox(body)  # noqa: A001 - the launcher's word
        except OSError as error:
            raise LaunchError(f"failed to create pod sandbox: {error.strerror}") from error
        sandbox = NamespacesSandbox(
            self._launcher,
            id=id,
            address=address,
            hosts=request.directory / "hosts",
            pod_mounts=_pod_mounts(request, on_host_network=host_network_address is not None),
            visible_mounts=self._visible_mounts,
        )
        sandbox.write_hosts(f"127.0.0.1\tlocalhost\n::1\tlocalhost\n{address}\t{request.hostname}\n")
        return sandbox

    async def listen(self) -> socket.socket | None:
        """A listening socket at the node's address in the pod network. None if pods are on the host's network.

        Raises:
            LaunchError, OSError: it could not be created.
        """
        if self._launcher is None:
            raise LaunchError("the runtime is not running")
        if self._block is not None:
            return None
        message = await self._launcher.request({"method": "listen", "address": self.node_address})
        return socket.socket(fileno=message.fds[0])

    def _host_network_address(self, request: SandboxRequest) -> str | None:
        """The address of a pod on the host's network. None for a pod with its own network."""
        if request.host_network:
            return LOCALHOST
        return None if self._block is None else self._block.next()


def _pod_mounts(request: SandboxRequest, *, on_host_network: bool) -> tuple[Mount, ...]:
    directory = request.directory
    tmp = directory / "tmp"
    tmp.mkdir()
    tmp.chmod(0o1777)
    (directory / "hostname").write_text(request.hostname + "\n")
    mounts = (
        Mount(tmp, str(_TMP)),
        Mount(directory / "hosts", "/etc/hosts"),
        Mount(directory / "hostname", "/etc/hostname"),
    )
    if on_host_network:
        # The host's resolv.conf works.
        return mounts
    (directory / "resolv.conf").write_text("# There is no name server: see /etc/hosts.\n")
    return (*mounts, Mount(directory / "resolv.conf", "/etc/resolv.conf"))


def _paths_below_tmp(visible_paths: Sequence[Path]) -> list[Path]:
    """Paths that a private /tmp would hide, among those requested and those of this Python and this package."""
    paths = {Path(sys.prefix), Path(sys.base_prefix), _PACKAGE, *visible_paths}
    return sorted(path for path in paths if path.is_relative_to(_TMP) and path != _TMP)


def _pod_addresses(network: IPv4Network) -> Iterator[str]:
    """Addresses of the network in order, starting again at the end, so that an address is not reused soon."""
    while True:
        for number in range(2, network.num_addresses - 1):
            yield str(network[number])
