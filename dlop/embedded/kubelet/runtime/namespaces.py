"""Runtime that runs pods in Linux namespaces, without root privileges.

A pod has its own network with an address, its own hostname, shared memory, `/tmp` and home directory. A container has its own PID
namespace and sees the host's files read-only, with the pod's mounts. It does not see the homes of users and `/run`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network
from pathlib import Path
from typing import Self

from dlop.embedded.kubelet.runtime.base import LaunchError, LaunchRequest, Mount, SandboxRequest
from dlop.embedded.kubelet.runtime.launcher_client import LauncherClient
from dlop.embedded.kubelet.runtime.loopback import LOCALHOST, LoopbackBlock
from dlop.embedded.kubelet.runtime.program_paths import HIDDEN_DIRS, program_mounts, user_home
from dlop.embedded.kubelet.runtime.sandbox_base import LauncherSandbox, TranslatedLaunch

DEFAULT_NETWORK = IPv4Network("10.88.0.0/16")
DEFAULT_MAX_PROCESSES = 4096
"""Per container. More than the threads of a large training process, and few enough for a laptop to survive a fork bomb."""
_TMP = "/tmp"  # noqa: S108 - private to the pod
_RESOLV_CONF = Path("/etc/resolv.conf")


class NamespacesSandbox(LauncherSandbox):
    def __init__(
        self,
        launcher: LauncherClient,
        *,
        id: int,  # noqa: A002 - the launcher's word
        address: str,
        hosts: Path,
        pod_mounts: Sequence[Mount],
        optional_mounts: Sequence[Mount],
    ) -> None:
        super().__init__(launcher, id=id, address=address)
        self._hosts = hosts
        self._pod_mounts = pod_mounts
        self._optional_mounts = tuple(optional_mounts)

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
            optional_mounts=self._optional_mounts,
        )


class NamespacesRuntime:
    """Runs pods in namespaces.

    With `host_network`, all pods share the host's network and have loopback addresses. All pods have the `mounts`.
    """

    def __init__(
        self,
        *,
        network: IPv4Network = DEFAULT_NETWORK,
        host_network: bool = False,
        mounts: Sequence[Mount] = (),
        max_processes: int = DEFAULT_MAX_PROCESSES,
    ) -> None:
        self._network = network
        self._block = LoopbackBlock() if host_network else None
        self._addresses = _pod_addresses(network)
        self._mounts = [*program_mounts(mounts), *mounts]
        self._node_dir: Path | None = None
        self._secret_dirs: Sequence[Path] = ()
        self._max_processes = max_processes
        self._launcher: LauncherClient | None = None

    @property
    def description(self) -> str:
        network = "own network without external access"
        if self._block is not None:
            network = "the host's network, on which ports can collide and are exposed"
        return f"pods run in namespaces: {network}, host files read-only, home and /run hidden; not a security boundary"

    @property
    def node_address(self) -> str:
        return str(self._network[1]) if self._block is None else LOCALHOST

    @property
    def has_hosts_file(self) -> bool:
        return True

    def protect(self, node_dir: Path, *, secret_dirs: Sequence[Path]) -> None:
        self._node_dir = node_dir
        self._secret_dirs = secret_dirs

    async def __aenter__(self) -> Self:
        self._launcher = await LauncherClient.start(
            "main_namespaced",
            self.node_address if self._block is None else None,
            self._network.prefixlen,
            self._max_processes,
            list(HIDDEN_DIRS),
            None if self._node_dir is None else str(self._node_dir),
            [str(path) for path in self._secret_dirs],
        )
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
            optional_mounts=(*_private_directories(request.directory), *self._mounts),
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


def _private_directories(directory: Path) -> Iterator[Mount]:
    """The pod's own /tmp and home, which its containers share. Mounts of the user at these paths replace them."""
    for name, target, mode in (("tmp", Path(_TMP), 0o1777), ("home", user_home(), 0o700)):
        if target is not None:
            (directory / name).mkdir()
            (directory / name).chmod(mode)
            yield Mount(directory / name, str(target))


def _pod_mounts(request: SandboxRequest, *, on_host_network: bool) -> tuple[Mount, ...]:
    directory = request.directory
    (directory / "hostname").write_text(request.hostname + "\n")
    # A pod that has the host's network also has its resolv.conf, which may be in the hidden /run.
    resolv_conf = _RESOLV_CONF.resolve()
    if not on_host_network or not resolv_conf.is_file():
        resolv_conf = directory / "resolv.conf"
        resolv_conf.write_text("# There is no name server: see /etc/hosts.\n")
    return (
        Mount(directory / "hosts", "/etc/hosts"),
        Mount(directory / "hostname", "/etc/hostname"),
        Mount(resolv_conf, str(_RESOLV_CONF), read_only=on_host_network),
    )


def _pod_addresses(network: IPv4Network) -> Iterator[str]:
    """Addresses of the network in order, starting again at the end, so that an address is not reused soon."""
    while True:
        for number in range(2, network.num_addresses - 1):
            yield str(network[number])
