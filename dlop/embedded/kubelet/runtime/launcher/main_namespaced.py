"""Entry point of the launcher for pods in namespaces."""

from __future__ import annotations

import contextlib
import os
import socket

from . import ipc, rlimits
from .cgroups import CgroupParent, find_cgroup_parent
from .namespaced_host import NamespacedHost
from .netns_worker import NetnsWorker
from .private_files import PrivateFiles
from .server import LauncherServer
from .user_namespace import become_init, enter_user_namespace, explain_namespace_error


def main(
    control: int,
    gateway: str | None,
    prefix_length: int,
    max_processes: int,
    hidden_dirs: list[str],
    node_dir: str | None,
    secret_dirs: list[str],
) -> None:
    """Serve the runtime over the socket `control`. The first message reports readiness, or an error.

    Without a gateway, pods use the host's network. See `PrivateFiles` for `node_dir` and `secret_dirs`.
    """
    connection = socket.socket(fileno=control)
    connection.set_inheritable(False)
    os.umask(0o022)
    # A working directory below a hidden directory would lead to its files.
    os.chdir("/")
    rlimits.raise_open_file_limit()
    try:
        enter_user_namespace()
        private_files = PrivateFiles(node_dir=node_dir, secret_dirs=secret_dirs)
    except OSError as error:
        ipc.send(connection, {"error": explain_namespace_error(error)})
        return
    cgroup_parent = find_cgroup_parent()
    become_init(lambda: _clean_up(private_files, cgroup_parent))
    try:
        worker = NetnsWorker(gateway=gateway, prefix_length=prefix_length)
        host = NamespacedHost(
            private_files, hidden_dirs=hidden_dirs, netns_worker=worker, max_processes=max_processes, cgroup_parent=cgroup_parent
        )
    except OSError as error:
        ipc.send(connection, {"error": explain_namespace_error(error)})
        return
    # The runtime may already be gone. The server sees the end of the stream and exits.
    with contextlib.suppress(BrokenPipeError):
        ipc.send(connection, {"ready": True})
    LauncherServer(connection, host).run()


def _clean_up(private_files: PrivateFiles, cgroup_parent: CgroupParent | None) -> None:
    private_files.remove()
    if cgroup_parent is not None:
        cgroup_parent.remove()
